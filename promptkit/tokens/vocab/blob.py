"""The compact form of a vocabulary: tokens in rank order, lengths first, compressed.

`zlib(count as 4 bytes little-endian + one length byte per token + the tokens)`. Ranks are exactly 0 to n-1, so they need no
place of their own, and the official file can be written again byte for byte.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bundled", "official", "pack", "unpack"]

_HEADER = 4  # bytes


def bundled(name: str) -> tuple[bytes, ...]:
    """The tokens of a bundled vocabulary (`o200k_base` or `cl100k_base`), in rank order."""
    from importlib.resources import files

    return unpack(files("promptkit.tokens.vocab").joinpath(f"{name}.zlib").read_bytes())


def pack(tokens: Sequence[bytes]) -> bytes:
    """Tokens in rank order, each of at most 255 bytes, as a compact blob."""
    return zlib.compress(len(tokens).to_bytes(_HEADER, "little") + bytes(map(len, tokens)) + b"".join(tokens), 9)


def unpack(blob: bytes) -> tuple[bytes, ...]:
    """The tokens of a compact blob, in rank order."""
    data = zlib.decompress(blob)
    start = _HEADER + int.from_bytes(data[:_HEADER], "little")
    places = accumulate(data[_HEADER:start], initial=start)
    return tuple(data[low:high] for low, high in pairwise(places))


def official(tokens: Sequence[bytes]) -> bytes:
    """The official `.tiktoken` file of a vocabulary: a line of base64 and rank for each token."""
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for rank, token in enumerate(tokens))
