"""`History`: a recorded conversation in a prompt, with a marker in place of the pruned messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from promptkit import Child, Message, PromptElement, Sizing, component
from promptkit.elements import RecordedMessages

__all__ = ["History", "describe_omitted"]


def describe_omitted(count: int) -> str:
    """Return the default text of the marker that replaces pruned messages.

    >>> describe_omitted(12)
    '[12 messages omitted]'
    """
    return f"[{count:,} message{'' if count == 1 else 's'} omitted]"


@component
class History(PromptElement):
    """A recorded conversation that uses its room: the newest messages are kept longest, and long ones are shortened to fit.

    It shows `turns` as `RecordedMessages` does, without the system messages of the recording. One marker tells how many messages were
    pruned.

    >>> from promptkit import render
    >>> turns = [
    ...     Message(role="user", content=("What is in the parser that I wrote on Monday?",)),
    ...     Message(role="assistant", content=("A recursive descent parser in one file of ninety lines.",)),
    ...     Message(role="user", content=("Does it have tests?",)),
    ...     Message(role="assistant", content=("No.",)),
    ... ]
    >>> for message in render(History(turns=turns), budget=35).messages:
    ...     print(f"{message.role}: {message.text}")
    user: [2 messages omitted]
    user: Does it have tests?
    assistant: No.
    """

    turns: Sequence[Message]
    """The recorded messages, oldest first."""

    flex_grow: float | None = 0
    """The history is sized after siblings without `flex_grow`, and gets the tokens that they leave."""

    keep_turns: int = 0
    """The number of newest turns that are never pruned, and never shortened. A turn starts at a user message."""

    keep_system: bool = False
    """True: system messages of the recording are shown, and never pruned. False: they are dropped, since a prompt has
    its own."""

    omitted_marker: bool | Callable[[int], str] = True
    """Whether a marker replaces pruned messages. A function gets their number and returns the text of the marker."""

    shorten: bool = True
    """True: older messages may be shortened. False, and in a render with a `prune_step`: their rounds are shown whole, or pruned."""

    truncate_at: int | None = None
    """The most tokens of one tool result, however large the budget is. A longer result keeps a head (40 %) and a tail (60 %)."""

    def render(self, sizing: Sizing) -> Child:
        """Return the messages, as `RecordedMessages` renders them."""
        marker = self.omitted_marker
        recorded = RecordedMessages(
            label=self.label,
            messages=self.turns,
            keep_turns=self.keep_turns,
            keep_system=self.keep_system,
            marker={True: describe_omitted, False: None}[marker] if isinstance(marker, bool) else marker,
            shorten=self.shorten,
            truncate_at=self.truncate_at,
        )
        return recorded.render(sizing)
