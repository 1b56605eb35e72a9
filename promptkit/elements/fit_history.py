"""Fit recorded messages into a number of tokens: long messages are shortened, then the oldest rounds are dropped.

What stays is decided in this order:

1. System messages, and others that must stay whole, stay as they are. The last user message and the newest round (the last message, or the last tool calls with their
   results) always stay; they are shortened if they must be, the user message last.
2. Older rounds are kept from the newest on. A long message in them is shortened to a share of the budget: a tool result or a message
   with tool calls to an eighth, another message to a quarter. A user message is dropped after the replies to it.
3. The first round that does not fit is shortened to the tokens that are left. Older rounds are dropped.
4. Tokens that are left over lengthen shortened messages again: the newest tool results first, then tool calls, then other messages.

A larger budget keeps every message that a smaller one keeps. This holds because everything that a decision adds up, divided by the
budget, never grows with the budget.
"""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import attrs

from promptkit.tokens.tokenizer import count_frame, count_message, count_part
from promptkit.tokens.tool_schemas import compact_arguments
from promptkit.tokens.truncation import truncate_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from promptkit.messages import Json, Message, Part
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["CUT_MARKER", "FittedHistory", "Shortened", "find_level", "fit_history", "order_newest", "shorten_message", "split_blocks"]

Shortened = Literal["any", "request", "none"]
"""Which messages may be shortened: any that is too long, only the last user message and the newest round if they must be, or none."""

CUT_MARKER = "\n[… cut …]\n"
"""Stands in a shortened text where something is missing."""

CUT_STRING = "[…]"
"""The same in a string of a tool call's arguments."""

HEAD_SHARE = 0.4
"""Share of a shortened text that is taken from its beginning."""

UNIT = 8
"""Sizes are compared in eighths of a token, so that the shares are exact."""

RESULT_EIGHTHS = 1
"""The eighths of the budget that a tool result, or a message with tool calls, of an older round may have at first."""

TEXT_EIGHTHS = 2
"""The eighths of the budget that another older message may have at first."""

LONG = 1_000
"""Tokens that a text may surely have, by its length, and still be counted, however small the budget is."""

USEFUL = 16
"""The least tokens of its text that a shortened message of an older round shows. If there is no room for them, the round is dropped."""

NEWEST_EIGHTHS = 4
"""The eighths of the budget that the newest round may have at first."""


@attrs.frozen(kw_only=True)
class FittedHistory:
    """Messages that fit, or if there is no such selection, the least that a request must have."""

    messages: tuple[Message, ...]
    """The messages that stay, in order. A message that did not change is the same object."""
    sources: tuple[int, ...]
    """For each message, its index in the messages that were given."""
    tokens: int
    """The tokens of the messages, and of the marker for the omitted ones. They exceed the budget if what always stays does not fit it."""


def fit_history(  # noqa: PLR0913  # keywords
    messages: Sequence[Message],
    budget: int,
    *,
    tokenizer: Tokenizer,
    overhead: int = 0,
    shorten: Shortened = "any",
    keep: Literal["newest", "oldest"] = "newest",
    whole: Collection[int] = (),
    truncate_at: int | None = None,
    count_marker: Callable[[int], int] | None = None,
) -> FittedHistory:
    """Choose and shorten messages so that they fit a budget. Takes time linear in the messages and the budget.

    Args:
        messages: The messages, oldest first. Each tool call is followed by its result (see `pair_tool_calls`).
        budget: The most tokens of the messages and the overhead together.
        tokenizer: Counts the tokens.
        overhead: The tokens of the request besides the messages.
        shorten: Which messages may be shortened. The others are kept whole, or dropped.
        keep: Which of the older rounds stay longest.
        whole: The indices of messages that stay as they are, like system messages. A tool call and its results are in it together.
        truncate_at: The most tokens of the text of one tool result, however large the budget is.
        count_marker: Counts the tokens of a marker for a number of omitted messages. None: nothing marks them.
    """
    return _Fit(messages, budget - overhead, tokenizer, budget=budget, shorten=shorten, truncate_at=truncate_at).run(
        keep, whole, count_marker
    )


