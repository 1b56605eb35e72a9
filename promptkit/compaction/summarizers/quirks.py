"""Model-specific additions to requests that follow a compaction (reminder text, preserved thinking blocks).

The table `QUIRKS` has a row for each family of models.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import attrs

from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.planning.facts import is_thinking
from promptkit.messages import Message, OpaquePart
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import Tokenizer

REMINDER = (
    "<reminder>\nYou work for a person who wants this done: go on until it is done, and do not stop after what was summarized here. "
    "Ask only where you cannot go on without an answer.\n</reminder>"
)
"""Text of a message after the summary, for models that would stop there."""

_REMINDER_MESSAGE = Message(role="user", content=(REMINDER,))


@attrs.frozen(kw_only=True)
class Quirks:
    """How a family of models differs when a conversation is summarized."""

    say_no_tools: bool = False
    """The model calls tools although it was asked for text, unless the request repeats that it must
    not."""
    remind_to_continue: bool = False
    """The model stops after a summary, unless a reminder tells it to continue."""
    strip_orphans: bool = False
    """The model refuses a request with a tool call or tool result that stands alone, even if a
    placeholder result answers the call."""
    keep_thinking: bool = False
    """The first reply after a summary must start with the model's last thinking block."""
    hidden_calls: str | None = None
    """A pattern of tool names. Their calls and results have no meaning outside their own
    request."""


_CLAUDE = Quirks(keep_thinking=True, hidden_calls=r"tool_search")

QUIRKS: tuple[tuple[str, Quirks], ...] = (
    (r"claude.*opus", attrs.evolve(_CLAUDE, say_no_tools=True)),
    (r"claude", _CLAUDE),
    (r"gemini", Quirks(strip_orphans=True)),
    (r"gpt-4\.1", Quirks(remind_to_continue=True)),
)
"""Quirks by pattern of the model's name. The first match counts. Source: what VS Code's chat does
for these families."""


def find_quirks(model: str | None, table: tuple[tuple[str, Quirks], ...] = QUIRKS) -> Quirks:
    """Return the quirks of a model. A model that matches no row has none."""
    return next(
        (quirks for pattern, quirks in table if model and re.search(pattern, model, re.IGNORECASE)),
        Quirks(),
    )


def adapt_messages(
    messages: Sequence[Message], quirks: Quirks, *, thinking: OpaquePart | None = None
) -> tuple[Message, ...]:
    """Adapt the messages of a request to a model's quirks.

    Idempotent; without quirks nothing changes.

    Args:
        messages: The messages of the request.
        quirks: The model's quirks.
        thinking: The last thinking block among the messages that the summary replaces, from the
            facts of its checkpoint.
    """
    adapted = remove_orphans(messages) if quirks.strip_orphans else tuple(messages)
    if not quirks.remind_to_continue and (thinking is None or not quirks.keep_thinking):
        return adapted
    users = (at for at, message in enumerate(adapted) if message.role == "user")
    at = next((at for at in users if extract_summary_text(adapted[at]) is not None), None)
    if (
        at is not None
        and quirks.remind_to_continue
        and _REMINDER_MESSAGE not in adapted[at + 1 : at + 2]
    ):
        adapted = (*adapted[: at + 1], _REMINDER_MESSAGE, *adapted[at + 1 :])
    if at is not None and quirks.keep_thinking and thinking is not None:
        first = next(
            (index for index in range(at + 1, len(adapted)) if adapted[index].role == "assistant"),
            None,
        )
        if first is not None and not any(map(is_thinking, adapted[first].content)):
            adapted = (
                *adapted[:first],
                attrs.evolve(adapted[first], content=(thinking, *adapted[first].content)),
                *adapted[first + 1 :],
            )
    return adapted


def count_added_tokens(
    quirks: Quirks, *, thinking: OpaquePart | None = None, tokenizer: Tokenizer
) -> int:
    """Return the most tokens that `adapt_messages` adds to a request with a summary.

    Args:
        quirks: The model's quirks.
        thinking: The thinking block that would be added.
        tokenizer: Counts the tokens.
    """
    sizer = Sizer(tokenizer)
    reminder = sizer.count_message(_REMINDER_MESSAGE) if quirks.remind_to_continue else 0
    return reminder + (
        sizer.count_part(thinking) if quirks.keep_thinking and thinking is not None else 0
    )


def remove_orphans(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Remove tool results without a call, and calls whose result does not follow before the next message that is not a tool result."""
    # for the index of a message, the first result of each of its calls
    answered: defaultdict[int, dict[str, Message]] = defaultdict(dict)
    kept: list[Message] = []
    owner = None
    for at, message in enumerate(messages):
        call_id = message.tool_call_id
        if message.role != "tool":
            owner = at
        elif owner is not None and any(call.id == call_id for call in messages[owner].tool_calls):
            answered[owner].setdefault(call_id or "", message)
    for at, message in enumerate(messages):
        if message.role != "tool":
            unanswered = {call.id for call in message.tool_calls} - answered[at].keys()
            kept += [*_without_hidden([message], unanswered), *answered[at].values()]
    return tuple(kept)


def remove_calls(messages: Sequence[Message], names: str | None) -> tuple[Message, ...]:
    """Remove the calls of tools whose name matches a pattern, and their results.

    The text of such a message stays.
    """
    if names is None:
        return tuple(messages)
    hidden = {
        call.id
        for message in messages
        for call in message.tool_calls
        if re.search(names, call.name, re.IGNORECASE)
    }
    return tuple(_without_hidden(messages, hidden))


def _without_hidden(messages: Sequence[Message], hidden: set[str]) -> Iterator[Message]:
    """Yield the messages without the hidden calls.

    A message that consisted of such calls only is omitted.
    """
    for message in messages:
        if message.role == "tool" and message.tool_call_id in hidden:
            continue
        calls = tuple(call for call in message.tool_calls if call.id not in hidden)
        if len(calls) == len(message.tool_calls):
            yield message
        elif calls or message.text.strip():
            yield attrs.evolve(message, tool_calls=calls)
