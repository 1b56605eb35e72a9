from __future__ import annotations

import json
from importlib.resources import files

import pytest

from benchmarks.maintenance.build_models import build_table, split_sizes


def row(
    given: int | None, output: int | None, provider: str = "openai", mode: str = "chat"
) -> dict[str, object]:
    return {
        "litellm_provider": provider,
        "mode": mode,
        "max_input_tokens": given,
        "max_output_tokens": output,
    }


@pytest.mark.parametrize(
    ("name", "given", "output", "split_"),
    [
        ("gpt-5", 272_000, 128_000, (400_000, 272_000, 128_000)),
        ("gpt-5.1-codex", 400_000, 128_000, (400_000, 272_000, 128_000)),
        ("gpt-4o", 128_000, 16_384, (128_000, None, 16_384)),
        ("gemini-2.5-pro", 1_000, 10, (1_010, 1_000, 10)),
        ("text-embedding-3-small", 8_191, None, (8_191, None, None)),
    ],
)
def test_tells_windows_from_input_limits(
    name: str, given: int, output: int | None, split_: tuple[int, int | None, int | None]
) -> None:
    assert split_sizes(name, given, output) == split_


def test_takes_chat_models_of_three_providers() -> None:
    table = {
        "gpt-9": row(10, 5),
        "gemini/gemini-9": row(10, 5, "gemini"),
        "claude-9": row(10, 5, "anthropic"),
        "ft:gpt-9": row(10, 5),
        "other/gpt-9": row(10, 5, "other"),
        "dall-e-9": row(10, 5, mode="image_generation"),
        "gpt-unknown": row(None, None),
    }
    found = json.loads(build_table(table, "1.2.3"))
    assert {"gpt-9", "gemini-9", "claude-9"} == {name for name in found["models"] if "9" in name}
    assert "1.2.3" in found["source"]


def test_the_shipped_table_is_small_sorted_and_attributed() -> None:
    text = files("promptkit.tokens").joinpath("models.json").read_text(encoding="utf-8")
    data = json.loads(text)
    assert len(text) < 60_000
    assert list(data["models"]) == sorted(data["models"])
    assert "litellm" in data["source"]
    assert "MIT" in data["source"]
    assert all(0 < (max_input or 1) <= window for window, max_input, _ in data["models"].values())
