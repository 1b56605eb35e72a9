"""The benchmark of frameworks, reduced: with promptkit every turn is answered, nothing is refused, and the state keeps everything."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks.frameworks import PACKAGES, find_framework, missing_reason
from benchmarks.integrations import (
    FRAMEWORKS,
    LACKING,
    VARIANTS,
    Figures,
    main,
    run_langchain,
    run_openai_agents,
    run_pydantic_ai,
)

ENOUGH = 5
"""Turns after which a conversation no longer fits."""


@pytest.mark.slow
def test_conversations_survive_a_small_window_with_promptkit_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run([name for name in FRAMEWORKS if name not in PACKAGES], capsys, turns=ENOUGH)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name in PACKAGES])
def test_conversations_survive_in_the_environment_of_a_framework(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_framework(name).python is None:
        pytest.skip(missing_reason(name))
    run([name], capsys, turns=14)


def run(names: list[str], capsys: pytest.CaptureFixture[str], *, turns: int) -> None:
    assert main([*names, "--json", "--turns", str(turns)]) == 0
    printed = json.loads(capsys.readouterr().out)
    found = printed["frameworks"]
    assert [*found] == names
    assert printed["not_measured"] == {}
    for name, variants in found.items():
        assert [*variants] == [variant for variant in VARIANTS if variant != LACKING.get(name)]
        assert variants["without"]["turns"] < turns
        assert variants["without"]["overflows"] == 1
        for variant in {"fit", "compaction"} & {*variants}:
            check(Figures(**variants[variant]), turns=turns)


@pytest.mark.parametrize("options", [["--json"], []])
def test_a_framework_without_its_environment_is_named_with_the_reason_and_has_no_figures(
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["litellm", *options]) == 0
    printed = capsys.readouterr().out
    assert missing_reason("litellm") in printed
    assert not set(printed) & set("0123456789")
    assert not options or json.loads(printed)["frameworks"] == {}


def check(figures: Figures, *, turns: int) -> None:
    assert (figures.turns, figures.overflows, figures.invalid_requests) == (turns, 0, 0)
    # as a framework counts calls and results
    assert figures.state_messages in (4 * turns, 5 * turns, 6 * turns)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["fit", "compaction"])
def test_long_conversations_survive_in_every_way_to_call_the_model(variant: str) -> None:
    async def run_all() -> None:
        for sync in (False, True):
            check(await run_langchain(variant, 14, sync=sync), turns=14)
        for responses in (False, True):
            check(await run_openai_agents(variant, 14, responses=responses), turns=14)
            check(await run_pydantic_ai(variant, 14, responses=responses), turns=14)

    asyncio.run(run_all())
