"""What an image costs: by tiles or by patches, with the figures of each model family.

The rules are OpenAI's (guide "Images and vision"), the figures of newer models those that litellm bills by. `checked` families
were compared with billed requests (https://github.com/n0isy/openai-tokens-count); where users measured other figures than the
guide's, theirs stand here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.tokens.image_header import dimensions
from promptkit.tokens.tokenizer import Count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.messages import ImagePart

__all__ = ["FAMILIES", "UNKNOWN", "ImageRule", "PatchImages", "TileImages", "image_rule", "image_tokens"]

_TILE = 512  # pixels
_TILE_SIDE = 2048
_TILE_SHORT_SIDE = 768
_MOST_TILES = 8  # 2048 x 768
_PATCH = 32


@attrs.frozen
class TileImages:
    """`base` tokens, and `tile` for each 512 x 512 pixels after fitting into 2048 x 2048 and shrinking the short side to 768."""

    base: int
    tile: int
    checked: bool = False

    def tokens(self, size: tuple[int, int] | None, detail: str) -> int:
        """The tokens of an image of `size` pixels; of the largest one where the size is unknown."""
        if detail == "low":
            return self.base
        if size is None:
            return self.base + _MOST_TILES * self.tile
        width, height = _within(size, _TILE_SIDE)
        short = min(width, height)
        if short > _TILE_SHORT_SIDE:
            width, height = (side * _TILE_SHORT_SIDE // short for side in (width, height))
        return self.base + self.tile * math.ceil(width / _TILE) * math.ceil(height / _TILE)


@attrs.frozen
class PatchImages:
    """`multiplier` tokens for each 32 x 32 pixels, of which at most `patches` are left by shrinking; at most `side` pixels a side.

    `original` is (side, patches) for detail `original`, and for `auto` where `auto_original` says so.
    """

    multiplier: float
    patches: int = 1536
    side: int | None = None
    low_side: int | None = None
    original: tuple[int, int] | None = None
    auto_original: bool = False
    checked: bool = False

    def tokens(self, size: tuple[int, int] | None, detail: str) -> int:
        """The tokens of an image of `size` pixels; of the largest one where the size is unknown."""
        side, most = self.side, self.patches
        if detail == "low" and self.low_side:
            side = self.low_side
            most = min(most, math.ceil(side / _PATCH) ** 2)
        elif self.original and (detail == "original" or (detail == "auto" and self.auto_original)):
            side, most = self.original
        if size is None:
            return math.ceil(most * self.multiplier)
        width, height = _within(size, side) if side else size
        count = math.ceil(width / _PATCH) * math.ceil(height / _PATCH)
        if count > most:
            scale = math.sqrt(_PATCH**2 * most / (width * height))
            across, down = width * scale / _PATCH, height * scale / _PATCH
            scale *= min(max(1, math.floor(across)) / across, max(1, math.floor(down)) / down)
            count = min(most, math.ceil(round(width * scale / _PATCH, 6)) * math.ceil(round(height * scale / _PATCH, 6)))
        return math.ceil(count * self.multiplier)


ImageRule: TypeAlias = TileImages | PatchImages

_RECENT = PatchImages(1.2, patches=2500, side=2048, low_side=512, original=(6000, 10_000))
_NEWEST = attrs.evolve(_RECENT, auto_original=True)

FAMILIES: Mapping[str, ImageRule] = {
    "chatgpt-4o": TileImages(85, 170),
    "computer-use-preview": TileImages(65, 129),
    "gpt-4": TileImages(85, 170),
    "gpt-4.1-mini": PatchImages(1.62),
    "gpt-4.1-nano": PatchImages(2.46),
    "gpt-4o": TileImages(85, 170, checked=True),
    "gpt-4o-mini": TileImages(2833, 5667, checked=True),
    "gpt-5": TileImages(70, 140),
    "gpt-5-mini": PatchImages(1.2),  # the guide says 1.62; users are billed 1.2 (community.openai.com/t/1344040)
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
"""Start of a model's name → its rule. The longest start decides; `register_model(images=...)` overrides it."""

UNKNOWN = TileImages(85, 170)
"""For models without a published rule: an estimate."""


def image_rule(model: str) -> ImageRule:
    """The rule for a model's images, by the longest start of its name; an unchecked estimate for other providers' models."""
    starts = [start for start in FAMILIES if model.startswith(start)]
    return FAMILIES[max(starts, key=len)] if starts else UNKNOWN


def image_tokens(part: ImagePart, rule: ImageRule) -> Count:
    """The tokens of an image. Of unknown size it counts as the largest one, and not as exact; nothing is fetched to learn its size."""
    size = (part.width, part.height) if part.width and part.height else dimensions(part.url)
    detail = part.detail or "auto"
    exact = rule.checked and (size is not None or detail == "low")
    return Count(rule.tokens(size, detail), exact)


def _within(size: tuple[int, int], side: int) -> tuple[int, int]:
    longest = max(size)
    if longest <= side:
        return size
    width, height = (max(1, pixels * side // longest) for pixels in size)
    return width, height
