"""Pins: texts of a conversation that every summary shows word for word.

A pin is an entry of the transcript. Each checkpoint takes over the pins of the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptkit.compaction.planning.facts import Pin, pin_from_json, pins_from_json
from promptkit.compaction.planning.user_messages import mask_quoted
from promptkit.errors import InvalidArgumentError
from promptkit.transcript import Checkpoint, CustomEntry, Entry, MessageEntry, Reset, Transcript

PIN, UNPIN = "promptkit.pin", "promptkit.unpin"
"""The names of the entries that pin a text, and that no longer do."""


def list_pins(path: Sequence[Entry], checkpoint: str | None) -> tuple[Pin, ...]:
    """Return the pins that hold at the end of a path, oldest first.

    Args:
        path: The entries of the conversation.
        checkpoint: The id of the checkpoint that its view begins with; None: it has none.
    """
    newer: list[CustomEntry] = []
    known: tuple[Pin, ...] = ()
    for entry in reversed(path):
        payload = entry.payload
        if isinstance(payload, MessageEntry):  # as most are
            continue
        if entry.id == checkpoint and isinstance(payload, Checkpoint):
            known = pins_from_json(payload.facts)
            break
        if isinstance(payload, Reset):
            break
        if isinstance(payload, CustomEntry) and payload.name in {PIN, UNPIN}:
            newer.append(payload)
    pins = dict.fromkeys(known)
    for payload in reversed(newer):
        pin = pin_from_json(payload.data if isinstance(payload.data, Mapping) else {})
        pins.pop(pin, None)
        if payload.name == PIN:
            pins[pin] = None
    return tuple(pins)


def find_pin(transcript: Transcript, target: str | None, text: str | None) -> Pin:
    """Return the pin of a message, or of a passage of one.

    Args:
        transcript: The conversation.
        target: The id of the message's entry. None: the newest message that contains the passage,
            or the user's newest one.
        text: The passage. None: the whole message.

    Raises:
        InvalidArgumentError: No message contains the passage, or the message has no text.
        TranscriptError: There is no entry with this id.
    """
    path = (transcript.get(target),) if target is not None else transcript.path()
    for entry in reversed(path):
        message = entry.message
        if message is None or (target is None and text is None and message.role != "user"):
            continue
        if (text or "") in message.text and message.text.strip():
            return Pin(entry=entry.id, text=text or message.text, by=message.role)
    where = "no message" if target is None else f"the entry {target!r} has no text that"
    raise InvalidArgumentError(
        f"{where} contains {text!r:.80}: give a passage as it was written."
        if text
        else "there is no text to pin: name the entry of a message with text."
    )


def pin_entry(pin: Pin, *, name: str = PIN) -> CustomEntry:
    """Return the entry that pins a text."""
    return CustomEntry(name=name, data=attrs.asdict(pin))


def find_marked(text: str, marks: tuple[str, str]) -> Iterator[str]:
    """Yield the passages of a message of the user between two marks, which are not in an attached file or in code.

    The marks may be equal. Of two opening marks before a closing one the second one counts.
    """
    masked, at = mask_quoted(text), 0
    while (start := masked.find(marks[0], at)) >= 0:
        start += len(marks[0])
        end = masked.find(marks[1], start)
        if end < 0:
            return
        start = max(start, masked.rfind(marks[0], start, end) + len(marks[0]))
        if passage := text[start:end].strip():
            yield passage
        at = end + len(marks[1])
