"""Engines other than tiktoken that encode o200k_base, where they are installed: `python -m benchmarks.render --engine gigatoken`."""

from __future__ import annotations

import base64
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from promptkit.tokens.encodings import load_vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.tokens import EncodingEngine

__all__ = ["ENGINES"]


class Gigatoken:
    """The package `gigatoken`, whose tokens are arrays."""

    def __init__(self) -> None:
        with TemporaryDirectory() as folder:
            ranks = Path(folder, "vocabulary.tiktoken")
            tokens = enumerate(load_vocabulary("o200k_base"))
            ranks.write_bytes(
                b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in tokens)
            )
            # Any: the package need not be installed
            self._tokenizer: Any = import_module("gigatoken").Tokenizer.from_tiktoken(
                ranks, pretokenizer="o200k"
            )

    def encode_ordinary(self, text: str) -> Sequence[int]:
        """Return the ranks of the tokens of a text."""
        ids: Sequence[int] = self._tokenizer.encode(text)
        return ids

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of tokens."""
        decoded: bytes = self._tokenizer.decode(tokens)
        return decoded


def _load_quicktok() -> EncodingEngine:
    engine: EncodingEngine = import_module("quicktok").get_encoding("o200k_base")
    return engine


ENGINES: Final[dict[str, Callable[[], EncodingEngine]]] = {
    "gigatoken": Gigatoken,
    "quicktok": _load_quicktok,
}
"""Name → loads the engine."""
