"""Prices of tokens. The packaged table is data, and a user can replace it by a file."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path

import attrs

from promptkit.errors import PromptKitError
from promptkit.messages import as_mapping

PACKAGED = Path(__file__).with_name("prices.json")

MILLION = 1_000_000


class PriceError(PromptKitError):
    """A price table cannot be read, or has no price for a model."""


@attrs.frozen(kw_only=True)
class BilledTokens:
    """The tokens that a provider bills for one request, or for several together."""

    input_tokens: int = 0
    """All input tokens, cached ones included."""
    cached_tokens: int = 0
    """Input tokens that the provider read from its prompt cache."""
    written_tokens: int = 0
    """Input tokens that the provider processed and wrote to its prompt cache."""
    written_1h_tokens: int = 0
    """The part of the written tokens that the cache keeps for an hour."""
    output_tokens: int = 0

    def __add__(self, other: BilledTokens) -> BilledTokens:
        return BilledTokens(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            written_tokens=self.written_tokens + other.written_tokens,
            written_1h_tokens=self.written_1h_tokens + other.written_1h_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


@attrs.frozen(kw_only=True)
class Price:
    """The prices of one model, in US dollars for a million tokens."""

    input: float
    output: float
    cached_input: float | None = None
    """For input read from the prompt cache; None: as `input`."""
    cache_write: float | None = None
    """For input written to the prompt cache; None: as `input`."""
    cache_write_1h: float | None = None
    """For input written to the prompt cache for an hour; None: as `cache_write`."""

    def cost(self, tokens: BilledTokens) -> float:
        """Return the cost of tokens in US dollars."""
        cached = self.input if self.cached_input is None else self.cached_input
        write = self.input if self.cache_write is None else self.cache_write
        write_1h = write if self.cache_write_1h is None else self.cache_write_1h
        return (
            sum(
                (
                    (tokens.input_tokens - tokens.cached_tokens - tokens.written_tokens)
                    * self.input,
                    tokens.cached_tokens * cached,
                    (tokens.written_tokens - tokens.written_1h_tokens) * write,
                    tokens.written_1h_tokens * write_1h,
                    tokens.output_tokens * self.output,
                )
            )
            / MILLION
        )


@attrs.frozen(kw_only=True)
class Prices:
    """A price table: a price for each model. Error messages name it by `source`."""

    models: Mapping[str, Price]
    source: str

    def for_model(self, model: str) -> Price:
        """Return the price of a model.

        A provider's prefix is ignored: `openai/gpt-5` has the price of `gpt-5`.

        Raises:
            PriceError: The table has no price for the model.
        """
        price = self.models.get(model) or self.models.get(model.rpartition("/")[2])
        if price is None:
            close = difflib.get_close_matches(model, list(self.models), n=1)
            suggestion = f" Did you mean {close[0]!r}?" if close else ""
            raise PriceError(
                f"{self.source} has no price for the model {model!r}.{suggestion} "
                "Name another model with --model, or give a table with --prices."
            )
        return price


def read_prices(path: Path | None = None) -> Prices:
    """Read a price table from a JSON or TOML file, or the packaged table, which names its source and date.

    A table has an object `models`. It contains for each model `input` and `output`, and optionally
    `cached_input`, `cache_write` and `cache_write_1h`, in US dollars for a million tokens.

    Raises:
        PriceError: The file cannot be read, or is not a price table.
    """
    import tomllib  # takes 4 ms, and few programs ask for prices

    file = PACKAGED if path is None else path
    file_format = "TOML" if file.suffix == ".toml" else "JSON"
    try:
        text = file.read_text(encoding="utf-8")
        value: object = tomllib.loads(text) if file_format == "TOML" else json.loads(text)
    except OSError as error:
        raise PriceError(f"cannot read {file}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise PriceError(f"{file} is not valid {file_format}: {error}.") from error
    rows = as_mapping(as_mapping(value).get("models"))
    if not rows:
        raise PriceError(
            f"{file} is not a price table: it needs an object `models`, with the prices of each model."
        )
    return Prices(
        models={name: _read_price(file, name, row) for name, row in rows.items()},
        source=str(path or "the packaged table of prices"),
    )


def _read_price(file: Path, name: str, row: object) -> Price:
    known = {field.name: field.default is None for field in attrs.fields(Price)}
    values: dict[str, float] = {}
    for column, value in as_mapping(row).items():
        if column not in known:
            raise PriceError(
                f"{file}: {name} has the unknown price {column!r}. Use one of: {', '.join(known)}."
            )
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value < float("inf")
        ):
            raise PriceError(
                f"{file}: {column} of {name} must be a number of dollars for a million tokens, not {value!r}."
            )
        values[column] = value
    missing = [
        column for column, optional in known.items() if not optional and column not in values
    ]
    if missing:
        raise PriceError(f"{file}: {name} has no price for {' and '.join(missing)}.")
    return Price(**values)
