"""Export of a conversation: as OpenAI chat messages, as an Anthropic request, or as a transcript without the other branches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from promptkit.lab.recordings.reading.values import dump_json
from promptkit.messages import Message, OpaquePart, Part
from promptkit.transcript import (
    Checkpoint,
    Edit,
    Entry,
    Reset,
    build_view,
    entry_from_json,
    entry_to_json,
    redact_json,
    redact_message,
)
from promptkit.transcript.stores.jsonl.format import Header, encode_batch, encode_header
from promptkit.wire import AnthropicRequest, to_anthropic, to_chat
from promptkit.wire.parts import Payload, WireFormat, move_media, parse_arguments


def messages_from_entries(
    path: Sequence[Entry], *, full: bool = False, redact: Callable[[str], str] | None = None
) -> list[Message]:
    """Return the messages that a model would be shown of a path.

    Tool calls and results are paired, as in every view.

    Args:
        path: The entries, root first.
        full: Whether to return all messages of the path, as if the conversation had not been
            compacted, reset or edited.
        redact: Remove secrets from a text, for example `redact_secrets`. None: redact nothing.

    Returns:
        The messages, oldest first.
    """
    messages = build_view(
        [entry for entry in path if not isinstance(entry.payload, Checkpoint | Reset | Edit)]
        if full
        else path
    ).messages
    return [redact_message(message, redact) for message in messages] if redact else list(messages)


def to_chat_json(messages: Iterable[Message]) -> Payload:
    """Convert messages to those of OpenAI's Chat Completions API.

    Texts that stand apart in a message are blocks of their own.

    An image or a document of a tool result goes into a user message after the tool results.
    Thinking and other parts of one provider are dropped, because chat messages cannot hold them.
    """
    separate = _separate_texts(messages, "chat")
    return to_chat([*move_media(separate, {"tool", "assistant", "system"})], cache=False)


def to_anthropic_json(messages: Iterable[Message]) -> AnthropicRequest:
    """Convert messages to a request for Anthropic's Messages API.

    Texts that stand apart in a message are blocks of their own.

    Arguments that are not a JSON object go into one, as `arguments`.
    """
    return to_anthropic(
        [
            _wrap_arguments(message)
            for message in move_media(
                _separate_texts(messages, "anthropic"), {"assistant", "system"}
            )
        ]
    )


def encode_transcript(
    entries: Iterable[Entry], *, redact: Callable[[str], str] | None = None
) -> Iterator[bytes]:
    """Yield the lines of a transcript file with these entries, which keep their ids and parents.

    `redact` removes secrets from a text.
    """
    yield encode_header(Header())
    yield from (
        encode_batch([_redact_entry(entry, redact) if redact else entry]) for entry in entries
    )


def _redact_entry(entry: Entry, redact: Callable[[str], str]) -> Entry:
    record = entry_to_json(entry)
    return entry_from_json({**record, "data": redact_json(record["data"], redact)})


def _separate_texts(messages: Iterable[Message], target: WireFormat) -> list[Message]:
    """Put a border between neighbouring blocks of each message, whose texts are sent as one otherwise."""
    border = OpaquePart(value={}, tokens=0, provider=f"{target}.part")
    separate: list[Message] = []
    for message in messages:
        parts: list[Part] = []
        for part in message.content:
            if parts and not any(isinstance(each, OpaquePart) for each in (part, parts[-1])):
                parts.append(border)
            parts.append(part)
        separate.append(attrs.evolve(message, content=tuple(parts)))
    return separate


def _wrap_arguments(message: Message) -> Message:
    calls = tuple(
        call
        if _is_object(call.arguments)
        else attrs.evolve(call, arguments=dump_json({"arguments": call.arguments}))
        for call in message.tool_calls
    )
    return message if calls == message.tool_calls else attrs.evolve(message, tool_calls=calls)


def _is_object(arguments: str) -> bool:
    try:
        parse_arguments(arguments)
    except ValueError:
        return False
    return True
