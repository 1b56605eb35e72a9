from __future__ import annotations

import struct
from base64 import b64encode

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit.messages import ImagePart
from promptkit.tokens.images import (
    IMAGE_RULES,
    ImageRule,
    PatchImages,
    TileImages,
    count_image,
    find_image_rule,
    read_dimensions,
)

RULES = list(IMAGE_RULES.values())


def image(width: int, height: int, detail: str | None = None) -> ImagePart:
    return ImagePart(url="https://example.org/a.png", width=width, height=height, detail=detail)


# Sizes and bills: https://github.com/n0isy/openai-tokens-count (MIT), the 13 tokens of the message
# around the image taken off.
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
def test_is_what_was_billed(
    model: str, width: int, height: int, detail: str | None, tokens: int
) -> None:
    assert count_image(image(width, height, detail), find_image_rule(model)) == (tokens, True)


# The figures of each family: `base` at detail low and a tile, or the tokens of 256 patches (512 x
# 512) and of the most.
@pytest.mark.parametrize(
    ("model", "low", "small", "largest"),
    [
        ("chatgpt-4o", 85, 255, 1_445),
        ("computer-use-preview", 65, 194, 1_097),
        ("gpt-4", 85, 255, 1_445),
        ("gpt-4.1-mini", 415, 415, 2_489),
        ("gpt-4.1-nano", 630, 630, 3_779),
        ("gpt-4o", 85, 255, 1_445),
        ("gpt-4o-mini", 2_833, 8_500, 48_169),
        ("gpt-5", 70, 210, 1_190),
        ("gpt-5-mini", 308, 308, 1_844),
        ("gpt-5-nano", 384, 384, 2_304),
        ("gpt-5.2", 308, 308, 1_844),
        ("gpt-5.3", 308, 308, 1_844),
        ("gpt-5.4", 308, 308, 3_000),
        ("gpt-5.5", 308, 308, 12_000),
        ("gpt-5.6", 308, 308, 12_000),
        ("gpt-6", 308, 308, 12_000),
        ("o1", 75, 225, 1_275),
        ("o3", 75, 225, 1_275),
        ("o4-mini", 441, 441, 2_642),
        ("a model of my own", 85, 255, 1_445),
    ],
)
def test_each_family_has_its_figures(model: str, low: int, small: int, largest: int) -> None:
    rule = find_image_rule(model)
    counts = [count_image(image(512, 512, detail), rule).tokens for detail in ("low", "high")]
    assert (*counts, count_image(ImagePart(url="https://example.org/a.png"), rule).tokens) == (
        low,
        small,
        largest,
    )
    assert rule.checked == (model in {"gpt-4o", "gpt-4o-mini"})
    assert set(IMAGE_RULES) >= {model} or model == "a model of my own"


# Worked out by hand: the image is fitted into 2048 x 2048, then its short side is shrunk to 768.
@pytest.mark.parametrize(
    ("width", "height", "tiles"),
    [
        (1, 1, 1),
        (512, 512, 1),
        (513, 512, 2),
        (512, 1_025, 3),
        (768, 1_024, 4),
        (769, 1_025, 4),  # 768 x 1,023
        (2_048, 768, 8),
        (2_049, 512, 4),  # 2,048 x 511
        (4_096, 1_026, 8),  # 2,048 x 513
        (1_368, 1_024, 6),  # 1,026 x 768
        (4_096, 1_538, 8),  # 2,048 x 769, then 2,045 x 768
        (20_000, 1, 4),  # at least one pixel high
    ],
)
def test_tiles_are_counted_after_both_sides_are_shrunk(width: int, height: int, tiles: int) -> None:
    for size in ((width, height), (height, width)):
        assert TileImages(1_000, 1).count(size, "high") == 1_000 + tiles


