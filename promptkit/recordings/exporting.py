"""A conversation of ours as others take it: OpenAI chat messages, Anthropic messages, or a transcript without the other branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.emitters.anthropic import to_anthropic
from promptkit.emitters.chat import to_chat
from promptkit.emitters.parts import parse_arguments
from promptkit.messages import DocumentPart, ImagePart, Message, Part
from promptkit.recordings.reading.json_values import dump_json
from promptkit.transcript.entries import Checkpoint, Edit, Reset
from promptkit.transcript.jsonl.format import Header, encode_batch, encode_header
from promptkit.transcript.jsonl.records import entry_from_json, entry_to_json
from promptkit.transcript.redaction import redact_json, redact_message
from promptkit.transcript.view import build_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from promptkit.emitters.anthropic import AnthropicRequest
    from promptkit.emitters.parts import Payload
    from promptkit.transcript.entries import Entry

__all__ = ["messages_from_entries", "to_anthropic_json", "to_openai_json", "encode_transcript"]

BEHIND = "[{what}, shown in the message behind the results]"


def messages_from_entries(path: Sequence[Entry], *, full: bool = False, redact: Callable[[str], str] | None = None) -> list[Message]:
    """What a model would be shown of a path; with `full` all that was ever said on it, as if nothing had been compacted, reset or edited.

    Calls and results are paired, as everywhere. `redact` gives each text without its secrets.
    """
    shown = [entry for entry in path if not isinstance(entry.payload, Checkpoint | Reset | Edit)] if full else path
    messages = build_view(shown).messages
    return [redact_message(message, redact) for message in messages] if redact else list(messages)


def to_openai_json(messages: Iterable[Message]) -> Payload:
    """Messages for OpenAI's Chat Completions. An image or a document that a tool gave goes into a user message behind the results.

    Thinking, and other parts of one provider, have no form there and are left out.
    """
    return to_chat(list(_media_last(messages, {"tool", "assistant", "system"})), cache=False)


def to_anthropic_json(messages: Iterable[Message]) -> AnthropicRequest:
    """A request for Anthropic's Messages API. Arguments that are no JSON object go into one, under `arguments`."""
    return to_anthropic([_with_objects(message) for message in _media_last(messages, {"assistant", "system"})])


def encode_transcript(entries: Iterable[Entry], *, redact: Callable[[str], str] | None = None) -> Iterator[bytes]:
    """The lines of a transcript that holds these entries, each behind the one that it stands behind here."""
    yield encode_header(Header())
    for entry in entries:
        record = entry_to_json(entry)
        if redact:
            record["data"] = redact_json(record["data"], redact)
            entry = entry_from_json(record)  # noqa: PLW2901  # the same entry without secrets
        yield encode_batch([entry])


def _media_last(messages: Iterable[Message], roles: set[str]) -> Iterator[Message]:
    """Messages in which no role of these carries an image or a document."""
    moved: list[Part] = []
    for message in messages:
        if moved and message.role != "tool":
            yield Message(role="user", content=tuple(moved))
            moved = []
        media = [part for part in message.content if isinstance(part, ImagePart | DocumentPart)] if message.role in roles else []
        if not media:
            yield message
            continue
        moved += media
        content = (BEHIND.format(what=_what(part)) if isinstance(part, ImagePart | DocumentPart) else part for part in message.content)
        yield attrs.evolve(message, content=tuple(content))
    if moved:
        yield Message(role="user", content=tuple(moved))


def _what(part: ImagePart | DocumentPart) -> str:
    return "an image" if isinstance(part, ImagePart) else f"the document {part.name}" if part.name else "a document"


def _with_objects(message: Message) -> Message:
    calls = tuple(
        call if _is_object(call.arguments) else attrs.evolve(call, arguments=dump_json({"arguments": call.arguments}))
        for call in message.tool_calls
    )
    return message if calls == message.tool_calls else attrs.evolve(message, tool_calls=calls)


def _is_object(arguments: str) -> bool:
    try:
        parse_arguments(arguments)
    except ValueError:
        return False
    return True
