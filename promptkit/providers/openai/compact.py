"""OpenAI's own compaction: its request, and the messages that it returns for a conversation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import EmptyReplyError
from promptkit.messages import Message, OpaquePart, Usage, as_mapping, as_sequence, as_wire_object
from promptkit.providers.openai.response import INPUT_FIELDS, parse_usage

if TYPE_CHECKING:
    from collections.abc import Mapping


PROVIDER = "responses"
"""The `provider` of its opaque parts: the wire format that they are for."""

_CHARACTERS_PER_TOKEN = 4  # of JSON, for a part whose tokens are unknown


@attrs.frozen(kw_only=True)
class CompactedInput:
    """The messages that replace a conversation, and what the request cost."""

    messages: tuple[Message, ...]
    usage: Usage
    request_id: str | None = attrs.field(default=None, eq=False)
    """The provider's name for the request. None: it gave none."""


def summary_from_compaction(answer: Mapping[str, object], model: str) -> CompactedInput:
    """Return the messages of a response: user messages as text, other items as opaque parts that are sent back byte for byte.

    Raises EmptyReplyError for a response with nothing but user messages: it would not summarize the
    conversation.
    """
    usage = parse_usage(as_mapping(answer.get("usage")))
    written = usage.output_tokens
    messages: list[Message] = []
    has_summary = False
    for item in filter(None, map(as_wire_object, as_sequence(answer.get("output")))):
        kind, role = item.get("type", "message"), item.get("role")
        parts = [as_mapping(part) for part in as_sequence(item.get("content"))]
        if (
            kind == "message"
            and role == "user"
            and parts
            and all(isinstance(part.get("text"), str) for part in parts)
        ):
            messages.append(
                Message(role="user", content=tuple(str(part["text"]) for part in parts))
            )
            continue
        names = INPUT_FIELDS.get(str(kind), item)
        value = {key: kept for key, kept in item.items() if kept is not None and key in names}
        if kind == "message":
            tokens, has_summary = (
                len(json.dumps(value)) // _CHARACTERS_PER_TOKEN + 1,
                has_summary or role != "user",
            )
        else:
            # The output tokens of the request are those of the first such part.
            tokens, written, has_summary = (
                written
                or (0 if has_summary else len(json.dumps(value)) // _CHARACTERS_PER_TOKEN + 1),
                0,
                True,
            )
        part = OpaquePart(value=value, tokens=tokens, provider=PROVIDER)
        messages.append(Message(role="user" if role == "user" else "assistant", content=(part,)))
    if not has_summary:
        message = "the response has nothing that summarizes the conversation."
        raise EmptyReplyError(message, model=model)
    return CompactedInput(messages=tuple(messages), usage=usage)