# Worked out by hand: at most 10,000 patches in 6,000 pixels for `original`, 2,500 in 2,048 for
# others, 256 in 512 for `low`.
@pytest.mark.parametrize(
    ("width", "height", "detail", "patches"),
    [
        (32, 32, "high", 1),
        (33, 32, "high", 2),
        (2_048, 33, "high", 128),
        (2_049, 32, "high", 64),  # 2,048 x 31
        (2_080, 65, "high", 128),  # 2,048 x 64
        (2_049, 2_049, "high", 2_500),  # 64 x 64 patches are too many: 50 x 50
        (1_600, 1_599, "high", 2_500),
        (512, 512, "low", 256),
        (1_024, 1_024, "low", 256),
        (1_024, 512, "low", 128),
        (512, 33, "low", 32),
        (513, 32, "low", 16),  # 512 x 31
        (6_000, 33, "original", 376),
        (6_001, 33, "original", 188),  # 6,000 x 32
        (6_400, 64, "original", 376),  # 6,000 x 60
        (3_200, 3_200, "original", 10_000),
        # 100 x 99, with whole patches across the side that is cut most
        (3_201, 3_200, "original", 9_900),
    ],
)
def test_patches_are_limited_by_the_side_and_the_number_of_a_detail(
    width: int, height: int, detail: str, patches: int
) -> None:
    rule = find_image_rule("gpt-5.4")
    assert isinstance(rule, PatchImages)
    rule = attrs.evolve(rule, multiplier=1)
    for size in ((width, height), (height, width)):
        assert rule.count(size, detail) == patches
    assert rule.count(None, detail) == {"low": 256, "high": 2_500, "original": 10_000}[detail]


def test_a_detail_that_a_family_does_not_have_counts_as_any_other() -> None:
    plain = PatchImages(1)
    assert {
        plain.count((4_000, 4_000), detail) for detail in ("low", "auto", "original", "high")
    } == {plain.count((4_000, 4_000), "high")}
    assert plain.count(None, "low") == 1_536
    original = PatchImages(1, original=(6_000, 10_000))
    assert original.count(None, "auto") == 1_536
    assert attrs.evolve(original, auto_original=True).count(None, "auto") == 10_000


# Worked out by hand from the rule: 32 x 32, 33 x 44 and 1 x 600 patches.
@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(1_024, 1_024, 1_024), (1_800, 2_400, 1_452), (100, 60_000, 600)],
)
def test_patches_are_shrunk_to_their_number(width: int, height: int, tokens: int) -> None:
    for size in ((width, height), (height, width)):
        assert PatchImages(1).count(size, "auto") == tokens


def test_the_size_is_read_from_a_data_url() -> None:
    png = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (800).to_bytes(4, "big") * 2 + NOISE
    part = ImagePart(url=f"data:image/png;base64,{b64encode(png).decode()}")
    assert count_image(part, find_image_rule("gpt-4o")) == (85 + 4 * 170, True)


@given(
    rule=st.sampled_from(RULES),
    width=st.integers(1, 20_000),
    height=st.integers(1, 20_000),
    detail=st.sampled_from(["low", "high", "auto", "original"]),
)
def test_an_image_of_unknown_size_counts_as_the_largest(
    rule: ImageRule, width: int, height: int, detail: str
) -> None:
    unknown = count_image(ImagePart(url="https://example.org/a.png", detail=detail), rule)
    assert 0 < count_image(image(width, height, detail), rule).tokens <= unknown.tokens
    assert unknown.exact == (rule.checked and detail == "low")


def test_the_longest_start_of_a_name_decides() -> None:
    assert find_image_rule("gpt-4.1-mini-2025-04-14") == PatchImages(1.62)
    assert find_image_rule("gpt-4.1-2025-04-14") == TileImages(85, 170)
    assert not find_image_rule("somebody-elses").checked


def test_newer_models_take_larger_images_at_auto() -> None:
    large = image(4_000, 4_000, "auto")
    assert (
        count_image(large, find_image_rule("gpt-5.5")).tokens
        > count_image(large, find_image_rule("gpt-5.4")).tokens
    )


NOISE = b"\xff" * 40
"""Bytes after a header, which readers must ignore."""
sizes = st.tuples(st.integers(1, 16_383), st.integers(1, 16_383))


def url(data: bytes) -> str:
    return "data:image/x;base64," + b64encode(data).decode()


def png(width: int, height: int) -> bytes:
    return (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
        + struct.pack(">II", width, height)
        + b"\x08\x06\x00\x00\x00"
        + NOISE
    )


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + NOISE


def jpeg(width: int, height: int) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 5_002) + bytes(5_000)
    return b"\xff\xd8" + exif + b"\xff\xff\xc2" + struct.pack(">HBHH", 11, 8, height, width) + NOISE


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBP" + kind + struct.pack("<I", len(body)) + body + NOISE


def webp_lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height))


def webp_lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def webp_extended(width: int, height: int) -> bytes:
    return webp(
        b"VP8X", bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    )


@given(size=sizes)
def test_reads_every_format(size: tuple[int, int]) -> None:
    for make in (png, gif, jpeg, webp_lossy, webp_lossless, webp_extended):
        assert read_dimensions(url(make(*size))) == size


