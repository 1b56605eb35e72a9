"""Measure how much of a context window a conversation takes: the provider's last count plus a local count of everything after it, the tokens of a request by part, and the least that requests can be compacted to."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import accumulate, dropwhile
from operator import itemgetter

import attrs

from promptkit.compaction.planning.blocks import count_unchanged, find_last_user_request
from promptkit.compaction.policy.rules import Policy
from promptkit.compaction.policy.state import (
    Compact,
    Phase,
    PolicyState,
    Rereading,
    StartBackground,
)
from promptkit.errors import ContextWindowFullError
from promptkit.messages import Message, Usage
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import ContextBudget, Tokenizer
from promptkit.transcript import (
    Checkpoint,
    Edit,
    Entry,
    MessageEntry,
    Reset,
    Transcript,
    TranscriptView,
    ViewItem,
)
from promptkit.transcript.log.entry_sequence import find_entry
from promptkit.transcript.log.view import UNREPLAYABLE_FINISHES

FACTOR_RANGE = (0.5, 2.0)
"""How far the provider's counts may correct local counts. A greater difference has another cause
than the way of counting."""

MAX_OVERFLOW = 2
"""The largest count that is taken for that of a request, in context windows."""

MAX_FACTORS = 5
"""Number of the newest provider counts that the correction is made of."""

MAX_REJECTED = 20
"""Number of unusable provider counts in a row after which the search ends: an older count is no
better than a local one."""


@attrs.frozen(kw_only=True)
class UsageReading:
    """How much of the context window the next request takes, in tokens: messages, tools and everything else that every request has."""

    local: int
    """The local count."""
    provider: int | None = None
    """The provider's last count plus a local count of what came after it. None: unknown, as after a
    compaction until the next reply.

    This is the figure to show to users.
    """
    counted_entry_id: str | None = None
    """The entry that holds the provider's count."""
    factor: float = 1.0
    """The ratio of recent provider counts to local ones; 1 if nothing is known."""
    cached_tokens: int | None = None
    """Tokens of the last counted request that the provider read from its prompt cache. None as for
    `cached_share`."""
    cached_share: float | None = None
    """Share of the last counted request that the provider read from its prompt cache. None: it has
    reported none lately, or nothing at all."""
    overflowed: bool = False
    """Whether the last counted request was larger than the context window, although it was
    answered: the provider may have cut it."""

    @property
    def tokens(self) -> int:
        """The size to decide by.

        It is never less than the local count, so that a wrong provider count cannot hide growth.
        """
        estimate = math.ceil(self.local * self.factor)
        return max(self.local, estimate if self.provider is None else self.provider)


