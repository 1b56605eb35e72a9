"""A template on its own, as a prompt."""

from __future__ import annotations

from promptkit.element import Child, PromptElement, Sizing, component, flatten
from promptkit.elements.chat import AssistantMessage, SystemMessage, ToolMessage, ToolRound, UserMessage
from promptkit.elements.template.template import Template

__all__ = ["Page"]

MESSAGES = (AssistantMessage, SystemMessage, ToolMessage, ToolRound, UserMessage)


@component
class Page(PromptElement):
    """The messages of a template, or one user message around what has none: text cannot stand alone."""

    template: Template
    """Rendered with the whole budget."""

    def render(self, sizing: Sizing) -> Child:
        """The template's messages."""
        content = flatten(self.template.render(sizing), "Page")
        waiting = list(content)
        while waiting:
            item = waiting.pop()
            if isinstance(item, MESSAGES):
                return content
            if isinstance(item, PromptElement):
                waiting += item.children
        return UserMessage()[content]
