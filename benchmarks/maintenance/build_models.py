"""Build `models.json` from the table that litellm publishes: `python -m benchmarks.maintenance.build_models FILE VERSION`.

FILE is `model_prices_and_context_window_backup.json` from a litellm wheel, VERSION that wheel's
version. litellm's column `max_input_tokens` is the input's limit for some models and the whole
window for others. `split_sizes` separates the two.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["build_table", "main", "split_sizes"]

_PROVIDERS = {"openai": "", "text-completion-openai": "", "anthropic": "", "gemini": "gemini/"}
_MODES = frozenset({"chat", "responses", "completion", "embedding"})
_WINDOWS = frozenset(
    {400_000, 1_050_000}
    # windows of OpenAI's models that also limit their input: input and output add up to these in
    # litellm's newer rows
)

# Names that are in use and not in litellm's table: (window, max output). No source confirms these
# rows: remove one as soon as litellm has it.
_MISSING = {
    "chatgpt-4o-latest": (128_000, 16_384),
    "codex-mini-latest": (200_000, 100_000),
    "gpt-4-32k": (32_768, 4_096),
    "gpt-4-turbo-preview": (128_000, 4_096),
    "gpt-4.5-preview": (128_000, 16_384),
    "gpt-oss-120b": (131_072, 131_072),
    "gpt-oss-20b": (131_072, 131_072),
    "o1-mini": (128_000, 65_536),
    "o1-preview": (128_000, 32_768),
}


# Any: litellm's values are of all kinds
def build_table(table: Mapping[str, Mapping[str, Any]], version: str) -> str:
    """Return the text of `models.json`, one model a line, sorted by name."""
    rows: dict[str, tuple[int, int | None, int | None]] = {
        name: (window, None, output) for name, (window, output) in _MISSING.items()
    }
    for key, row in table.items():
        prefix = _PROVIDERS.get(row.get("litellm_provider", ""))
        if (
            prefix is None
            or row.get("mode") not in _MODES
            or not row.get("max_input_tokens")
            or key.startswith("ft:")
        ):
            continue
        name = key.removeprefix(prefix)
        rows[name] = split_sizes(name, row["max_input_tokens"], row.get("max_output_tokens"))
    head = {
        "source": f"litellm {version}, model_prices_and_context_window_backup.json, MIT, (c) 2023 Berri AI",
        "unit": "tokens; max_input is null where nothing but the window limits the input",
        "columns": ["window", "max_input", "max_output_tokens"],
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
    return f'{json.dumps(head, indent=1)[:-2]},\n "models": {{\n{lines}\n }}\n}}\n'


def split_sizes(name: str, listed: int, output: int | None) -> tuple[int, int | None, int | None]:
    """Return (window, max input, max output) for a model whose row lists `listed` tokens as its input."""
    if name.startswith("gemini-") and output:
        return listed + output, listed, output
    if output and listed + output in _WINDOWS:
        return listed + output, listed, output
    if output and listed in _WINDOWS:
        return listed, listed - output, output
    return listed, None, output


def main() -> None:
    """Write `promptkit/tokens/models.json`."""
    if len(sys.argv) != 3:  # the program, and two arguments
        sys.exit(f"{__doc__}")
    file, version = sys.argv[1:]
    target = Path(__file__).resolve().parents[2] / "promptkit" / "tokens" / "models.json"
    target.write_text(
        build_table(json.loads(Path(file).read_text(encoding="utf-8")), version), encoding="utf-8"
    )
    sys.stdout.write(f"{target.name}: {target.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
