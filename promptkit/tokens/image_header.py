"""The size of an image, read from the first bytes of a `data:` URL. Nothing is fetched and no picture is decoded."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode

__all__ = ["dimensions"]

_DATA = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)
_HEADER = 64  # bytes that are enough for all formats but JPEG
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length


def dimensions(url: str) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, JPEG, GIF or WEBP image in a base64 `data:` URL; None for anything else."""
    match = _DATA.match(url)
    if not match:
        return None
    start = match.end()
    data = _decoded(url[start : start + _HEADER // 3 * 4])
    # A JPEG's size stands behind metadata of any length.
    size = _jpeg(_decoded(url[start:])) if data.startswith(b"\xff\xd8") else _png(data) or _gif(data) or _webp(data)
    return size if size and min(size) > 0 else None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""


def _png(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or len(data) < 24:  # noqa: PLR2004  # where the height ends
        return None
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _gif(data: bytes) -> tuple[int, int] | None:
    if not data.startswith((b"GIF87a", b"GIF89a")):
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:  # noqa: PLR2004  # where the longest header ends
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


def _jpeg(data: bytes) -> tuple[int, int] | None:
    place = 2
    while place + 9 <= len(data):
        if data[place] != 0xFF:  # noqa: PLR2004  # every JPEG marker starts with it
            return None
        marker = data[place + 1]
        if marker in _JPEG_FRAMES:
            return int.from_bytes(data[place + 7 : place + 9], "big"), int.from_bytes(data[place + 5 : place + 7], "big")
        if marker == 0xFF:  # noqa: PLR2004  # padding before a marker
            place += 1
        elif marker in _JPEG_BARE:
            place += 2
        else:
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None
