"""What single models need to be told, or need done to a request, around a summary: data, so that a new model is a new row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.messages import Message, OpaquePart
from promptkit.rendering.sizing import Sizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["QUIRKS", "REMINDER", "Quirks", "adapt_messages", "count_added_tokens", "is_thinking", "find_quirks", "remove_calls", "remove_orphans"]

REMINDER = (
    "<reminder>\nYou work for a person who wants this done: go on until it is done, and do not stop after what was summarized here. "
    "Ask only where you cannot go on without an answer.\n</reminder>"
)
"""Stands behind a summary, in a message of its own, for models that would stop there."""

_REMINDING = Message(role="user", content=(REMINDER,))


@attrs.frozen(kw_only=True)
class Quirks:
    """How one family of models differs when a conversation is summarized."""

    say_no_tools: bool = False
    """It calls tools though it was asked for text, unless it is told once more."""
    remind_to_continue: bool = False
    """It stops after a summary unless it is told to go on."""
    strip_orphans: bool = False
    """It refuses a request in which a call or a result stands alone, even one that a placeholder answers."""
    keep_thinking: bool = False
    """Its last thinking must lead what is shown behind a summary."""
    hidden_calls: str | None = None
    """A pattern: calls of tools of these names, and their results, mean nothing outside of their own request."""


_CLAUDE = Quirks(keep_thinking=True, hidden_calls=r"tool_search")

QUIRKS: tuple[tuple[str, Quirks], ...] = (
    (r"claude.*opus", attrs.evolve(_CLAUDE, say_no_tools=True)),
    (r"claude", _CLAUDE),
    (r"gemini", Quirks(strip_orphans=True)),
    (r"gpt-4\.1", Quirks(remind_to_continue=True)),
)
"""Model names by pattern, the first that matches counts. Source: what VS Code's chat does for these families."""


def find_quirks(model: str | None, table: tuple[tuple[str, Quirks], ...] = QUIRKS) -> Quirks:
    """The quirks of a model; none for one that no row matches."""
    return next((quirks for pattern, quirks in table if model and re.search(pattern, model, re.IGNORECASE)), Quirks())


def adapt_messages(messages: Sequence[Message], quirks: Quirks, *, thinking: OpaquePart | None = None) -> tuple[Message, ...]:
    """The messages of a request as a model with these quirks needs them. Twice is once; without quirks, nothing is changed.

    `thinking` is the last one of what the summary stands for, as the facts of its checkpoint have it.
    """
    shown = remove_orphans(messages) if quirks.strip_orphans else tuple(messages)
    at = next((at for at, message in enumerate(shown) if extract_summary_text(message) is not None), None)
    if at is not None and quirks.remind_to_continue and _REMINDING not in shown[at + 1 : at + 2]:
        shown = (*shown[: at + 1], _REMINDING, *shown[at + 1 :])
    if at is not None and quirks.keep_thinking and thinking is not None:
        first = next((place for place in range(at + 1, len(shown)) if shown[place].role == "assistant"), None)
        if first is not None and not any(map(is_thinking, shown[first].content)):
            led = attrs.evolve(shown[first], content=(thinking, *shown[first].content))
            shown = (*shown[:first], led, *shown[first + 1 :])
    return shown


def count_added_tokens(quirks: Quirks, *, thinking: OpaquePart | None = None, tokenizer: Tokenizer) -> int:
    """The most that `adapted` adds to a request that shows a summary."""
    sizer = Sizer(tokenizer)
    reminder = sizer.count_message(_REMINDING) if quirks.remind_to_continue else 0
    return reminder + (sizer.count_part(thinking) if quirks.keep_thinking and thinking is not None else 0)


def is_thinking(part: object) -> bool:
    """Whether a part is a thought of a Claude model, signed or redacted."""
    value = part.value if isinstance(part, OpaquePart) else None
    return isinstance(value, Mapping) and value.get("type") in {"thinking", "redacted_thinking"}


def remove_orphans(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages without results of no call, and without calls that nothing answers up to the next message that is no result."""
    return tuple(_answered(messages))


def remove_calls(messages: Sequence[Message], names: str | None) -> tuple[Message, ...]:
    """The messages without the calls of certain tools, by a pattern, and without their results; what was said beside them stays."""
    if names is None:
        return tuple(messages)
    hidden = {call.id for message in messages for call in message.tool_calls if re.search(names, call.name, re.IGNORECASE)}
    return tuple(_kept(messages, hidden))


def _answered(messages: Sequence[Message]) -> Iterator[Message]:
    for start, message in enumerate(messages):
        if message.role == "tool":
            continue  # with its call, or not at all
        results: list[Message] = []
        at = start + 1
        while at < len(messages) and messages[at].role == "tool":
            results.append(messages[at])
            at += 1
        calls = {call.id for call in message.tool_calls}
        answered = {result.tool_call_id for result in results} & calls
        yield from _kept([message], calls - answered)
        seen: set[str] = set()
        for result in results:
            key = result.tool_call_id
            if key is not None and key in answered and key not in seen:
                seen.add(key)
                yield result


def _kept(messages: Sequence[Message], hidden: set[str]) -> Iterator[Message]:
    """What is left without some calls; nothing of a message that was only these."""
    for message in messages:
        if message.role == "tool" and message.tool_call_id in hidden:
            continue
        calls = tuple(call for call in message.tool_calls if call.id not in hidden)
        if len(calls) == len(message.tool_calls):
            yield message
        elif calls or message.text.strip():
            yield attrs.evolve(message, tool_calls=calls)
