"""The benchmark of frameworks, reduced: with promptkit every turn is answered, nothing is refused, and the state keeps everything."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchmarks.integrations import FRAMEWORKS, VARIANTS, Figures, main, run_langchain, run_openai_agents, run_pydantic_ai

ENOUGH = 5
"""Turns after which a conversation no longer fits."""


def test_conversations_survive_a_small_window_with_promptkit_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--turns", str(ENOUGH)]) == 0
    found = json.loads(capsys.readouterr().out)["frameworks"]
    assert [*found] == [*FRAMEWORKS]
    for variants in found.values():
        assert {*variants} | {"own"} == {*VARIANTS}
        assert variants["without"]["turns"] < ENOUGH
        assert variants["without"]["overflows"] == 1
        for name in ("fit", "compaction"):
            check(Figures(**variants[name]), turns=ENOUGH)


def check(figures: Figures, *, turns: int) -> None:
    assert (figures.turns, figures.overflows, figures.invalid_requests) == (turns, 0, 0)
    assert figures.state_messages in (4 * turns, 5 * turns, 6 * turns)  # as a framework counts calls and results


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["fit", "compaction"])
def test_long_conversations_survive_in_every_way_to_call_the_model(variant: str) -> None:
    async def run() -> None:
        for sync in (False, True):
            check(await run_langchain(variant, 14, sync=sync), turns=14)
        for responses in (False, True):
            check(await run_openai_agents(variant, 14, responses=responses), turns=14)
            check(await run_pydantic_ai(variant, 14, responses=responses), turns=14)

    asyncio.run(run())
