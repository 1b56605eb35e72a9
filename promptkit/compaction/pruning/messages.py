"""Reductions of the messages of one request: truncate tool results, replace images by a placeholder.

Nothing of this is written to a transcript. System messages, the last user message and the ids of
tool calls never change. Each of these functions is idempotent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.fitting.shorten import HEAD_SHARE, find_level
from promptkit.messages import ImagePart, Message, Part
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens.truncation import truncate_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from promptkit.tokens.tokenizer import Tokenizer

CUT_MARKER = "\n[The middle of this output was cut out: it was too long.]\n"
"""Replaces the middle of a result."""

_MARKER_END = "]\n"


@attrs.frozen(kw_only=True)
class MessageChange:
    """One message that was reduced."""

    index: int
    """Its index in the original messages."""
    kind: Literal["capped", "images"]
    saved: int
    """Tokens saved."""
    detail: str = ""


@attrs.frozen(kw_only=True)
class Reduction:
    """The reduced messages of a request and the changes to them.

    Token counts are of the messages alone.
    """

    messages: tuple[Message, ...]
    sources: tuple[int, ...]
    """For each message, its index in the original messages."""
    tokens_before: int
    tokens_after: int
    changes: tuple[MessageChange, ...] = ()
    """In the order of the messages."""


def cap_results(
    messages: Sequence[Message],
    max_tokens: int,
    *,
    tokenizer: Tokenizer,
    exempt: Collection[str] = (),
    marker: str = CUT_MARKER,
) -> Reduction:
    """Truncate long tool results: the first 40 % and the last 60 % of the limit stay, with a marker between.

    Images stay.

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
        level = find_level(texts, max_tokens)
        return attrs.evolve(
            message,
            content=tuple(
                _truncate_part(part, min(size, level), marker, tokenizer)
                for part, size in zip(message.content, texts, strict=True)
            ),
        )

    return replace_messages(messages, capped, "capped", tokenizer=tokenizer)


def format_cut_marker(rest: str | None) -> str:
    """Return the marker of a result that is cut, with the call that reads all of it, if there is one."""
    return (
        CUT_MARKER
        if rest is None
        else f"{CUT_MARKER.removesuffix(_MARKER_END)} All of it: {rest}{_MARKER_END}"
    )


def drop_images(messages: Sequence[Message], *, tokenizer: Tokenizer) -> Reduction:
    """Replace images by a placeholder with their number.

    Images stay that cost less, or that the model has not seen yet.
    """
    last = _last_user(messages)
    seen = next(
        (at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant"), 0
    )

    def without(message: Message, index: int) -> Message | None:
        images = [part for part in message.content if isinstance(part, ImagePart)]
        if not images or index == last or index > seen or message.role == "system":
            return None
        placeholder = (
            "[1 image was here]" if len(images) == 1 else f"[{len(images)} images were here]"
        )
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
    kind: Literal["capped", "images"],
    *,
    tokenizer: Tokenizer,
) -> Reduction:
    """Replace messages by smaller ones.

    Args:
        messages: The messages.
        change: Returns a replacement for a message and its index, or None. A replacement that is
            not smaller is ignored.
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
        messages=tuple(replaced),
        sources=tuple(range(len(replaced))),
        tokens_before=before,
        tokens_after=after,
        changes=tuple(changes),
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


def _last_user(messages: Sequence[Message]) -> int | None:
    return next(
        (at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None
    )


def _truncate_part(part: Part, tokens: int, marker: str, tokenizer: Tokenizer) -> Part:
    if not isinstance(part, str):
        return part
    return truncate_text(
        part, tokens, keep="middle", ratio=HEAD_SHARE, marker=marker, tokenizer=tokenizer
    )
