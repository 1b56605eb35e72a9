"""Fit recorded messages into a number of tokens: long messages are shortened, then the oldest rounds are dropped.

What stays is decided in this order:

1. System messages, and others that must stay whole, stay as they are. The last user message and the
   newest round (the last message, or the last tool calls with their results) always stay; they are
   shortened if they must be, the user message last.
2. Older rounds are kept from the newest on. A long message in them is shortened to a share of the
   budget: a tool result or a message with tool calls to an eighth, another message to a quarter. A
   user message is dropped after the replies to it.
3. The first round that does not fit is shortened to the tokens that are left. Older rounds are
   dropped.
4. Tokens that are left over lengthen shortened messages again: the newest tool results first, then
   tool calls, then other messages.

A larger budget keeps every message that a smaller one keeps. This holds because everything that a
decision adds up, divided by the budget, never grows with the budget.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.fitting.shorten import (
    CUT_MARKER,
    LONG,
    USEFUL,
    divide_tokens,
    measure_content,
    shorten_message,
)
from promptkit.tokens.tokenizer import count_frame, count_message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from promptkit.messages import Message, Role
    from promptkit.tokens import Tokenizer

Order = Literal["newest", "oldest", "answered"]
"""Which of the older rounds stay longest: the newest, the oldest, or the newest with no earlier user
message without the answer to it."""

Shortened = Literal["any", "request", "none"]
"""Which messages may be shortened: any that is too long, only the last user message and the newest
round if they must be, or none."""

UNIT = 8
"""Sizes are compared in eighths of a token, so that the shares are exact."""

RESULT_EIGHTHS = 1
"""The eighths of the budget that a tool result, or a message with tool calls, of an older round may
have at first."""

TEXT_EIGHTHS = 2
"""The eighths of the budget that another older message may have at first."""

NEWEST_EIGHTHS = 4
"""The eighths of the budget that the newest round may have at first."""

CHARACTERS = 3
"""Characters per token, fewer than in most texts."""


@attrs.frozen(kw_only=True)
class FittedHistory:
    """Messages that fit, or if there is no such selection, the least that a request must have."""

    messages: tuple[Message, ...]
    """The messages that stay, in order. A message that did not change is the same object."""
    sources: tuple[int, ...]
    """For each message, its index in the messages that were given."""
    tokens: int
    """The tokens of the messages, and of the marker for the omitted ones. They exceed the budget if
    what always stays does not fit it."""
    unspent: int
    """The tokens that shortened messages leave of the budget, since they end at a line. No older
    message takes them: with a larger budget the shortened ones would, and it would leave again."""
    shortened: Mapping[int, Message] = attrs.field(factory=dict[int, "Message"], eq=False)
    """The messages that are shortened, by their indices."""


def fit_history(  # noqa: PLR0913  # keywords
    messages: Sequence[Message],
    budget: int,
    *,
    tokenizer: Tokenizer,
    overhead: int = 0,
    shorten: Shortened = "any",
    keep: Order = "newest",
    whole: Collection[int] = (),
    count_marker: Callable[[int], int] | None = None,
    cut_marker: Callable[[Message], str | None] | None = None,
    count: Callable[[Message], int] | None = None,
    tokens: list[int] | None = None,
    step: int = 0,
) -> FittedHistory:
    """Choose and shorten messages so that they fit a budget.

    Takes time linear in the messages and the budget.

    Args:
        messages: The messages, oldest first. Each tool call is followed by its result (see
            `pair_tool_calls`).
        budget: The most tokens of the messages and the overhead together.
        tokenizer: Counts the tokens.
        overhead: The tokens of the request besides the messages.
        shorten: Which messages may be shortened. The others are kept whole, or dropped.
        keep: Which of the older rounds stay longest.
        whole: The indices of messages that stay as they are, like system messages. A tool call and
            its results are in it together.
        count_marker: Counts the tokens of a marker for a number of omitted messages. None: nothing
            marks them.
        cut_marker: Returns what stands in a shortened message where something is missing, if there
            is room for it. None: `CUT_MARKER`.
        count: Counts the tokens of a message, for callers that keep the counts of messages.
            Default: the tokenizer.
        tokens: The tokens of each message, -1 for one that was not counted yet. What is counted is
            written into it. None: nothing is known.
        step: If not 0, the number of tokens that are dropped is rounded up to a multiple of it.
            Then the next requests drop the same messages and begin with the same bytes, which the
            provider's prompt cache needs. All messages are counted.
    """
    roles: list[Role] = [message.role for message in messages]
    sizes = _Sizes(
        messages=messages,
        tokenizer=tokenizer,
        count=count or (lambda message: count_message(message, tokenizer)),
        counted=[-1] * len(messages) if tokens is None else tokens,
        most=max(budget, LONG),
        shorten=shorten,
    )
    if max(sizes.counted, default=0) < 0 and _fit_probably(messages, budget):
        # straight after each other, which takes less time than between decisions
        tokenizer.base.count_ahead(messages)
        sizes.whole = sizes.counted[:] = list(map(sizes.count, messages))
    fixed_at = set(whole)
    if "system" in roles:
        fixed_at.update(at for at, role in enumerate(roles) if role == "system")
    fixed = {at: sizes.measure_exactly(at) for at in fixed_at}
    room = budget - overhead - sum(fixed.values())
    users, newest = _find_request(roles, fixed_at)

    def choose(marker: int) -> _Choice:
        choice = _Choice(granted=dict(fixed), left=room - marker)
        if _grant_required(choice, sizes, users, newest, budget):
            if step:
                older = [at for at in range(len(messages)) if at not in choice.granted]
                choice.left = _round_room(choice.left, sum(map(sizes.measure, older)), step)
            _grant_older(choice, sizes, _order_blocks(messages, roles, keep), budget)
        return choice

    marker = 0
    if count_marker is None:
        choice = choose(0)
    else:
        # the most that can be omitted: the same for every budget
        reserved = count_marker(len(messages) - len(fixed))
        choice = choose(reserved)
        omitted = len(messages) - len(choice.granted)
        # no message is granted more than it has
        is_whole = not omitted and sum(choice.granted.values()) == sum(sizes.whole)
        # all may fit without a marker: each has a token at least
        if not is_whole and omitted <= max(0, choice.left) + reserved + step:
            unmarked = choose(0)
            if len(unmarked.granted) == len(messages):
                choice, omitted, reserved = unmarked, 0, 0
        marker = count_marker(omitted) if omitted else 0
        choice.left += reserved - marker
    choice.left = max(0, choice.left)
    return _build(choice, sizes, marker, cut_marker or (lambda _: None))


@attrs.define
class _Choice:
    """The messages that stay, by their indices, and the tokens that each of them may have."""

    granted: dict[int, int]
    left: int
    """The tokens that are granted to no message."""


@attrs.define(kw_only=True)
class _Sizes:
    """The tokens of messages, whole and shortened as far as possible.

    Each is counted when it is first needed, if it was not before.
    """

    messages: Sequence[Message]
    shorten: Shortened
    tokenizer: Tokenizer
    count: Callable[[Message], int]
    most: int
    counted: list[int]
    """The exact tokens of the messages, -1 for those that were not counted yet."""
    whole: list[int] = attrs.field(
        default=attrs.Factory(lambda self: [*self.counted], takes_self=True), init=False
    )
    """The tokens of the messages that were measured, as they are; -1 for the others."""
    _least: dict[int, int] = attrs.field(factory=dict[int, int], init=False)
    _shortest: dict[int, Message] = attrs.field(factory=dict[int, "Message"], init=False)

    def measure(self, at: int) -> int:
        """Return the tokens of a message.

        Of one that surely has more than `most`, this is any number above `most`.
        """
        tokens = self.whole[at]
        if tokens < 0:
            message = self.messages[at]
            for part in message.content:
                if isinstance(part, str) and len(part) > self.most:
                    content = measure_content(message, self.most, self.tokenizer)
                    tokens = count_frame(message, self.tokenizer).tokens + content.total
                    self.whole[at] = tokens
                    break
            else:
                tokens = self.whole[at] = self.counted[at] = self.count(message)
        return tokens

    def measure_exactly(self, at: int) -> int:
        """Return the exact tokens of a message."""
        if self.counted[at] < 0:
            self.counted[at] = self.count(self.messages[at])
        self.whole[at] = self.counted[at]
        return self.whole[at]

    def measure_least(self, at: int) -> int:
        """Return the tokens of a message that is shortened as far as possible."""
        if self.shorten == "none":
            return self.measure_exactly(at)
        tokens = self._least.get(at)
        if tokens is None:
            shortest = shorten_message(self.messages[at], 0, tokenizer=self.tokenizer)
            tokens = self._least[at] = min(
                self.measure(at), count_message(shortest, self.tokenizer)
            )
            if tokens < self.measure(at):
                self._shortest[at] = shortest
        return tokens

    def measure_useful(self, at: int) -> int:
        """Return the fewest tokens at which a shortened message is still useful."""
        return min(self.measure(at), self.measure_least(at) + USEFUL)

    def build(self, at: int, tokens: int, marker: str) -> tuple[Message, int]:
        """Return a message shortened to a number of tokens, or as far as possible, and its tokens."""
        shortest = self._shortest.get(at)
        if shortest is not None and tokens <= self._least[at]:
            return shortest, self._least[at]
        shortened = shorten_message(
            self.messages[at], tokens, tokenizer=self.tokenizer, marker=marker
        )
        return shortened, count_message(shortened, self.tokenizer)


def _fit_probably(messages: Sequence[Message], budget: int) -> bool:
    """Return whether messages, of text and tool calls alone, have so few characters that they probably fit a budget.

    A text that is not ASCII may have a token for each character.
    """
    room = CHARACTERS * (budget - 4 * len(messages))  # with the tokens around each
    for message in messages:
        for part in message.content:
            if room < 0 or not isinstance(part, str):
                return False
            room -= len(part) if part.isascii() else CHARACTERS * len(part)
        for call in message.tool_calls:
            room -= len(call.arguments)
    return room >= 0


def _find_request(roles: Sequence[Role], fixed: Collection[int]) -> tuple[list[int], list[int]]:
    """Return the indices of the messages that are never dropped: the last user message, and the rest of the newest round."""
    last_user = next((at for at in range(len(roles) - 1, -1, -1) if roles[at] == "user"), None)
    newest = next(
        (block for block in _iterate_blocks(roles) if roles[block[0]] != "system"), (0, 0)
    )
    users = [] if last_user is None or last_user in fixed else [last_user]
    return users, [at for at in range(*newest) if at not in fixed and at != last_user]


def _grant_required(
    choice: _Choice, sizes: _Sizes, users: Sequence[int], newest: Sequence[int], budget: int
) -> bool:
    """Grant tokens to the messages that are never dropped.

    Return whether they fit. If they do not, each gets as few tokens as possible.
    """
    request = sum(map(sizes.measure, users))
    whole = sum(map(sizes.measure, newest))
    wanted = whole
    if sizes.shorten == "any" and 2 * whole > budget:
        wanted = max(
            sum(map(sizes.measure_least, newest)), min(whole, budget * NEWEST_EIGHTHS // UNIT)
        )
    if wanted + request > choice.left:
        wanted = min(wanted, max(sum(map(sizes.measure_least, newest)), choice.left - request))
        request = min(request, max(sum(map(sizes.measure_least, users)), choice.left - wanted))
    fits = wanted + request <= choice.left
    _divide(choice, sizes, newest, wanted)
    _divide(choice, sizes, users, request)
    return fits


def _divide(choice: _Choice, sizes: _Sizes, indices: Sequence[int], tokens: int) -> None:
    """Divide tokens among messages, if they do not have them whole."""
    divided = needs = list(map(sizes.measure, indices))
    if sum(needs) > tokens:
        divided = divide_tokens(tokens, needs, list(map(sizes.measure_least, indices)))
    choice.granted.update(zip(indices, divided, strict=True))
    choice.left -= sum(divided)


def _grant_older(
    choice: _Choice, sizes: _Sizes, blocks: Iterable[tuple[int, int]], budget: int
) -> None:
    """Grant tokens to older rounds, in the order in which they are kept, until one does not fit."""
    granted, whole, measure = choice.granted, sizes.whole, sizes.measure
    # tokens that any older message may have
    short = budget * RESULT_EIGHTHS // UNIT if sizes.shorten == "any" else budget
    left = choice.left * UNIT
    before = sum(granted.values())
    for start, end in blocks:
        if start in granted:
            continue
        room = left
        for at in range(start, end):
            tokens = whole[at]
            if tokens < 0:
                tokens = measure(at)
            if tokens > short:
                eighths = _plan(sizes, at, budget)
                tokens = eighths // UNIT
                left -= eighths
            else:
                left -= tokens * UNIT
            granted[at] = tokens
        if left < 0:
            for at in range(start, end):
                del granted[at]
            choice.left -= sum(granted.values()) - before
            if (
                sizes.shorten == "any"
                and sum(map(sizes.measure_useful, range(start, end))) <= room // UNIT
            ):
                _divide(choice, sizes, range(start, end), room // UNIT)
            return
    choice.left -= sum(granted.values()) - before


def _round_room(room: int, tokens: int, step: int) -> int:
    """Return the tokens that messages may keep if the dropped tokens are rounded up to a multiple of `step`."""
    dropped = tokens - room
    return room if dropped <= 0 else max(0, tokens - -(-dropped // step) * step)


def _plan(sizes: _Sizes, at: int, budget: int) -> int:
    """Return the tokens that a message of an older round is granted first, in eighths of a token."""
    size = sizes.measure(at)
    message = sizes.messages[at]
    share = budget * (
        RESULT_EIGHTHS if message.role == "tool" or message.tool_calls else TEXT_EIGHTHS
    )
    if sizes.shorten != "any" or size * UNIT <= share:
        return size * UNIT
    return max(sizes.measure_useful(at) * UNIT, share)


def _build(
    choice: _Choice, sizes: _Sizes, marker: int, cut_marker: Callable[[Message], str | None]
) -> FittedHistory:
    """Grant the tokens that are left to shortened messages, and shorten them.

    Tool results are lengthened first, then tool calls, then other messages, each from the newest
    on. What a shortened message does not use of its tokens goes to the next one, in the opposite
    order.
    """
    messages, granted, left, whole = sizes.messages, choice.granted, choice.left, sizes.whole
    cut = sorted([at for at, tokens in granted.items() if tokens < whole[at]], reverse=True)
    cut.sort(
        key=lambda at: 0 if messages[at].role == "tool" else 1 if messages[at].tool_calls else 2
    )
    for at in cut:
        more = min(left, sizes.measure(at) - granted[at])
        granted[at] += more
        left -= more
    shortened: dict[int, Message] = {}
    for at in reversed(cut):
        tokens = min(granted[at] + left, sizes.measure(at))
        left += granted[at]
        if tokens < whole[at]:
            shortened[at], tokens = sizes.build(at, tokens, cut_marker(messages[at]) or CUT_MARKER)
        granted[at] = tokens
        left -= tokens
    kept = sorted(granted)
    return FittedHistory(
        messages=tuple(
            [shortened[at] if at in shortened else messages[at] for at in kept]
            if shortened
            else map(messages.__getitem__, kept)
        ),
        sources=tuple(kept),
        tokens=sum(granted.values()) + marker,
        unspent=left if cut else 0,
        shortened=shortened,
    )


def split_blocks(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Split messages into blocks, by the index of the first message and the index after the last one: a message, or tool calls with their results."""
    starts = [at for at, message in enumerate(messages) if message.role != "tool" or at == 0]
    return list(pairwise([*starts, len(messages)]))


