"""What the model should still know when it starts to answer."""

from __future__ import annotations

from promptkit import Child, PromptElement, Sizing, Tag, UserMessage, component

__all__ = ["Reminder"]


@component
class Reminder(PromptElement):
    """A short message at the end of a prompt that repeats the rules that matter most: the end of a long context is read best.

    Without children it is nothing.

    >>> from promptkit import render
    >>> print(render(Reminder()["Answer in one sentence."]).messages[0].text)
    <reminder>
    Answer in one sentence.
    </reminder>
    """

    tag: str = "reminder"
    """The tag around the text, so that the model does not take it for the person's words."""

    def render(self, sizing: Sizing) -> Child:
        """One user message: providers take a system message at the start only."""
        _ = sizing
        return UserMessage()[Tag(tag=self.tag)[self.children]]
