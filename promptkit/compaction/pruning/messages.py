"""Messages made smaller for one request: whole rounds and turns left out, results cut in the middle, images replaced by a word.

Nothing of this is written to a transcript, and no request sees what another left out. Never changed are system messages, the last message
of the user, and the ids of calls. Each of these functions, applied twice, does what it does once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.compaction.planning.blocks import spans, summary_text
from promptkit.errors import BudgetExceededError
from promptkit.messages import ImagePart, Message, Part
from promptkit.rendering.sizing import Sizer
from promptkit.tokens.truncation import truncate_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["CUT_MARKER", "HEADROOM", "MessageChange", "Reduced", "cap_results", "drop_images", "replace_messages", "tool_names", "truncate"]

HEADROOM = 0.05
"""The share of the limit that is kept free when messages are left out: so that the next request need not leave out others again."""

CUT_MARKER = "\n[The middle of this output was cut out: it was too long.]\n"
HEAD_SHARE = 0.4


@attrs.frozen(kw_only=True)
class MessageChange:
    """One message that was left out or made smaller. `index` counts in the messages that were given, `saved` is tokens."""

    index: int
    kind: Literal["dropped", "orphan", "capped", "images", "offloaded"]
    saved: int
    detail: str = ""


@attrs.frozen(kw_only=True)
class Reduced:
    """Messages made smaller, and what that took. Figures are tokens of the messages alone."""

    messages: tuple[Message, ...]
    sources: tuple[int, ...]
    """For each message its index in what was given."""
    tokens_before: int
    tokens_after: int
    changes: tuple[MessageChange, ...] = ()
    """In the order of the messages."""


def truncate(  # noqa: PLR0913  # keywords
    messages: Sequence[Message], limit: int, *, tokenizer: Tokenizer, beside: int = 0, headroom: float = HEADROOM, step: int = 0
) -> Reduced:
    """The messages of a request of at most `limit` tokens, of which `beside` are not for messages: tools, framing.

    What fits stays, apart from results of no call. Else calls go with their results: first answers and rounds before the last message
    of the user, then older messages of the user, then rounds behind the last one, each time from the oldest on; last a summary of what
    was before. It goes on until `headroom` of the limit is free; with a `step`, until a multiple of so many tokens is gone. Then
    the next requests leave out the same, and begin with the same bytes. Linear. Raises BudgetExceededError where what never goes is too
    large.

    The rules are those of Copilot CLI's truncator.
    """
    count = Sizer(tokenizer).message
    sizes = [count(message) for message in messages]
    orphans = _orphans(messages)
    total = beside + sum(sizes) - sum(sizes[at] for at in orphans)
    gone: dict[int, MessageChange] = {
        at: MessageChange(index=at, kind="orphan", saved=sizes[at], detail="a result of no call") for at in orphans
    }
    if total > limit:
        least = total - int(limit * (1 - headroom))
        aim = total - (-(-least // step) * step if step else least)
        for start, end in _removal_order(messages):
            for at in range(start, end):
                if at not in gone:
                    gone[at] = MessageChange(index=at, kind="dropped", saved=sizes[at])
                    total -= sizes[at]
            if total <= aim:
                break
    if total > limit:
        raise _too_large(messages, sizes, gone, limit=limit, beside=beside, total=total)
    kept = tuple(at for at in range(len(messages)) if at not in gone)
    return Reduced(
        messages=tuple(messages[at] for at in kept),
        sources=kept,
        tokens_before=sum(sizes),
        tokens_after=total - beside,
        changes=tuple(gone[at] for at in sorted(gone)),
    )


def cap_results(messages: Sequence[Message], tokens: int, *, tokenizer: Tokenizer, exempt: Collection[str] = ()) -> Reduced:
    """Tool results of at most `tokens` of text each: of a longer one the first 40 % and the last 60 % stay, with a marker between.

    Images in results stay. `exempt` names tools whose results are left alone. (VS Code Copilot Chat: half of the window.)
    """
    names = tool_names(messages)

    def capped(message: Message, index: int) -> Message | None:
        if message.role != "tool" or names.get(index) in exempt:
            return None
        texts = [tokenizer.count(part) if isinstance(part, str) else 0 for part in message.content]
        if sum(texts) <= tokens:
            return None
        level = _level(texts, tokens)
        return attrs.evolve(
            message, content=tuple(_cut(part, min(size, level), tokenizer) for part, size in zip(message.content, texts, strict=True))
        )

    return replace_messages(messages, capped, "capped", tokenizer=tokenizer)


def drop_images(messages: Sequence[Message], *, tokenizer: Tokenizer) -> Reduced:
    """Images replaced by a word that says how many were there. Those stay that cost less, or that the model has not seen yet."""
    last = _last_user(messages)
    seen = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant"), 0)

    def without(message: Message, index: int) -> Message | None:
        images = [part for part in message.content if isinstance(part, ImagePart)]
        if not images or index == last or index > seen or message.role == "system":
            return None
        word = "[1 image was here]" if len(images) == 1 else f"[{len(images)} images were here]"
        first = next(at for at, part in enumerate(message.content) if isinstance(part, ImagePart))
        parts: list[Part] = [
            word if at == first else part for at, part in enumerate(message.content) if at == first or not isinstance(part, ImagePart)
        ]
        return attrs.evolve(message, content=tuple(parts))

    return replace_messages(messages, without, "images", tokenizer=tokenizer)


def replace_messages(
    messages: Sequence[Message],
    change: Callable[[Message, int], Message | None],
    kind: Literal["capped", "images", "offloaded"],
    *,
    tokenizer: Tokenizer,
) -> Reduced:
    """The messages with those that `change` gives instead, where they are smaller; None leaves a message as it is."""
    count = Sizer(tokenizer).message
    made: list[Message] = []
    changes: list[MessageChange] = []
    before = after = 0
    for index, message in enumerate(messages):
        size = count(message)
        before += size
        other = change(message, index)
        saved = 0 if other is None else size - count(other)
        if other is not None and saved > 0:
            changes.append(MessageChange(index=index, kind=kind, saved=saved))
            after += size - saved
            made.append(other)
        else:
            after += size
            made.append(message)
    return Reduced(messages=tuple(made), sources=tuple(range(len(made))), tokens_before=before, tokens_after=after, changes=tuple(changes))


def tool_names(messages: Sequence[Message]) -> Mapping[int, str]:
    """The name of the tool, for the index of each result."""
    called: dict[str, str] = {}
    names: dict[int, str] = {}
    for index, message in enumerate(messages):
        called.update((call.id, call.name) for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id in called:
            names[index] = called[message.tool_call_id]
    return names


def _orphans(messages: Sequence[Message]) -> set[int]:
    """The results that answer none of the calls right before them."""
    found: set[int] = set()
    for start, end in spans(messages):
        waiting = Counter(call.id for call in messages[start].tool_calls)
        for at in range(start, end):
            message = messages[at]
            if message.role != "tool":
                continue
            if message.tool_call_id is not None and waiting[message.tool_call_id] > 0:
                waiting[message.tool_call_id] -= 1
            else:
                found.add(at)
    return found


def _removal_order(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """What may go, first what goes first."""
    last = _last_user(messages)
    blocks = [(start, end) for start, end in spans(messages) if messages[start].role != "system" and start != last]
    edge = -1 if last is None else last
    answers = [block for block in blocks if messages[block[0]].role != "user"]
    asked = [block for block in blocks if messages[block[0]].role == "user"]
    summaries = {block for block in asked if summary_text(messages[block[0]]) is not None}
    yield from (block for block in answers if block[0] < edge)
    yield from (block for block in asked if block not in summaries)
    yield from (block for block in answers if block[0] > edge)
    yield from sorted(summaries)


def _last_user(messages: Sequence[Message]) -> int | None:
    return next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)


def _too_large(  # noqa: PLR0913  # an error that says what was too large
    messages: Sequence[Message], sizes: Sequence[int], gone: Mapping[int, MessageChange], *, limit: int, beside: int, total: int
) -> BudgetExceededError:
    left = {f"messages[{at}] ({messages[at].role})": sizes[at] for at in range(len(messages)) if at not in gone}
    if beside:
        left["tools and framing"] = beside
    return BudgetExceededError(
        budget=limit,
        required=total,
        largest=dict(sorted(left.items(), key=lambda item: -item[1])[:5]),
        messages=messages,
        metadata=(),
        removed=(),
    )


def _level(sizes: Sequence[int], total: int) -> int:
    """The size to which the largest must come down, so that all together are at most `total`."""
    left = total
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * count > left:
            return left // count
        left -= size
    return max(sizes, default=0)


def _cut(part: Part, tokens: int, tokenizer: Tokenizer) -> Part:
    if not isinstance(part, str):
        return part
    return truncate_text(part, tokens, keep="middle", ratio=HEAD_SHARE, marker=CUT_MARKER, tokenizer=tokenizer)
