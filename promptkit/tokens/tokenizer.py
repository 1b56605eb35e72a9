"""The protocol of tokenizers: what the renderer asks of one.

A tokenizer counts text and knows what a message costs around its text. `count` is all that a new
one must define: subclass `Tokenizer` explicitly, and the rest has defaults (no framing, media cost
nothing, no cut is safe).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, Self

from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    Role,
    ToolCall,
    ToolDefinition,
)
from promptkit.reprs import describe

IMAGE_TOKENS = 1_600
"""Tokens of an image, whatever its size, for tokenizers without a rule for images."""


class Count(NamedTuple):
    """A number of tokens, and whether it is exact: what the provider bills, or a published formula that was checked against bills."""

    tokens: int
    exact: bool = True


class Tokenizer(Protocol):
    """Counts tokens for one model family.

    Counts are kept, so each must depend on its arguments alone.

    >>> class WordTokenizer(Tokenizer):
    ...     def count(self, text: str) -> int:
    ...         return len(text.split())
    """

    def __repr__(self) -> str:
        return describe(self, name=self.name)

    @property
    def name(self) -> str:
        """The name that receipts and errors show, such as `o200k_base`."""
        return type(self).__name__

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """A zero-width pattern that matches where counting is additive.

        At such a position p of a text s, `count(s) == count(s[:p]) + count(s[p:])`. None means that
        no position is known to be safe. Rendering works without it, but counts a message of many
        parts again for every part.
        """
        return None

    @property
    def base(self) -> Tokenizer:
        """The tokenizer whose counts are added up before they are scaled: this one, or the one that a `CalibratedTokenizer` scales.

        The texts of a message are counted by it and added; `scale` turns the sum into tokens. So
        `count(text) == scale(base.count(text))`.
        """
        return self

    def scale(self, tokens: int) -> int:
        """Return the tokens of texts for which `base` counts `tokens`.

        It is 0 for 0, and never falls when `tokens` grows.
        """
        return tokens

    def learn(self, *, counted: int, reported: int) -> Self:
        """Return the tokenizer to use after a provider reported the size of a request.

        Only those that estimate return another one.

        Args:
            counted: The tokens that this tokenizer counted for the request.
            reported: The input tokens that the provider reported, cached ones included.
        """
        return self

    @abstractmethod
    def count(self, text: str) -> int:
        """Count the tokens of a text.

        Text that looks like a special token counts as text; the empty string counts 0.
        """

    def count_ahead(self, messages: Sequence[Message]) -> None:
        """Count the texts of messages before `count` is called with each, where together they take less time.

        The default does nothing.
        """
        _ = messages

    def add_count(self, text: str, tokens: int) -> None:
        """Take the tokens of a text, which follow from those of its parts, so that `count` need not count it again.

        The default does nothing.
        """
        _ = text, tokens

    def upper_bound(self, text: str) -> int | None:
        """Return an upper bound of the tokens of a text without counting it; None if unknown."""
        return None

    def lower_bound(self, text: str) -> int:
        """Return a lower bound of the tokens of a text, and of any text that contains it, without counting; 0 if unknown."""
        return 0

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        """Count the tokens of a message apart from its content: framing, role, name and tool calls.

        Args:
            role: The message's role.
            name: The author's name, if it has one.
            tool_calls: The tool calls of an assistant message.
            tool_call_id: The id of the tool call that a tool message answers.
            text: Whether the message has text beside its tool calls; None if that is not known.
        """
        return Count(0)

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """Count the tokens of a part that is not text."""
        return Count(0)

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        """Count the tokens of a request apart from its messages: tool definitions, and the tokens that start the reply.

        Args:
            tools: The tools that the request offers.
            system: The text of the first system message, or whether there is one. With True the
                count may be too high, never too low.
        """
        return Count(0)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """Truncate a text to a head or tail of at most `tokens`, the longest that is found.

        Args:
            text: The text.
            tokens: The most tokens that the result may have.
            keep: Which end of the text stays.

        Returns:
            A prefix or suffix of the text.
        """
        return truncate_by_counting(text, tokens, self.count, keep=keep)


def count_message(message: Message, tokenizer: Tokenizer) -> int:
    """Count the tokens of a message, framing included."""
    base = tokenizer.base
    texts, others, has_text = 0, 0, False
    for part in message.content:
        if isinstance(part, str):
            has_text = True
            texts += base.count(part)
        else:
            others += count_part(part, tokenizer)
    framing = tokenizer.count_framing(
        message.role,
        name=message.name,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        text=has_text,
    )
    return framing.tokens + (texts if base is tokenizer else tokenizer.scale(texts)) + others


def count_frame(message: Message, tokenizer: Tokenizer) -> Count:
    """Count the tokens around the content of a message."""
    return tokenizer.count_framing(
        message.role,
        name=message.name,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        text=any(isinstance(part, str) for part in message.content),
    )


def count_part(part: Part, tokenizer: Tokenizer) -> int:
    """Count the tokens of a content part."""
    if isinstance(part, str):
        return tokenizer.count(part)
    return 0 if isinstance(part, CacheBreakpointPart) else tokenizer.count_part(part).tokens


def is_exact(message: Message, tokenizer: Tokenizer) -> bool:
    """Return whether the tokens of a message are the number that the provider bills."""
    parts = [part for part in message.content if not isinstance(part, str | CacheBreakpointPart)]
    if message.role == "tool" and not all(isinstance(part, OpaquePart) for part in parts):
        return False  # Chat Completions is sent its images in a message of their own
    return count_frame(message, tokenizer).exact and all(
        tokenizer.count_part(part).exact for part in parts
    )


def count_opaque(part: OpaquePart, count: Callable[[str], int]) -> Count:
    """Count the tokens of an opaque part: its `tokens`, or those of the text in it.

    The text of a refusal in Chat Completions is billed as text. For any other text in an opaque
    part no rule is known, so that count is not exact.

    Args:
        part: The part.
        count: Counts the tokens of a text.
    """
    if part.tokens is not None:
        return Count(part.tokens)
    value = part.value
    is_refusal = (
        isinstance(value, Mapping)
        and isinstance(value.get("refusal"), str)
        and value.keys() <= _REFUSAL
    )
    return Count(
        sum(map(count, find_texts(value))), is_refusal and part.provider in ("chat", "chat.message")
    )


_REFUSAL = {"type", "refusal"}

_TEXT_FIELDS = frozenset(
    {
        "content",
        "context",
        "parts",
        "reasoning",
        "reasoning_content",
        "refusal",
        "summary",
        "text",
        "thinking",
        "title",
        "transcript",
    }
)
"""The fields of providers' content parts that hold text for a model to read, or lists with such
text."""

_WRITTEN_FIELDS = frozenset({"arguments", "input", "output", "result"})
"""The fields in which every string is such text, however deep."""


def find_texts(value: Json) -> list[str]:
    """Return the texts in a provider's content part that a model reads: not its ids, types, signatures, addresses and encrypted content."""
    texts: list[str] = []
    # a value, whether it is text, and whether everything in it is
    todo: list[tuple[Json, bool, bool]] = [(value, False, False)]
    while todo:
        item, is_text, is_written = todo.pop()
        if isinstance(item, str):
            if is_text:
                texts.append(item)
        elif isinstance(item, Mapping):
            plain = item.get("type") == "text"  # a text document has its text in `data`
            for key, child in item.items():
                written = is_written or key in _WRITTEN_FIELDS
                todo.append(
                    (child, written or key in _TEXT_FIELDS or (plain and key == "data"), written)
                )
        elif isinstance(item, list | tuple):
            todo.extend((child, is_text, is_written) for child in item)
    return texts


