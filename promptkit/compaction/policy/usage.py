"""How much of the window a conversation takes: what the provider counted last, and what was counted here of all that came since.

How full a conversation's window is: what the last request took, and what the next one will.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import attrs

from promptkit.rendering.sizing import Sizer
from promptkit.transcript.entries import Checkpoint, Edit, MessageEntry, Reset
from promptkit.transcript.view import NEVER_REPLAYED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from promptkit.messages import Message
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.transcript import Transcript
    from promptkit.transcript.view import TranscriptView, ViewItem

__all__ = ["FACTORS", "Anchor", "Rejected", "UsageMeter", "UsageReading", "WindowUsage", "anchors"]


FACTORS = (0.5, 2.0)
"""How far the provider's counts may correct those made here. A greater difference is no matter of counting."""

RECENT = 5
"""The newest counts of the provider that the correction is made of."""

LOOK_BACK = 20
"""Counts that tell nothing, one after the other, behind which no other is looked for: what is counted here is as good as one so old."""


@attrs.frozen(kw_only=True)
class Anchor:
    """A count of the provider's that still tells of what the model is shown: that of the request that `entry` answered."""

    entry: str
    input_tokens: int
    """The request, with what a cache had of it."""
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The request and its answer: what the next request begins with."""
        return self.input_tokens + self.output_tokens


@attrs.frozen(kw_only=True)
class Rejected:
    """A count of the provider's that tells nothing of what the model is shown, and why."""

    entry: str
    why: str


def anchors(path: Sequence[Entry], *, model: str | None = None, window: int | None = None) -> Iterator[Anchor | Rejected]:
    """The provider's counts on a path, newest first, back to the last entry that changed the view: a checkpoint, an edit, a reset.

    Rejected are counts of 0, of another model than `model`, larger than the `window`, and those of answers that failed. Where no model
    or no window is given, or nobody wrote down which model answered, that is no reason.
    """
    for at in range(len(path) - 1, -1, -1):
        payload = path[at].payload
        if isinstance(payload, MessageEntry):
            if payload.usage is not None:
                yield _judged(path[at].id, payload, model, window)
        elif isinstance(payload, Checkpoint | Edit | Reset):
            return


