"""The compact form of a vocabulary: tokens in rank order, lengths first, compressed.

`zlib(count as 4 bytes little-endian + one length byte per token + the tokens)`. Ranks are exactly 0 to n-1, so they are
not stored, and the official file can be rebuilt byte for byte.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["format_official", "load_vocabulary", "pack", "unpack"]

_HEADER = 4  # bytes


def load_vocabulary(name: str) -> tuple[bytes, ...]:
    """Return the tokens of a bundled vocabulary (`o200k_base` or `cl100k_base`) in rank order."""
    from importlib.resources import files

    return unpack(files("promptkit.tokens.vocab").joinpath(f"{name}.zlib").read_bytes())


def pack(tokens: Sequence[bytes]) -> bytes:
    """Compress tokens in rank order, each of at most 255 bytes."""
    return zlib.compress(len(tokens).to_bytes(_HEADER, "little") + bytes(map(len, tokens)) + b"".join(tokens), 9)


def unpack(blob: bytes) -> tuple[bytes, ...]:
    """Return the tokens of a compressed vocabulary in rank order."""
    data = zlib.decompress(blob)
    start = _HEADER + int.from_bytes(data[:_HEADER], "little")
    places = accumulate(data[_HEADER:start], initial=start)
    return tuple(data[low:high] for low, high in pairwise(places))


def format_official(tokens: Sequence[bytes]) -> bytes:
    """Write the official `.tiktoken` file of a vocabulary: a line of base64 and rank for each token."""
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for rank, token in enumerate(tokens))
