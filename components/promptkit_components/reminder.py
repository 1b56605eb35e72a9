"""`Reminder`: rules at the end of a prompt."""

from __future__ import annotations

from promptkit import Child, PromptElement, Sizing, Tag, UserMessage, component

__all__ = ["Reminder"]


@component(pure=True)
class Reminder(PromptElement):
    """A short message at the end of a prompt that repeats the most important rules, since models follow the end of a long context best.

    Without children it renders nothing.

    >>> from promptkit import render
    >>> print(render(Reminder()["Answer in one sentence."]).messages[0].text)
    <reminder>
    Answer in one sentence.
    </reminder>
    """

    tag: str = "reminder"
    """The tag around the text, which tells the model that the text is not from the user."""

    def render(self, sizing: Sizing) -> Child:
        """Return one user message, since providers accept a system message only at the start."""
        _ = sizing
        return UserMessage()[Tag(tag=self.tag)[self.children]]
