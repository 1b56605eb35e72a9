"""The default prompt of a conversation, and the view that every prompt of a conversation gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.compaction.planning.blocks import block_spans, extract_summary_text
from promptkit.element import Child, PromptElement, Sizing, component
from promptkit.elements.from_message import element_from_message
from promptkit.elements.layout import Chunk, Group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Message

__all__ = ["Conversation", "ConversationPrompt", "ConversationView", "ElementCache", "Prompt"]


@attrs.frozen(kw_only=True)
class ConversationView:
    """What a prompt function gets: the messages to show, and whether they may be pruned.

    A prompt of your own shows `messages`, or `summary` and `recent` at different places. Messages that it prunes itself are not covered
    by a summary first. Set `required=True` or `keep_turns` to prevent that.
    """

    messages: tuple[Message, ...]
    """The summary, if there is one, and all later messages, the current user message among them."""
    may_prune: bool = False
    """False: all messages are required, so that a conversation that outgrows its window is compacted. True: no summary could be made."""

    @property
    def summary(self) -> Message | None:
        """The message that holds the summary; None before the first compaction."""
        return next((message for message in self.messages if extract_summary_text(message) is not None), None)

    @property
    def recent(self) -> tuple[Message, ...]:
        """The messages without the summary."""
        summary = self.summary
        return tuple(message for message in self.messages if message is not summary)

    @property
    def keep_turns(self) -> int:
        """The number of newest turns that are required: all of them, or 0 if messages may be pruned. For components with this prop."""
        return 0 if self.may_prune else len(self.messages)


Prompt: TypeAlias = "Callable[[ConversationView], Child]"
"""Makes the prompt of one request. The same view must give the same bytes, or the provider's prompt cache is lost."""


class ElementCache:
    """The elements of messages. The same message gets the same element, so that a renderer reuses its counts."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, PromptElement]] = {}

    def elements(self, messages: Sequence[Message]) -> list[PromptElement]:
        """Return an element for each message. Messages that are not among them are forgotten."""
        before = self._known
        # A message is looked up by identity. Holding it guarantees that no other message gets the same one.
        self._known = {id(message): before.get(id(message)) or (message, element_from_message(message)) for message in messages}
        return [self._known[id(message)][1] for message in messages]


@component
class Conversation(PromptElement):
    """The messages of a conversation, in order.

    If messages may be pruned, the oldest are removed first, tool calls together with their results. The summary and the last user message
    are kept.
    """

    view: ConversationView
    elements: ElementCache | None = None
    """The elements of messages that were rendered before."""

    def render(self, sizing: Sizing) -> Child:
        """Return the messages; all of them are required, unless the view allows pruning."""
        _ = sizing
        messages = self.view.messages
        elements = (self.elements or ElementCache()).elements(messages)
        if not self.view.may_prune:
            return Group(required=True)[elements]
        return list(self._chunks(messages, elements))

    def _chunks(self, messages: Sequence[Message], elements: Sequence[PromptElement]) -> Iterator[PromptElement]:
        summary = next((at for at, message in enumerate(messages) if extract_summary_text(message) is not None), None)
        last_user = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)
        blocks = list(block_spans(messages))
        turn_end = len(messages)
        priorities: dict[int, float] = {}
        for start, _ in reversed(blocks):  # a user message outlasts the replies to it, so that no request begins with a reply
            is_user = messages[start].role == "user"
            priorities[start] = turn_end - 0.5 if is_user else start
            turn_end = start if is_user else turn_end
        for start, end in blocks:
            required = start in {summary, last_user} or messages[start].role == "system"
            yield Chunk(priority=priorities[start], required=required)[elements[start:end]]


class ConversationPrompt:
    """The default prompt: system content, and then every message of the view.

    Since it shows all messages, a request builder can tell from their tokens that a request does not fit, without rendering it.
    """

    def __init__(self, system: Child = None) -> None:
        """Show `system`, for example a SystemMessage, before the messages."""
        self._system = system
        self._elements = ElementCache()

    def __call__(self, view: ConversationView) -> Child:
        """Return the prompt of one request."""
        return self._system, Conversation(view=view, elements=self._elements)