class WindowUsage:
    """The size of the requests of one conversation with one model, in tokens."""

    def __init__(  # noqa: PLR0913  # keywords
        self,
        transcript: Transcript,
        *,
        view: Callable[[], TranscriptView],
        changed: Callable[[str], str | None],
        tokenizer: Tokenizer,
        model: str,
        fixed_tokens: int,
        sizer: Sizer | None = None,
    ) -> None:
        """Measure the requests that show a transcript.

        Args:
            transcript: The conversation; its path holds the provider's counts.
            view: Returns what requests show of the transcript now: the view with the messages as
                they are sent.
            changed: Returns why the view of the path that ended with an entry (its id) no longer
                holds. None: it was at most appended to.
            tokenizer: Counts messages.
            model: The model whose counts are used, as entries name it.
            fixed_tokens: Tokens of every request besides the conversation, until the first render
                measures them.
            sizer: Counts the messages with that tokenizer. None: one of its own.
        """
        self.fixed_tokens = fixed_tokens
        """Tokens that every request has besides the conversation: system prompt, tool definitions,
        framing. Measured at each render."""
        self.items = 0
        """Number of items of the transcript's view at the last render."""
        self.leaf: str | None = None
        """The last entry of the path at the last render."""
        self._transcript = transcript
        self._view = view
        self._changed = changed
        self._rendered_tokens = 0
        self.meter = UsageMeter(tokenizer, model=model, sizer=sizer)
        """Counts messages, each once while it stays in the view."""
        self._stale_leaf: str | None = None
        """Counts up to this entry belong to requests whose view was changed before the reply
        came."""
        self._cached: tuple[TranscriptView, tuple[object, ...], UsageReading] | None = None

    def set_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Count messages with another tokenizer.

        `fixed_tokens` is measured again at the next render.
        """
        self.meter = UsageMeter(tokenizer, model=self.meter.model)
        self._cached = None

    @property
    def moved(self) -> bool:
        """Whether a compaction, an edit or a rewind changed the view after the last render.

        Appended messages do not.
        """
        return self.leaf is not None and self._changed(self.leaf) is not None

    def reading(self, window: int | None) -> UsageReading:
        """Measure how much of a context window of `window` tokens the next request takes."""
        view = self._view()
        key = (self.fixed_tokens, window, self._stale_leaf)
        if self._cached is None or self._cached[0] is not view or self._cached[1] != key:
            path = self._transcript.path()
            stale = find_entry(path, self._stale_leaf) if self._stale_leaf else None
            self._cached = (
                view,
                key,
                self.meter.read(
                    path if stale is None else path[stale + 1 :],
                    view,
                    fixed_tokens=self.fixed_tokens,
                    window=window,
                ),
            )
        return self._cached[2]

    def on_rendered(self, tokens: int, window: int | None, *, items: int, pruned: bool) -> None:
        """Record a rendered request.

        Args:
            tokens: The size of the request, in tokens.
            window: The size of the model's context window, in tokens. None: unknown.
            items: The number of items of the transcript's view.
            pruned: Whether the request lacks a part of the conversation, so that `fixed_tokens` is
                not measured by it.
        """
        if not pruned:
            self.fixed_tokens = max(0, tokens - (self.reading(window).local - self.fixed_tokens))
        self.items, self._rendered_tokens, self.leaf = items, tokens, self._transcript.leaf

    def on_reply(self, window: int | None) -> int:
        """Record that the reply to the rendered request is in the transcript, and return the tokens to decide by.

        If the view was changed before the reply came, neither the rendered request nor the
        provider's count of it is used.
        """
        if self.moved:
            self._stale_leaf = self._transcript.leaf
            return self.reading(window).tokens
        return max(self._rendered_tokens, self.reading(window).tokens)

    def add_request(self, rereading: Rereading, *, checkpoint_id: str | None) -> Rereading:
        """Add the last request, whose reply is in the transcript: by the provider's count, or else by the local one."""
        path = self._transcript.path()
        counts = iter_provider_counts(path, model=self.meter.model)
        newest = next(counts, None)
        # without a first request the conversation was opened again: its requests are in the
        # transcript
        for count in filter(None, reversed(list(counts) if rereading.first is None else [])):
            rereading = rereading.after_request(
                count.usage.input_tokens,
                cached=count.usage.cached_tokens > 0,
                checkpoint_id=checkpoint_id,
            )
        tokens, cached = self._rendered_tokens, None
        if newest is not None and newest.entry_id == path[-1].id:
            tokens, cached = newest.usage.input_tokens, newest.usage.cached_tokens > 0
        return rereading.after_request(tokens, cached=cached, checkpoint_id=checkpoint_id)