_FIRST_GUESS = 4  # characters per token, about as many as in English text
_SLACK = 64  # characters that the first guess has besides
# characters before a short piece that are counted with it, so that its first token is the same as
# in the whole text
_CONTEXT = 64
# steps of a walk; more are taken only where short pieces of a text say nothing of its tokens, as in
# a run of one letter
_STEPS = 64
_ROUNDS = 6  # guesses that are counted as a whole before the search goes on by halves


def truncate_by_counting(
    text: str, tokens: int, count: Callable[[str], int], *, keep: Literal["head", "tail"] = "head"
) -> str:
    """Return a head or tail of at most `tokens`, for a tokenizer that can only count.

    A first guess is counted as a whole. From there the search walks on by counting only what lies
    between, and the end of the walk is counted as a whole again. So about three times the length of
    the result is counted, however long the text is.

    Args:
        text: The text.
        tokens: The most tokens that the result may have.
        count: Counts the tokens of a text.
        keep: Which end of the text stays.
    """
    size = len(text)

    def cut(start: int, end: int) -> str:
        """Return the characters between two distances from the end that stays."""
        return text[start:end] if keep == "head" else text[size - end : size - start]

    low, high = 0, size + 1  # a length that fits, and one that does not
    guess = min(size, _FIRST_GUESS * max(tokens, 0) + _SLACK)
    for _ in range(_ROUNDS):
        counted = count(cut(0, guess))
        if counted <= tokens:
            low = guess
        else:
            high = guess
        guess = _walk(guess, counted, tokens, size, lambda start, end: count(cut(start, end)))
        if not low < guess < high:
            break
    if guess == low:
        return cut(0, low)
    while high - low > 1:
        middle = (low + high) // 2
        if count(cut(0, middle)) <= tokens:
            low = middle
        else:
            high = middle
    return cut(0, low)


# places and tokens
def _walk(
    place: int, counted: int, tokens: int, size: int, count: Callable[[int, int], int]
) -> int:
    """Estimate the greatest length that fits, starting from a length whose tokens are known.

    Counts only what lies between the two.
    """

    def count_between(start: int, end: int) -> int:
        before = max(0, start - _CONTEXT)
        return count(before, end) - count(before, start)

    room = tokens - counted
    rate = place / counted if counted else _FIRST_GUESS
    step = max(1, int(-room * rate))
    while room < 0 and place > 0:
        start = max(0, place - step)
        room += count_between(start, place)
        place, step = start, step * 2
    step = max(1, int(room * rate))
    for _ in range(_STEPS):
        step = min(step, size - place)
        if not step:
            break
        more = count_between(place, place + step)
        if more <= room:
            place, room, step = place + step, room - more, step * 2
        else:
            step //= 2
    return place
