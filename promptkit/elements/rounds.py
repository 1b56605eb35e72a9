"""`Rounds`: the rounds of a recorded conversation, as `RecordedMessages` and `Conversation` give them to the renderer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from promptkit.elements.component import component
from promptkit.elements.element import PromptElement
from promptkit.messages import Message


@component
class Rounds(PromptElement):
    """Rounds of a recorded conversation.

    Each is kept or pruned as a whole, in an order that is given.

    A round is a message, or a message with tool calls and the results of these calls.
    `RecordedMessages` divides a conversation into rounds.

    >>> Rounds(rounds=[Message(role="user", content=("Hello",))], order=[0], priorities=[0])
    """

    rounds: Sequence[Message | Sequence[Message]]
    """The rounds, oldest first. A round of one message may be that message itself."""

    order: Sequence[int] = ()
    """The indices of the rounds that may be pruned, the first to be pruned first. The others are
    required."""

    priorities: Sequence[float] = ()
    """For each index in `order`, the priority of the round. It ascends."""

    marker: Callable[[int], str] | None = None
    """Returns the text of a user message that replaces pruned messages, given their number. It
    stands where the last round was pruned. It leaves before the last round that may be pruned, and
    takes the place of that one. None: nothing replaces them."""

    dropped: int = 0
    """The number of rounds, from the start of `order`, that did not fit when the messages were
    shortened."""

    unspent: int = 0
    """The tokens that shortened messages leave. They are not for these rounds: with a larger budget
    the messages would take them, and a round that had used them would leave again."""


def iter_rounds(rounds: Sequence[Message | Sequence[Message]]) -> Iterator[Sequence[Message]]:
    """Iterate over rounds, each as a sequence of messages."""
    return ((each,) if isinstance(each, Message) else each for each in rounds)


def describe_rounds(rounds: Sequence[Message | Sequence[Message]]) -> list[str]:
    """Return the labels of rounds: `turn 3 · run_tests result`. A turn starts at a user message."""
    labels: list[str] = []
    turn = 0
    for messages in iter_rounds(rounds):
        first = messages[0]
        turn += first.role == "user" or not turn
        names = ", ".join(dict.fromkeys(call.name for call in first.tool_calls))
        is_pinned = first.role == "user" and "\n</pinned>" in first.text
        kind = {
            "user": "summary and pins" if is_pinned else "request",
            "assistant": "reply",
            "system": "system message",
            "tool": "result",
        }[first.role]
        labels.append(
            f"turn {turn} · {names} result{'' if len(first.tool_calls) == 1 else 's'}"
            if names
            else f"turn {turn} · {kind}"
        )
    return labels
