"""What an image costs: by tiles or by patches, with the figures of each model family.

The rules are OpenAI's (guide "Images and vision"), the figures of newer models those that litellm
bills by. `checked` families were compared with billed requests
(https://github.com/n0isy/openai-tokens-count). Where users measured other figures than the guide's,
the table has the measured ones. Nothing is fetched and no picture is decoded: the size of an image
comes from its part, or from the first bytes of a `data:` URL.
"""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import TypeAlias

import attrs

from promptkit.messages import ImagePart
from promptkit.tokens.tokenizer import IMAGE_TOKENS, Count

_TILE = 512  # pixels
_TILE_SIDE = 2048
_TILE_SHORT_SIDE = 768
_MAX_TILES = 8  # 2048 x 768
_PATCH = 32


@attrs.frozen
class TileImages:
    """A rule that counts tiles of 512 x 512 pixels, after the image is fitted into 2048 x 2048 and its short side is shrunk to 768.

    Args:
        base: Tokens of any image.
        tile: Tokens of each tile.
        checked: Whether the figures were compared with billed requests.
    """

    base: int
    tile: int
    checked: bool = False

    def count(self, size: tuple[int, int] | None, detail: str) -> int:
        """Count the tokens of an image of `size` pixels (width, height); of the largest image where the size is unknown."""
        if detail == "low":
            return self.base
        if size is None:
            return self.base + _MAX_TILES * self.tile
        width, height = _fit_side(size, _TILE_SIDE)
        short = min(width, height)
        if short > _TILE_SHORT_SIDE:
            width, height = (side * _TILE_SHORT_SIDE // short for side in (width, height))
        return self.base + self.tile * math.ceil(width / _TILE) * math.ceil(height / _TILE)


@attrs.frozen
class PatchImages:
    """A rule that counts patches of 32 x 32 pixels, after the image is shrunk.

    Args:
        multiplier: Tokens of each patch.
        patches: The most patches that an image may have.
        side: The longest side in pixels; None if it is not limited.
        low_side: The longest side in pixels for detail `low`.
        original: (side, patches) for detail `original`.
        auto_original: Whether detail `auto` is `original`.
        checked: Whether the figures were compared with billed requests.
    """

    multiplier: float
    patches: int = 1536
    side: int | None = None
    low_side: int | None = None
    original: tuple[int, int] | None = None
    auto_original: bool = False
    checked: bool = False

    def count(self, size: tuple[int, int] | None, detail: str) -> int:
        """Count the tokens of an image of `size` pixels (width, height); of the largest image where the size is unknown."""
        side, max_patches = self.side, self.patches
        if detail == "low" and self.low_side:
            side = self.low_side
            max_patches = min(max_patches, math.ceil(side / _PATCH) ** 2)
        elif self.original and (detail == "original" or (detail == "auto" and self.auto_original)):
            side, max_patches = self.original
        if size is None:
            return math.ceil(max_patches * self.multiplier)
        width, height = _fit_side(size, side) if side else size
        count = math.ceil(width / _PATCH) * math.ceil(height / _PATCH)
        if count > max_patches:
            scale = math.sqrt(_PATCH**2 * max_patches / (width * height))
            across, down = width * scale / _PATCH, height * scale / _PATCH
            scale *= min(max(1, math.floor(across)) / across, max(1, math.floor(down)) / down)
            count = min(
                max_patches,
                math.ceil(round(width * scale / _PATCH, 6))
                * math.ceil(round(height * scale / _PATCH, 6)),
            )
        return math.ceil(count * self.multiplier)


@attrs.frozen
class AreaImages:
    """A rule that counts a token for 750 pixels, after the image is shrunk to sides of at most 1,568 pixels, up to `IMAGE_TOKENS`: Anthropic's (guide "Vision").

    Args:
        checked: Whether the figures were compared with billed requests.
    """

    checked: bool = False

    def count(self, size: tuple[int, int] | None, detail: str) -> int:
        """Count the tokens of an image of `size` pixels (width, height); of the largest image where the size is unknown."""
        if size is None:
            return IMAGE_TOKENS
        width, height = _fit_side(size, 1_568)
        return min(IMAGE_TOKENS, math.ceil(width * height / 750))


ImageRule: TypeAlias = TileImages | PatchImages | AreaImages
"""A rule that counts the tokens of an image."""

_RECENT = PatchImages(1.2, patches=2500, side=2048, low_side=512, original=(6000, 10_000))
_NEWEST = attrs.evolve(_RECENT, auto_original=True)

IMAGE_RULES: Mapping[str, ImageRule] = {
    "chatgpt-4o": TileImages(85, 170),
    "claude": AreaImages(),
    "computer-use-preview": TileImages(65, 129),
    "gpt-4": TileImages(85, 170),
    "gpt-4.1-mini": PatchImages(1.62),
    "gpt-4.1-nano": PatchImages(2.46),
    "gpt-4o": TileImages(85, 170, checked=True),
    "gpt-4o-mini": TileImages(2833, 5667, checked=True),
    "gpt-5": TileImages(70, 140),
    # the guide says 1.62; users are billed 1.2 (community.openai.com/t/1344040)
    "gpt-5-mini": PatchImages(1.2),
    "gpt-5-nano": PatchImages(1.5),  # the guide says 2.46; as above
    "gpt-5.2": PatchImages(1.2),
    "gpt-5.3": PatchImages(1.2),
    "gpt-5.4": _RECENT,
    "gpt-5.5": _NEWEST,
    "gpt-5.6": _NEWEST,
    "gpt-6": _NEWEST,
    "o1": TileImages(75, 150),
    "o3": TileImages(75, 150),
    "o4-mini": PatchImages(1.72),
}
"""The rule of each family, by the prefix of the models' names. The longest prefix decides;
`register_model(images=…)` overrides it."""

UNKNOWN_IMAGE_RULE = TileImages(85, 170)
"""The rule for models without a published one: an estimate."""


def find_image_rule(model: str) -> ImageRule:
    """Return the rule for a model's images, by the longest prefix of its name; an estimate for other providers' models."""
    prefixes = [prefix for prefix in IMAGE_RULES if model.startswith(prefix)]
    return IMAGE_RULES[max(prefixes, key=len)] if prefixes else UNKNOWN_IMAGE_RULE


def count_image(part: ImagePart, rule: ImageRule) -> Count:
    """Count the tokens of an image.

    An image of unknown size counts as the largest one, and the count is not exact.
    """
    size = (part.width, part.height) if part.width and part.height else read_dimensions(part.url)
    detail = part.detail or "auto"
    return Count(rule.count(size, detail), rule.checked and (size is not None or detail == "low"))


def _fit_side(size: tuple[int, int], side: int) -> tuple[int, int]:
    longest = max(size)
    if longest <= side:
        return size
    width, height = (max(1, pixels * side // longest) for pixels in size)
    return width, height


_DATA = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)
_HEADER = 64  # bytes that are enough for all formats but JPEG
# width and height, big-endian
_PNG = re.compile(rb"\x89PNG\r\n\x1a\n.{8}(.{4})(.{4})", re.DOTALL)
# width and height, little-endian
_GIF = re.compile(rb"GIF8[79]a(.{1,2})(.{0,2})", re.DOTALL)
# of WEBP: the kind of its first chunk, and the 14 bytes that have width and height
_WEBP = re.compile(rb"RIFF.{4}WEBP(.{4}).{4}(.{10})", re.DOTALL)
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_JPEG_MARKER = 0xFF  # the byte that each marker starts with, and that may fill the space before it


def read_dimensions(url: str) -> tuple[int, int] | None:
    """Read width and height in pixels of a PNG, JPEG, GIF or WEBP image in a base64 `data:` URL; None for anything else."""
    match = _DATA.match(url)
    if not match:
        return None
    start = match.end()
    data = _decode(url[start : start + _HEADER // 3 * 4])
    # A JPEG's size stands behind metadata of any length.
    size = _read_jpeg(_decode(url[start:])) if data.startswith(b"\xff\xd8") else _read_header(data)
    return size if size and min(size) > 0 else None


def _decode(text: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""


def _read_header(data: bytes) -> tuple[int, int] | None:
    if found := _PNG.match(data):
        return int.from_bytes(found[1], "big"), int.from_bytes(found[2], "big")
    if found := _GIF.match(data):
        return int.from_bytes(found[1], "little"), int.from_bytes(found[2], "little")
    if found := _WEBP.match(data):
        return _read_webp(found[1], found[2])
    return None


def _read_webp(kind: bytes, chunk: bytes) -> tuple[int, int]:
    """Read the size of a WEBP image from the kind of its first chunk, and the chunk's first ten bytes."""
    if kind == b"VP8X":
        return int.from_bytes(chunk[4:7], "little") + 1, int.from_bytes(chunk[7:10], "little") + 1
    # VP8L, without loss, has 14 bits of each behind a byte; VP8 16 bits, of which 2 scale
    bits = int.from_bytes(chunk[1:5], "little")
    if kind == b"VP8L":
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(chunk[6:8], "little") & 0x3FFF, int.from_bytes(
        chunk[8:10], "little"
    ) & 0x3FFF


def _read_jpeg(data: bytes) -> tuple[int, int] | None:
    place = 2
    while place + 9 <= len(data):
        if data[place] != _JPEG_MARKER:
            return None
        marker = data[place + 1]
        if marker in _JPEG_FRAMES:
            return int.from_bytes(data[place + 7 : place + 9], "big"), int.from_bytes(
                data[place + 5 : place + 7], "big"
            )
        length = int.from_bytes(data[place + 2 : place + 4], "big")
        place += 1 if marker == _JPEG_MARKER else 2 if marker in _JPEG_BARE else 2 + length
    return None
