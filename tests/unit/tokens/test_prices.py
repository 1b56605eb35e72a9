"""Prices: a table with a source, one that a user can replace, and no guesses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest

from benchmarks.maintenance.build_price_table import build_table
from promptkit.tokens.prices import PACKAGED, BilledTokens, Price, PriceError, read_prices

if TYPE_CHECKING:
    from pathlib import Path


def test_the_packaged_table_says_where_it_comes_from_and_of_what_day() -> None:
    head = json.loads(PACKAGED.read_bytes())
    assert "litellm" in head["source"]
    assert head["date"] == "2026-11-21"
    assert head["unit"] == "US dollars for a million tokens"


def test_known_models_have_a_price_whoever_sells_them() -> None:
    prices = read_prices()
    assert prices.for_model("gpt-5") == Price(input=1.25, cached_input=0.125, output=10.0)
    assert prices.for_model("openai/gpt-5") == prices.for_model("gpt-5")
    assert prices.for_model("claude-sonnet-4-5") == Price(
        input=3.0, cached_input=0.3, cache_write=3.75, cache_write_1h=6.0, output=15.0
    )


def test_an_unknown_model_has_no_price_and_the_error_says_what_to_do() -> None:
    with pytest.raises(
        PriceError,
        match=r"no price for the model 'gpt-5-minni'.*Did you mean 'gpt-5-mini'.*--prices",
    ):
        read_prices().for_model("gpt-5-minni")


def test_a_bill_is_each_kind_of_token_at_its_own_price() -> None:
    bill = BilledTokens(
        input_tokens=1_000_000, cached_tokens=500_000, written_tokens=200_000, output_tokens=100_000
    )
    full = Price(input=3.0, cached_input=0.3, cache_write=3.75, cache_write_1h=6.0, output=15.0)
    assert full.cost(bill) == pytest.approx(0.3 * 3.0 + 0.5 * 0.3 + 0.2 * 3.75 + 0.1 * 15.0)
    for_an_hour = attrs.evolve(bill, written_1h_tokens=150_000)
    assert full.cost(for_an_hour) == pytest.approx(
        0.3 * 3.0 + 0.5 * 0.3 + 0.05 * 3.75 + 0.15 * 6.0 + 0.1 * 15.0
    )
    assert Price(input=2.0, output=8.0).cost(bill) == pytest.approx(2.0 + 0.8)
    assert Price(input=2.0, output=8.0).cost(BilledTokens(input_tokens=1_000_000)) == 2.0


def test_bills_are_added_kind_by_kind() -> None:
    assert BilledTokens() == BilledTokens(
        input_tokens=0, cached_tokens=0, written_tokens=0, output_tokens=0
    )
    one = BilledTokens(input_tokens=1, cached_tokens=2, written_tokens=3, output_tokens=4)
    two = BilledTokens(input_tokens=10, cached_tokens=20, written_tokens=30, output_tokens=40)
    assert one + two == BilledTokens(
        input_tokens=11, cached_tokens=22, written_tokens=33, output_tokens=44
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.json", '{"models": {"mine": {"input": 1, "cached_input": 0.5, "output": 2}}}'),
        ("own.toml", "[models.mine]\ninput = 1\ncached_input = 0.5\noutput = 2\n"),
    ],
)
def test_a_user_replaces_the_whole_table(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    prices = read_prices(tmp_path / name)
    assert prices.for_model("mine") == Price(input=1, cached_input=0.5, output=2)
    with pytest.raises(PriceError, match=name):
        prices.for_model("gpt-5")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not valid JSON"),
        ("[]", "needs an object `models`"),
        ('{"models": {}}', "needs an object `models`"),
        ('{"models": ["m"]}', "needs an object `models`"),
        ('{"models": {"m": {"input": Infinity, "output": 1}}}', "input of m must be a number"),
        ('{"models": {"m": {"input": 1}}}', "no price for output"),
        ('{"models": {"m": {"input": -1, "output": 1}}}', "input of m must be a number"),
        ('{"models": {"m": {"input": NaN, "output": 1}}}', "input of m must be a number"),
        ('{"models": {"m": {"input": true, "output": 1}}}', "input of m must be a number"),
        ('{"models": {"m": {"input": 1, "output": 1, "inptu": 1}}}', "unknown price 'inptu'"),
        ('{"models": {"m": 3}}', "no price for input and output"),
    ],
)
def test_a_table_that_is_none_is_refused_with_its_place(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "prices.json"
    file.write_text(text)
    with pytest.raises(PriceError, match=why):
        read_prices(file)
    with pytest.raises(PriceError, match="cannot read"):
        read_prices(tmp_path / "none.json")


def test_a_model_may_cost_nothing(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('{"models": {"m": {"input": 0, "output": 0}}}')
    assert read_prices(file).for_model("m") == Price(input=0, output=0)


def test_the_table_is_built_of_ordinary_requests_to_chat_models() -> None:
    table = {
        "b-chat": {
            "litellm_provider": "openai",
            "mode": "chat",
            "input_cost_per_token": 1e-06,
            "output_cost_per_token": 2e-06,
        },
        "gemini/a": {
            "litellm_provider": "gemini",
            "mode": "chat",
            "input_cost_per_token": 1e-07,
            "output_cost_per_token": 3e-07,
        },
        "speech": {
            "litellm_provider": "openai",
            "mode": "audio_speech",
            "input_cost_per_token": 1e-06,
            "output_cost_per_token": 1e-06,
        },
        "other": {
            "litellm_provider": "azure",
            "mode": "chat",
            "input_cost_per_token": 1e-06,
            "output_cost_per_token": 1e-06,
        },
    }
    built = json.loads(build_table(table, "1.0", "2026-01-01"))
    assert built["models"] == {
        "a": {"input": 0.1, "output": 0.3},
        "b-chat": {"input": 1.0, "output": 2.0},
    }
    assert built["date"] == "2026-01-01"