def test_reads_sizes_that_take_every_byte() -> None:
    assert read_dimensions(url(png(2**24 + 3, 2**25 + 5))) == (2**24 + 3, 2**25 + 5)
    assert read_dimensions(url(webp_extended(2**16 + 3, 2**23 + 5))) == (2**16 + 3, 2**23 + 5)


@pytest.mark.parametrize("more", range(8))
def test_base64_without_its_padding_is_read(more: int) -> None:
    assert read_dimensions(url(png(300, 200)[: 24 + more]).rstrip("=")) == (300, 200)


def test_a_width_without_a_height_says_nothing() -> None:
    part = ImagePart(url=url(png(512, 512)), width=5_000)
    assert count_image(part, find_image_rule("gpt-4o")) == (255, True)
    assert count_image(attrs.evolve(part, width=None, height=5_000), find_image_rule("gpt-4o")) == (
        255,
        True,
    )


@pytest.mark.parametrize(
    ("whole", "size"),
    [
        (png(300, 700), 24),
        (gif(300, 700), 10),
        (webp_lossy(300, 700), 30),
        (webp_lossless(300, 700), 30),
        (webp_extended(300, 700), 30),
        (b"\xff\xd8\xff\xc0" + struct.pack(">HBHH", 11, 8, 700, 300) + bytes(9), 11),
    ],
)
def test_a_size_is_read_as_soon_as_its_last_byte_is_there(whole: bytes, size: int) -> None:
    assert read_dimensions(url(whole[:size])) == (300, 700)
    assert read_dimensions(url(whole[: size - 1])) == (
        (300, 700 % 256) if whole.startswith(b"GIF") else None
    )


@pytest.mark.parametrize(
    "marker", [*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)]
)
def test_a_jpeg_has_its_size_in_any_frame(marker: int) -> None:
    frame = bytes([0xFF, marker]) + struct.pack(">HBHH", 11, 8, 200, 300) + bytes(9)
    assert read_dimensions(url(b"\xff\xd8" + frame)) == (300, 200)


@pytest.mark.parametrize("marker", [0xBF, 0xC4, 0xC8, 0xCC, 0xD9, 0xDA, 0xE0, 0xFE])
def test_a_jpeg_segment_with_a_length_is_passed_over(marker: int) -> None:
    segment = (
        bytes([0xFF, marker])
        + struct.pack(">H", 12)
        + struct.pack(">BHHBBBBB", 8, 1, 1, 0, 0, 0, 0, 0)
    )
    assert read_dimensions(
        url(b"\xff\xd8" + segment + b"\xff\xc0" + struct.pack(">HBHH", 11, 8, 200, 300))
    ) == (300, 200)


@pytest.mark.parametrize("marker", [0x01, 0xD0, 0xD7, 0xD8])
def test_a_jpeg_marker_without_a_length_is_passed_over(marker: int) -> None:
    bare = bytes([0xFF, marker])
    assert read_dimensions(
        url(b"\xff\xd8" + bare + b"\xff\xc0" + struct.pack(">HBHH", 11, 8, 200, 300))
    ) == (300, 200)


def test_a_jpeg_without_a_marker_where_one_must_be_has_no_size() -> None:
    assert (
        read_dimensions(url(b"\xff\xd8\x00\xc0" + struct.pack(">HBHH", 11, 8, 200, 300) + bytes(9)))
        is None
    )


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/a.png",
        "data:image/png,abc",
        "data:image/png;base64,",
        "data:;base64,%%%",
        url(png(0, 9)),
    ],
)
def test_what_has_no_size_has_none(address: str) -> None:
    assert read_dimensions(address) is None


@given(
    data=st.binary(max_size=80),
    start=st.sampled_from(
        [b"", b"\xff\xd8", b"\xff\xd8\xff", b"GIF89a", b"RIFF....WEBP", b"\x89PNG\r\n\x1a\n"]
    ),
)
def test_damaged_images_do_no_harm(data: bytes, start: bytes) -> None:
    size = read_dimensions(url(start + data))
    assert size is None or min(size) > 0


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(750, 100, 100), (1_000, 1_000, 1_334), (4_000, 400, 327), (3_000, 3_000, 1_600)],
)
def test_claudes_images_are_counted_by_their_area(width: int, height: int, tokens: int) -> None:
    rule = find_image_rule("claude-sonnet-4-5")
    assert count_image(image(width, height), rule).tokens == tokens
    assert count_image(ImagePart(url="https://example.org/a.png"), rule).tokens == 1_600
