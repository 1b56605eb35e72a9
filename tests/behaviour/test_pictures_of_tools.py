"""A picture that a tool returns is sent in every format, or named where the model sees none; no turn fails because of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import pytest

from promptkit import AgentSession, Tool, ToolCall, ToolDefinition, UserMessage, render
from promptkit.elements import AssistantMessage, Image, ToolMessage
from promptkit.messages import DocumentPart, ImagePart
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing.server import serve
from promptkit.tokens import register_model
from promptkit.tokens.request import count_request
from tests.conversations import summary_reply, words
from tests.unit.providers.openai.asking import client

if TYPE_CHECKING:
    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer
    from promptkit.tools import ToolOutput

IMAGE = ImagePart(url="data:image/png;base64,iVBORw0KGgo=")
DOCUMENT = DocumentPart(data="JVBERg==", media_type="application/pdf", name="plan.pdf", tokens=90)
Api = Literal["chat", "responses"]


def answer(exchange: Exchange) -> Answer:
    if exchange.purpose == "compaction":
        return summary_reply(words(60))
    last = exchange.messages[-1]
    if last["role"] == "user" and "Look" in str(last["content"]):
        return [ToolCall(id=f"c{exchange.number}", name="look", arguments="{}")]
    return f"Fine. {words(150)}"


def talk(apis: list[tuple[str, Api]], content: ToolOutput = (IMAGE, DOCUMENT)) -> list[Exchange]:
    """Look at a picture, and go on with each model; the requests of which none was refused."""

    async def run(url: str) -> None:
        async with client(url) as provider:
            models = [OpenAIModel(name, api=api, client=provider) for name, api in apis]
            look = Tool(definition=ToolDefinition(name="look"), run=lambda _: content)
            session = AgentSession(model=models[0], tools=[look])
            await session.run("Look at the screen.")
            for model in models:
                session.set_model(model)
                await session.run("And now?")
            await session.compact()
            await session.run("And then?")

    with serve(after=answer) as server:
        asyncio.run(run(server.url))
        assert server.stats.invalid == 0
        return list(server.requests)


@pytest.mark.parametrize("apis", [["chat"], ["responses"], ["responses", "chat"]])
def test_a_tools_picture_is_sent_over_each_api_and_after_a_switch(apis: list[Api]) -> None:
    requests = talk([("gpt-4o", api) for api in apis])
    shown = [request for request in requests if "iVBORw0KGgo=" in str(request.body)]
    assert len(shown) >= 1 + len(apis)
    assert all("JVBERg==" in str(request.body) for request in shown)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_model_that_sees_none_is_sent_a_note(api: Api) -> None:
    requests = talk([("gpt-4o", api), ("o3-mini", api)])
    blind = [request for request in requests if request.body["model"] == "o3-mini"]
    assert "[an image, which this model cannot see]" in str(blind[0].body)
    assert "[the document plan.pdf, which this model cannot see]" in str(blind[0].body)
    assert not any("iVBORw0KGgo=" in str(request.body) for request in blind)


def test_a_registered_model_may_see_none() -> None:
    register_model("blind-model", window=32_000, sees_images=False)
    requests = talk([("blind-model", "chat")], (IMAGE,))
    assert not any("iVBORw0KGgo=" in str(request.body) for request in requests)


def test_the_count_for_chat_is_that_of_what_chat_is_sent() -> None:
    call = ToolCall(id="c1", name="look")
    rendered = render(
        [
            UserMessage()["Look."],
            AssistantMessage(tool_calls=[call]),
            ToolMessage(tool_call_id="c1")["Here: ", Image(url=IMAGE.url)],
        ],
        budget=5_000,
        model="gpt-4o",
    )
    assert not rendered.exact
    sent = count_request({"model": "gpt-4o", "messages": rendered.to_chat()})
    assert rendered.count_tokens("chat") == sent.tokens
    assert rendered.count_tokens("responses") == rendered.tokens
