"""OpenAI's tokens: text by its encodings, and what the chat format adds around text.

Counts of text are cached, additive at safe cuts, and bounded for hostile input.

Framing: OpenAI cookbook, "How to count tokens with tiktoken". Tools and images: see
`tool_schemas.py` and `images.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Literal

from promptkit.errors import TextTooLongError
from promptkit.messages import (
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Role,
    ToolCall,
    ToolDefinition,
)
from promptkit.tokens.encodings import (
    BUNDLED,
    OLDER,
    EncodingEngine,
    find_longest_token,
    get_encoding,
    get_engine,
    replace_surrogates,
)
from promptkit.tokens.images import UNKNOWN_IMAGE_RULE, ImageRule, count_image
from promptkit.tokens.tokenizer import Count, Tokenizer, count_opaque
from promptkit.tokens.tool_schemas import (
    SYSTEM_DISCOUNT,
    compact_arguments,
    count_definitions,
    count_line_break,
    count_tool_calls,
)

MAX_TEXT_BYTES = 64 * 1024 * 1024
"""The longest text in bytes that is counted by default."""

CACHE_BYTES = 64 * 1024 * 1024
"""Bytes that the cached texts of one encoding may take."""

# Safe by the patterns of o200k and cl100k: no word ends in a space that is followed by something
# else, and only `/` may follow a line break in a word (o200k's `[\r\n/]*`). Python's \s holds more
# than the patterns' own, so it only makes fewer cuts.
SAFE_CUT = re.compile(r"(?<=\S)(?= \S)|(?<=\n)(?=[^\s/])")
# The older patterns take a run of white space at the end of a text as one word, so a line break
# alone is no safe place.
CUT_BEFORE_SPACE = re.compile(r"(?<=\S)(?= \S)")

_LONG = 4_096  # characters; a longer text is counted in pieces
# A piece ends before a word that begins with one of these characters, and after a line that ends
# with one. So a text has the same pieces as its head, its tail and any text that contains it, and
# their counts are found in the cache. A piece has some 1,000 characters.
_MARKS = "".join(filter(str.isprintable, map(chr, range(ord("v"), 0x10000, 64))))
_END_BEFORE_WORD = re.compile(rf" [{_MARKS}](?<=\S .)")
_END_AFTER_LINE = re.compile(rf"\n(?<=[{_MARKS}]\n)(?=[^\s/])")
_MAX_PIECE = 2_048  # characters; a longer piece is cut at the next safe cut

_WINDOW = 8_192  # characters in which ends are looked for at once

_PANIC = 500_000  # characters; tiktoken 0.14 panics on runs of white space somewhere above 700,000
_RUN = re.compile(r"\s{100000}")
_NEAR = 1_024  # characters in which a safe end of an excerpt is looked for
_CHARACTERS_PER_TOKEN = 6  # more than in any ordinary text, so that one excerpt is enough
# tokens that the end of an excerpt may lose when more text follows: the longest token has 128 bytes
_SLACK = 128

_FRAMING = 3
_REPLY_START = 3
_NAME = 1
_TOOL_RESULT = 2  # the name of the tool is counted with the call


class OpenAITokenizer(Tokenizer):
    """Counts as OpenAI does for one encoding and family of models.

    Args:
        encoding: The encoding's name.
        images: The rule that counts images.
        exact: Whether the models' chat framing is known. Where it is not, it counts as for gpt-4o,
            and counts are not exact.
        max_text_bytes: The longest text in UTF-8 bytes. Longer ones raise TextTooLongError.
        cache: Keeps the counts of text; it may be shared with other tokenizers of the same encoding.

    >>> OpenAITokenizer("o200k_base").count("Fix the parser.")
    4
    """

    def __init__(
        self,
        encoding: str = "o200k_base",
        *,
        images: ImageRule = UNKNOWN_IMAGE_RULE,
        exact: bool = True,
        max_text_bytes: int = MAX_TEXT_BYTES,
        cache: CountCache | None = None,
    ) -> None:
        self._encoding_name = encoding
        self._max_text_bytes = max_text_bytes
        self._safe_cut = (
            SAFE_CUT if encoding in BUNDLED else CUT_BEFORE_SPACE if encoding in OLDER else None
        )
        self._cache = cache or CountCache(CACHE_BYTES)
        self._find_count = self._cache.counts.get
        self._long = min(_LONG, max_text_bytes // 4)
        self._images = images
        self._exact = exact
        self._frames: dict[Role, Count] = {}

    @cached_property
    def encoding(self) -> EncodingEngine:
        """The engine that encodes text, loaded when it is first needed."""
        return get_engine(self._encoding_name)

    @property
    def name(self) -> str:
        """Return the encoding's name."""
        return self._encoding_name

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """Match before a single space between two words, and after a line break before anything but white space and `/`."""
        return self._safe_cut

    def count(self, text: str) -> int:
        """Count the tokens of a text.

        Text that looks like a special token counts as text. Counts are cached.

        Raises TextTooLongError.
        """
        tokens = self._find_count(text)
        if tokens is None:
            if len(text) > self._long:
                self._check_length(text)
                tokens = sum(map(self._count_piece, self._split(text)))
            else:
                tokens = len(self.encoding.encode_ordinary(text))
            self._cache.put(text, tokens)
        return tokens

    def count_ahead(self, messages: Sequence[Message]) -> None:
        """Count and cache the texts and the tool calls of messages, one straight after the other.

        The engine is fastest if nothing else uses the processor's caches in between.
        """
        known, longest = self._cache.counts, self._long
        texts = [part for each in messages for part in each.content if isinstance(part, str)]
        texts += [
            compact_arguments(call.arguments)
            for each in messages
            for call in each.tool_calls
            if len(call.arguments) <= longest
        ]
        new = dict.fromkeys([text for text in texts if text not in known and len(text) <= longest])
        counts = map(len, map(self.encoding.encode_ordinary, new))
        self._cache.put_all(dict(zip(new, counts, strict=True)))

    def add_count(self, text: str, tokens: int) -> None:
        """Cache the tokens of a text."""
        self._cache.put(text, tokens)

    def upper_bound(self, text: str) -> int | None:
        """Return the bytes of the text in UTF-8: every token has at least one byte."""
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def lower_bound(self, text: str) -> int:
        """Return the tokens that the text has if each is the longest of the vocabulary: every character has at least one byte."""
        return -(-len(text) // find_longest_token(self._encoding_name))

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """Return a head or tail of at most `tokens`, or the text itself exactly if it fits.

        Only about six characters per token are counted, however long the text is.
        """
        if tokens <= 0:
            return ""
        if len(text) * 4 <= tokens or (len(text) <= tokens and text.isascii()):
            return text
        found = self._find_cut(text, tokens, keep)
        if found is None:
            return text
        before, piece, left = found
        ids = self._encode_end(piece, left, keep)
        # Cutting tokens was never seen to make the rest cost more, but no rule of the encoding says
        # so.
        room = left
        while True:
            kept = self._slice(piece, ids, room, keep)
            over = self.count(kept) - left
            if over <= 0:
                size = before + len(kept)
                return text[:size] if keep == "head" else text[len(text) - size :]
            room -= over

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

        Tool calls beside a text count as a message of their own. Where `text` is None, they count
        as if there were a text.
        """
        frame = self._frames.get(role)
        if frame is None:
            tokens = (_TOOL_RESULT if role == "tool" else _FRAMING) + self.count(role)
            frame = self._frames[role] = Count(tokens, self._exact)
        if role == "tool" or not (name or tool_calls):
            return frame
        tokens = frame.tokens + (_NAME + self.count(name) if name else 0)
        if not tool_calls:
            return Count(tokens, self._exact)
        return Count(
            count_tool_calls(tool_calls, self.count) + (0 if text is False else tokens),
            self._exact and len(tool_calls) == 1 and text is not None,
        )

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """Count the tokens of a part that is not text: images by their formula, others by their `tokens`.

        Without `tokens`, an opaque part counts the text in it, and a document nothing; that is
        exact only for a refusal.
        """
        match part:
            case ImagePart():
                tokens, exact = count_image(part, self._images)
                return Count(tokens, exact and self._exact)
            case OpaquePart():
                return count_opaque(part, self.count)
            case DocumentPart():
                return Count(part.tokens or 0, part.tokens is not None)

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        """Count the tokens of a request apart from its messages: the start of the reply, and tool definitions.

        With `system=True` instead of the text, the line break after the system message, which
        definitions need, counts as a token of its own. So the count is never too low, and at times
        one too high.
        """
        if not tools:
            return Count(_REPLY_START, self._exact)
        definitions = count_definitions(tools, self.count)
        tokens = _REPLY_START + definitions.tokens
        if system is not False:
            tokens += (
                1 if system is True else count_line_break(system, self.count)
            ) - SYSTEM_DISCOUNT
        return Count(tokens, self._exact and definitions.exact and system is not True)

    def _encode_end(self, piece: str, tokens: int, keep: Literal["head", "tail"]) -> Sequence[int]:
        """Encode a head or tail of a piece that ends at a safe cut and has at least so many tokens, or the whole piece."""
        size = _CHARACTERS_PER_TOKEN * tokens + 64
        if keep == "head":
            end = self._find_safe_cut(piece, size, size + _NEAR)
            ids = self._encode(piece[:end])
        else:
            place = len(piece) - size
            start = self._find_safe_cut(piece, max(0, place - _NEAR), place) if place > 0 else None
            ids = self._encode(piece[start:])
        return ids if len(ids) >= tokens else self._encode(piece)

    def _slice(
        self, text: str, ids: Sequence[int], tokens: int, keep: Literal["head", "tail"]
    ) -> str:
        """Return the part of the text that the first or last `tokens` of the ids encode, without a character cut in two."""
        if tokens <= 0:
            return ""
        kept = ids[:tokens] if keep == "head" else ids[-tokens:]
        # Its length, not the decoded text: that has U+FFFD where the text has a lone surrogate.
        length = len(self.encoding.decode_bytes(kept).decode("utf-8", "ignore"))
        return text[:length] if keep == "head" else text[len(text) - length :]

    def _find_cut(
        self, text: str, tokens: int, keep: Literal["head", "tail"]
    ) -> tuple[int, str, int] | None:
        """Find the piece in which a text of more than `tokens` is cut.

        Return the characters that are kept besides the piece, the piece, and the tokens that are
        left for it; None if the text is not too long.
        """
        size = _CHARACTERS_PER_TOKEN * tokens + 64
        while True:
            is_whole = size + _NEAR >= len(text)
            if is_whole:
                self._check_length(text)
                safe, excerpt = True, text
            elif keep == "head":
                end = self._find_safe_cut(text, size, size + _NEAR)
                safe, excerpt = end is not None, text[: size if end is None else end]
            else:
                start = self._find_safe_cut(text, len(text) - size - _NEAR, len(text) - size)
                safe, excerpt = start is not None, text[-size if start is None else start :]
            pieces = self._split(excerpt)
            before, left = 0, tokens
            for piece in pieces if keep == "head" else reversed(list(pieces)):
                counted = self._count_piece(piece)
                before += len(piece)
                if counted > left:
                    # the end of an excerpt may be in the middle of a word
                    if safe or before < len(excerpt) or counted > left + _SLACK:
                        return before - len(piece), piece, left
                    break
                left -= counted
            else:
                if is_whole:
                    self._cache.put(text, tokens - left)
                    return None
            size *= 4

    def _find_safe_cut(self, text: str, start: int, end: int) -> int | None:
        place = self._safe_cut.search(text, start, end) if self._safe_cut else None
        return None if place is None else place.start()

    def _split(self, text: str) -> Iterator[str]:
        """Yield the pieces of a long text, whose counts add up, since they end at safe cuts."""
        safe_cut = self._safe_cut
        if len(text) <= self._long or safe_cut is None:
            yield text
            return
        start = 0
        for end in chain(self._find_ends(text), (len(text),)):
            while end - start > _MAX_PIECE:
                place = safe_cut.search(text, start + _MAX_PIECE, end)
                if place is None or place.start() == end:
                    break
                yield text[start : place.start()]
                start = place.start()
            yield text[start:end]
            start = end

    def _find_ends(self, text: str) -> Iterator[int]:
        for start in range(0, len(text), _WINDOW):
            window = (text, start, start + _WINDOW + 1)
            ends = [match.start() for match in _END_BEFORE_WORD.finditer(*window)]
            if self._safe_cut is SAFE_CUT:
                ends += [match.end() for match in _END_AFTER_LINE.finditer(*window)]
                ends.sort()
            yield from ends

    def _count_piece(self, piece: str) -> int:
        tokens = self._find_count(piece)
        if tokens is None:
            tokens = len(self._encode(piece))
            self._cache.put(piece, tokens)
        return tokens

    def _encode(self, piece: str) -> Sequence[int]:
        return (
            self._encode_words(piece)
            if len(piece) > _PANIC and _RUN.search(piece)
            else self.encoding.encode_ordinary(piece)
        )

    def _encode_words(self, text: str) -> list[int]:
        """Encode a text with a run of white space that is too long for tiktoken's splitter: split here, merge in tiktoken."""
        import regex  # type: ignore[import-untyped]  # a dependency of tiktoken, without types

        # Any stands for there is no public way to encode one word that is already split off
        encoding: Any = get_encoding(self._encoding_name)
        words = regex.compile(encoding._pat_str).finditer(replace_surrogates(text))  # noqa: SLF001  # as above
        return [token for word in words for token in encoding._encode_single_piece(word.group())]  # noqa: SLF001  # as above

    def _check_length(self, text: str) -> None:
        limit = self._max_text_bytes
        if len(text) * 4 <= limit:
            return
        # The cheap bound first, so that a text of gigabytes is not copied only to find that it is
        # too long.
        size = (
            len(text)
            if len(text) > limit or text.isascii()
            else len(text.encode("utf-8", "surrogatepass"))
        )
        if size > limit:
            raise TextTooLongError(
                f"A text of at least {size:,} bytes is longer than the limit of {limit:,}: cut it before it is rendered, "
                f"or give a tokenizer with a higher `max_text_bytes`."
            )


_ENTRY = 120  # bytes that a dict entry takes beside the text, about


class CountCache:
    """Token counts of texts that take at most `max_bytes` together.

    A full cache is emptied: a counter of 64 MB of texts fills it in minutes, and what is still in
    use is counted once more. So a hit is one lookup in a dict, and a race between threads costs at
    most a second count of one text.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = self._room = max_bytes
        self._max_text = max_bytes // 2
        self.counts: dict[str, int] = {}
        """It is always the same dict, so that a counter may look into it directly."""

    def put(self, text: str, tokens: int) -> None:
        """Cache a count. A text larger than half of the cache is not cached."""
        size = text.__sizeof__() + _ENTRY
        if size <= self._room and size <= self._max_text:  # as nearly always
            self._room -= size
            self.counts[text] = tokens
        elif self._make_room(size):
            self.counts[text] = tokens

    def put_all(self, counts: Mapping[str, int]) -> None:
        """Cache counts, one by one if they are larger than half of the cache together."""
        if self._make_room(sum(map(str.__sizeof__, counts)) + _ENTRY * len(counts)):
            self.counts.update(counts)
        else:
            for text, tokens in counts.items():
                self.put(text, tokens)

    def _make_room(self, size: int) -> bool:
        if size > self._max_text:
            return False
        self._room -= size
        if self._room < 0:
            self.counts.clear()
            self._room = self._max_bytes - size
        return True
