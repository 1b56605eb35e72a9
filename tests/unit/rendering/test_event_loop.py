"""Whatever components await and raise, it comes through, and nothing is left waiting."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from promptkit.elements.builtin import Group, UserMessage
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.errors import RunningLoopError
from promptkit.rendering.expand.event_loop import close_coroutines
from promptkit.rendering.renderer import render, render_async
from promptkit.rendering.tree import Node
from promptkit.testing import WordTokenizer


@component
class Calls(PromptElement):
    """Whatever a function returns or raises."""

    make: Callable[[], Child | Awaitable[Child]]

    def render(self, sizing: Sizing) -> Child | Awaitable[Child]:
        return self.make()


def plain(prompt: Child) -> str:
    return render(prompt, budget=50, tokenizer=WordTokenizer()).messages[0].text


def awaited(prompt: Child) -> str:
    async def inside() -> str:
        return (await render_async(prompt, budget=50, tokenizer=WordTokenizer())).messages[0].text

    return asyncio.run(inside())


def inside_a_loop(prompt: Child) -> str:
    async def inside() -> str:
        await asyncio.sleep(0)
        return plain(prompt)

    return asyncio.run(inside())


async def naps(text: str = "nap") -> Child:
    for _ in range(3):
        await asyncio.sleep(0)
    return text


async def ready() -> Child:
    return "ready"


def stops() -> Child:
    return next(iter(list[str]()))


def fails() -> Child:
    raise LookupError("no such file")


def interrupts() -> Child:
    raise KeyboardInterrupt


async def interrupts_late() -> Child:
    raise KeyboardInterrupt


def test_components_may_share_one_task() -> None:
    async def inside() -> str:
        task = asyncio.ensure_future(naps("shared "))
        prompt = UserMessage()[Calls(make=lambda: task), Calls(make=lambda: task), Calls(make=naps)]
        return (await render_async(prompt, budget=50, tokenizer=WordTokenizer())).messages[0].text

    assert asyncio.run(inside()).split() == ["shared", "shared", "nap"]


def test_a_task_that_fails_for_two_fails_the_render_once() -> None:
    async def late() -> Child:
        await asyncio.sleep(0)
        return fails()

    async def inside() -> None:
        task = asyncio.ensure_future(late())
        await render_async(
            UserMessage()[Calls(make=lambda: task), Calls(make=lambda: task)],
            budget=50,
            tokenizer=WordTokenizer(),
        )

    with pytest.raises(LookupError, match="no such file"):
        asyncio.run(inside())


@pytest.mark.parametrize(
    "prompt",
    [
        UserMessage()[Calls(make=stops)],
        UserMessage()[Calls(make=naps), Calls(make=stops, flex_grow=1)],
    ],
)
def test_stop_iteration_is_an_error_like_others(prompt: UserMessage) -> None:
    with pytest.raises(StopIteration) as caught:
        plain(prompt)
    assert "Calls" in "\n".join(caught.value.__notes__)


def test_where_stop_iteration_cannot_pass_it_is_the_cause() -> None:
    with pytest.raises(RuntimeError) as caught:
        awaited(UserMessage()[Calls(make=stops)])
    assert isinstance(caught.value.__cause__, StopIteration)


def test_a_runtime_error_with_that_cause_is_left_alone() -> None:
    def raises() -> Child:
        raise RuntimeError("empty") from StopIteration()

    with pytest.raises(RuntimeError, match="empty"):
        plain(UserMessage()[Calls(make=raises)])


@pytest.mark.parametrize("run", [plain, awaited, inside_a_loop])
@pytest.mark.parametrize("first", [naps, ready])
@pytest.mark.parametrize(
    ("second", "raised"), [(fails, LookupError), (interrupts, KeyboardInterrupt)]
)
def test_what_was_started_before_an_error_is_closed(
    run: Callable[[Child], str],
    first: Callable[[], Awaitable[Child]],
    second: Callable[[], Child],
    raised: type[BaseException],
) -> None:
    with pytest.raises(raised):
        run(UserMessage()[Calls(make=first), Calls(make=second)])
    gc.collect()  # a coroutine that was never awaited would warn now, which fails the test


@pytest.mark.parametrize("run", [plain, awaited])
def test_what_runs_beside_an_error_is_cancelled(run: Callable[[Child], str]) -> None:
    ended: list[str] = []

    async def sleeps() -> Child:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("sleeps")
        return ""

    async def late() -> Child:
        await asyncio.sleep(0)
        return fails()

    with pytest.raises(LookupError):
        run(UserMessage()[Calls(make=sleeps), Calls(make=late), Group()[Calls(make=naps)]])
    assert ended == ["sleeps"]


@pytest.mark.parametrize(
    ("first", "raised"), [(naps, RunningLoopError), (interrupts_late, KeyboardInterrupt)]
)
def test_what_cannot_be_stepped_to_its_end_in_a_running_loop_is_closed(
    first: Callable[[], Awaitable[Child]], raised: type[BaseException]
) -> None:
    with pytest.raises(raised):
        inside_a_loop(UserMessage()[Calls(make=first), Calls(make=ready), Calls(make=naps)])
    gc.collect()


def test_abandoned_coroutines_are_closed_and_other_awaitables_left_alone() -> None:
    class Connection:
        closed = False

        def __await__(self) -> object:
            return iter(())

        def close(self) -> None:
            self.closed = True

    node, connection, coroutine = Node(None, None, 0), Connection(), ready()
    close_coroutines([(node, connection), (node, coroutine)])  # type: ignore[list-item]  # its result does not matter
    assert not connection.closed
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        asyncio.run(coroutine)