def _order_blocks(
    messages: Sequence[Message], roles: Sequence[Role], keep: Order
) -> Iterable[tuple[int, int]]:
    """Return blocks from the one that is kept longest."""
    if keep == "newest":
        return order_newest(roles)
    return split_blocks(messages) if keep == "oldest" else _order_answered(roles)


def _order_answered(roles: Sequence[Role]) -> Iterator[tuple[int, int]]:
    """Iterate over blocks as `order_newest` does, in earlier turns with the last reply before the user message."""
    turns: list[list[tuple[int, int]]] = []
    for block in order_newest(roles):
        if roles[block[0]] == "user" or not turns:
            turns.append([])
        turns[-1].append(block)
    for number, turn in enumerate(turns):
        # each begins with its user message, and then has the replies, the last one first
        if number and len(turn) > 1:
            turn[:2] = turn[1], turn[0]
        yield from turn


def order_newest(roles: Sequence[Role]) -> Iterator[tuple[int, int]]:
    """Iterate over blocks from the one that is kept longest: the newest turn first, in it the user message, then its newest reply."""
    replies: list[tuple[int, int]] = []
    for block in _iterate_blocks(roles):
        if roles[block[0]] == "user":
            yield block
            yield from replies
            replies.clear()
        else:
            replies.append(block)
    yield from replies


def _iterate_blocks(roles: Sequence[Role]) -> Iterator[tuple[int, int]]:
    """Iterate over the blocks of messages with these roles, from the last one on."""
    end = len(roles)
    for at in range(end - 1, -1, -1):
        if roles[at] != "tool" or at == 0:
            yield at, end
            end = at
