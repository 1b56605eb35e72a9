"""Where a view is cut for a compaction: which messages the next summary replaces, and which ones stay.

A cut never separates tool calls from their results. A view starts after its checkpoint, and so does
every plan: an earlier summary and the messages that it kept are summarized again; nothing before
them is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set as AbstractSet
from itertools import accumulate, compress, count, takewhile
from typing import TypeAlias

import attrs

from promptkit.compaction.planning.blocks import (
    Block,
    extract_summary_text,
    find_last_user_request,
    find_open_user_requests,
    group_blocks,
    is_checkpoint_item,
    is_summary,
    is_user_request,
    starts_turn,
    unmark_request,
)
from promptkit.compaction.planning.plan import Plan
from promptkit.compaction.planning.user_messages import keep_newest
from promptkit.errors import InvalidArgumentError
from promptkit.rendering.expand.sizing import Sizer
from promptkit.sizes import read_tokens
from promptkit.tokens import Tokenizer
from promptkit.transcript import TranscriptView, ViewItem


@attrs.frozen(kw_only=True)
class KeepLastRound:
    """Keep the newest rounds of the current turn; if it has no more than these, keep the turn and summarize the earlier ones.

    A round is a reply of the model with the results of its tool calls. The rule is that of VS Code
    Copilot Chat.
    """

    count: int = 1
    """Number of rounds to keep."""
    background: bool = False
    """Whether the summary is applied later, after more rounds. Then the first round is summarized
    even if it is the only one."""
    max_tokens: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens of what stays; the newest round stays in any case. None: half of what a
    conversation may have."""


@attrs.frozen(kw_only=True)
class KeepRecentTokens:
    """Keep the newest blocks of together at most `tokens`, and always the newest one.

    A session keeps at most half of what a conversation may have.
    """

    tokens: int = attrs.field(converter=read_tokens)
    at_least: bool = False
    """Keep one block more, so that at least `tokens` stay, as in pi. A block of more than `tokens`
    is kept only if it is the newest."""


@attrs.frozen(kw_only=True)
class KeepLastMessages:
    """Keep the newest `count` messages, and a few more where the cut would separate tool calls from results."""

    count: int
    max_tokens: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens of what stays; the newest block stays in any case. None: half of what a
    conversation may have."""


@attrs.frozen(kw_only=True)
class KeepLastTurns:
    """Keep the newest `count` turns, each from its user message on."""

    count: int
    max_tokens: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens of what stays: of longer turns the newest blocks. None: half of what a
    conversation may have."""


@attrs.frozen(kw_only=True)
class KeepAfter:
    """Drop everything up to and including an entry and the rest of its block."""

    entry_id: str


@attrs.frozen(kw_only=True)
class KeepUserMessages:
    """Keep only user messages, the newest `tokens` of them, and a round of tool calls that the model has not replied to.

    The oldest message that is kept is cut in its middle to fit.
    """

    tokens: int = attrs.field(converter=read_tokens)


@attrs.frozen(kw_only=True)
class KeepNothing:
    """Keep only pinned messages, user requests without a final reply, and the newest round of tool calls if the model has not replied to it."""


Keep: TypeAlias = (
    KeepLastRound
    | KeepRecentTokens
    | KeepLastMessages
    | KeepLastTurns
    | KeepAfter
    | KeepUserMessages
    | KeepNothing
)
"""Which messages of a view stay."""


def limit_keep(keep: Keep, max_tokens: int | None) -> Keep:
    """Limit the tokens that a rule keeps to `max_tokens`, or to its own limit if that is lower.

    None: its own limit alone.

    A compaction that keeps as much as a conversation may have makes no room, and the next one would
    follow at once.
    """
    match keep:
        case KeepLastRound() | KeepLastMessages() | KeepLastTurns():
            limits = [limit for limit in (keep.max_tokens, max_tokens) if limit is not None]
            return attrs.evolve(keep, max_tokens=min(limits, default=None))
        case KeepRecentTokens() | KeepUserMessages():
            return (
                keep
                if max_tokens is None
                else attrs.evolve(keep, tokens=min(keep.tokens, max_tokens))
            )
        case KeepAfter() | KeepNothing():
            return keep


def is_system(item: ViewItem) -> bool:
    """Return whether an item is a system message. A summary with the role `system` is none."""
    return item.message.role == "system" and not is_summary(item)


