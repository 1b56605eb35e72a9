"""The default prompt of a conversation, and the view that every prompt of a conversation gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import attrs

from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.summarizers.defaults import UNLIMITED
from promptkit.element import Child, PromptElement, Sizing, component, flatten
from promptkit.elements.chat import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from promptkit.elements.history import RecordedMessages, element_from_message
from promptkit.elements.layout import Group
from promptkit.rendering.renderer import render
from promptkit.rendering.sizing import Sizer

if TYPE_CHECKING:
    from promptkit.messages import Message
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Conversation", "ConversationPrompt", "ConversationView", "ElementCache", "MessageRenders", "Prompt"]


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
    request: Message | None = None
    """The last one of `messages` that the user wrote. Messages of the program may follow it, such as one that asks to continue a reply."""
    cut_markers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The text in place of the middle of a shortened tool result, by the id of its call: it tells the model how to read all of it. Empty
    if messages may not be pruned, or if the model has no tool for that."""

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


MAX_RENDERS = 10_000
"""The most renders of single messages that are kept besides those of the conversation."""

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

    If messages may be pruned, the oldest rounds are removed as a whole, so that the requests share a prefix for a while. The summary and
    the last user message stay as they are. The newest round stays too, so that the model sees what it has just done; it is shortened if it
    must be.
    """

    view: ConversationView
    flex_grow: float | None = 0
    """The conversation is sized after siblings without `flex_grow`, and gets the tokens that they leave."""
    elements: ElementCache | None = None
    """The elements of messages that were rendered before."""

    def render(self, sizing: Sizing) -> Child:
        """Return the messages; all of them are required, unless the view allows pruning."""
        _ = sizing
        messages = self.view.messages
        if self.view.may_prune:
            last_user = next((message for message in reversed(messages) if message.role == "user"), None)
            kept = self.view.summary, self.view.request, last_user
            return RecordedMessages(
                messages=messages,
                keep=lambda message: any(message is each for each in kept),
                keep_request=True,
                shorten=False,
                cut_marker=lambda message: self.view.cut_markers.get(message.tool_call_id or ""),
            )
        return Group(required=True)[(self.elements or ElementCache()).elements(messages)]


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
        return self._system, Conversation(view=self.select(view), elements=self._elements)

    def select(self, view: ConversationView) -> ConversationView:
        """Return what a request shows of a view. A subclass may leave messages out if they may be pruned."""
        return view

    @cached_property
    def is_static(self) -> bool:
        """True if the system content renders equally in every request: it consists of required messages with text only."""
        return type(self).__call__ is ConversationPrompt.__call__ and all(_is_static(child) for child in flatten(self._system, "system"))


_STATIC = frozenset({Group, SystemMessage, UserMessage, AssistantMessage, ToolMessage})


def _is_static(element: object) -> bool:
    if not isinstance(element, PromptElement) or not element.required:
        return element is None
    stack: list[object] = [element]
    while stack:
        child = stack.pop()
        if isinstance(child, PromptElement):
            if type(child) not in _STATIC or child.flex_reserve is not None or child.fallback is not None:
                return False
            stack.extend(child.children)
        elif not isinstance(child, str | None):
            return False
    return True


class MessageRenders:
    """The renders of single messages. Each message object is rendered and counted once.

    The messages of a conversation that is shown whole are rendered independently of each other, so a request can be put together from
    them in the time of adding up their tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._count = Sizer(tokenizer).count_message
        self._known: dict[int, _MessageRender] = {}  # by identity: a message that is held keeps its own to itself

    def count(self, message: Message) -> int:
        """Count the tokens of a message as it is, framing included."""
        return self._find(message).own_tokens

    def count_shown(self, message: Message) -> int:
        """Count the tokens of a message as a request shows it; 0 for a blank one, which is left out."""
        return self._find(message).tokens

    def count_rendered(self, messages: Sequence[Message]) -> int:
        """Count the tokens of messages as a request shows them. The renders of other messages may be forgotten."""
        if len(self._known) > 2 * len(messages) + MAX_RENDERS:
            self._known.clear()
        return sum([self._find(message).tokens for message in messages])

    def render(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return messages as a request shows them. Blank messages are left out."""
        return tuple([shown for message in messages if (shown := self._find(message).shown) is not None])

    def _find(self, message: Message) -> _MessageRender:
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = self._render(message)
        return known

    def _render(self, message: Message) -> _MessageRender:
        rendered = render(element_from_message(message), budget=UNLIMITED, tokenizer=self.tokenizer, pairing="lenient").messages
        own_tokens = self._count(message)
        if not rendered:
            return _MessageRender(message, None, 0, own_tokens)
        if rendered[0] == message:
            return _MessageRender(message, message, own_tokens, own_tokens)
        return _MessageRender(message, rendered[0], self._count(rendered[0]), own_tokens)


class _MessageRender(NamedTuple):
    """A message, what a request shows of it, and the tokens of both."""

    message: Message
    shown: Message | None
    tokens: int
    own_tokens: int
