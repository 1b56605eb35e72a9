"""Exact counts of text for one encoding: cached, additive at safe cuts, and bounded for hostile input."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from promptkit.errors import TextTooLongError
from promptkit.tokens.encodings import BUNDLED, get_encoding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiktoken import Encoding

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
_OLDER = frozenset({"gpt2", "r50k_base", "p50k_base", "p50k_edit"})

_LONG = 500_000  # characters; tiktoken 0.14 panics on runs of white space somewhere above 700,000
# characters in which a long text is encoded, so that its tokens are never all in memory
_BLOCK = 65_536
_RUN = re.compile(r"\s{100000}")
_NEAR = 1_024  # characters in which a safe end of an excerpt is looked for
_CHARACTERS_PER_TOKEN = 6  # more than in any ordinary text, so that one excerpt is enough
# tokens that the end of an excerpt may lose when more text follows: the longest token has 128 bytes
_SLACK = 128


class TextCounter:
    """Counts and truncates text in the tokens of one encoding.

    Text that looks like a special token counts as text.

    Args:
        encoding: The encoding's name, such as `o200k_base`.
        max_text_bytes: The longest text in UTF-8 bytes. A longer one raises TextTooLongError before
            anything is encoded.
    """

    def __init__(self, encoding: str, *, max_text_bytes: int = MAX_TEXT_BYTES) -> None:
        self.encoding_name = encoding
        self.max_text_bytes = max_text_bytes
        self.safe_cut = (
            SAFE_CUT if encoding in BUNDLED else CUT_BEFORE_SPACE if encoding in _OLDER else None
        )
        self._cache = CountCache(CACHE_BYTES)
        self._find_count = self._cache.counts.get
        self._long = min(_LONG, max_text_bytes // 4)

    @cached_property
    def encoding(self) -> Encoding:
        """The encoding, loaded when it is first needed."""
        return get_encoding(self.encoding_name)

    def count(self, text: str) -> int:
        """Count the tokens of a text. Raises TextTooLongError."""
        tokens = self._find_count(text)
        if tokens is None:
            if len(text) > self._long:
                self._check_length(text)
                tokens = sum(map(len, self._encode_blocks(text)))
            else:
                tokens = len(self.encoding.encode_ordinary(text))
            self._cache.put(text, tokens)
        return tokens

    def truncate(self, text: str, tokens: int, keep: Literal["head", "tail"]) -> str:
        """Return a head or tail of a text of at most `tokens`, or the text itself exactly if it fits.

        Only about six characters per token are encoded, however long the text is.
        """
        if tokens <= 0:
            return ""
        if len(text) * 4 <= tokens or (len(text) <= tokens and text.isascii()):
            return text
        ids = self._encode_excerpt(text, tokens, keep)
        if len(ids) <= tokens:
            self._cache.put(text, len(ids))  # the ids are those of the whole text
            return text
        # Cutting tokens was never seen to make the rest cost more, but no rule of the encoding says
        # so.
        room = tokens
        while True:
            kept = self._slice(text, ids, room, keep)
            over = self.count(kept) - tokens
            if over <= 0:
                return kept
            room -= over

    def _slice(self, text: str, ids: list[int], tokens: int, keep: Literal["head", "tail"]) -> str:
        """Return the part of the text that the first or last `tokens` of the ids encode, without a character cut in two."""
        if tokens <= 0:
            return ""
        # Lengths, not the decoded text: it has U+FFFD where the text has a lone surrogate.
        if keep == "head":
            return text[: len(self.encoding.decode_bytes(ids[:tokens]).decode("utf-8", "ignore"))]
        return text[
            len(text) - len(self.encoding.decode_bytes(ids[-tokens:]).decode("utf-8", "ignore")) :
        ]

    def _encode_excerpt(self, text: str, tokens: int, keep: Literal["head", "tail"]) -> list[int]:
        """Encode a head or tail that has more than `tokens`, or the whole text."""
        size = _CHARACTERS_PER_TOKEN * tokens + 64
        while size + _NEAR < len(text):
            safe, piece = (
                self._take_head(text, size) if keep == "head" else self._take_tail(text, size)
            )
            ids = self._encode(piece)
            if len(ids) > tokens + (0 if safe else _SLACK):
                return ids
            size *= 4
        self._check_length(text)
        return self._encode(text)

    def _take_head(self, text: str, size: int) -> tuple[bool, str]:
        place = self.safe_cut.search(text, size, size + _NEAR) if self.safe_cut else None
        return place is not None, text[: place.start() if place else size]

    def _take_tail(self, text: str, size: int) -> tuple[bool, str]:
        start = len(text) - size
        place = self.safe_cut.search(text, start - _NEAR, start) if self.safe_cut else None
        return place is not None, text[place.start() if place else start :]

    def _encode(self, text: str) -> list[int]:
        if len(text) <= _LONG:
            return self.encoding.encode_ordinary(text)
        return [token for block in self._encode_blocks(text) for token in block]

    def _encode_blocks(self, text: str) -> Iterator[list[int]]:
        """Yield the ids of a long text, in blocks that end at safe cuts."""
        start = 0
        while start < len(text):
            place = self.safe_cut.search(text, start + _BLOCK) if self.safe_cut else None
            end = place.start() if place else len(text)
            block = text[start:end]
            if end - start > _LONG and _RUN.search(block):
                yield self._encode_words(block)
            else:
                yield self.encoding.encode_ordinary(block)
            start = end

    def _encode_words(self, text: str) -> list[int]:
        """Encode a text with a run of white space that is too long for tiktoken's splitter: split here, merge in tiktoken."""
        import regex  # type: ignore[import-untyped]  # a dependency of tiktoken, without types

        # Any stands for there is no public way to encode one word that is already split off
        encoding: Any = self.encoding
        # as tiktoken replaces lone surrogates
        clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        words = regex.compile(encoding._pat_str).finditer(clean)  # noqa: SLF001  # as above
        return [token for word in words for token in encoding._encode_single_piece(word.group())]  # noqa: SLF001  # as above

    def _check_length(self, text: str) -> None:
        limit = self.max_text_bytes
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
            message = (
                f"A text of at least {size:,} bytes is longer than the limit of {limit:,}: cut it before it is rendered, "
                f"or give a tokenizer with a higher `max_text_bytes`."
            )
            raise TextTooLongError(message)


_ENTRY = 120  # bytes that a dict entry takes beside the text, about


class CountCache:
    """Token counts of texts that take at most `max_bytes` together.

    A full cache is emptied: a counter of 64 MB of texts fills it in minutes, and what is still in
    use is counted once more. So a hit is one lookup in a dict, and a race between threads costs at
    most a second count of one text.
    """

    __slots__ = ("_max_bytes", "_room", "counts")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = self._room = max_bytes
        self.counts: dict[str, int] = {}
        """It is always the same dict, so that a counter may look into it directly."""

    def put(self, text: str, tokens: int) -> None:
        """Cache a count. A text larger than half of the cache is not cached."""
        size = text.__sizeof__() + _ENTRY
        if size > self._max_bytes // 2:
            return
        self._room -= size
        if self._room < 0:
            self.counts.clear()
            self._room = self._max_bytes - size
        self.counts[text] = tokens