class _Fit:
    """One call of `fit_history`."""

    def __init__(  # noqa: PLR0913  # the arguments of the call
        self, messages: Sequence[Message], left: int, tokenizer: Tokenizer, *, budget: int, shorten: Shortened, truncate_at: int | None
    ) -> None:
        self.messages = messages
        self.left = left
        self.tokenizer = tokenizer
        self.budget = budget
        self.shorten = shorten
        self.truncate_at = truncate_at
        self.counts: dict[int, int] = {}  # tokens of the messages that were counted; fewer, but too many, of one that surely does not fit
        self.sizes: dict[int, int] = {}  # the most tokens that each of them may have: fewer for a result that is truncated
        self.least: dict[int, int] = {}  # tokens of messages that are shortened as far as possible
        self.whole: set[int] = set()
        self.granted: dict[int, int] = {}  # tokens that each message that stays may have

    def run(self, keep: Literal["newest", "oldest"], whole: Collection[int], count_marker: Callable[[int], int] | None) -> FittedHistory:
        messages = self.messages
        self.whole = {at for at, message in enumerate(messages) if message.role == "system" or at in whole}
        fixed = {at: self.size(at) for at in self.whole}
        room = self.left - sum(fixed.values())
        last_user = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)
        blocks = split_blocks(messages)
        newest = next((block for block in reversed(blocks) if messages[block[0]].role != "system"), range(0))
        users = [at for at in (last_user,) if at is not None and at not in fixed]
        round_ = [at for at in newest if at not in fixed and at != last_user]
        ordered = order_newest(messages, blocks) if keep == "newest" else blocks

        def choose(marker: int) -> None:
            self.granted, self.left = dict(fixed), room - marker
            if self._grant_required(users, round_):
                self._grant_older([block for block in ordered if block[0] not in self.granted])

        choose(0)
        marker = 0
        if count_marker is not None and len(self.granted) < len(messages):
            reserved = count_marker(len(messages) - len(fixed))  # the most that can be omitted: the same for every budget
            choose(reserved)
            marker = count_marker(len(messages) - len(self.granted))
            self.left += reserved - marker
        self.left = max(0, self.left)
        self._grant_rest()
        return self._build(marker)

    def size(self, at: int) -> int:
        """Return the tokens of a message, or of a truncated result."""
        tokens = self.sizes.get(at)
        if tokens is None:
            message = self.messages[at]
            frame = count_frame(message, self.tokenizer).tokens
            content = _measure_content(message, None if at in self.whole else max(self.budget, LONG), self.tokenizer)
            tokens = self.counts[at] = frame + content.total
            if self.truncate_at is not None and message.role == "tool":
                tokens = min(tokens, self.truncate_at + frame)
            self.sizes[at] = tokens
        return tokens

    def least_size(self, at: int) -> int:
        """Return the tokens of a message that is shortened as far as possible."""
        if self.shorten == "none":
            return self.size(at)
        tokens = self.least.get(at)
        if tokens is None:
            shortest = shorten_message(self.messages[at], 0, tokenizer=self.tokenizer)
            tokens = self.size(at) if shortest is self.messages[at] else min(self.size(at), count_message(shortest, self.tokenizer))
            self.least[at] = tokens
        return tokens

    def useful_size(self, at: int) -> int:
        """Return the tokens of a message that is shortened so far that it still says something."""
        return min(self.size(at), self.least_size(at) + USEFUL)

    def _grant_required(self, users: Sequence[int], newest: Sequence[int]) -> bool:
        """Grant tokens to what always stays. Return whether it fits."""
        request = sum(map(self.size, users))
        whole = sum(map(self.size, newest))
        wanted = whole
        if self.shorten == "any" and 2 * whole > self.budget:
            wanted = max(sum(map(self.least_size, newest)), min(whole, self.budget * NEWEST_EIGHTHS // UNIT))
        fits = True
        if wanted + request > self.left:
            least = sum(map(self.least_size, newest))
            least_request = sum(map(self.least_size, users))
            wanted = min(wanted, max(least, self.left - request))
            request = min(request, max(least_request, self.left - wanted))
            fits = wanted + request <= self.left
        self._grant(newest, wanted)
        self._grant(users, request)
        self.left -= wanted + request
        return fits

    def _grant(self, block: Sequence[int], tokens: int) -> None:
        """Divide tokens among the messages of a block: each gets its least size, and all the same level above it, as far as they need it."""
        needs = [self.size(at) for at in block]
        if sum(needs) <= tokens:
            self.granted.update(zip(block, needs, strict=True))
            return
        least = [self.least_size(at) for at in block]
        wanted = [need - floor for need, floor in zip(needs, least, strict=True)]
        level = find_level(wanted, tokens - sum(least))
        for at, floor, want in zip(block, least, wanted, strict=True):
            self.granted[at] = floor + min(want, level)

    def _grant_older(self, blocks: Sequence[Sequence[int]]) -> None:
        """Grant tokens to older rounds, in the order in which they are kept, until one does not fit."""
        left = self.left * UNIT
        for block in blocks:
            planned = [self._plan(at) for at in block]
            if sum(planned) > left:
                room = left // UNIT
                if self.shorten == "any" and sum(map(self.useful_size, block)) <= room:
                    self._grant(block, room)
                    left -= UNIT * sum(self.granted[at] for at in block)
                break
            for at, eighths in zip(block, planned, strict=True):
                self.granted[at] = eighths // UNIT
            left -= sum(planned)
        self.left -= sum(self.granted[at] for block in blocks for at in block if at in self.granted)

    def _plan(self, at: int) -> int:
        """Return the eighths of a token that a message of an older round has at first."""
        size = self.size(at)
        message = self.messages[at]
        share = RESULT_EIGHTHS if message.role == "tool" or message.tool_calls else TEXT_EIGHTHS
        if self.shorten != "any" or size * UNIT <= self.budget * share:
            return size * UNIT
        return max(self.useful_size(at) * UNIT, self.budget * share)

    def _grant_rest(self) -> None:
        """Grant the tokens that are left to shortened messages: tool results first, then tool calls, then others, the newest first."""
        cut = [at for at in sorted(self.granted, reverse=True) if self.granted[at] < self.size(at)]
        for at in sorted(cut, key=self._rank):
            more = min(self.left, self.size(at) - self.granted[at])
            self.granted[at] += more
            self.left -= more

    def _rank(self, at: int) -> int:
        message = self.messages[at]
        return 0 if message.role == "tool" else 1 if message.tool_calls else 2

    def _build(self, marker: int) -> FittedHistory:
        """Shorten the messages to what they were granted. What one does not use goes to the next, the newest tool results last."""
        shown = {at: self.messages[at] for at in self.granted}
        actual = {at: self.counts[at] for at in self.granted}
        cut = [at for at in sorted(self.granted) if self.granted[at] < self.counts[at]]
        for at in sorted(cut, key=self._rank, reverse=True) if cut else ():
            granted = min(self.granted[at] + self.left, self.size(at))
            self.left += self.granted[at]
            if granted < self.counts[at]:
                shown[at] = shorten_message(self.messages[at], granted, tokenizer=self.tokenizer)
                actual[at] = count_message(shown[at], self.tokenizer)
            self.left -= actual[at]
        kept = tuple(sorted(shown))
        return FittedHistory(messages=tuple(shown[at] for at in kept), sources=kept, tokens=sum(actual.values()) + marker)


def split_blocks(messages: Sequence[Message]) -> list[range]:
    """Split messages into blocks: a message, or tool calls with their results."""
    starts = [at for at, message in enumerate(messages) if message.role != "tool" or at == 0]
    return [range(start, end) for start, end in pairwise([*starts, len(messages)])]


def order_newest(messages: Sequence[Message], blocks: Sequence[range]) -> list[range]:
    """Order blocks from the one that is kept longest: the newest turn first, in it the user message, then its newest reply."""
    turns: list[list[range]] = [[]]
    for block in blocks:
        if messages[block[0]].role == "user":
            turns.append([])
        turns[-1].append(block)
    ordered: list[range] = []
    for turn in reversed(turns):
        has_user = bool(turn) and messages[turn[0][0]].role == "user"
        ordered += [*turn[:has_user], *reversed(turn[has_user:])]
    return ordered


def find_level(wants: Sequence[int], room: int) -> int:
    """Return the largest level at which the wants, each up to the level, fit the room together."""
    level, left = 0, room
    ordered = sorted(wants)
    for at, want in enumerate(ordered):
        share = left // (len(ordered) - at)
        if want > share:
            return share
        left -= want
        level = want
    return level


def shorten_message(message: Message, tokens: int, *, tokenizer: Tokenizer) -> Message:
    """Shorten a message to a number of tokens, or as far as possible: first the arguments of its tool calls, then its texts.

    Texts keep a head (40 %) and a tail (60 %) around a marker. Where so little would show nothing of several texts, the texts between the
    first and the last ones are cut as one. Strings in arguments keep their head, so that the arguments stay valid JSON with the same keys.
    Images and other parts stay.
    """
    measured = _measure_content(message, max(tokens, LONG), tokenizer)
    size = count_frame(message, tokenizer).tokens + measured.total
    if size > tokens and message.tool_calls:
        needs = [tokenizer.count(compact_arguments(call.arguments)) for call in message.tool_calls]
        level = find_level(needs, sum(needs) - (size - tokens))
        calls = [
            attrs.evolve(call, arguments=shorten_arguments(call.arguments, level, tokenizer=tokenizer)) if need > level else call
            for call, need in zip(message.tool_calls, needs, strict=True)
        ]
        message = attrs.evolve(message, tool_calls=tuple(calls))
        size = count_frame(message, tokenizer).tokens + measured.total
    if size > tokens:
        needs = measured.texts
        room = max(0, tokens - (size - measured.total) - measured.others)
        level, least = find_level(needs, room), tokenizer.count(CUT_MARKER)
        shown = [min(need, least) for need in needs]
        if (level < least + USEFUL and sum(need > level for need in needs) > 1) or sum(shown) > max(room, least):
            content = _cut_between(message.content, needs, room, tokenizer)
        else:
            content = [
                _cut_text(part, max(level, least), tokenizer) if isinstance(part, str) and need > max(level, least) else part
                for part, need in zip(message.content, needs, strict=True)
            ]
        message = attrs.evolve(message, content=tuple(content))
    return message


def _cut_text(text: str, tokens: int, tokenizer: Tokenizer) -> str:
    return truncate_text(text, tokens, keep="middle", ratio=HEAD_SHARE, marker=CUT_MARKER, tokenizer=tokenizer)


def _cut_between(content: Sequence[Part], needs: Sequence[int], tokens: int, tokenizer: Tokenizer) -> list[Part]:
    """Keep the first and the last texts that fit, and cut those between as one text, of which at least the marker stays."""
    texts = [at for at, part in enumerate(content) if isinstance(part, str)]
    room = max(0, tokens - tokenizer.count(CUT_MARKER))
    head = _count_fitting([needs[at] for at in texts], int(room * HEAD_SHARE))
    room -= sum(needs[at] for at in texts[:head])
    tail = _count_fitting([needs[at] for at in reversed(texts[head:])], room)
    between = texts[head : len(texts) - tail]
    left = tokens - sum(needs[at] for at in (*texts[:head], *texts[len(texts) - tail :]))
    cut = _cut_text("\n".join(part for at in between if isinstance(part := content[at], str)), left, tokenizer) or CUT_MARKER
    replaced = dict.fromkeys(between, "") | {between[0]: cut}
    return [part for at, given in enumerate(content) if (part := replaced.get(at, given)) != ""]


def _count_fitting(needs: Sequence[int], room: int) -> int:
    """Return how many of the first needs fit together."""
    return next((at for at, total in enumerate(accumulate(needs)) if total > room), len(needs))


class _Content(NamedTuple):
    """The tokens of a message's content."""

    texts: list[int]
    """For each part, the tokens of its text by itself; 0 for one that is no text."""
    others: int
    """The tokens of the parts that are no text."""
    total: int
    """The tokens of all parts. Those of the texts are added before they are scaled, as in a render."""


def _measure_content(message: Message, most: int | None, tokenizer: Tokenizer) -> _Content:
    """Count the parts of a message. A text that surely has more than `most` is not counted: any number above that will do."""
    base, scale = tokenizer.base, tokenizer.scale
    texts: list[int] = []
    others = 0
    for part in message.content:
        if not isinstance(part, str):
            texts.append(0)
            others += count_part(part, tokenizer)
            continue
        bound = 0 if most is None else base.lower_bound(part)
        texts.append(bound if most is not None and scale(bound) > most else base.count(part))
    return _Content([scale(tokens) for tokens in texts], others, scale(sum(texts)) + others)


def shorten_arguments(arguments: str, tokens: int, *, tokenizer: Tokenizer) -> str:
    """Shorten the strings in the arguments of a tool call, so that they have at most `tokens`, or as few as possible.

    Arguments that are no JSON object stay as they are.
    """
    try:
        value: Json = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(value, dict):
        return arguments
    least = tokenizer.count(CUT_STRING)
    strings = [each for each in _find_strings(value) if tokenizer.count(each[2]) > least]
    needs = [tokenizer.count(text) for _, _, text in strings]

    def write(level: int) -> str:
        for (container, key, text), need in zip(strings, needs, strict=True):
            container[key] = text if need <= level else truncate_text(text, level, marker=CUT_STRING, tokenizer=tokenizer)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    shortest = write(least)
    spare = tokens - tokenizer.count(shortest)
    if spare < 0:
        return min(shortest, arguments, key=lambda text: tokenizer.count(compact_arguments(text)))
    level = least + find_level([need - least for need in needs], spare)
    while level > least:
        text = write(level)
        excess = tokenizer.count(text) - tokens
        if excess <= 0:
            return text
        level -= max(1, excess // len(strings), level // 8)  # JSON writes some characters as two
    return shortest


def _find_strings(value: Json) -> list[tuple[dict[object, str], object, str]]:
    """Return the container, the key and the text of each string in a JSON value."""
    found: list[tuple[dict[object, str], object, str]] = []
    stack: list[dict[object, object] | list[object]] = [cast("dict[object, object]", value)]  # JSON: what it holds is not known
    while stack:
        container = stack.pop()
        for key, item in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(item, str):
                found.append((cast("dict[object, str]", container), key, item))  # a list is written by its index in the same way
            elif isinstance(item, dict | list):
                stack.append(cast("dict[object, object] | list[object]", item))  # as above
    return found
