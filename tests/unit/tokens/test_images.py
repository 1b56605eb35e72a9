from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit.messages import ImagePart
from promptkit.tokens.images import FAMILIES, ImageRule, PatchImages, TileImages, image_rule, image_tokens

RULES = list(FAMILIES.values())


def image(width: int, height: int, detail: str | None = None) -> ImagePart:
    return ImagePart(url="https://example.org/a.png", width=width, height=height, detail=detail)


# Sizes and bills: https://github.com/n0isy/openai-tokens-count (MIT), the 13 tokens of the message around the image taken off.
@pytest.mark.parametrize(
    ("model", "width", "height", "detail", "tokens"),
    [
        ("gpt-4o-mini", 512, 512, "high", 8_500),
        ("gpt-4o-mini", 511, 511, "low", 2_833),
        ("gpt-4o-mini", 511, 511, "auto", 8_500),
        ("gpt-4o-mini", 800, 800, "auto", 25_501),
        ("gpt-4o", 512, 512, "auto", 255),
        ("gpt-4o", 255, 720, "auto", 425),
        ("gpt-4o", 3_600, 300, "auto", 765),
        ("gpt-4o", 2_048, 1_025, "auto", 1_105),
        ("gpt-4o", 2_048, 1_025, "low", 85),
        ("gpt-4o", 2_048, 1_025, "high", 1_105),
    ],
)
def test_is_what_was_billed(model: str, width: int, height: int, detail: str | None, tokens: int) -> None:
    assert image_tokens(image(width, height, detail), image_rule(model)) == (tokens, True)


# Worked out by hand from the rule: 32 x 32 and 33 x 44 patches.
@pytest.mark.parametrize(("width", "height", "tokens"), [(1_024, 1_024, 1_024), (1_800, 2_400, 1_452)])
def test_patches_are_shrunk_to_their_number(width: int, height: int, tokens: int) -> None:
    assert PatchImages(1).tokens((width, height), "auto") == tokens


def test_the_size_is_read_from_a_data_url() -> None:
    png = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (800).to_bytes(4, "big") * 2 + bytes(40)
    part = ImagePart(url=f"data:image/png;base64,{b64encode(png).decode()}")
    assert image_tokens(part, image_rule("gpt-4o")) == (85 + 4 * 170, True)


@given(
    rule=st.sampled_from(RULES),
    width=st.integers(1, 20_000),
    height=st.integers(1, 20_000),
    detail=st.sampled_from(["low", "high", "auto", "original"]),
)
def test_an_image_of_unknown_size_counts_as_the_largest(rule: ImageRule, width: int, height: int, detail: str) -> None:
    unknown = image_tokens(ImagePart(url="https://example.org/a.png", detail=detail), rule)
    assert 0 < image_tokens(image(width, height, detail), rule).tokens <= unknown.tokens
    assert unknown.exact == (rule.checked and detail == "low")


def test_the_longest_start_of_a_name_decides() -> None:
    assert image_rule("gpt-4.1-mini-2025-04-14") == PatchImages(1.62)
    assert image_rule("gpt-4.1-2025-04-14") == TileImages(85, 170)
    assert not image_rule("somebody-elses").checked


def test_newer_models_take_larger_images_at_auto() -> None:
    large = image(4_000, 4_000, "auto")
    assert image_tokens(large, image_rule("gpt-5.5")).tokens > image_tokens(large, image_rule("gpt-5.4")).tokens