class UsageMeter:
    """Measures how much of a context window a conversation takes.

    Each message is counted once while it stays in the view.

    `model` is the model whose counts are used, as entries name it; None uses all. Not for use from
    several threads at once.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, model: str | None = None, sizer: Sizer | None = None
    ) -> None:
        self.model = model
        self.sizer = sizer or Sizer(tokenizer)
        self._items: list[ViewItem] = []
        self._before: list[int] = [0]
        """Tokens before each item, and after the last one."""
        self._places: dict[str, int] = {}
        self._first_sums: dict[str, int] = {}
        """Tokens before each item when it was measured first: a provider's count of the request
        before it is of these messages."""
        self._factors: dict[str, float] = {}

    def read(
        self,
        path: Sequence[Entry],
        view: TranscriptView,
        *,
        fixed_tokens: int = 0,
        window: int | None = None,
    ) -> UsageReading:
        """Measure a path and its view.

        Entries and messages that were read before cost one comparison each.

        Args:
            path: The entries, root first.
            view: The view of this path.
            fixed_tokens: Tokens that every request has besides the view: system prompt, tool
                definitions, framing.
            window: The size of the model's context window in tokens. None: unknown.

        Returns:
            The reading.
        """
        self._follow(view.items)
        newest: ProviderCount | None = None
        rejected = 0
        factors: dict[str, float] = {}
        cached = False
        for count in iter_provider_counts(path, model=self.model, window=window):
            if count is None:
                rejected += newest is None
                if rejected == MAX_REJECTED:
                    break
                continue
            if count.entry_id not in self._places:
                continue
            newest = newest or count
            tokens = count.usage.input_tokens
            cached = cached or count.usage.cached_tokens > 0
            if window is not None and tokens > window:
                # the provider may have cut that request, so that its count does not correct local
                # ones
                continue
            factor = tokens / max(1, fixed_tokens + self._first_sums[count.entry_id])
            factors[count.entry_id] = min(max(factor, FACTOR_RANGE[0]), FACTOR_RANGE[1])
            if len(factors) == MAX_FACTORS:
                break
        local = self._before[-1]
        return UsageReading(
            local=fixed_tokens + local,
            provider=None
            if newest is None
            else newest.tokens + local - self._sum_through(newest.entry_id),
            counted_entry_id=None if newest is None else newest.entry_id,
            factor=self._update_factor(factors),
            cached_tokens=newest.usage.cached_tokens if newest is not None and cached else None,
            cached_share=newest.usage.cached_tokens / newest.usage.input_tokens
            if newest is not None and cached
            else None,
            overflowed=newest is not None
            and window is not None
            and newest.usage.input_tokens > window,
        )

    def _sum_through(self, entry_id: str) -> int:
        """Return the tokens up to an item, and of it.

        What was cleared since from the messages before it is still part of them.
        """
        place = self._places[entry_id]
        return self._first_sums[entry_id] + self._before[place + 1] - self._before[place]

    def _follow(self, items: Sequence[ViewItem]) -> None:
        """Update the sums: keep those of the unchanged start of the view, count the rest."""
        old = self._items
        same = count_unchanged(
            old,
            items,
            lambda before, now: (
                before.entry_id == now.entry_id
                and (before.message is now.message or before.message == now.message)
            ),
        )
        if same == len(old) == len(items):
            return
        removed, added, sums = old[same:], items[same:], self._before
        for at, item in enumerate(removed, same):
            if self._places.get(item.entry_id) == at:
                del self._places[item.entry_id]
        sums[same:] = accumulate(
            self.sizer.count_messages([item.message for item in added]), initial=sums[same]
        )
        old[same:] = added
        places, first = self._places, self._first_sums
        for at, item in enumerate(added, same):
            # a provider's count is of the request that an assistant message answered
            if item.message.role == "assistant" and item.entry_id not in places:
                places[item.entry_id] = at
                first.setdefault(item.entry_id, sums[at])
        for item in removed:
            if item.entry_id not in self._places:
                self._first_sums.pop(item.entry_id, None)

    def _update_factor(self, newest: dict[str, float]) -> float:
        """Return the median of the newest factors, filled up with those known from before where the view has few."""
        before = ((entry, factor) for entry, factor in self._factors.items() if entry not in newest)
        self._factors = dict([*before, *reversed(newest.items())][-MAX_FACTORS:])
        return statistics.median(self._factors.values()) if self._factors else 1.0


@attrs.frozen(kw_only=True)
class ProviderCount:
    """A provider's count that is valid for the current view: that of the request which `entry` answered."""

    entry_id: str
    usage: Usage
    """The tokens of the request, cached ones included, and of the reply."""

    @property
    def tokens(self) -> int:
        """The request and its reply: the start of the next request."""
        return self.usage.input_tokens + self.usage.output_tokens


def iter_provider_counts(
    path: Sequence[Entry], *, model: str | None = None, window: int | None = None
) -> Iterator[ProviderCount | None]:
    """Iterate over the provider's counts on a path, newest first, back to the last checkpoint, edit or reset.

    Unusable are counts of 0, counts of another model, and counts of failed replies. A count above
    the context window is used, since some providers cut a request that is too large and answer. It
    is unusable if it is above twice the window, or if the count before the last compaction was
    above the window, too: then it does not follow the size of requests.

    Args:
        path: The entries, root first.
        model: The model whose counts are used. None: any. A reply without a recorded model counts
            as this model's.
        window: The size of the context window in tokens. None: unknown, so that no count is too
            large.

    Yields:
        Each count, or None for an unusable one.
    """
    for entry in reversed(path):
        payload = entry.payload
        if isinstance(payload, MessageEntry):
            usage = payload.usage
            if usage is None:
                continue
            is_usable = (
                (model is None or payload.model in {None, model})
                and payload.finish not in UNREPLAYABLE_FINISHES
                and usage.input_tokens >= max(1, usage.cached_tokens)
                and not (window is not None and _is_too_large(path, entry, usage, model, window))
            )
            # Cached tokens are part of the input tokens: they are not added again.
            yield ProviderCount(entry_id=entry.id, usage=usage) if is_usable else None
        elif isinstance(payload, Checkpoint | Edit | Reset):
            return