def select(  # noqa: PLR0913  # keywords
    view: TranscriptView,
    *,
    leaf: str,
    tokenizer: Tokenizer,
    keep: Keep | None = None,
    pin: Callable[[ViewItem], bool] = is_system,
    max_replayed_tokens: int | str | None = None,
    split: bool = False,
) -> Plan:
    """Plan a compaction: partition the messages of a view.

    Linear in their number. If there is nothing new to summarize, everything stays.

    Args:
        view: The view.
        leaf: The last entry of the path.
        tokenizer: Counts messages.
        keep: Which messages stay. None: `KeepLastRound()`.
        pin: Returns whether an item stays although it is old. Its block stays with it. Default:
            system messages.
        max_replayed_tokens: The most tokens of the open user requests before the cut, which are
            repeated after the summary; the newest one is in any case. Older ones are dropped.
            None: no limit.
        split: Whether the first part of a turn that is cut becomes the plan's `prefix`, for a
            summary of its own.

    Returns:
        The plan.

    Raises:
        InvalidArgumentError: The entry of `KeepAfter` is not in the view, or a tool call up to it
            has no result yet.
    """
    items = view.items
    keep = KeepLastRound() if keep is None else keep
    sizer = Sizer(tokenizer)
    cutter = _Cutter(items, group_blocks(items), sizer.count_message)
    cut = min(cutter.find_cut(keep), cutter.running)
    pinned = set(compress(count(), map(pin, items[:cut])))
    pins = frozenset(
        at
        for block in (cutter.blocks if pinned else ())
        if not pinned.isdisjoint(range(block.start, block.end))
        for at in range(block.start, block.end)
    )
    verbatim: dict[int, ViewItem] = {}
    if isinstance(keep, KeepUserMessages):
        opened = find_open_user_requests(items)
        is_open = {
            at: at in opened for at in range(cut) if at not in pins and is_user_request(items[at])
        }
        verbatim = keep_newest(items, is_open, keep.tokens, sizer)
        for at in verbatim.keys() & opened[-1:]:  # the request that is worked on
            verbatim[at] = attrs.evolve(verbatim[at], message=unmark_request(verbatim[at].message))
    most = None if max_replayed_tokens is None else read_tokens(max_replayed_tokens)
    replayed = [
        at for at in cutter.find_open_requests(cut, most) if at not in pins and at not in verbatim
    ]
    staying = pins | verbatim.keys() | set(replayed)
    start = cutter.find_turn_start(cut) if split else cut
    dropped = _items_to_summarize(items, range(start), staying)
    prefix = _items_to_summarize(items, range(start, cut), staying)
    limit = keep.tokens * (1 + keep.at_least) if isinstance(keep, KeepRecentTokens) else None
    tokens = 0 if limit is None else sum(cutter.count(item.message) for item in items[cut:])
    plan = Plan(
        leaf=leaf,
        previous=_find_previous_summary(view),
        dropped=dropped,
        prefix=prefix,
        kept=items[cut:],
        pinned=tuple(verbatim.get(at, items[at]) for at in sorted(pins | verbatim.keys())),
        replayed=tuple(items[at] for at in replayed),
        oversized_tokens=tokens if limit is not None and tokens > limit else None,
    )
    if all(map(is_checkpoint_item, (*dropped, *prefix))):
        return attrs.evolve(plan, dropped=(), prefix=(), kept=items, pinned=(), replayed=())
    return plan


