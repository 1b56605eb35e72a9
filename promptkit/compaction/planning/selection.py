"""Where a conversation is cut: what the next summary stands for, and what stays as it is.

A cut never parts calls from their results. A view starts with what its checkpoint left, and so does every plan: an earlier summary and
what it kept are summarized once more, nothing before them is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.compaction.planning.blocks import (
    Block,
    blocks_of,
    is_opening,
    is_request,
    is_summary,
    last_request,
    open_requests,
    starts_turn,
    summary_text,
)
from promptkit.compaction.planning.plan import Plan
from promptkit.compaction.planning.user_messages import newest_within
from promptkit.errors import InvalidArgumentError
from promptkit.rendering.sizing import Sizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.view import TranscriptView, ViewItem

__all__ = [
    "Keep",
    "KeepAfter",
    "KeepLastMessages",
    "KeepLastRound",
    "KeepLastTurns",
    "KeepNothing",
    "KeepRecentTokens",
    "KeepUserMessages",
    "is_system",
    "select",
]


@attrs.frozen(kw_only=True)
class KeepLastRound:
    """Keep the newest rounds of the current turn; if it has no more than these, all of it, and summarize the turns before.

    A round is an answer of the model with the results of its calls. `background`: the summary is put in place later, when more rounds
    have come, so that the first round is covered even if there are no others yet. (VS Code Copilot Chat.)
    """

    keep: int = 1
    background: bool = False


@attrs.frozen(kw_only=True)
class KeepRecentTokens:
    """Keep the newest blocks of at most `tokens` together, and the newest in any case."""

    tokens: int


@attrs.frozen(kw_only=True)
class KeepLastMessages:
    """Keep at least the newest `count` messages: a few more where the cut would part calls from results."""

    count: int


@attrs.frozen(kw_only=True)
class KeepLastTurns:
    """Keep the newest `count` turns, each from what was asked on."""

    count: int


@attrs.frozen(kw_only=True)
class KeepAfter:
    """Drop everything through an entry, and at least that: the rest of its block goes with it."""

    entry: str


@attrs.frozen(kw_only=True)
class KeepUserMessages:
    """Keep only what the person wrote, the newest `tokens` of it; of the message on the edge its beginning and its end."""

    tokens: int


@attrs.frozen(kw_only=True)
class KeepNothing:
    """Keep nothing but what is pinned, a request without an answer, and calls that are still running."""


Keep: TypeAlias = KeepLastRound | KeepRecentTokens | KeepLastMessages | KeepLastTurns | KeepAfter | KeepUserMessages | KeepNothing


def is_system(item: ViewItem) -> bool:
    """Whether a message is one of the system's; a summary in the system's name is none."""
    return item.message.role == "system" and not is_summary(item)


def select(  # noqa: PLR0913  # what can be said of a cut
    projection: TranscriptView,
    *,
    leaf: str,
    tokenizer: Tokenizer,
    keep: Keep | None = None,
    pin: Callable[[ViewItem], bool] = is_system,
    pin_first: bool = False,
    replay: bool = True,
    split: bool = False,
    room: int | None = None,
) -> Plan:
    """The plan for a view: a partition of its messages. Linear in their number.

    `keep` is KeepLastRound() by default. `pin` says what stays though it is old, and takes its block with it; `pin_first` adds the first
    request. `replay`: requests that are still worked on are said again where the cut is behind them. `split`: of a turn that is cut in
    two, the first part is the plan's `prefix`, for a summary of its own. `room` is what is kept may have, in tokens: where it has
    more, the plan says so. Where there is nothing new to summarize, everything is kept.

    Raises InvalidArgumentError for a Through whose entry is not shown, or whose calls are running.
    """
    items = projection.items
    view = _View(items, blocks_of(items), Sizer(tokenizer).message)
    wanted = KeepLastRound() if keep is None else keep
    cut = min(view.cut(wanted), view.running)
    pins = _pins(view, cut, pin, first=pin_first)
    shown: dict[int, ViewItem] = {}
    if isinstance(wanted, KeepUserMessages):
        shown = _user_messages(view, cut, pins, wanted.tokens, tokenizer)
    replayed = [at for at in open_requests(items) if at < cut and at not in pins and at not in shown] if replay else []
    apart = pins | shown.keys() | set(replayed)
    start = view.turn_start(cut) if split else cut
    dropped = _summarized(items, range(start), apart)
    prefix = _summarized(items, range(start, cut), apart)
    kept = items[cut:]
    most = wanted.tokens if room is None and isinstance(wanted, KeepRecentTokens) else room
    tokens = 0 if most is None else sum(view.count(item.message) for item in kept)
    plan = Plan(
        leaf=leaf,
        previous=_previous(projection),
        dropped=dropped,
        prefix=prefix,
        kept=kept,
        pinned=tuple(shown.get(at, items[at]) for at in sorted(pins | shown.keys())),
        replayed=tuple(items[at] for at in replayed),
        oversized=tokens if most is not None and tokens > most else None,
    )
    if all(map(is_opening, (*dropped, *prefix))):
        return attrs.evolve(plan, dropped=(), prefix=(), kept=items, pinned=(), replayed=())
    return plan


class _View:
    """A view with its blocks, and the places at which it can be cut."""

    def __init__(self, items: Sequence[ViewItem], blocks: Sequence[Block], count: Callable[..., int]) -> None:
        self.items = items
        self.blocks = blocks
        self.count = count
        self.running = next((block.start for block in blocks if block.running), len(items))

    def cut(self, keep: Keep) -> int:
        """The place of the first message that is kept."""
        match keep:
            case KeepLastRound():
                return self._rounds(keep)
            case KeepRecentTokens(tokens=tokens):
                return self._recent(tokens)
            case KeepLastMessages(count=count):
                return self._block_at(len(self.items) - count).start if count > 0 else len(self.items)
            case KeepLastTurns(count=count):
                starts = [at for at in range(len(self.items)) if starts_turn(self.items, at)]
                return len(self.items) if count <= 0 else starts[-count] if len(starts) >= count else 0
            case KeepAfter(entry=entry):
                return self._through(entry)
            case KeepUserMessages() | KeepNothing():
                return len(self.items)

    def turn_start(self, cut: int) -> int:
        """The start of the turn that a cut goes through; the cut itself where it goes through none."""
        if cut >= len(self.items) or starts_turn(self.items, cut):
            return cut
        return next((at for at in range(cut - 1, -1, -1) if starts_turn(self.items, at)), cut)

    def _rounds(self, keep: KeepLastRound) -> int:
        request = last_request(self.items)
        turn = 0 if request is None else request + 1
        answers = [block for block in self.blocks if self.items[block.start].message.role == "assistant"]
        rounds = [block for block in answers if block.start >= turn]
        last = len(rounds) - 1 - max(0, keep.keep)
        if keep.background and rounds:
            last = max(0, last)
        if last >= 0:
            return rounds[last].end
        older = [block for block in answers if block.start < turn]
        return older[-1].end if older else 0

    def _recent(self, tokens: int) -> int:
        left = tokens
        cut = len(self.items)
        for block in reversed(self.blocks):
            left -= sum(self.count(item.message) for item in self.items[block.start : block.end])
            if left < 0 and cut < len(self.items):
                break
            cut = block.start
        return cut

    def _through(self, entry: str) -> int:
        at = next((at for at in range(len(self.items) - 1, -1, -1) if self.items[at].entry == entry), None)
        if at is None:
            problem = f"nothing can be dropped through the entry {entry!r}: it is not in the view."
            raise InvalidArgumentError(problem)
        end = self._block_at(at).end
        if end > self.running:
            problem = f"nothing can be dropped through the entry {entry!r}: tool calls before it, or its own, are not answered yet."
            raise InvalidArgumentError(problem)
        return end

    def _block_at(self, at: int) -> Block:
        return next((block for block in reversed(self.blocks) if block.start <= at), Block(0, 0))


def _previous(projection: TranscriptView) -> str | None:
    """The summary that a view starts with: as its checkpoint has it, or as the message shows it."""
    shown = [item for item in projection.items if is_summary(item)]
    if not shown:
        return None
    return projection.summary or next(filter(None, (summary_text(item.message) for item in shown)), None)


def _summarized(items: Sequence[ViewItem], places: Iterable[int], apart: AbstractSet[int]) -> tuple[ViewItem, ...]:
    """What is left of a stretch; the message of an earlier summary under that name, wherever it comes from."""
    left = (items[at] for at in places if at not in apart)
    return tuple(attrs.evolve(item, kind="summary") if is_summary(item) else item for item in left)


def _pins(view: _View, cut: int, pin: Callable[[ViewItem], bool], *, first: bool) -> frozenset[int]:
    places: list[int] = []
    opened = not first
    for block in view.blocks:
        if block.start >= cut:
            break
        wanted = any(pin(item) for item in view.items[block.start : block.end])
        if not opened and is_request(view.items[block.start]):
            opened = wanted = True
        if wanted:
            places.extend(range(block.start, block.end))
    return frozenset(places)


def _user_messages(view: _View, cut: int, pins: AbstractSet[int], tokens: int, tokenizer: Tokenizer) -> dict[int, ViewItem]:
    """What the person wrote, newest first, as far as it has room."""
    places = [at for at in range(cut) if at not in pins and is_request(view.items[at])]
    return newest_within(view.items, places, tokens, tokenizer=tokenizer, count=view.count)
