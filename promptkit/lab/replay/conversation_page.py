"""The page of a conversation: a strip of its requests, and for each of them what the model was shown and what was dropped.

The JSON stores every message once, as columns. A request is stored as a change of the request
before, so that the page grows with the length of the conversation and not with its square.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from promptkit.lab.replay.conversation_log import (
    PARTS,
    ConversationLog,
    LoggedMessage,
    RequestLog,
)
from promptkit.tracing.page import VIEWER, build_page, describe_part, values_by_number

CONVERSATION = VIEWER.with_name("conversation")
"""The folder with the scripts, the style sheet and the template of the page. It shares others with
the trace page."""

SCRIPTS = ("log", "rows", "chart", "shown", "reasons", "facts", "search", "head", "app")
"""The parts of the script besides the shared ones. The first two do not use the document."""

_KINDS = {"recorded": "r", "changed": "c", "summary": "s", "added": "a"}
_ROLES = {"system": "s", "user": "u", "assistant": "a", "tool": "t"}


def conversation_to_html(log: ConversationLog, *, title: str = "Conversation") -> str:
    """Return a conversation as a self-contained HTML page.

    Args:
        log: The conversation and its requests.
        title: The title of the page, such as the name of the file.

    >>> html = conversation_to_html(log_conversation(Path("talk.jsonl"), LogOptions(prices=read_prices())), title="talk.jsonl")
    """
    return build_page(
        CONVERSATION / "page.html.j2",
        scripts=[
            *_paths(VIEWER, ("dom", "frame", "windowed", "calls", "content"), "js"),
            *_paths(CONVERSATION, SCRIPTS, "js"),
        ],
        styles=[*_paths(VIEWER, ("page", "panels"), "css"), CONVERSATION / "conversation.css"],
        data=build_columns(log),
        title=title,
    )


def _paths(folder: Path, names: Sequence[str], suffix: str) -> list[Path]:
    return [folder / f"{name}.{suffix}" for name in names]


def build_columns(log: ConversationLog) -> dict[str, object]:
    """Return a log as columns of JSON values, for `json.dumps` and the page's `openLog`."""
    messages = log.messages
    return {
        "model": log.model,
        "window": log.window,
        "limit": log.limit,
        "bill": log.bill and {"text": log.bill.describe(), **log.bill.to_json()},
        "branch": log.branch,
        "branches": log.branches,
        "length": log.length,
        "partNames": PARTS,
        "messages": {
            "role": "".join(_ROLES[each.message.role] for each in messages),
            "kind": "".join(_KINDS[each.kind] for each in messages),
            "tokens": [each.tokens for each in messages],
            "content": [_encode_content(each) for each in messages],
            "time": values_by_number(messages, lambda each: each.time),
            "entry": values_by_number(messages, lambda each: each.entry_id),
            "original": values_by_number(messages, lambda each: each.original),
            "covers": values_by_number(messages, lambda each: each.covers),
            "missed": values_by_number(messages, lambda each: each.missed),
            "name": values_by_number(messages, lambda each: each.message.name),
            "callId": values_by_number(messages, lambda each: each.message.tool_call_id),
            "calls": values_by_number(
                messages,
                lambda each: (
                    [[call.id, call.name, call.arguments] for call in each.message.tool_calls]
                    or None
                ),
            ),
        },
        "logs": [_encode_log(each) for each in log.logs],
    }


def _encode_content(message: LoggedMessage) -> object:
    """Return a text, or a list of texts and of the properties of other parts."""
    content = message.message.content
    return (
        message.message.text
        if all(isinstance(part, str) for part in content) and len(content) <= 1
        else [part if isinstance(part, str) else describe_part(part) for part in content]
    )


def _encode_log(log: RequestLog) -> dict[str, object]:
    requests = log.requests
    return {
        "name": log.name,
        "price": log.price,
        "reply": [each.reply for each in requests],
        "time": [each.time for each in requests],
        "tokens": [each.tokens for each in requests],
        "cached": [each.billed.cached_tokens for each in requests],
        "written": [each.billed.written_tokens for each in requests],
        "output": [each.billed.output_tokens for each in requests],
        "cost": [None if each.price is None else round(each.price, 6) for each in requests],
        "checkpoints": [number for number, each in enumerate(requests) if each.checkpoint],
        "simulated": "".join("1" if each.simulated else "0" for each in requests),
        "parts": [[each.parts[at] for each in requests] for at in range(len(PARTS))],
        "changes": [each.change for each in requests],
        "differences": values_by_number(
            requests,
            lambda each: each.difference and [each.difference.message, each.difference.block],
        ),
    }
