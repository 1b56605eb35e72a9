from __future__ import annotations

import struct
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkit.tokens.image_header import dimensions

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


@settings(deadline=None)
@given(size=sizes)
def test_reads_every_format(size: tuple[int, int]) -> None:
    for make in (png, gif, jpeg, webp_lossy, webp_lossless, webp_extended):
        assert dimensions(url(make(*size))) == size


@pytest.mark.parametrize(
    "address", ["https://example.org/a.png", "data:image/png,abc", "data:image/png;base64,", "data:;base64,%%%", url(png(0, 9))]
)
def test_what_has_no_size_has_none(address: str) -> None:
    assert dimensions(address) is None


@settings(deadline=None)
@given(
    data=st.binary(max_size=80),
    start=st.sampled_from([b"", b"\xff\xd8", b"\xff\xd8\xff", b"GIF89a", b"RIFF....WEBP", b"\x89PNG\r\n\x1a\n"]),
)
def test_damaged_images_do_no_harm(data: bytes, start: bytes) -> None:
    size = dimensions(url(start + data))
    assert size is None or min(size) > 0
