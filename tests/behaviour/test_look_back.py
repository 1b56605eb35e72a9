"""The way back over real HTTP: an agent follows the breadcrumb of a summary, finds every detail that was dropped, and its file stays small."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from typing import TYPE_CHECKING

import openai

from benchmarks.conversation_script import is_summary_request
from promptkit import ToolCall, ToolDefinition
from promptkit.agent.session.session import AgentSession
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing.server import serve
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.conversations import summary_reply

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer

FILES = 22
_CALL = re.compile(r"look it up there: recall\((\{.*?\})\)")
_MORE = re.compile(r"\[there is more: recall\((\{.*?\})\)\]")


def detail(path: str) -> str:
    return f"NEEDLE-{hashlib.sha256(path.encode()).hexdigest()[:10]}"


def read_file(arguments: Mapping[str, object]) -> str:
    return f"{'word ' * 700}{detail(str(arguments['path']))}{' word' * 700}"


class FollowsTheBreadcrumb:
    """A model that reads a file for each question, and looks back as the breadcrumb in its request says, with an expression of its own."""

    def __init__(self) -> None:
        self.read_back: list[str] = []

    def answer(self, exchange: Exchange) -> Answer:
        last = exchange.messages[-1]
        if is_summary_request(exchange):
            return summary_reply("The files were read.")
        if last["role"] == "user" and exchange.text != "LOOK BACK":
            path = exchange.text.split()[-1]
            return ToolCall(
                id=f"c{exchange.number}", name="read_file", arguments=json.dumps({"path": path})
            )
        if last["role"] == "user":
            found = _CALL.search(
                "\n".join(str(message["content"]) for message in exchange.messages)
            )
            return (
                ToolCall(id=f"c{exchange.number}", name="recall", arguments=found[1])
                if found
                else "There is no way back."
            )
        if exchange.messages[-2]["tool_calls"][0]["function"]["name"] == "read_file":
            return "Read."
        return self._page(exchange)

    def _page(self, exchange: Exchange) -> Answer:
        self.read_back.append(exchange.text)
        earlier = json.loads(exchange.messages[-2]["tool_calls"][0]["function"]["arguments"])
        more = _MORE.search(exchange.text)
        arguments = (
            json.dumps({"pattern": r"NEEDLE-\w+"})
            if "query" in earlier
            else more[1]
            if more
            else None
        )
        return (
            ToolCall(id=f"c{exchange.number}", name="recall", arguments=arguments)
            if arguments
            else "Found."
        )


def size_of(file: Path) -> int:
    return file.stat().st_size


async def converse(model: FollowsTheBreadcrumb, file: Path) -> tuple[list[int], int]:
    """Read all files, look back five times, and return the file's sizes and how many details the last request shows by itself."""
    tool = Tool(definition=ToolDefinition(name="read_file"), run=read_file)
    budget = ContextBudget.for_model(
        "gpt-4o", window=16_000, reserved_output_tokens=1_500, tools=[tool.definition]
    )
    with serve(after=model.answer) as server:
        async with (
            openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
            AgentSession(
                model=OpenAIModel("gpt-4o", api="chat", client=client),
                tools=[tool],
                transcript=Transcript(JsonlStore(file)),
                budget=budget,
            ) as session,
        ):
            for number in range(FILES):
                await session.run(f"Read src/module_{number}.py")
            await session.compact()
            shown = str(session.window.view.messages)
            sizes = [size_of(file)]
            for _ in range(5):
                await session.run("LOOK BACK")
                sizes.append(size_of(file))
    return sizes, sum(detail(f"src/module_{number}.py") in shown for number in range(FILES))


def test_every_dropped_detail_is_found_by_following_the_breadcrumb_and_looking_back_adds_little_to_the_file(
    tmp_path: Path,
) -> None:
    model = FollowsTheBreadcrumb()
    sizes, shown = asyncio.run(converse(model, tmp_path / "talk.jsonl"))
    found = "\n".join(model.read_back)
    assert shown < FILES // 2
    assert [
        number for number in range(FILES) if detail(f"src/module_{number}.py") not in found
    ] == []
    assert sizes[-1] - sizes[0] < 50_000
