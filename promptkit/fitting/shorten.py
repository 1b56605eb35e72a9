"""Shorten one message to a number of tokens: the arguments of its tool calls, then its texts."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, cast

import attrs

from promptkit.tokens.tokenizer import count_frame, count_message, count_part
from promptkit.tokens.tool_schemas import compact_arguments, write_compact
from promptkit.tokens.truncation import cut_head, cut_text, truncate_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit.messages import Json, Message, Part, ToolCall
    from promptkit.tokens import Tokenizer

CUT_MARKER = "\n[… cut …]\n"
"""Replaces the omitted part of a shortened text."""

CUT_STRING = "[…]"
"""The same in a string of a tool call's arguments."""

HEAD_SHARE = 0.4
"""Share of a shortened text that is taken from its beginning."""

LONG = 1_000
"""Lower bound, in tokens, above which a text is not counted exactly, however small the budget is."""

USEFUL = 16
"""The least tokens of its text that a shortened message of an older round shows. If there is no
room for them, the round is dropped."""


def shorten_message(
    message: Message, tokens: int, *, tokenizer: Tokenizer, marker: str = CUT_MARKER
) -> Message:
    """Shorten a message to a number of tokens, or as far as possible: first the arguments of its tool calls, then its texts.

    Texts keep a head (40 %) and a tail (60 %) around a marker. Where so little would show nothing
    of several texts, the texts between the first and the last ones are cut as one. Strings in
    arguments keep their head, so that the arguments stay valid JSON with the same keys. Images and
    other parts stay. A marker that would take more than half of the texts' tokens is replaced by
    `CUT_MARKER`.
    """
    target = tokens
    while True:
        shortened = _shorten_once(message, target, tokenizer, marker)
        excess = (
            0
            if shortened is message or target <= 0
            else count_message(shortened, tokenizer) - tokens
        )
        if excess <= 0:
            return shortened
        # joins, and sums of rounded counts, cost more than was planned
        target = max(0, target - max(excess, tokens - target))


def _shorten_once(message: Message, tokens: int, tokenizer: Tokenizer, marker: str) -> Message:
    """Shorten a message to about a number of tokens."""
    measured = measure_content(message, max(tokens, LONG), tokenizer)
    size = count_frame(message, tokenizer).tokens + measured.total
    if size > tokens and message.tool_calls:
        message = attrs.evolve(
            message, tool_calls=tuple(_shorten_calls(message.tool_calls, size - tokens, tokenizer))
        )
        size = count_frame(message, tokenizer).tokens + measured.total
    if size > tokens:
        needs = measured.texts
        room = max(0, tokens - (size - measured.total) - measured.others)
        if marker != CUT_MARKER and 2 * tokenizer.count(marker) > room:
            marker = CUT_MARKER
        level, least = find_level(needs, room), tokenizer.count(marker)
        shown = [min(need, least) for need in needs]
        if (level < least + USEFUL and sum(need > level for need in needs) > 1) or sum(shown) > max(
            room, least
        ):
            content = _cut_between(message.content, needs, room, marker, tokenizer)
        else:
            content = [
                cut_text(
                    part,
                    max(level, least),
                    head=HEAD_SHARE,
                    marker=marker,
                    tokenizer=tokenizer,
                )
                if isinstance(part, str) and need > max(level, least)
                else part
                for part, need in zip(message.content, needs, strict=True)
            ]
        message = attrs.evolve(message, content=tuple(content))
    return message


def _shorten_calls(
    calls: Sequence[ToolCall], excess: int, tokenizer: Tokenizer
) -> Iterator[ToolCall]:
    """Shorten the arguments of tool calls by `excess` tokens together, as far as each of them can be shortened."""
    needs = [tokenizer.count(compact_arguments(call.arguments)) for call in calls]
    shortest = [shorten_arguments(call.arguments, 0, tokenizer=tokenizer) for call in calls]
    least = [
        min(need, tokenizer.count(compact_arguments(text)))
        for need, text in zip(needs, shortest, strict=True)
    ]
    for call, need, tokens in zip(
        calls, needs, divide_tokens(sum(needs) - excess, needs, least), strict=True
    ):
        yield (
            attrs.evolve(
                call, arguments=shorten_arguments(call.arguments, tokens, tokenizer=tokenizer)
            )
            if need > tokens
            else call
        )


