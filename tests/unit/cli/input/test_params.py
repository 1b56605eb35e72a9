"""Sizes as people write them."""

from __future__ import annotations

import click
import pytest

from promptkit.cli.input.params import SIZE


@pytest.mark.parametrize(
    ("written", "tokens"),
    [
        ("0", 0),
        ("8000", 8_000),
        ("8_000", 8_000),
        ("8k", 8_000),
        ("8K", 8_000),
        ("1.5k", 1_500),
        ("128k", 128_000),
        ("1m", 1_000_000),
        (" 2k ", 2_000),
    ],
)
def test_k_is_a_thousand_and_m_a_million(written: str, tokens: int) -> None:
    assert SIZE.convert(written, None, None) == tokens


@pytest.mark.parametrize(
    "written",
    [
        "",
        "k",
        "-1",
        "8kk",
        "8 000",
        "1.5",
        "1.2345k",
        "0x10",
        "eight",
        "8g",
        "1e3",
        "٣",
        "9" * 16,
        "9" * 5_000,
        f"1.{'0' * 5_000}k",
    ],
)
def test_anything_else_is_refused(written: str) -> None:
    with pytest.raises(click.BadParameter, match="invalid token count"):
        SIZE.convert(written, None, None)