def find_last_reply(path: Sequence[Entry]) -> Entry | None:
    """Return the entry of the last reply on a path, or None."""
    return next(
        (entry for entry in reversed(path) if entry.message and entry.message.role == "assistant"),
        None,
    )


def find_summary_tokens(path: Sequence[Entry], model: str) -> int | None:
    """Return the median of the output tokens that a model reported for the summaries on a path; None without any."""
    written = [
        entry.payload.usage.output_tokens
        for entry in path
        if isinstance(entry.payload, Checkpoint)
        and entry.payload.usage is not None
        and entry.payload.usage.output_tokens > 0
        and entry.payload.model in {None, model}
    ]
    return round(statistics.median(written)) if written else None


def _is_too_large(
    path: Sequence[Entry], reply: Entry, usage: Usage, model: str | None, window: int
) -> bool:
    """Return whether the count of a reply on a path cannot be that of a request in this window."""
    earlier = dropwhile(lambda each: each.id != reply.id, reversed(path))
    # those before the last compaction before the reply, newest first
    counts = (
        each.payload.usage.input_tokens
        for each in dropwhile(lambda each: not isinstance(each.payload, Checkpoint), earlier)
        if isinstance(each.payload, MessageEntry)
        and each.payload.usage
        and (model is None or each.payload.model in {None, model})
    )
    return (
        usage.output_tokens > window
        or usage.input_tokens > MAX_OVERFLOW * window
        or (usage.input_tokens > window and next(counts, 0) > window)
    )


PARTS = {"tool": "results", "system": "system"}
"""The parts of the messages of these roles. All others are `messages`."""

SUMMARY_KINDS = frozenset({"summary", "replacement", "branch_summary"})
"""The kinds of view items that show a summary, or stand beside it in place of earlier messages."""


@attrs.frozen(kw_only=True)
class UsageByPart:
    """The tokens of a request by part. Each token is in exactly one part."""

    system: int = 0
    """The instructions, and the framing of the request."""
    tools: int = 0
    """The tool definitions."""
    summary: int = 0
    """The summary, and the messages that a checkpoint shows beside it."""
    messages: int = 0
    """The messages of the user and of the model, tool calls included."""
    results: int = 0
    """The tool results."""

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.system + self.tools + self.conversation

    @property
    def conversation(self) -> int:
        """The sum of all parts besides the instructions and the tools."""
        return self.summary + self.messages + self.results

    def __add__(self, other: UsageByPart) -> UsageByPart:
        return UsageByPart(
            system=self.system + other.system,
            tools=self.tools + other.tools,
            summary=self.summary + other.summary,
            messages=self.messages + other.messages,
            results=self.results + other.results,
        )


def count_parts(
    messages: Iterable[Message], summary_ids: Collection[int], count: Callable[[Message], int]
) -> UsageByPart:
    """Sum up the tokens of the messages of a conversation by part.

    Args:
        messages: The messages.
        summary_ids: The identities (`id`) of those that belong to a summary.
        count: Counts the tokens of a message.

    Returns:
        The sizes, without instructions and tools.
    """
    parts: dict[str, int] = dict.fromkeys(("system", "summary", "messages", "results"), 0)
    for message in messages:
        part = "summary" if id(message) in summary_ids else PARTS.get(message.role, "messages")
        parts[part] += count(message)
    return UsageByPart(**parts)


def find_summary_ids(items: Iterable[ViewItem]) -> frozenset[int]:
    """Return the identities of the messages of a view that belong to a summary."""
    return frozenset(id(item.message) for item in items if item.kind in SUMMARY_KINDS)