class _Cutter:
    """The items of a view, its blocks, and the indexes at which it can be cut."""

    def __init__(
        self, items: Sequence[ViewItem], blocks: Sequence[Block], count: Callable[..., int]
    ) -> None:
        self.items = items
        self.blocks = blocks
        self.count = count
        self.running = next((block.start for block in blocks if block.running), len(items))
        """The start of the round of tool calls that wait for results."""

    def find_cut(self, keep: Keep) -> int:
        """Return the index of the first message that stays."""
        match keep:
            case KeepLastRound(max_tokens=max_tokens):
                return self._limit(self._cut_before_rounds(keep), max_tokens)
            case KeepRecentTokens(tokens=tokens, at_least=at_least):
                return self._cut_by_tokens(tokens, at_least=at_least)
            case KeepLastMessages(count=count, max_tokens=max_tokens):
                return self._limit(
                    self._block_at(len(self.items) - count).start if count > 0 else len(self.items),
                    max_tokens,
                )
            case KeepLastTurns(count=count, max_tokens=max_tokens):
                starts = [at for at in range(len(self.items)) if starts_turn(self.items, at)]
                cut = (
                    len(self.items) if count <= 0 else starts[-count] if len(starts) >= count else 0
                )
                return self._limit(cut, max_tokens)
            case KeepAfter(entry_id=entry):
                return self._cut_after(entry)
            case KeepUserMessages() | KeepNothing():
                return self._find_unanswered()

    def _find_unanswered(self) -> int:
        """Return the start of the newest round if the model has not replied to it: a model that does not see its calls makes them again."""
        for block in reversed(self.blocks):
            message = self.items[block.start].message
            if message.role == "assistant":
                return (
                    block.start
                    if message.tool_calls and not is_checkpoint_item(self.items[block.start])
                    else len(self.items)
                )
            if is_user_request(self.items[block.start]):
                break
        return len(self.items)

    def find_open_requests(self, cut: int, max_tokens: int | None) -> list[int]:
        """Return the indexes of the newest open user requests before a cut that have at most `max_tokens` together, and of the newest at least."""
        places = [at for at in find_open_user_requests(self.items) if at < cut]
        if max_tokens is None:
            return places
        sums = accumulate(self.count(self.items[at].message) for at in reversed(places))
        fitting = sum(1 for _ in takewhile(max_tokens.__ge__, sums))
        return places[-max(1, fitting) :]

    def find_turn_start(self, cut: int) -> int:
        """Return the start of the turn that a cut splits, or the cut itself if it splits none."""
        if cut >= len(self.items) or starts_turn(self.items, cut):
            return cut
        return next((at for at in range(cut - 1, -1, -1) if starts_turn(self.items, at)), cut)

    def _cut_before_rounds(self, keep: KeepLastRound) -> int:
        request = find_last_user_request(self.items)
        turn = 0 if request is None else request + 1
        answers = [
            block for block in self.blocks if self.items[block.start].message.role == "assistant"
        ]
        rounds = [block for block in answers if block.start >= turn]
        last = len(rounds) - 1 - max(0, keep.count)
        if keep.background and rounds:
            last = max(0, last)
        if last >= 0:
            return rounds[last].end
        older = [block for block in answers if block.start < turn]
        return older[-1].end if older else 0

    def _limit(self, cut: int, max_tokens: int | None) -> int:
        """Return a later cut if more than `max_tokens` would stay."""
        return (
            cut
            if max_tokens is None or cut >= len(self.items)
            else max(cut, self._cut_by_tokens(max_tokens))
        )

    def _cut_by_tokens(self, tokens: int, *, at_least: bool = False) -> int:
        left = tokens
        cut = len(self.items)
        for block in reversed(self.blocks):
            size = sum(self.count(item.message) for item in self.items[block.start : block.end])
            left -= size
            if left < 0 and cut < len(self.items):
                return block.start if at_least and size <= tokens else cut
            cut = block.start
        return cut

    def _cut_after(self, entry: str) -> int:
        at = next(
            (at for at in range(len(self.items) - 1, -1, -1) if self.items[at].entry_id == entry),
            None,
        )
        if at is None:
            raise InvalidArgumentError(
                f"cannot cut after the entry {entry!r}: it is not in the view."
            )
        end = self._block_at(at).end
        if end > self.running:
            raise InvalidArgumentError(
                f"cannot cut after the entry {entry!r}: it or an earlier one has tool calls without results."
            )
        return end

    def _block_at(self, at: int) -> Block:
        return next((block for block in reversed(self.blocks) if block.start <= at), Block(0, 0))


def _find_previous_summary(view: TranscriptView) -> str | None:
    """Return the summary that a view starts with: the text in its checkpoint, or that of the message."""
    shown = list(filter(is_summary, view.items))
    if not shown:
        return None
    return view.summary or next(
        filter(None, (extract_summary_text(item.message) for item in shown)), None
    )


def _items_to_summarize(
    items: Sequence[ViewItem], places: Iterable[int], staying: AbstractSet[int]
) -> tuple[ViewItem, ...]:
    """Return the items at some indexes that do not stay."""
    return tuple([items[at] for at in places if at not in staying])