def _judged(entry: str, said: MessageEntry, model: str | None, window: int | None) -> Anchor | Rejected:
    usage = said.usage
    if usage is None or usage.input_tokens <= 0:
        return Rejected(entry=entry, why="no input was counted")
    if usage.output_tokens < 0 or usage.cached_tokens > usage.input_tokens:
        return Rejected(entry=entry, why="its parts contradict each other")
    if said.finish in NEVER_REPLAYED:
        return Rejected(entry=entry, why=f"the answer ended with {said.finish!r}")
    if model is not None and said.model is not None and said.model != model:
        return Rejected(entry=entry, why=f"it is of {said.model}, and not of {model}")
    if window is not None and usage.input_tokens + usage.output_tokens > window:
        return Rejected(entry=entry, why=f"{usage.input_tokens + usage.output_tokens:,} tokens are more than the window of {window:,}")
    # What a cache had is part of the input: not counted twice.
    return Anchor(entry=entry, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


@attrs.frozen(kw_only=True)
class UsageReading:
    """How much of the window the next request takes, in tokens: its messages, its tools and what else every request has."""

    local: int
    """As counted here."""
    provider: int | None = None
    """The last count of the provider's with what came since. None: unknown, as after a compaction until the next answer. Show this."""
    anchor: str | None = None
    """The entry whose count that is."""
    factor: float = 1.0
    """The provider's counts by those made here, of late; 1 where nothing is known."""
    rejected: tuple[Rejected, ...] = ()
    """Newer counts that tell nothing."""

    @property
    def calibrated(self) -> int:
        """What the provider probably counts: the local count, corrected."""
        return math.ceil(self.local * self.factor)

    @property
    def tokens(self) -> int:
        """What to decide by: never less than what was counted here, so that nothing on the wire can hide growth."""
        return max(self.local, self.calibrated if self.provider is None else self.provider)


class UsageMeter:
    """Reads how much of the window a conversation takes. Each message is counted once, for as long as it stays in view.

    `model` is whose counts are taken, as entries name it; None takes all. Not for use from several threads at once.
    """

    def __init__(self, tokenizer: Tokenizer, *, model: str | None = None) -> None:
        self.model = model
        self._sizer = Sizer(tokenizer)
        self._items: list[ViewItem] = []
        self._before: list[int] = [0]
        """Tokens before each of the items, and behind the last."""
        self._places: dict[str, int] = {}
        self._factors: dict[str, float] = {}

    def read(self, path: Sequence[Entry], view: TranscriptView, *, fixed: int = 0, window: int | None = None) -> UsageReading:
        """The reading of a path and its view.

        `fixed` are the tokens that every request has beside the view: system prompt, tool definitions, framing. `window` is the
        model's, in tokens. Entries and messages that were read before cost a comparison each.
        """
        self._follow(view.items)
        found: Anchor | None = None
        rejected: list[Rejected] = []
        factors: dict[str, float] = {}
        for anchor in anchors(path, model=self.model, window=window):
            if isinstance(anchor, Rejected):
                if found is None:
                    rejected.append(anchor)
                if len(rejected) == LOOK_BACK:
                    break
                continue
            place = self._places.get(anchor.entry)
            if place is None:
                continue
            found = found or anchor
            factors[anchor.entry] = _bounded(anchor.input_tokens / max(1, fixed + self._before[place]))
            if len(factors) == RECENT:
                break
        local = self._before[-1]
        return UsageReading(
            local=fixed + local,
            provider=None if found is None else found.tokens + local - self._before[self._places[found.entry] + 1],
            anchor=None if found is None else found.entry,
            factor=self._factor(factors),
            rejected=tuple(rejected),
        )

    def count(self, message: Message) -> int:
        """The tokens of one message."""
        return self._sizer.message(message)

    def switch(self, model: str | None) -> None:
        """Go on with another model: what was learnt of the one before is forgotten."""
        self.model = model
        self._factors.clear()

    def _follow(self, items: Sequence[ViewItem]) -> None:
        """Bring the sums up to date: what is as it was at the front of the view stays, the rest is looked up or counted."""
        old = self._items
        same = len(old) if list(items[: len(old)]) == old else 0  # as a rule something was appended: compared at once
        for before, now in zip(old[same:], items[same:], strict=False):
            if before is not now and not _is_same(before, now):
                break
            same += 1
        if same == len(old) == len(items):
            return
        # Behind a change most messages are as they were, only elsewhere.
        known = {id(item.message): self._before[at + 1] - self._before[at] for at, item in enumerate(old[same:], same)}
        for at, item in enumerate(old[same:], same):
            if self._places.get(item.entry) == at:
                del self._places[item.entry]
        gone = old[same:]  # keeps the messages alive while their ids are looked up
        del old[same:], self._before[same + 1 :]
        for item in items[same:]:
            self._places.setdefault(item.entry, len(old))
            tokens = known.get(id(item.message))
            self._before.append(self._before[-1] + (self.count(item.message) if tokens is None else tokens))
            old.append(item)
        del gone

    def _factor(self, newest: dict[str, float]) -> float:
        """The median of the newest counts; where the view has few of them, of those known from before."""
        for entry, factor in reversed(newest.items()):
            self._factors.pop(entry, None)
            self._factors[entry] = factor
        while len(self._factors) > RECENT:
            del self._factors[next(iter(self._factors))]
        return statistics.median(self._factors.values()) if self._factors else 1.0


def _is_same(before: ViewItem, now: ViewItem) -> bool:
    return before.entry == now.entry and (before.message is now.message or before.message == now.message)


def _bounded(factor: float) -> float:
    least, most = FACTORS
    return min(max(factor, least), most)


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
        fixed: int,
    ) -> None:
        """Measure the requests that show a transcript.

        Args:
            transcript: The conversation; its path holds the provider's counts.
            view: Returns what requests show of the transcript now.
            changed: Returns why the view of the path that ended with an entry (its id) no longer holds. None: it was at most appended to.
            tokenizer: Counts messages.
            model: The model whose counts are used, as entries name it.
            fixed: Tokens of every request besides the conversation, until the first render measures them.
        """
        self.fixed = fixed
        """Tokens that every request has besides the conversation: system prompt, tool definitions, framing. Measured at each render."""
        self.items = 0
        """Number of items of the view at the last render."""
        self.leaf: str | None = None
        """The last entry of the path at the last render."""
        self._transcript = transcript
        self._view = view
        self._changed = changed
        self._rendered_tokens = 0
        self._meter = UsageMeter(tokenizer, model=model)
        self._stale_leaf: str | None = None
        """Counts up to this entry belong to requests whose view was changed before the reply came."""
        self._cached: tuple[TranscriptView, tuple[object, ...], UsageReading] | None = None

    @property
    def moved(self) -> bool:
        """Whether a compaction, an edit or a rewind changed the view after the last render. Appended messages do not."""
        return self.leaf is not None and self._changed(self.leaf) is not None

    def reading(self, window: int | None) -> UsageReading:
        """Measure how much of a context window of `window` tokens the next request takes."""
        view = self._view()
        key = (self.fixed, window, self._stale_leaf)
        if self._cached is None or self._cached[0] is not view or self._cached[1] != key:
            self._cached = view, key, self._meter.read(self._path_since_stale_leaf(), view, fixed=self.fixed, window=window)
        return self._cached[2]

    def on_rendered(self, tokens: int, window: int | None, *, pruned: bool) -> None:
        """Record a rendered request of `tokens`. A `pruned` one lacks part of the conversation, so `fixed` is not measured by it."""
        if not pruned:
            self.fixed = max(0, tokens - (self.reading(window).local - self.fixed))
        self.items, self._rendered_tokens, self.leaf = len(self._view().items), tokens, self._transcript.leaf

    def on_reply(self, window: int | None) -> int:
        """Record that the reply to the rendered request is in the transcript, and return the tokens to decide by.

        If the view was changed before the reply came, neither the rendered request nor the provider's count of it is used.
        """
        if self.moved:
            self._stale_leaf = self._transcript.leaf
            return self.reading(window).tokens
        return max(self._rendered_tokens, self.reading(window).tokens)

    def _path_since_stale_leaf(self) -> tuple[Entry, ...]:
        path = self._transcript.path()
        start = next((at for at in range(len(path), 0, -1) if path[at - 1].id == self._stale_leaf), 0) if self._stale_leaf else 0
        return path[start:]
