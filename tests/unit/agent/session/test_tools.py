from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import attrs
import pytest

import promptkit
from promptkit.agent import ToolDecision, TurnHooks
from promptkit.agent.session.tools import CANCELLED, ToolRunner, tools_by_name
from promptkit.messages import ImagePart, ToolCall, ToolDefinition
from promptkit.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from promptkit.messages import Message
    from promptkit.tools import ToolOutput


def tool(
    name: str, run: Callable[[Mapping[str, object]], ToolOutput | Awaitable[ToolOutput]]
) -> Tool:
    return Tool(definition=ToolDefinition(name=name), run=run)


def call(name: str, number: int = 1, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=f"c{number}", name=name, arguments=arguments)


async def results(calls: Sequence[ToolCall], *tools: Tool) -> list[Message]:
    told: list[Message] = []
    runner = ToolRunner(tools={each.definition.name: each for each in tools})
    await runner.run(calls, told.extend)
    return told


def texts(calls: Sequence[ToolCall], *tools: Tool) -> list[str]:
    return [message.text for message in asyncio.run(results(calls, *tools))]


def test_results_come_in_the_order_of_the_calls_however_long_each_takes() -> None:
    ended: list[str] = []
    quick_ended = asyncio.Event()

    async def slow(arguments: Mapping[str, object]) -> ToolOutput:
        await quick_ended.wait()
        ended.append("slow")
        return "slow"

    async def quick(arguments: Mapping[str, object]) -> ToolOutput:
        ended.append("quick")
        quick_ended.set()
        return "quick"

    made = asyncio.run(
        results([call("slow", 1), call("quick", 2)], tool("slow", slow), tool("quick", quick))
    )
    assert [(message.tool_call_id, message.text) for message in made] == [
        ("c1", "slow"),
        ("c2", "quick"),
    ]
    assert ended == ["quick", "slow"]


def test_plain_functions_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=10)

    def meets(arguments: Mapping[str, object]) -> ToolOutput:
        meeting.wait()
        return "met"

    assert texts([call("meets", 1), call("meets", 2)], tool("meets", meets)) == ["met", "met"]


def test_arguments_are_the_json_object_that_the_model_wrote() -> None:
    def shows(arguments: Mapping[str, object]) -> ToolOutput:
        return f"{arguments['path']} {arguments['lines']}"

    assert texts([call("shows", 1, '{"path": "a.py", "lines": [1, 2]}')], tool("shows", shows)) == [
        "a.py [1, 2]"
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [('{"path": "a', "are no JSON:"), ("[1]", "are no JSON object"), ("", "ran")],
)
def test_arguments_that_are_none_are_told_to_the_model(arguments: str, told: str) -> None:
    assert told in texts([call("shows", 1, arguments)], tool("shows", lambda _: "ran"))[0]


def test_a_tool_that_is_not_there_is_told_with_those_that_are() -> None:
    assert texts([call("write")], tool("read", lambda _: ""), tool("list", lambda _: "")) == [
        "Error: there is no tool 'write'. The tools are list, read."
    ]
    assert texts([call("write")]) == ["Error: there is no tool 'write'. The tools are (none)."]


def test_what_a_tool_raises_is_told_to_the_model_and_the_others_go_on() -> None:
    def raises(arguments: Mapping[str, object]) -> ToolOutput:
        raise FileNotFoundError("a.py")

    assert texts(
        [call("raises", 1), call("fine", 2)], tool("raises", raises), tool("fine", lambda _: "fine")
    ) == [
        "Error: FileNotFoundError: a.py",
        "fine",
    ]


def test_parts_such_as_images_are_passed_on() -> None:
    image = ImagePart(url="https://example.com/x.png")
    (message,) = asyncio.run(results([call("shot")], tool("shot", lambda _: ["A picture:", image])))
    assert message.content == ("A picture:", image)


def test_a_plain_function_may_return_what_is_to_be_awaited() -> None:
    async def later() -> ToolOutput:
        return "later"

    assert texts([call("later")], tool("later", lambda _: later())) == ["later"]


def test_a_tool_that_cancels_itself_is_no_cancellation_of_the_turn() -> None:
    async def quits(arguments: Mapping[str, object]) -> ToolOutput:
        raise asyncio.CancelledError

    assert texts(
        [call("quits", 1), call("fine", 2)], tool("quits", quits), tool("fine", lambda _: "fine")
    ) == [CANCELLED, "fine"]


def test_what_is_done_when_the_turn_is_cancelled_is_told_and_every_other_call_is_answered() -> None:
    async def hangs(arguments: Mapping[str, object]) -> ToolOutput:
        await asyncio.Event().wait()
        return "never"

    async def quick(arguments: Mapping[str, object]) -> ToolOutput:
        return "done"

    async def cancelled() -> list[Message]:
        told: list[Message] = []
        known = {"hangs": tool("hangs", hangs), "quick": tool("quick", quick)}
        running = asyncio.ensure_future(
            ToolRunner(tools=known).run([call("hangs", 1), call("quick", 2)], told.extend)
        )
        for _ in range(3):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1  # nothing goes on that nobody waits for
        return told

    assert [(message.tool_call_id, message.text) for message in asyncio.run(cancelled())] == [
        ("c1", CANCELLED),
        ("c2", "done"),
    ]


def test_a_tool_that_has_nothing_to_tell_returns_nothing() -> None:
    assert texts([call("writes")], tool("writes", lambda _: None)) == [""]


@pytest.mark.parametrize("wrong", [{"a": 1}, [1, 2], 7, object(), ["text", None], iter(("a",))])
def test_a_result_that_cannot_be_written_down_is_told_to_the_model_as_an_error(
    wrong: object,
) -> None:
    (told,) = texts([call("odd")], tool("odd", lambda _: wrong))  # type: ignore[arg-type, return-value]  # what a tool may do unchecked
    assert told.startswith("Error: TypeError: the tool returned ")


