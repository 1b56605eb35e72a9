from __future__ import annotations

import struct
from base64 import b64encode

import pytest
from hypothesis import given, strategies as st

from promptkit.messages import ImagePart
from promptkit.tokens.images import IMAGE_RULES, ImageRule, PatchImages, TileImages, count_image, find_image_rule, read_dimensions

RULES = list(IMAGE_RULES.values())


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
    assert count_image(image(width, height, detail), find_image_rule(model)) == (tokens, True)


# Worked out by hand from the rule: 32 x 32 and 33 x 44 patches.
@pytest.mark.parametrize(("width", "height", "tokens"), [(1_024, 1_024, 1_024), (1_800, 2_400, 1_452)])
def test_patches_are_shrunk_to_their_number(width: int, height: int, tokens: int) -> None:
    assert PatchImages(1).count((width, height), "auto") == tokens


def test_the_size_is_read_from_a_data_url() -> None:
    png = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (800).to_bytes(4, "big") * 2 + bytes(40)
    part = ImagePart(url=f"data:image/png;base64,{b64encode(png).decode()}")
    assert count_image(part, find_image_rule("gpt-4o")) == (85 + 4 * 170, True)


@given(
    rule=st.sampled_from(RULES),
    width=st.integers(1, 20_000),
    height=st.integers(1, 20_000),
    detail=st.sampled_from(["low", "high", "auto", "original"]),
)
def test_an_image_of_unknown_size_counts_as_the_largest(rule: ImageRule, width: int, height: int, detail: str) -> None:
    unknown = count_image(ImagePart(url="https://example.org/a.png", detail=detail), rule)
    assert 0 < count_image(image(width, height, detail), rule).tokens <= unknown.tokens
    assert unknown.exact == (rule.checked and detail == "low")


def test_the_longest_start_of_a_name_decides() -> None:
    assert find_image_rule("gpt-4.1-mini-2025-04-14") == PatchImages(1.62)
    assert find_image_rule("gpt-4.1-2025-04-14") == TileImages(85, 170)
    assert not find_image_rule("somebody-elses").checked


def test_newer_models_take_larger_images_at_auto() -> None:
    large = image(4_000, 4_000, "auto")
    assert count_image(large, find_image_rule("gpt-5.5")).tokens > count_image(large, find_image_rule("gpt-5.4")).tokens


sizes = st.tuples(st.integers(1, 16_383), st.integers(1, 16_383))


def url(data: bytes) -> str:
    return "data:image/x;base64," + b64encode(data).decode()


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + b"\x08\x06\x00\x00\x00" + bytes(40)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(40)


def jpeg(width: int, height: int) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 5_002) + bytes(5_000)
    return b"\xff\xd8" + exif + b"\xff\xff\xc2" + struct.pack(">HBHH", 11, 8, height, width) + bytes(40)


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBP" + kind + struct.pack("<I", len(body)) + body + bytes(40)


def webp_lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height))


def webp_lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def webp_extended(width: int, height: int) -> bytes:
    return webp(b"VP8X", bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))


@given(size=sizes)
def test_reads_every_format(size: tuple[int, int]) -> None:
    for make in (png, gif, jpeg, webp_lossy, webp_lossless, webp_extended):
        assert read_dimensions(url(make(*size))) == size


@pytest.mark.parametrize(
    "address", ["https://example.org/a.png", "data:image/png,abc", "data:image/png;base64,", "data:;base64,%%%", url(png(0, 9))]
)
def test_what_has_no_size_has_none(address: str) -> None:
    assert read_dimensions(address) is None


@given(
    data=st.binary(max_size=80),
    start=st.sampled_from([b"", b"\xff\xd8", b"\xff\xd8\xff", b"GIF89a", b"RIFF....WEBP", b"\x89PNG\r\n\x1a\n"]),
)
def test_damaged_images_do_no_harm(data: bytes, start: bytes) -> None:
    size = read_dimensions(url(start + data))
    assert size is None or min(size) > 0
