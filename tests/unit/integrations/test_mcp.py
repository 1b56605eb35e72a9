"""The tools, resources and prompts of MCP servers: in memory, and as a process at its stdin and stdout."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("mcp", reason="the framework is not installed: pip install '.[mcp]'")

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.server import Server

from promptkit import AgentSession, DocumentPart, ImagePart, Message, ToolCall
from promptkit.agent.session.attachments import TextAttachment
from promptkit.errors import InvalidArgumentError
from promptkit.integrations.mcp import mcp_attachments, mcp_prompt, mcp_tools
from promptkit.testing import ScriptedModel
from tests.unit.integrations import mcp_server
from tests.unit.integrations.mcp_server import PNG, build_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit import Part, Tool

PICTURE = ImagePart(url=f"data:image/png;base64,{PNG}", media_type="image/png")
NOTES = """\
[the resource file:///x.zip was left out: it is application/zip]
[resource file:///build.log: log, text/plain, The log of the build]
[audio/wav was left out: models take no audio from tools]"""
PLAN = DocumentPart(data="JVBERi0xLjc=", media_type="application/pdf", name="plan.pdf")


def process() -> Client:
    return Client(StdioServerParameters(command=sys.executable, args=[str(mcp_server.__file__)]))


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=f"c-{name}", name=name, arguments=json.dumps(arguments))


async def run_calls(tools: Sequence[Tool], *calls: ToolCall) -> list[Message]:
    """Have a model make these calls one after the other, and return their results."""
    session = AgentSession(model=ScriptedModel([*calls, "Done."]), tools=tools)
    await session.run("Go.")
    return [message for message in session.window.view.messages if message.role == "tool"]


def wait_for(file: Path, text: str) -> None:
    """Wait until a file has a text."""
    until = time.monotonic() + 20
    while not file.exists() or file.read_text(encoding="utf-8") != text:
        assert time.monotonic() < until, f"{file} never was {text!r}"
        time.sleep(0.01)


def is_error(message: Message) -> bool:
    return any(not isinstance(part, str) for part in message.content)


def results(*calls: ToolCall, **options: Any) -> list[Message]:  # Any: of mcp_tools
    async def talk() -> list[Message]:
        async with Client(build_server()) as client:
            return await run_calls(await mcp_tools(client, **options), *calls)

    return asyncio.run(talk())


def test_a_model_is_told_of_a_server_s_tools_as_the_server_describes_them() -> None:
    async def talk() -> None:
        async with Client(build_server()) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            tools = {tool.definition.name: tool.definition for tool in await mcp_tools(client)}
            assert tools["add"].description == "Add two numbers."
            assert tools["add"].parameters == listed["add"].input_schema
            assert tools["add"].parameters is not None
            assert tools["add"].parameters["required"] == ["first"]
            assert "count_to" in tools  # providers refuse the dot

    asyncio.run(talk())


def test_results_and_errors_reach_the_model() -> None:
    added, counted, failed, refused, wrong = results(
        call("add", first=2, second=3),
        call("count_to", upto=3),
        call("fail", text="no such row"),
        call("refuse"),
        call("add", first="two"),
    )
    assert (added.content, counted.content) == (("5",), ("0 1 2",))
    assert not is_error(added)
    assert failed.text.startswith("Error executing tool fail")
    assert refused.text == "Error: There is no row 7."
    assert wrong.text.startswith("Error")
    assert "first" in wrong.text
    assert all(map(is_error, (failed, refused, wrong)))


def test_each_kind_of_content_becomes_a_part_or_a_note() -> None:
    (shown,) = results(call("show"))
    text, *rest = shown.content
    assert text == "first\nsecond"
    assert rest == [
        PICTURE,
        '<resource uri="notes://a?b&amp;c">\na note <\\/resource>\n</resource>',
        PLAN,
        NOTES,
    ]


def test_for_a_model_that_takes_no_images_from_tools_a_note_takes_their_place() -> None:
    (shown,) = results(call("show"), images=False)
    (text,) = shown.content
    assert isinstance(text, str)
    assert "second\n[image/png was left out: this model takes none from tools]\n<resource" in text
    assert "[application/pdf was left out: this model takes none from tools]" in text


def test_structured_content_is_shown_where_there_is_no_text() -> None:
    (shown,) = results(call("structured"))
    assert shown.content == ('{"city": "Köln", "degrees": 21}',)


def test_two_servers_have_tools_of_the_same_names() -> None:
    async def talk() -> list[Message]:
        async with Client(build_server()) as first, Client(build_server()) as second:
            tools = [
                *await mcp_tools(first, prefix="one__"),
                *await mcp_tools(second, prefix="two__"),
            ]
            return await run_calls(tools, call("one__add", first=1), call("two__add", first=2))

    assert [message.text for message in asyncio.run(talk())] == ["2", "3"]


def test_a_limit_of_results_is_that_of_a_tool() -> None:
    (counted,) = results(call("count_to", upto=1_000), max_tokens=200)
    assert counted.text.startswith("0 1 2")
    assert "was cut out" in counted.text
    assert counted.text.endswith("999")


def listing(names: Sequence[str], *, page: int) -> Server[dict[str, Any]]:  # Any: SDK
    """A server that lists its tools by page, and returns the name with which it is called."""

    async def list_tools(
        _: object, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        start = int((params and params.cursor) or 0)
        tools = [
            types.Tool(name=name, input_schema={"type": "object"})
            for name in names[start : start + page]
        ]
        return types.ListToolsResult(
            tools=tools,
            next_cursor=str(start + page) if start + page < len(names) else None,
            ttl_ms=60_000,
        )

    async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=params.name)])

    return Server("pages", on_list_tools=list_tools, on_call_tool=call_tool)


def test_all_pages_are_listed_and_every_name_is_its_own() -> None:
    names = [
        "read.file",
        "read/file",
        "read_file",
        "x" * 100,
        "x" * 99 + "y",
        *(f"t{number}" for number in range(20)),
    ]

    async def talk() -> None:
        async with Client(listing(names, page=3)) as client:
            tools = await mcp_tools(client, prefix="pages__")
            made = [tool.definition.name for tool in tools]
            assert len({*made}) == len(names)
            assert made[0] == "pages__read_file"
            assert all(len(name) <= 64 for name in made)
            called = await run_calls(tools, *map(call, made))
            assert [message.text for message in called] == sorted(names)
        async with Client(listing(names[::-1], page=4)) as client:
            assert [tool.definition for tool in await mcp_tools(client, prefix="pages__")] == [
                tool.definition for tool in tools
            ]

    asyncio.run(talk())


def test_a_list_that_the_client_may_keep_is_read_anew() -> None:
    names = ["one"]

    async def talk() -> None:
        async with Client(listing(names, page=3)) as client:
            assert len(await mcp_tools(client)) == 1
            names.append("two")
            assert len((await client.list_tools()).tools) == 1  # kept for a minute
            assert len(await mcp_tools(client)) == 2

    asyncio.run(talk())


def test_a_call_is_given_up_at_its_time_limit(tmp_path: Path) -> None:
    (waited,) = results(call("wait", file=str(tmp_path / "end")), timeout=0.05)
    assert (
        waited.text
        == "Error: the call took longer than 0.05 seconds. Whether it had an effect is not known."
    )
    assert (tmp_path / "end").read_text(encoding="utf-8") == "cancelled"


def test_a_changed_list_is_seen_by_the_next_look_and_a_tool_that_is_gone_is_an_error() -> None:
    async def talk() -> None:
        async with Client(build_server()) as client:
            before = await mcp_tools(client)
            changed, gone = await run_calls(before, call("change"), call("refuse"))
            assert changed.text == "changed"
            assert gone.text == "Error: Unknown tool: refuse"
            after = await mcp_tools(client)
            assert {tool.definition.name for tool in after} ^ {
                tool.definition.name for tool in before
            } == {"refuse", "multiply"}
            assert [
                message.text
                for message in await run_calls(after, call("multiply", first=2, second=3))
            ] == ["6"]

    asyncio.run(talk())


def test_a_process_answers_until_it_dies_and_the_turn_goes_on_without_it(tmp_path: Path) -> None:
    async def talk() -> None:
        async with process() as client:
            tools = await mcp_tools(client)
            file = tmp_path / "end"
            model = ScriptedModel(
                [
                    call("wait", file=str(file)),
                    call("show"),
                    call("die"),
                    call("add", first=1),
                    "Done.",
                ]
            )
            session = AgentSession(model=model, tools=tools)
            turn = asyncio.ensure_future(session.run("Go."))
            await asyncio.to_thread(wait_for, file, "started")
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            await asyncio.to_thread(wait_for, file, "cancelled")  # by the server, which is told
            assert (await session.resume()).text == "Done."
            cancelled, shown, died, late = (
                message for message in session.window.view.messages if message.role == "tool"
            )
            assert (
                cancelled.text
                == "Error: this call was cancelled. Whether it had an effect is not known."
            )
            assert shown.content[:2] == ("first\nsecond", PICTURE)
            lost = "Error: the connection to the MCP server of this tool is closed. It is not known whether the call had an effect."
            assert (died.text, late.text) == (lost, lost)

    asyncio.run(talk())


def test_resources_are_attachments() -> None:
    async def talk() -> None:
        async with Client(build_server()) as client:
            attachments = await mcp_attachments(client, "notes://today", "picture://logo")
            assert attachments == [
                TextAttachment(name="notes://today", text="The word of the day is ibex."),
                PICTURE,
            ]
            (table,) = await mcp_attachments(client, "table://days")  # its bytes are text
            assert table == TextAttachment(name="table://days", text="day,word\nmonday,ibex\n")
            session = AgentSession(model=ScriptedModel(["Ibex."]))
            await session.run("Which word?", attachments=attachments)
            content: Sequence[Part] = session.window.view.messages[0].content
            assert content == (
                "Which word?",
                '\n\n<attachment path="notes://today">\nThe word of the day is ibex.\n</attachment>',
                PICTURE,
            )
            with pytest.raises(
                InvalidArgumentError,
                match=r"the attachment 'archive://all' is neither text in UTF-8 .* nor a PDF",
            ):
                await mcp_attachments(client, "archive://all")
            with pytest.raises(MCPError):
                await mcp_attachments(client, "notes://nowhere")

    asyncio.run(talk())


def test_a_prompt_is_messages() -> None:
    async def talk() -> None:
        async with Client(build_server()) as client:
            messages = await mcp_prompt(client, "review", arguments={"path": "parser.py"})
            assert [(message.role, message.text) for message in messages] == [
                ("user", "You review code."),
                ("assistant", "Which file?"),
                ("user", "Review parser.py."),
            ]

    asyncio.run(talk())


@pytest.mark.parametrize("options", [{"prefix": "my server "}, {"max_tokens": 5}])
def test_options_that_cannot_be_are_refused(options: Mapping[str, Any]) -> None:
    async def talk() -> None:
        async with Client(build_server()) as client:
            with pytest.raises(
                InvalidArgumentError,
                match=r"prefix must have only letters|max_tokens of the tool 'add' must be at least",
            ):
                await mcp_tools(client, **options)

    asyncio.run(talk())


def test_a_client_is_needed() -> None:
    wrong: Any = build_server()
    with pytest.raises(TypeError, match=r"an mcp.Client is needed, as in `async with Client"):
        asyncio.run(mcp_tools(wrong))


def test_without_the_sdk_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "promptkit.integrations.mcp")
    with pytest.raises(ImportError, match=r"pip install 'mcp>=2'"):
        importlib.import_module("promptkit.integrations.mcp")