@pytest.mark.parametrize("seconds", [None, 5])
def test_a_plain_function_whose_iterator_is_empty_is_an_error_at_once(
    seconds: float | None,
) -> None:
    def finds(arguments: Mapping[str, object]) -> ToolOutput:
        return next(user for user in ["ann", "bob"] if user == "zed")

    async def within_a_second() -> list[Message]:
        async with asyncio.timeout(1):
            return await results(
                [call("finds")], attrs.evolve(tool("finds", finds), timeout=seconds)
            )

    assert [message.text for message in asyncio.run(within_a_second())] == ["Error: StopIteration"]


def test_plain_functions_that_hang_keep_no_other_from_starting_and_nothing_waits_for_them() -> None:
    # more than asyncio's pool has threads on two to thirty-two processors
    hanging, released = 40, threading.Event()

    def hangs(arguments: Mapping[str, object]) -> ToolOutput:
        released.wait(20)
        return "late"

    async def all_of_them() -> list[str]:
        late = await results(
            [call("hangs", number) for number in range(hanging)],
            attrs.evolve(tool("hangs", hangs), timeout=0.05),
        )
        quick = await results(
            [call("quick")], attrs.evolve(tool("quick", lambda _: "quick"), timeout=5)
        )
        return [message.text for message in (*late, *quick)]

    started = time.monotonic()
    try:
        told = asyncio.run(all_of_them())
        took = time.monotonic() - started
    finally:
        released.set()
    assert ["took longer" in each for each in told] == [True] * hanging + [False]
    assert told[-1] == "quick"
    assert took < 4


@pytest.mark.long
def test_a_plain_function_that_hangs_does_not_keep_the_program_from_ending() -> None:
    program = """
import asyncio, time
from promptkit.agent.session.tools import ToolRunner
from promptkit.messages import ToolCall, ToolDefinition
from promptkit.tools import Tool

hangs = Tool(definition=ToolDefinition(name="hangs"), run=lambda _: time.sleep(60), timeout=0.05)
runner = ToolRunner(tools={"hangs": hangs})
asyncio.run(runner.run([ToolCall(id="1", name="hangs")], lambda told: print(told[0].text)))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert "took longer than 0.05 seconds" in ended.stdout
    assert not ended.stderr


def test_a_plain_function_sees_the_context_of_the_turn_and_cannot_change_it() -> None:
    user = contextvars.ContextVar[str]("user")

    def shows(arguments: Mapping[str, object]) -> ToolOutput:
        seen = user.get()
        user.set("mallory")
        return seen

    async def asks() -> tuple[str, str]:
        user.set("ann")
        (told,) = await results([call("shows")], tool("shows", shows))
        return told.text, user.get()

    assert asyncio.run(asks()) == ("ann", "ann")


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_that_cannot_say_what_is_wrong_is_told_by_its_name(is_async: bool) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def raises(arguments: Mapping[str, object]) -> ToolOutput:
        raise MuteError

    async def raises_later(arguments: Mapping[str, object]) -> ToolOutput:
        raise MuteError

    assert texts([call("raises")], tool("raises", raises_later if is_async else raises)) == [
        "Error: MuteError"
    ]


class Approver(TurnHooks):
    """Approves every call, and keeps what it was asked about."""

    def __init__(self, arguments: Mapping[str, object] | None = None) -> None:
        self.asked: list[str] = []
        self.arguments = arguments

    def before_tool(self, call: ToolCall) -> ToolDecision | None:
        self.asked.append(call.arguments)
        return None if self.arguments is None else ToolDecision(arguments=self.arguments)


def double(number: int) -> str:
    return str(2 * number)


@pytest.mark.parametrize(
    ("arguments", "asked", "answer"),
    [
        ('{"number": 4}', ['{"number": 4}'], "8"),
        ('{"number": "4"}', ['{"number": 4}'], "8"),
        ('{"number": "four"}', [], "Error: these arguments of double are wrong:"),
        ("{}", [], "Error: these arguments of double are wrong:"),
        ('{"number": 1, "number": 2}', [], "Error: the key 'number' is there twice."),
        ('{"number": {"a": 1, "a": 2}}', [], "Error: the key 'a' is there twice."),
        ('{"number": NaN}', [], "Error: NaN is no number in JSON."),
        ('{"number": 1,}', [], "Error: the arguments are no JSON:"),
        ("[1]", [], "Error: the arguments are no JSON object."),
    ],
)
def test_a_hook_decides_about_arguments_that_are_right_and_are_run_as_it_saw_them(
    arguments: str, asked: list[str], answer: str
) -> None:
    hooks = Approver()
    (result,) = run_calls([ToolCall(id="c", name="double", arguments=arguments)], hooks)
    assert hooks.asked == asked
    assert result.startswith(answer)


def test_the_arguments_that_a_hook_gives_are_checked_too() -> None:
    call = ToolCall(id="c", name="double", arguments={"number": 1})
    (result,) = run_calls([call], Approver({"number": 3}))
    assert result == '[The call was run with changed arguments: {"number": 3}]\n6'
    (result,) = run_calls([call], Approver({"number": [3]}))
    assert "these arguments of double are wrong" in result


def run_calls(calls: Sequence[ToolCall], hooks: TurnHooks) -> list[str]:
    results: list[Message] = []
    runner = ToolRunner(tools=tools_by_name([promptkit.tool(double)]), hooks=hooks)
    asyncio.run(runner.run(calls, results.extend))
    return [message.text for message in results]
