"""Elements that stand for users' own in random prompts: a component that looks at its room, and the value of an Expandable."""

from __future__ import annotations

import attrs

from promptkit.element import Child, PromptElement, Sizing, component

__all__ = ["Filled", "Sized"]


@component
class Sized(PromptElement):
    """A component that looks at its room: its text where there is some, a word where there is none."""

    text: str
    """What it says where it has room."""

    def render(self, sizing: Sizing) -> Child:
        """The text, if it may fill anything."""
        return self.text if sizing.token_budget else "full"


@attrs.frozen
class Filled:
    """The value of an Expandable: as many words as there is room for, up to `most`."""

    word: str
    most: int

    def __call__(self, sizing: Sizing) -> str:
        """The words, with single spaces between them."""
        return " ".join([self.word] * min(self.most, sizing.token_budget))
