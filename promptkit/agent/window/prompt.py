"""The default prompt of a conversation, and the view that every prompt of a conversation gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from promptkit.agent.window.usage import ContextUsage, describe_room
from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.elements import Metadata, Tag, UserMessage
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.elements.rounds import Rounds
from promptkit.fitting import RecordedMessages, describe_omitted
from promptkit.messages import Message
from promptkit.pairing import pair_tool_calls
from promptkit.reprs import describe_fields


@attrs.frozen(kw_only=True)
class ConversationView:
    """What a prompt function gets: the messages to show, and whether they may be pruned.

    A prompt of your own shows `messages`, or `summary` and `recent` at different places. Messages
    that it prunes itself are not covered by a summary first. Set `required=True` or `keep_turns` to
    prevent that.
    """

    messages: tuple[Message, ...]
    """The summary, if there is one, and all later messages, the current user message among them."""
    may_prune: bool = False
    """False: all messages are required, so that a conversation that outgrows its window is
    compacted. True: no summary could be made."""
    request: Message | None = None
    """The last one of `messages` that the user wrote. Messages of the program may follow it, such
    as one that asks to continue a reply."""
    cut_markers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The text in place of the middle of a shortened tool result, by the id of its call: it tells
    the model how to read all of it. Empty if messages may not be pruned, or if the model has no
    tool for that."""
    _measure: Callable[[], ContextUsage] | None = attrs.field(
        default=None, alias="measure", eq=False, repr=False
    )

    @property
    def usage(self) -> ContextUsage | None:
        """The size of the conversation beside its window, measured when it is asked for.

        None for a view without a window.
        """
        return self._measure() if self._measure else None

    __repr__ = describe_fields

    @property
    def summary(self) -> Message | None:
        """The message that holds the summary; None before the first compaction."""
        return next(
            (message for message in self.messages if extract_summary_text(message) is not None),
            None,
        )

    @property
    def recent(self) -> tuple[Message, ...]:
        """The messages without the summary."""
        summary = self.summary
        return tuple(message for message in self.messages if message is not summary)

    @property
    def keep_turns(self) -> int:
        """The number of newest turns that are required: all of them, or 0 if messages may be pruned.

        For components with this prop.
        """
        return 0 if self.may_prune else len(self.messages)


Prompt: TypeAlias = "Callable[[ConversationView], Child]"
"""Makes the prompt of one request, from each view that is tried for it. What changes from request
to request belongs at the end, since the provider's prompt cache ends at the first change."""


@component
class Conversation(PromptElement):
    """The messages of a conversation, in order.

    If messages may be pruned, the oldest rounds are removed as a whole, so that the requests share
    a prefix for a while. The summary and the last user message stay as they are. The newest round
    stays too, so that the model sees what it has just done; it is shortened if it must be. Tool
    calls and results without each other are repaired as `pair_tool_calls` describes;
    `rendered.repairs` reports it.
    """

    view: ConversationView
    flex_grow: float | None = 0
    """The conversation is sized after siblings without `flex_grow`, and gets the tokens that they
    leave."""

    def render(self, sizing: Sizing) -> Child:
        """Return the messages; all of them are required, unless the view allows pruning."""
        messages = self.view.messages
        if self.view.may_prune:
            last_user = next(
                (message for message in reversed(messages) if message.role == "user"), None
            )
            kept = self.view.summary, self.view.request, last_user
            return RecordedMessages(
                messages=messages,
                keep=lambda message: any(message is each for each in kept),
                keep_request=True,
                marker=describe_omitted,
                shorten=False,
                cut_marker=lambda message: self.view.cut_markers.get(message.tool_call_id or ""),
            )
        paired = pair_tool_calls(messages)
        return (Metadata(value=repair) for repair in paired.repairs), Rounds(rounds=paired.messages)


@component
class ContextStatus(PromptElement):
    """A note that tells the model how much of its context window is left, and when older messages are summarized.

    Put it behind the conversation: it differs in each request, and the provider's prompt cache ends
    at it. It is in no transcript. Without a known window or threshold there is no note.

    >>> prompt = lambda view: (SystemMessage(required=True)["Be brief."], Conversation(view=view), ContextStatus(view=view, priority=5))
    """

    view: ConversationView

    def render(self, sizing: Sizing) -> Child:
        """Return a user message, since providers accept a system message only at the start."""
        _ = sizing
        usage = self.view.usage
        text = None if usage is None else describe_room(usage)
        return text and UserMessage()[Tag(tag="context_status")[text]]


class ConversationPrompt:
    """The default prompt: system content, and then every message of the view."""

    def __init__(self, system: Child = None) -> None:
        """Show `system`, for example a SystemMessage, before the messages."""
        self._system = system

    def __call__(self, view: ConversationView) -> Child:
        """Return the prompt of one request."""
        return self._system, Conversation(view=self.select(view))

    def select(self, view: ConversationView) -> ConversationView:
        """Return what a request shows of a view.

        A subclass may leave messages out if they may be pruned.
        """
        return view
