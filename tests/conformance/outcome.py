"""What promptkit makes of a job, written as the reference harness writes what prompt-tsx made of it."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import promptkit
from promptkit.errors import BudgetExceededError, PromptKitError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
)
from tests.conformance.nodes import MAX_SAFE_INTEGER, ComponentError, Context, build
from tests.conformance.tokenizers import make_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from promptkit.elements.builtin import Reference
    from tests.conformance.schema import Job, Outcome

__all__ = ["outcome", "outcome_at"]


def outcome(job: Job) -> Outcome:
    """What a job comes to.

    With the budget `prunedown`, every distinct outcome from the full size down to nothing.
    """
    if job.get("budget") != "prunedown":
        return outcome_at(job, job.get("budget"))
    full = outcome_at(job, "inf")
    if "tokenCount" not in full:
        return full
    steps: list[Outcome] = []
    last: object = None
    for budget in range(full["tokenCount"], -1, -1):
        found = outcome_at(job, budget)
        shown = found.get("messages", "error")
        if shown == last:
            continue
        last = shown
        steps.append({"budget": budget, **found})
        if not shown:
            break
    return {"steps": steps}


def outcome_at(job: Job, budget: int | str | None) -> Outcome:
    """What a job comes to at one budget, in tokens; `inf` and None are JavaScript's largest safe integer."""
    tokens = budget if isinstance(budget, int) else MAX_SAFE_INTEGER
    context = Context(make_tokenizer(job.get("tokenizer")))
    try:
        tree = build(job.get("spec"), context)
        rendered = promptkit.render(
            (tree,),
            budget=tokens,
            tokenizer=context.tokenizer,
            pairing="lenient",
            defaults="prompt-tsx",
        )
    except BudgetExceededError as error:
        metadata = {"errorMetadata": list(error.metadata)} if error.metadata else {}
        return {
            "error": str(error),
            "errorType": "BudgetExceededError",
            "errorMessages": messages_of(error.messages),
            **metadata,
        }
    except (PromptKitError, ComponentError) as error:
        return {"error": str(error)}
    except Exception:  # noqa: BLE001  # whatever else comes out is a fault of promptkit, and shown as one
        return {"crash": traceback.format_exc(limit=-4)}
    found: Outcome = {"messages": messages_of(rendered.messages), "tokenCount": rendered.tokens}
    if rendered.metadata:
        found["metadata"] = list(rendered.metadata)
    if rendered.references:
        found["references"] = _names(rendered.references)
    if omitted := [
        name
        for name in _names(rendered.omitted_references)
        if name not in _names(rendered.references)
    ]:
        found["omittedReferences"] = omitted
    if context.sizings:
        found["expandableSizings"] = context.sizings
    options: Job = job.get("opts") or {}
    if options.get("openai"):
        found["openai"] = [_classic(message) for message in rendered.to_chat()]
    return found


def _names(references: Iterable[Reference]) -> list[str]:
    """By name, each once: the reference reports a variable once however many elements refer to it."""
    return list(dict.fromkeys(reference.to for reference in references))


def messages_of(messages: Sequence[Message]) -> list[dict[str, Any]]:  # Any: JSON
    """Messages in the harness's form."""
    return [_message(message) for message in messages]


def _message(message: Message) -> dict[str, Any]:  # Any: JSON
    shown: dict[str, Any] = {"role": message.role}  # Any: JSON
    if message.name:
        shown["name"] = message.name
    if len(message.content) == 1 and isinstance(message.content[0], str):
        shown["text"] = message.content[0]
    else:
        shown["content"] = [_part(part) for part in message.content]
    if message.tool_calls:
        shown["toolCalls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        shown["toolCallId"] = message.tool_call_id
    return shown


def _part(part: Part) -> dict[str, Any]:  # Any: JSON
    match part:
        case str():
            return {"type": "text", "text": part}
        case ImagePart():
            return {
                "type": "image",
                **_given(url=part.url, detail=part.detail, mediaType=part.media_type),
            }
        case DocumentPart():
            return {"type": "document", "data": part.data, "mediaType": part.media_type}
        case OpaquePart():
            return {"type": "opaque", "value": part.value}
        case CacheBreakpointPart():
            return {"type": "cachebreakpoint", **_given(cacheType=part.kind)}


def _given(**values: str | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


def _classic(message: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    """A Chat Completions message as the reference writes it: without what OpenAI takes only since (files, cache breakpoints)."""
    content = message.get("content")
    if content is None:
        return {**message, "content": ""}
    if isinstance(content, str):
        return message
    parts = [
        {key: value for key, value in part.items() if key != "prompt_cache_breakpoint"}
        for part in content
        if part.get("type") != "file"
    ]
    if all(part.get("type") == "text" for part in parts):
        return {**message, "content": "".join(part["text"] for part in parts)}
    return {**message, "content": parts}