@attrs.frozen(kw_only=True)
class LeastSize:
    """The least that the requests of a conversation can be compacted to, by part.

    All sizes are tokens.
    """

    instructions: int
    """The instructions, and the framing of the request."""
    tools: int
    """The tool definitions."""
    newest: int
    """The last user message, and the newest reply after it. Tool results do not count: they are
    shortened if they must be."""
    summary: int = 0
    """The largest summary; 0 where no request that is too large is summarized."""
    beside: int = 0
    """The user's earlier messages and a block of carried context beside it."""
    limit: int | None = None
    """The most that a request may have: the window without what is reserved for the reply. None:
    unknown."""

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.instructions + self.tools + self.newest + self.summary + self.beside

    @property
    def is_possible(self) -> bool:
        """Return whether requests fit: without a summary, and with one after a compaction.

        A large newest message alone is no obstacle.
        """
        return (
            self.limit is None
            or self.instructions + self.tools + max(self.newest, self.summary + self.beside)
            <= self.limit
        )

    def explain(self) -> str:
        """Describe the sizes, and what to do where they do not fit.

        >>> print(LeastSize(instructions=9_000, tools=1_000, newest=40, summary=1_500, limit=10_000).explain())
        the conversation can be compacted to 11,540 tokens at least, and a request may have 10,000: instructions 9,000, tools 1,000, \
the newest message 40, the largest summary 1,500. Shorten the largest of them, or use a larger window or model.
        """
        parts = {
            "instructions": self.instructions,
            "tools": self.tools,
            "the newest message": self.newest,
            "the largest summary": self.summary,
            "what stands beside it": self.beside,
        }
        listed = ", ".join(f"{name} {tokens:,}" for name, tokens in parts.items() if tokens)
        limit = "" if self.limit is None else f", and a request may have {self.limit:,}"
        return (
            f"the conversation can be compacted to {self.total:,} tokens at least{limit}: {listed}. "
            "Shorten the largest of them, or use a larger window or model."
        )

    def check(self) -> None:
        """Raise ContextWindowFullError, with the sizes, if requests cannot fit."""
        if not self.is_possible:
            raise ContextWindowFullError(self.explain())


def compacts_overflow(policy: Policy, budget: ContextBudget) -> bool:
    """Return whether a policy compacts a conversation of many messages whose request is too large."""
    tokens = 2 * (budget.render_budget or 0) + 1
    return isinstance(
        policy.decide(PolicyState(phase="overflow", budget=budget, tokens=tokens, messages=tokens)),
        Compact,
    )


AUTOMATIC_PHASES: tuple[Phase, ...] = ("before_render", "rendered", "turn_end")
"""The phases of a turn in which a policy may compact because of the size alone."""

UNKNOWN_WINDOW_TOKENS = 10_000_000
"""Up to this size a threshold is looked for where the window is unknown."""


def find_threshold(policy: Policy, budget: ContextBudget, *, warm: bool) -> int | None:
    """Find the smallest size from which a policy compacts, with a binary search over its decisions.

    Args:
        policy: The policy. It compacts from one size on, and not below it.
        budget: The budget of requests.
        warm: Whether the provider's prompt cache holds the start of the request.

    Returns:
        The size in tokens; None if the policy compacts at none that the window can have.
    """

    def compacts(tokens: int) -> bool:
        states = (
            PolicyState(phase=phase, budget=budget, tokens=tokens, warm=warm, messages=tokens)
            for phase in AUTOMATIC_PHASES
        )
        return any(isinstance(policy.decide(state), Compact | StartBackground) for state in states)

    highest = budget.window or budget.limit or UNKNOWN_WINDOW_TOKENS
    return bisect_left(range(highest), 1, key=compacts) if compacts(highest) else None


def count_newest(items: Sequence[ViewItem], tokenizer: Tokenizer) -> int:
    """Count the tokens of the last user message of a view, and of the newest reply after it."""
    last = find_last_user_request(items)
    reply = next(
        (
            at
            for at in range(len(items) - 1, last or 0, -1)
            if items[at].message.role == "assistant"
        ),
        None,
    )
    count = Sizer(tokenizer).count_message
    return sum(count(items[at].message) for at in (last, reply) if at is not None)


def describe_largest(messages: Sequence[Message], tokenizer: Tokenizer) -> str:
    """Name the three largest messages of a request, with their sizes in tokens, and what to do about them.

    >>> print(describe_largest(messages, tokenizer))
    The largest messages: result of read_file 4,300, result of search 1,200, user 310. Shorten them, or use a larger window or model.
    """
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    count = Sizer(tokenizer).count_message
    sizes = [(message, count(message)) for message in messages]
    shown = ", ".join(
        f"{f'result of {tool}' if tool else message.role} {tokens:,}"
        for message, tokens in nlargest(3, sizes, key=itemgetter(1))
        for tool in [names.get(message.tool_call_id or "")]
    )
    return f"The largest messages: {shown}. Shorten them, or use a larger window or model."
