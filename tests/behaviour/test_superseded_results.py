"""A tool says which earlier results its newer ones make useless; they give way where that does not break the prompt cache."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from benchmarks.wishes_cache import TTL, Talk
from promptkit import Message, Tool, ToolCall, ToolDefinition, tool
from promptkit.compaction import ReduceToolResults
from promptkit.tools import ToolResult
from promptkit.transcript import Edit
from tests.conversations import user_message, words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def about_path(arguments: Mapping[str, object]) -> str:
    return str(arguments["path"])


def make(name: str, *, states: bool = True) -> Tool:
    return Tool(
        definition=ToolDefinition(name=name),
        run=lambda _: None,
        supersedes=about_path if states else None,
    )


TOOLS = (make("write_file"), make("fetch"), make("read_file", states=False))


class Work(Talk):
    """A conversation whose model calls tools."""

    count = 0

    async def call(
        self, name: str, path: str, result: str = "", *, is_error: bool = False
    ) -> tuple[Message, ...]:
        """Let the model call a tool, and return the messages of the next request."""
        Work.count += 1
        call = ToolCall(id=f"c{Work.count}", name=name, arguments={"path": path})
        self.window.add(user_message("On."), Message(role="assistant", tool_calls=(call,)))
        await self.turn(ToolResult(result or "ok", is_error=is_error).to_message(call))
        assert self.window.last_request is not None
        return self.window.last_request.messages

    async def after_a_pause(self) -> list[str]:
        """The tool results of a request once the cache is cold."""
        self.now += TTL + 1
        await self.turn()
        assert self.window.last_request is not None
        return results(self.window.last_request.messages)


def results(messages: Sequence[Message]) -> list[str]:
    return [each.text for each in messages if each.role == "tool"]


def start(**settings: object) -> Work:
    talk = Work("")
    talk.open(tools=TOOLS, **settings)
    return talk


def test_a_write_makes_earlier_reads_of_the_file_useless_once_the_cache_is_cold() -> None:
    async def converse() -> tuple[list[str], list[str], Work]:
        talk = start()
        await talk.call("read_file", "a.md", words(300, "a"))
        await talk.call("read_file", "b.md", words(300, "b"))
        warm = results(await talk.call("write_file", "a.md"))
        return warm, await talk.after_a_pause(), talk

    warm, cold, talk = asyncio.run(converse())
    assert warm == [words(300, "a"), words(300, "b"), "ok"]
    assert cold == [
        "[removed: a later call of write_file makes it useless; 300 tokens]",
        words(300, "b"),
        "ok",
    ]
    assert [told.reason for told in talk.told] == ["expired"]
    stored = [entry.message for entry in talk.window.transcript.path() if entry.message]
    assert words(300, "a") in results(stored)


def test_tools_that_say_they_are_about_the_same_supersede_each_other() -> None:
    async def converse() -> list[str]:
        talk = start()
        await talk.call("fetch", "x", words(300, "old"))
        await talk.call("fetch", "y", words(300, "other"))
        await talk.call("fetch", "x", words(60, "new"))
        return await talk.after_a_pause()

    old, other, new = asyncio.run(converse())
    assert old == "[removed: a later call of fetch makes it useless; 300 tokens]"
    assert (other, new) == (words(300, "other"), words(60, "new"))


def test_a_failed_call_supersedes_nothing_and_neither_do_arguments_that_its_tool_cannot_read() -> (
    None
):
    async def converse() -> list[str]:
        talk = start()
        await talk.call("read_file", "a.md", words(300, "a"))
        await talk.call("write_file", "a.md", "no", is_error=True)
        call = ToolCall(id="wrong", name="write_file", arguments={"file": "a.md"})
        talk.window.add(user_message("On."), Message(role="assistant", tool_calls=(call,)))
        await talk.turn(Message(role="tool", tool_call_id="wrong", content="ok"))
        return await talk.after_a_pause()

    assert asyncio.run(converse())[0] == words(300, "a")


def test_a_tool_that_states_no_text_supersedes_nothing() -> None:
    def paths(arguments: Mapping[str, object]) -> str:
        return arguments["paths"]  # type: ignore[return-value]  # as a model's arguments may be

    async def converse() -> list[str]:
        talk = Work("")
        talk.open(tools=[attrs.evolve(make("write_file"), supersedes=paths)])
        for at in range(2):
            call = ToolCall(id=f"w{at}", name="write_file", arguments={"paths": ["a.md"]})
            talk.window.add(user_message("On."), Message(role="assistant", tool_calls=(call,)))
            await talk.turn(Message(role="tool", tool_call_id=call.id, content=words(300, "a")))
        return await talk.after_a_pause()

    assert asyncio.run(converse()) == [words(300, "a"), words(300, "a")]


def test_a_result_whose_newer_one_is_no_longer_in_the_request_is_not_called_superseded() -> None:
    async def converse() -> list[str]:
        talk = start()
        await talk.call("fetch", "x", words(300, "old"))
        await talk.call("fetch", "x", words(300, "new"))
        items = talk.window.view.items
        newer = next(item for item in items if item.message.text == words(300, "new"))
        edit = Edit(target=newer.entry_id, content=("[old tool output removed]",), reason="pruned")
        talk.window.transcript.append(edit)
        await talk.call("fetch", "y", words(10))
        return await talk.after_a_pause()

    assert asyncio.run(converse())[0] == words(300, "old")


def test_only_what_tools_say_is_replaced_where_the_preset_replaces_nothing() -> None:
    async def converse() -> list[str]:
        talk = start()
        await talk.call("read_file", "a.md", words(300, "one"))
        await talk.call("read_file", "a.md", words(300, "two"))
        return await talk.after_a_pause()

    assert asyncio.run(converse()) == [words(300, "one"), words(300, "two")]


def test_tools_that_are_given_later_say_it_too() -> None:
    async def converse() -> list[str]:
        talk = Work("")
        talk.open(tools=TOOLS[2:], freeze_tools=False)
        await talk.call("read_file", "a.md", words(300, "a"))
        talk.window.set_tools(TOOLS)
        await talk.call("write_file", "a.md")
        return await talk.after_a_pause()

    assert asyncio.run(converse())[0].startswith("[removed: a later call of write_file")


def test_a_tool_of_a_function_says_it() -> None:
    @tool(supersedes=about_path)
    def save(path: str) -> str:
        """Save a file."""
        return path

    assert save.supersedes is about_path


def test_old_results_leave_in_steps_and_the_newest_are_the_same_bytes_until_then() -> None:
    reduce = ReduceToolResults(protect_tokens=3_000, least_saving=4_000, warm_ratio=0.0)

    async def converse() -> tuple[list[list[str]], Work]:
        talk = start(reduce=reduce)
        shown = [
            results(await talk.call("read_file", f"{number}.md", words(900, f"w{number}")))
            for number in range(24)
        ]
        return shown, talk

    shown, talk = asyncio.run(converse())
    steps = [at for at in range(1, len(shown)) if shown[at][: len(shown[at - 1])] != shown[at - 1]]
    assert 2 <= len(steps) <= 5
    assert talk.misses == len(steps) == len(talk.told)
    for at in steps:
        newest = [text for text in shown[at] if not text.startswith("[old")]
        assert newest[-4:] == shown[at][-4:]
        assert sum(len(text.split()) for text in newest) < 6_000
