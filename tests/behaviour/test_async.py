"""Components may await: together where they can, with or without a loop of the caller's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from promptkit import (
    Child,
    Expandable,
    PromptElement,
    Renderer,
    Sizing,
    UserMessage,
    component,
    render,
    render_async,
)
from promptkit.errors import BadChildError, RunningLoopError
from promptkit.testing import WordTokenizer


@component
class Loaded(PromptElement):
    """Awaits, and notes when it began and ended."""

    key: str
    log: Callable[[str], None]
    naps: int = 3

    async def render(self, sizing: Sizing) -> Child:
        self.log(f"+{self.key}")
        for _ in range(self.naps):
            await asyncio.sleep(0)
        self.log(f"-{self.key}")
        return f"{self.key} "


@component
class Ready(PromptElement):
    """Is declared async and never awaits."""

    async def render(self, sizing: Sizing) -> Child:
        return f"ready {sizing.token_budget}"


@component
class Failing(PromptElement):
    async def render(self, sizing: Sizing) -> Child:
        await asyncio.sleep(0)
        raise LookupError("no such file")


def three(log: list[str]) -> UserMessage:
    return UserMessage()[
        Loaded(key="a", log=log.append, naps=5),
        Loaded(key="b", log=log.append, naps=1),
        Loaded(key="c", log=log.append),
    ]


def test_the_components_of_a_flex_group_run_at_the_same_time() -> None:
    log: list[str] = []
    made = asyncio.run(render_async(three(log), budget=50, tokenizer=WordTokenizer()))
    assert set(log[:3]) == {"+a", "+b", "+c"}
    assert log[3] == "-b"
    assert made.messages[0].text.split() == ["a", "b", "c"]


def test_a_later_group_waits_for_the_earlier_one() -> None:
    log: list[str] = []
    prompt = UserMessage()[
        Loaded(key="late", log=log.append, flex_grow=1), Loaded(key="early", log=log.append)
    ]
    asyncio.run(render_async(prompt, budget=50, tokenizer=WordTokenizer()))
    assert log.index("-early") < log.index("+late")


def test_render_works_without_a_loop() -> None:
    log: list[str] = []
    assert render(three(log), budget=50, tokenizer=WordTokenizer()).messages[0].text.split() == [
        "a",
        "b",
        "c",
    ]
    assert set(log[:3]) == {"+a", "+b", "+c"}


def test_render_works_in_a_running_loop_when_nothing_awaits() -> None:
    async def inside() -> str:
        await asyncio.sleep(0)
        return render(UserMessage()[Ready()], budget=50, tokenizer=WordTokenizer()).messages[0].text

    assert asyncio.run(inside()) == "ready 50"


def test_render_in_a_running_loop_refuses_what_awaits() -> None:
    async def inside() -> None:
        await asyncio.sleep(0)
        render(
            UserMessage()[Loaded(key="a", log=list[str]().append)],
            budget=50,
            tokenizer=WordTokenizer(),
        )

    with pytest.raises(RunningLoopError, match="render_async"):
        asyncio.run(inside())


def test_what_never_awaits_needs_no_loop() -> None:
    assert (
        render(UserMessage()[Ready()], budget=50, tokenizer=WordTokenizer()).messages[0].text
        == "ready 50"
    )


def test_both_ways_give_the_same() -> None:
    prompt = three([]).replace(priority=1)
    assert asyncio.run(render_async(prompt, budget=2, tokenizer=WordTokenizer())) == render(
        prompt, budget=2, tokenizer=WordTokenizer()
    )


def test_a_renderer_awaits_again_in_every_render() -> None:
    log: list[str] = []
    renderer = Renderer(budget=50, tokenizer=WordTokenizer())
    prompt = three(log)

    async def turns() -> None:
        for _ in range(3):
            await renderer.render_async(prompt)

    asyncio.run(turns())
    assert len(log) == 18


def awaited(prompt: Child) -> object:
    return asyncio.run(render_async(prompt, budget=50, tokenizer=WordTokenizer()))


def plain(prompt: Child) -> object:
    return render(prompt, budget=50, tokenizer=WordTokenizer())


@pytest.mark.parametrize("rendered", [awaited, plain])
def test_an_error_of_a_component_comes_through_and_says_where(
    rendered: Callable[[Child], object],
) -> None:
    with pytest.raises(LookupError, match="no such file") as caught:
        rendered(UserMessage()[Failing(), Loaded(key="a", log=list[str]().append)])
    assert "UserMessage > Failing" in "\n".join([str(caught.value), *caught.value.__notes__])


def test_many_renders_run_side_by_side() -> None:
    async def many() -> list[str]:
        made = await asyncio.gather(
            *(render_async(three([]), budget=50, tokenizer=WordTokenizer()) for _ in range(20))
        )
        return [one.messages[0].text for one in made]

    assert len(set(asyncio.run(many()))) == 1


def test_a_cancelled_render_leaves_nothing_running() -> None:
    log: list[str] = []

    async def cancelled() -> None:
        task = asyncio.ensure_future(
            render_async(
                UserMessage()[Loaded(key="a", log=log.append, naps=10_000)],
                budget=50,
                tokenizer=WordTokenizer(),
            )
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cancelled())
    assert log == ["+a"]


def test_an_awaited_value_of_an_expandable_must_be_a_string_too() -> None:
    async def value(_sizing: Sizing) -> str:
        return cast("str", 5)

    with pytest.raises(BadChildError, match="value of an Expandable must be a string, not int"):
        render(UserMessage()[Expandable(value=value)], budget=50)
