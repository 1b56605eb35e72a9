"""The prompt of a conversation: what a session renders for each request, unless it is given another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.compaction.planning.blocks import spans, summary_text
from promptkit.element import Child, PromptElement, Sizing, component
from promptkit.elements.chat import SystemMessage
from promptkit.elements.from_message import element_from_message
from promptkit.elements.layout import Chunk, Group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Message

__all__ = ["Conversation", "ConversationView", "Prompt", "Recordings"]


@attrs.frozen(kw_only=True)
class ConversationView:
    """What a session gives its prompt: the messages to show, and whether they may be pruned.

    A prompt of one's own shows `messages`, or `summary` and `recent` in places of its own. What it prunes by itself is not summarized
    before it is gone: `keep_turns`, or `required=True`, makes sure of that.
    """

    messages: tuple[Message, ...]
    """The summary, if there is one, and all that came after it; the present request among them."""
    may_prune: bool = False
    """False: everything is required, so that a conversation that outgrows its window is summarized. True: no summary was to be had."""

    @property
    def summary(self) -> Message | None:
        """The message of the summary; None before the first compaction."""
        return next((message for message in self.messages if summary_text(message) is not None), None)

    @property
    def recent(self) -> tuple[Message, ...]:
        """The messages without the summary."""
        summary = self.summary
        return tuple(message for message in self.messages if message is not summary)

    @property
    def keep_turns(self) -> int:
        """How many of the newest turns are required: all of them, or none where the messages may be pruned. For components that ask so."""
        return 0 if self.may_prune else len(self.messages)


Prompt: TypeAlias = "Callable[[ConversationView], Child]"
"""Makes the prompt of one request. The same view must give the same bytes, or the provider's prompt cache is lost."""


class Recordings:
    """The elements of a conversation's messages, the same for the same message: what a renderer has counted it does not count again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, PromptElement]] = {}

    def of(self, messages: Sequence[Message]) -> list[PromptElement]:
        """An element for each message. Those that are not among them any more are forgotten."""
        before = self._known
        # A message is known by its identity, and held, so that no other can have that.
        self._known = {id(message): before.get(id(message)) or (message, element_from_message(message)) for message in messages}
        return [self._known[id(message)][1] for message in messages]


@component
class Conversation(PromptElement):
    """Instructions and the conversation, message by message as it was said.

    Where it may be pruned, the oldest messages leave first, calls with their results; the summary and the last request stay.
    """

    view: ConversationView
    instructions: Child = None
    """For the system message."""
    recordings: Recordings | None = None
    """The elements of messages that were shown before."""

    def render(self, sizing: Sizing) -> Child:
        """Everything is required unless the view says otherwise."""
        _ = sizing
        system = SystemMessage(required=True)[self.instructions] if self.instructions is not None else None
        messages = self.view.messages
        elements = (self.recordings or Recordings()).of(messages)
        if not self.view.may_prune:
            return system, Group(required=True)[elements]
        return system, list(self._blocks(messages, elements))

    def _blocks(self, messages: Sequence[Message], elements: Sequence[PromptElement]) -> Iterator[PromptElement]:
        summary = next((at for at, message in enumerate(messages) if summary_text(message) is not None), None)
        asked = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)
        blocks = list(spans(messages))
        turn_end = len(messages)
        priorities: dict[int, float] = {}
        for start, _ in reversed(blocks):  # what was asked stays for as long as an answer to it: no request begins with an answer
            theirs = messages[start].role == "user"
            priorities[start] = turn_end - 0.5 if theirs else start
            turn_end = start if theirs else turn_end
        for start, end in blocks:
            stays = start in {summary, asked} or messages[start].role == "system"
            yield Chunk(priority=priorities[start], required=stays)[elements[start:end]]
