"""Build `prices.json` from the table that litellm publishes: `python -m benchmarks.maintenance.build_price_table FILE VERSION DATE`.

FILE is `model_prices_and_context_window_backup.json` from a litellm wheel, VERSION that wheel's
version, DATE when it was read. Where a model has other prices for long requests, for batches or for
priority, the table has those of ordinary short requests.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["build_table", "main"]

_PROVIDERS = {"openai": "", "anthropic": "", "gemini": "gemini/"}
_MODES = frozenset({"chat", "responses"})
_COLUMNS = {
    "input": "input_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
    "output": "output_cost_per_token",
}
_MILLION = 1_000_000


# Any: litellm's values are of all kinds
def build_table(table: Mapping[str, Mapping[str, Any]], version: str, date: str) -> str:
    """Return the text of `prices.json`, one model a line, sorted by name."""
    rows: dict[str, dict[str, float]] = {}
    for key, row in table.items():
        prefix = _PROVIDERS.get(row.get("litellm_provider", ""))
        if (
            prefix is None
            or row.get("mode") not in _MODES
            or key.startswith("ft:")
            or not row.get("output_cost_per_token")
        ):
            continue
        if row.get("input_cost_per_token"):
            # Rounded to what a price can be: the product has more digits than the table.
            rows[key.removeprefix(prefix)] = {
                name: round(row[cost] * _MILLION, 6)
                for name, cost in _COLUMNS.items()
                if row.get(cost)
            }
    head = {
        "source": f"litellm {version}, model_prices_and_context_window_backup.json, MIT, (c) 2023 Berri AI",
        "date": date,
        "unit": "US dollars for a million tokens",
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
    return f'{json.dumps(head, indent=1)[:-2]},\n "models": {{\n{lines}\n }}\n}}\n'


def main() -> None:
    """Write `promptkit/tokens/prices.json`."""
    if len(sys.argv) != 4:  # the program, and three arguments
        sys.exit(f"{__doc__}")
    file, version, date = sys.argv[1:]
    target = Path(__file__).resolve().parents[2] / "promptkit" / "tokens" / "prices.json"
    target.write_text(
        build_table(json.loads(Path(file).read_text(encoding="utf-8")), version, date),
        encoding="utf-8",
    )
    sys.stdout.write(f"{target.name}: {target.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
