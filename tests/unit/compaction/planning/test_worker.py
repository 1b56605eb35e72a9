"""What takes long runs beside the event loop, and what is short takes turns in it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar

import pytest

from promptkit.compaction.planning.worker import (
    KEPT,
    give_way,
    run_beside,
    run_in_turns,
    run_in_worker,
    take_turn,
)
from promptkit.messages import Message, ToolCall
from promptkit.transcript import ViewItem

NAME: ContextVar[str] = ContextVar("NAME")

SHORT = [ViewItem(message=Message(role="user", content="Hello"), entry_id="e1")]
LONG = [ViewItem(message=Message(role="user", content="word " * 100_000), entry_id="e1")]


class TestTheWorker:
    def test_read_what_is_long_in_a_thread_and_what_is_short_at_once(self) -> None:
        async def main() -> tuple[int, int]:
            return (
                await run_beside(SHORT, threading.get_ident),
                await run_beside(LONG, threading.get_ident),
            )

        short, long = asyncio.run(main())

        assert short == threading.get_ident() != long

    def test_use_one_thread_for_all(self) -> None:
        async def main() -> list[int]:
            return await asyncio.gather(*(run_in_worker(threading.get_ident) for _ in range(20)))

        assert len(set(asyncio.run(main()))) == 1

    def test_see_the_context_variables_of_the_caller(self) -> None:
        async def main() -> str:
            NAME.set("mine")
            return await run_in_worker(NAME.get)

        assert asyncio.run(main()) == "mine"

    def test_raise_what_the_function_raises(self) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            asyncio.run(run_in_worker(int, "x"))

    def test_let_the_loop_run_meanwhile_and_a_cancelled_caller_go(self) -> None:
        go = threading.Event()

        async def main() -> bool:
            task = asyncio.create_task(run_in_worker(go.wait, 60))
            await asyncio.sleep(0.01)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return True
            finally:
                go.set()
            return False

        assert asyncio.run(main())

    def test_let_go_of_the_interpreter_now_and_then_but_never_in_the_loop(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pauses: list[int] = []

        def note(_: float) -> None:
            pauses.append(threading.get_ident())

        monkeypatch.setattr(time, "sleep", note)

        def work() -> int:
            for _ in give_way(range(5)):
                started = time.perf_counter()
                while time.perf_counter() < started + 2 * KEPT:
                    pass
            return threading.get_ident()

        async def main() -> tuple[int, int]:
            return work(), await run_in_worker(work)

        _, worker = asyncio.run(main())

        assert pauses == [worker] * 5


class TestManyMessages:
    def test_are_read_a_few_at_a_time_the_short_ones_in_the_loop_which_goes_on_in_between(
        self,
    ) -> None:
        short, long = SHORT[0].message, LONG[0].message
        arguments = ToolCall(id="a", name="write", arguments=LONG[0].message.text)
        writing = Message(role="assistant", tool_calls=(arguments,))
        messages = [*[short] * 400, long, *[short] * 200, writing]
        read: list[tuple[Message, int, int]] = []
        iteration = 0

        def note(few: Sequence[Message]) -> None:
            time.sleep(0.003)
            read.extend((each, threading.get_ident(), iteration) for each in few)

        async def count() -> None:
            nonlocal iteration
            while len(read) < len(messages):
                iteration += 1
                await asyncio.sleep(0)

        async def main() -> None:
            await asyncio.gather(count(), run_in_turns(note, messages))

        asyncio.run(main())

        own = threading.get_ident()
        assert [message for message, _, _ in read] == messages
        for each in (long, writing):
            assert {thread for message, thread, _ in read if message is each}.isdisjoint({own})
        assert sum(thread == own for _, thread, _ in read) == 600
        assert len({at for _, _, at in read}) > 5


class TestTurns:
    def test_give_one_turn_in_each_iteration_of_the_loop_in_the_order_of_the_callers(self) -> None:
        iteration = 0
        taken: list[tuple[int, int]] = []

        async def count() -> None:
            nonlocal iteration
            while len(taken) < 5:
                iteration += 1
                await asyncio.sleep(0)

        async def wait(number: int) -> None:
            await take_turn()
            taken.append((number, iteration))

        async def main() -> None:
            await asyncio.gather(count(), *map(wait, range(5)))

        asyncio.run(main())

        assert [number for number, _ in taken] == list(range(5))
        assert len({at for _, at in taken}) == 5

    def test_do_not_suspend_a_single_caller(self) -> None:
        async def main() -> None:
            with pytest.raises(StopIteration):
                take_turn().send(None)

        asyncio.run(main())

    def test_pass_over_a_caller_that_was_cancelled(self) -> None:
        async def main() -> list[object]:
            tasks = [asyncio.create_task(take_turn()) for _ in range(4)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            return [type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)]

        nothing = type(None)
        assert asyncio.run(main()) == [nothing, asyncio.CancelledError, nothing, nothing]