def _cut_between(
    content: Sequence[Part], needs: Sequence[int], tokens: int, marker: str, tokenizer: Tokenizer
) -> list[Part]:
    """Keep the first and the last texts that fit, and cut those between as one text, of which at least the marker stays."""
    texts = [at for at, part in enumerate(content) if isinstance(part, str)]
    room = max(0, tokens - tokenizer.count(marker))
    head = _count_fitting([needs[at] for at in texts], int(room * HEAD_SHARE))
    room -= sum(needs[at] for at in texts[:head])
    tail = _count_fitting([needs[at] for at in reversed(texts[head:])], room)
    between = texts[head : len(texts) - tail]
    left = tokens - sum(needs[at] for at in (*texts[:head], *texts[len(texts) - tail :]))
    cut = (
        truncate_text(
            "\n".join(part for at in between if isinstance(part := content[at], str)),
            left,
            head=HEAD_SHARE,
            marker=marker,
            tokenizer=tokenizer,
        )
        or marker
    )
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
    """The tokens of all parts. Those of the texts are added before they are scaled, as in a
    render."""


def measure_content(message: Message, most: int, tokenizer: Tokenizer) -> _Content:
    """Count the parts of a message.

    A text that surely has more than `most` is not counted: any number above that will do.
    """
    base, scale = tokenizer.base, tokenizer.scale
    texts: list[int] = []
    others = 0
    for part in message.content:
        if not isinstance(part, str):
            texts.append(0)
            others += count_part(part, tokenizer)
            continue
        bound = 0 if len(part) <= most else base.lower_bound(part)
        texts.append(bound if scale(bound) > most else base.count(part))
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
    found = [(each, write_compact(each[2])[1:-1]) for each in _find_strings(value)]
    strings = [
        (*each, written, need)
        for each, written in found
        if (need := tokenizer.count(written)) > least
    ]

    def write(level: int) -> str:
        for container, key, text, written, need in strings:
            container[key] = (
                text if need <= level else _cut_string(text, written, level - least, tokenizer)
            )
        return write_compact(value)

    shortest = write(least)
    fewest = tokenizer.count(shortest)
    if tokens < fewest:
        return min(shortest, arguments, key=lambda text: tokenizer.count(compact_arguments(text)))
    level = least + find_level([need - least for *_, need in strings], tokens - fewest)
    while level > least:
        text = write(level)
        excess = tokenizer.count(text) - tokens
        if excess <= 0:
            return text
        level -= max(1, excess // len(strings), level // 64)
    return shortest


def _cut_string(text: str, written: str, tokens: int, tokenizer: Tokenizer) -> str:
    """Keep the head of a string that has at most `tokens` as JSON writes it, and the marker behind it."""
    kept = tokenizer.truncate(written, tokens)
    whole = _WHOLE.match(kept)
    end = len(json.loads(f'"{whole.group()}"')) if whole else 0
    return cut_head(text, end, CUT_STRING) + CUT_STRING


_WHOLE = re.compile(r"(?:[^\\]+|\\u[0-9a-f]{4}|\\[^u])*")
"""Characters and whole escapes of a string as JSON writes it."""


def _find_strings(value: Json) -> list[tuple[dict[object, str], object, str]]:
    """Return the container, the key and the text of each string in a JSON value."""
    found: list[tuple[dict[object, str], object, str]] = []
    # JSON: what it holds is not known
    stack: list[dict[object, object] | list[object]] = [cast("dict[object, object]", value)]
    while stack:
        container = stack.pop()
        for key, item in list(
            container.items() if isinstance(container, dict) else enumerate(container)
        ):
            if isinstance(item, str):
                # a list is written by its index in the same way
                found.append((cast("dict[object, str]", container), key, item))
            elif isinstance(item, dict | list):
                stack.append(cast("dict[object, object] | list[object]", item))  # as above
    return found


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


def divide_tokens(tokens: int, needs: Sequence[int], least: Sequence[int]) -> list[int]:
    """Divide tokens so that each part gets its least, and all of them the same number above it, as far as they need it.

    What the division leaves goes to the last parts that need it, so that all of the tokens are
    used.
    """
    wants = [need - floor for need, floor in zip(needs, least, strict=True)]
    room = max(0, tokens - sum(least))
    level = find_level(wants, room)
    rest = room - sum(min(want, level) for want in wants)
    divided: list[int] = []
    for floor, want in zip(reversed(least), reversed(wants), strict=True):
        more = 1 if want > level and rest > 0 else 0
        rest -= more
        divided.append(floor + min(want, level) + more)
    return divided[::-1]
