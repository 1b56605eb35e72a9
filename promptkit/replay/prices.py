"""What tokens cost: a table as data, which a user can replace by a file of their own."""

from __future__ import annotations

import difflib
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs

from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.replay.policies.bill import Bill

__all__ = ["Price", "PriceError", "Prices", "read_prices"]

Table: TypeAlias = "Mapping[str, object]"

PACKAGED = Path(__file__).with_name("prices.json")

MILLION = 1_000_000


class PriceError(PromptKitError):
    """A table of prices that cannot be read, or a model that has no price in it."""


@attrs.frozen(kw_only=True)
class Price:
    """What a model's tokens cost, in dollars for a million of them."""

    input: float
    output: float
    cached_input: float | None = None
    """Read from the provider's cache; None: as `input`."""
    cache_write: float | None = None
    """Read and put into the cache; None: as `input`."""
    cache_write_1h: float | None = None
    """Put there for an hour; None: as `cache_write`."""

    def of(self, bill: Bill, *, hour: bool = False) -> float:
        """The dollars of a bill. `hour`: what was written into the cache was written for an hour."""
        cached = self.input if self.cached_input is None else self.cached_input
        write = self.cache_write_1h if hour and self.cache_write_1h is not None else self.cache_write
        written = self.input if write is None else write
        plain = bill.input_tokens - bill.cached_tokens - bill.written_tokens
        sums = (plain * self.input, bill.cached_tokens * cached, bill.written_tokens * written, bill.output_tokens * self.output)
        return sum(sums) / MILLION


@attrs.frozen(kw_only=True)
class Prices:
    """A table: a price for each model. `source` is what errors call it."""

    models: Mapping[str, Price]
    source: str

    def of(self, model: str) -> Price:
        """The price of a model, whoever sells it: `openai/gpt-5` is `gpt-5`. Raises PriceError for one that is not in the table."""
        price = self.models.get(model) or self.models.get(model.rpartition("/")[2])
        if price is None:
            close = difflib.get_close_matches(model, list(self.models), n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            message = (
                f"{self.source} has no price for the model {model!r}.{meant} Name another with --model, or give a table with --prices."
            )
            raise PriceError(message)
        return price


def read_prices(path: Path | None = None) -> Prices:
    """The table of a JSON or TOML file; without one, promptkit's own, which says where it comes from and of what day it is.

    A file has an object `models`, and for each model `input` and `output`, and perhaps `cached_input`, `cache_write` and
    `cache_write_1h`: dollars for a million tokens. Raises PriceError.
    """
    file = PACKAGED if path is None else path
    try:
        text = file.read_text(encoding="utf-8")
        found: object = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}."
        raise PriceError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"{file} is no {'TOML' if file.suffix == '.toml' else 'JSON'}: {error}."
        raise PriceError(message) from error
    models = cast("Table", found).get("models") if isinstance(found, dict) else None  # of keys that are looked at below
    if not isinstance(models, dict) or not models:
        message = f"{file} holds no table of prices: it needs an object `models`."
        raise PriceError(message)
    rows = cast("dict[str, object]", models)  # a JSON object or a TOML table has keys of text
    return Prices(models={name: _price(file, name, row) for name, row in rows.items()}, source=str(path or "the packaged table of prices"))


def _price(file: Path, name: str, row: object) -> Price:
    known = {field.name: field.default is None for field in attrs.fields(Price)}
    values = cast("dict[str, object]", row) if isinstance(row, dict) else {}  # as above
    for column, value in values.items():
        if column not in known:
            message = f"{file}: {name} has {column!r}, which is no price. There are: {', '.join(known)}."
            raise PriceError(message)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            message = f"{file}: {column} of {name} must be a number of dollars for a million tokens, not {value!r}."
            raise PriceError(message)
    missing = [column for column, optional in known.items() if not optional and column not in values]
    if missing:
        message = f"{file}: {name} has no price for {' and '.join(missing)}."
        raise PriceError(message)
    return Price(**cast("dict[str, float]", values))  # every value was looked at
