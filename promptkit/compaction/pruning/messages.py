"""Reductions of the messages of one request: drop rounds and turns, truncate tool results, replace images by a placeholder.

Nothing of this is written to a transcript. System messages, the last user message and the ids of tool calls never change. Each of these
functions is idempotent.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.compaction.planning.blocks import block_spans, extract_summary_text
from promptkit.errors import BudgetExceededError
from promptkit.messages import ImagePart, Message, Part
from promptkit.rendering.sizing import Sizer
from promptkit.tokens.truncation import truncate_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from promptkit.tokens.tokenizer import Tokenizer

__all__ = [
    "CUT_MARKER",
    "HEADROOM",
    "HEAD_SHARE",
    "MessageChange",
    "Reduction",
    "cap_results",
    "drop_images",
    "find_tool_names",
    "format_cut_marker",
    "limit_largest",
    "replace_messages",
    "truncate_messages",
]

HEADROOM = 0.05
"""Share of the limit that is kept free when messages are dropped, so that the next request need not drop others again."""

CUT_MARKER = "\n[The middle of this output was cut out: it was too long.]\n"
"""Replaces the middle of a result."""

_MARKER_END = "]\n"

HEAD_SHARE = 0.4
"""Share of a truncated result that is taken from its beginning."""


@attrs.frozen(kw_only=True)
class MessageChange:
    """One message that was dropped or reduced."""

    index: int
    """Its index in the original messages."""
    kind: Literal["dropped", "orphan", "capped", "images", "offloaded"]
    saved: int
    """Tokens saved."""
    detail: str = ""


@attrs.frozen(kw_only=True)
class Reduction:
    """The reduced messages of a request and the changes to them. Token counts are of the messages alone."""

    messages: tuple[Message, ...]
    sources: tuple[int, ...]
    """For each message, its index in the original messages."""
    tokens_before: int
    tokens_after: int
    changes: tuple[MessageChange, ...] = ()
    """In the order of the messages."""


def truncate_messages(  # noqa: PLR0913  # keywords
    messages: Sequence[Message],
    limit: int,
    *,
    tokenizer: Tokenizer,
    fixed_tokens: int = 0,
    headroom: float = HEADROOM,
    step: int = 0,
    count_message: Callable[[Message], int] | None = None,
    request: Message | None = None,
) -> Reduction:
    """Drop messages until a request fits its limit, after the rules of Copilot CLI's truncator. Linear in the number of messages.

    Tool results without a call are always dropped. If the request is still too large, messages are dropped in this order, each time from
    the oldest on, and tool calls together with their results: replies and rounds before the last user message, older user messages,
    rounds after the last user message except the newest, and last a summary of earlier messages.

    Args:
        messages: The messages.
        limit: Limit of the request in tokens.
        tokenizer: Counts messages.
        fixed_tokens: Tokens of the request that are not messages: tools, framing.
        headroom: Share of the limit that is free afterwards, if possible. Default: 0.05.
        step: If not 0, the number of dropped tokens is rounded up to a multiple of it. Then the next requests drop the same messages and
            begin with the same bytes, which the provider's prompt cache needs.
        count_message: Counts the tokens of a message, for callers that have counted them before. Default: the tokenizer.
        request: The last message that the user wrote, which is never dropped either. A program's message may follow it.

    Returns:
        The reduction.

    Raises:
        BudgetExceededError: The messages that are never dropped exceed the limit.
    """
    sizes = list(map(count_message or Sizer(tokenizer).count_message, messages))
    orphans = _orphans(messages)
    total = fixed_tokens + sum(sizes) - sum(sizes[at] for at in orphans)
    gone: dict[int, MessageChange] = {
        at: MessageChange(index=at, kind="orphan", saved=sizes[at], detail="a result without a call") for at in orphans
    }
    if total > limit:
        excess = total - int(limit * (1 - headroom))
        target = total - (-(-excess // step) * step if step else excess)
        for start, end in _removal_order(messages, request):
            for at in range(start, end):
                if at not in gone:
                    gone[at] = MessageChange(index=at, kind="dropped", saved=sizes[at])
                    total -= sizes[at]
            if total <= target:
                break
    if total > limit:
        raise _make_error(messages, sizes, gone, limit=limit, fixed_tokens=fixed_tokens, total=total)
    kept = tuple(at for at in range(len(messages)) if at not in gone)
    return Reduction(
        messages=tuple(messages[at] for at in kept),
        sources=kept,
        tokens_before=sum(sizes),
        tokens_after=total - fixed_tokens,
        changes=tuple(gone[at] for at in sorted(gone)),
    )


def cap_results(
    messages: Sequence[Message],
    max_tokens: int,
    *,
    tokenizer: Tokenizer,
    exempt: Collection[str] = (),
    marker: str = CUT_MARKER,
) -> Reduction:
    """Truncate long tool results: the first 40 % and the last 60 % of the limit stay, with a marker between. Images stay.

    VS Code Copilot Chat caps results at half of the context window.

    Args:
        messages: The messages.
        max_tokens: Limit for the text of each result, in tokens.
        tokenizer: Counts text.
        exempt: Names of tools whose results do not change.
        marker: Replaces what is cut out.

    Returns:
        The reduction.
    """
    names = find_tool_names(messages)

    def capped(message: Message, index: int) -> Message | None:
        if message.role != "tool" or names.get(index) in exempt:
            return None
        texts = [tokenizer.count(part) if isinstance(part, str) else 0 for part in message.content]
        if sum(texts) <= max_tokens:
            return None
        level = limit_largest(texts, max_tokens)
        return attrs.evolve(
            message,
            content=tuple(
                _truncate_part(part, min(size, level), marker, tokenizer) for part, size in zip(message.content, texts, strict=True)
            ),
        )

    return replace_messages(messages, capped, "capped", tokenizer=tokenizer)


def format_cut_marker(rest: str | None) -> str:
    """Return the marker of a result that is cut, with the call that reads all of it, if there is one."""
    return CUT_MARKER if rest is None else f"{CUT_MARKER.removesuffix(_MARKER_END)} All of it: {rest}{_MARKER_END}"


def drop_images(messages: Sequence[Message], *, tokenizer: Tokenizer) -> Reduction:
    """Replace images by a placeholder with their number. Images stay that cost less, or that the model has not seen yet."""
    last = _last_user(messages)
    seen = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant"), 0)

    def without(message: Message, index: int) -> Message | None:
        images = [part for part in message.content if isinstance(part, ImagePart)]
        if not images or index == last or index > seen or message.role == "system":
            return None
        placeholder = "[1 image was here]" if len(images) == 1 else f"[{len(images)} images were here]"
        first = next(at for at, part in enumerate(message.content) if isinstance(part, ImagePart))
        parts: list[Part] = [
            placeholder if at == first else part
            for at, part in enumerate(message.content)
            if at == first or not isinstance(part, ImagePart)
        ]
        return attrs.evolve(message, content=tuple(parts))

    return replace_messages(messages, without, "images", tokenizer=tokenizer)


def replace_messages(
    messages: Sequence[Message],
    change: Callable[[Message, int], Message | None],
    kind: Literal["capped", "images", "offloaded"],
    *,
    tokenizer: Tokenizer,
) -> Reduction:
    """Replace messages by smaller ones.

    Args:
        messages: The messages.
        change: Returns a replacement for a message and its index, or None. A replacement that is not smaller is ignored.
        kind: The kind of the recorded changes.
        tokenizer: Counts messages.

    Returns:
        The reduction.
    """
    count = Sizer(tokenizer).count_message
    replaced: list[Message] = []
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
            replaced.append(other)
        else:
            after += size
            replaced.append(message)
    return Reduction(
        messages=tuple(replaced), sources=tuple(range(len(replaced))), tokens_before=before, tokens_after=after, changes=tuple(changes)
    )


def find_tool_names(messages: Sequence[Message]) -> Mapping[int, str]:
    """Return the name of the tool for the index of each tool result."""
    called: dict[str, str] = {}
    names: dict[int, str] = {}
    for index, message in enumerate(messages):
        called.update((call.id, call.name) for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id in called:
            names[index] = called[message.tool_call_id]
    return names


def _orphans(messages: Sequence[Message]) -> set[int]:
    """Return the tool results that belong to none of the calls directly before them."""
    found: set[int] = set()
    for start, end in block_spans(messages):
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


def _removal_order(messages: Sequence[Message], request: Message | None) -> Iterator[tuple[int, int]]:
    """Iterate over the blocks that may be dropped, in the order in which they are dropped.

    The newest round is none of them: a model that does not see its own calls makes them again.
    """
    last = _last_user(messages)
    blocks = [
        (start, end)
        for start, end in block_spans(messages)
        if messages[start].role != "system" and start != last and messages[start] is not request
    ]
    edge = -1 if last is None else last
    answers = [block for block in blocks if messages[block[0]].role != "user"]
    user_messages = [block for block in blocks if messages[block[0]].role == "user"]
    summaries = {block for block in user_messages if extract_summary_text(messages[block[0]]) is not None}
    yield from (block for block in answers if block[0] < edge)
    yield from (block for block in user_messages if block not in summaries)
    yield from (block for block in answers if block[0] > edge and block[1] < len(messages))
    yield from sorted(summaries)


def _last_user(messages: Sequence[Message]) -> int | None:
    return next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)


def _make_error(  # noqa: PLR0913  # the figures of the error
    messages: Sequence[Message], sizes: Sequence[int], gone: Mapping[int, MessageChange], *, limit: int, fixed_tokens: int, total: int
) -> BudgetExceededError:
    left = {f"messages[{at}] ({messages[at].role})": sizes[at] for at in range(len(messages)) if at not in gone}
    if fixed_tokens:
        left["tools and framing"] = fixed_tokens
    return BudgetExceededError(
        budget=limit,
        required=total,
        largest=dict(sorted(left.items(), key=lambda item: -item[1])[:5]),
        messages=messages,
        metadata=(),
        removed=(),
    )


def limit_largest(sizes: Sequence[int], total: int) -> int:
    """Return the size to which the largest texts must be cut so that all together take at most `total`."""
    left = total
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * count > left:
            return left // count
        left -= size
    return max(sizes, default=0)


def _truncate_part(part: Part, tokens: int, marker: str, tokenizer: Tokenizer) -> Part:
    if not isinstance(part, str):
        return part
    return truncate_text(part, tokens, keep="middle", ratio=HEAD_SHARE, marker=marker, tokenizer=tokenizer)
