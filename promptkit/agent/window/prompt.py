"""The default prompt of a conversation, and what every prompt of a conversation gets: its view, and the use of its window by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from promptkit.compaction import UsageByPart, UsageReading
from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.elements.builtin import Metadata, Rounds, Tag, UserMessage
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.fitting import RecordedMessages, describe_omitted
from promptkit.messages import Message, Usage
from promptkit.pairing import pair_tool_calls
from promptkit.reprs import describe, describe_fields


@attrs.frozen(kw_only=True)
class ContextUsage:
    """The size of the next request, by part, and the room that the context window has for it.

    All sizes are tokens.
    """

    parts: UsageByPart
    """The local count by part: what the next request has, if nothing is compacted or pruned for
    it."""
    reading: UsageReading
    """The local count beside the provider's, from which compaction is decided."""
    messages: int
    """The number of messages of the conversation that the next request shows."""
    window: int | None = None
    """The model's context window: input and output together. None: unknown."""
    limit: int | None = None
    """The most that the request may have: the window without what is reserved for the reply. None:
    unknown."""
    threshold: int | None = None
    """The size from which the conversation is compacted next, with the preset's policy. None:
    unknown, or never automatically."""
    last: Usage | None = None
    """The provider's figures for the last reply that is shown. None: it reported none."""

    def __repr__(self) -> str:
        return describe(
            self,
            tokens=self.tokens,
            limit=self.limit,
            threshold=self.threshold,
            window=self.window,
            messages=self.messages,
        )

    @property
    def tokens(self) -> int:
        """The size to decide by: the provider's last count and what came since, but never less than the local count."""
        return max(self.reading.tokens, self.parts.total)

    @property
    def free(self) -> int | None:
        """The tokens that the next request may still grow by. None: the limit is unknown."""
        return None if self.limit is None else max(0, self.limit - self.tokens)

    @property
    def cached_share(self) -> float | None:
        """The share of the last request that the provider read from its prompt cache, from 0 to 1.

        None: unknown.
        """
        return (
            self.last.cached_tokens / self.last.input_tokens
            if self.last is not None and self.last.input_tokens
            else None
        )


DUE_SHARE = 0.9
"""From this share of the threshold on, a compaction is about to come."""


def describe_room(usage: ContextUsage) -> str | None:
    """Tell the model in a sentence or two what is left of its window; None if neither the limit nor the threshold is known.

    The figures are rounded to two digits, since they are estimates.
    """
    tokens, threshold, limit = usage.tokens, usage.threshold, usage.limit
    if threshold is None:
        return (
            None
            if limit is None
            else f"{_round(tokens)} of {_round(limit)} tokens of the context window are used."
        )
    used = f"{_round(tokens)} tokens of the context window are used"
    if tokens >= DUE_SHARE * threshold:
        return (
            f"{used}, and a compaction is due: a summary is about to replace the older messages. "
            "State what must not be lost in your next reply."
        )
    return f"{used}. {_round(threshold - tokens)} are left until a summary replaces the older messages."


def _round(tokens: int) -> str:
    step = 10 ** max(0, len(str(tokens)) - 2)
    return f"{round(tokens / step) * step:,}"


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
        return self._system, Conversation(view=view)
