"""OpenAI's own compaction: what it is sent, and what it puts in the place of a conversation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.errors import EmptyReplyError
from promptkit.messages import Message, OpaquePart
from promptkit.providers.openai.request import responses_body
from promptkit.providers.openai.response import SENT_BACK, mapping, sequence, usage_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.messages import Json, Usage
    from promptkit.providers.model import ModelOptions

__all__ = ["PROVIDER", "CompactedInput", "compact_input", "summary_from_compaction"]

PROVIDER = "responses"
"""The wire format that its parts are for."""

CHARACTERS_PER_TOKEN = 4
"""Of a part whose size nobody told."""


@attrs.frozen(kw_only=True)
class CompactedInput:
    """What stands in the place of the messages, and what the request cost."""

    messages: tuple[Message, ...]
    usage: Usage


def compact_input(name: str, messages: Sequence[Message], options: ModelOptions) -> list[object]:
    """The input of the request. Raises EmitError for what has no form there."""
    return cast("list[object]", responses_body(name, messages, (), options)["input"])  # as the body has it


def summary_from_compaction(answer: Mapping[str, object], model: str) -> CompactedInput:
    """The messages in an answer: a person's text as such, anything else as it is, to be sent back byte for byte.

    Raises EmptyReplyError for an answer without any part of the provider's own: nothing would stand for what was said.
    """
    usage = usage_of(mapping(answer.get("usage")))
    written = usage.output_tokens
    made: list[Message] = []
    sealed = False
    for item in filter(None, map(mapping, sequence(answer.get("output")))):
        kind, role = item.get("type", "message"), item.get("role")
        parts = [mapping(part) for part in sequence(item.get("content"))]
        if kind == "message" and role == "user" and parts and all(isinstance(part.get("text"), str) for part in parts):
            made.append(Message(role="user", content=tuple(str(part["text"]) for part in parts)))
            continue
        names = SENT_BACK.get(str(kind), item)
        kept = {name: value for name, value in item.items() if value is not None and name in names}
        value = cast("Json", kept)  # it was JSON
        if kind == "message":
            tokens, sealed = len(json.dumps(value)) // CHARACTERS_PER_TOKEN + 1, sealed or role != "user"
        else:
            # What the request wrote is what the part stands for: all in the first of them.
            tokens, written, sealed = written or (0 if sealed else len(json.dumps(value)) // CHARACTERS_PER_TOKEN + 1), 0, True
        part = OpaquePart(value=value, tokens=tokens, provider=PROVIDER)
        made.append(Message(role="user" if role == "user" else "assistant", content=(part,)))
    if not sealed:
        message = "the answer has nothing that stands for the conversation."
        raise EmptyReplyError(message, model=model)
    return CompactedInput(messages=tuple(made), usage=usage)
