"""Summary requests have a header that a proxy or a log can read. Over real HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import openai
import pytest

from promptkit import AgentSession, Message
from promptkit.compaction import (
    FullSummarizer,
    InlineSummarizer,
    SimpleSummarizer,
)
from promptkit.providers import OpenAIModel
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.testing.server import serve
from promptkit.tokens.budget import ContextBudget
from tests.conversations import summary_reply, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.compaction import Summarizer

WIDE = ContextBudget(window=4_000, reserved_output_tokens=0)
SUMMARIZERS: dict[str, Callable[[OpenAIModel], Summarizer]] = {
    "inline": lambda model: InlineSummarizer(model=model),
    "full": lambda model: FullSummarizer(model=model, window=100_000),
    "simple": lambda model: SimpleSummarizer(model=model, window=100_000),
}


async def talk(
    url: str, api: Literal["chat", "responses"], make: Callable[[OpenAIModel], Summarizer]
) -> AgentSession:
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        model = OpenAIModel("gpt-4.1", api=api, client=client)
        session = AgentSession(
            model=model, instructions="Be brief.", budget=WIDE, summarizer=make(model)
        )
        await session.run(words(200, "a"))
        await session.run(words(200, "b"), on_text=lambda _: None)
        assert await session.compact() is not None
        await session.run(words(20, "c"))
        return session


@pytest.mark.parametrize("kind", sorted(SUMMARIZERS))
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_only_summary_requests_say_that_they_are_for_a_compaction(
    api: Literal["chat", "responses"], kind: str
) -> None:
    with serve(
        script=[words(100, "x"), words(100, "y"), summary_reply("It is about words."), "Fine."]
    ) as server:
        asyncio.run(talk(server.url, api, SUMMARIZERS[kind]))
        assert [exchange.purpose for exchange in server.requests] == [
            None,
            None,
            "compaction",
            None,
        ]
        assert [exchange.headers.get("x-promptkit-request") for exchange in server.requests] == [
            None,
            None,
            "compaction",
            None,
        ]


def test_the_provider_s_own_compaction_says_so_too() -> None:
    async def ask(url: str) -> str | None:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            compacted = await OpenAIModel("gpt-4.1", client=client).compact(
                [Message(role="user", content=("hello",))]
            )
            return compacted.request_id

    with serve() as server:
        request_id = asyncio.run(ask(server.url))
        (exchange,) = server.requests
    assert exchange.path.endswith("/compact")
    assert exchange.purpose == "compaction"
    assert request_id == f"req_{exchange.number}"


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_body_does_not_depend_on_the_purpose(
    api: Literal["chat", "responses"], *, stream: bool
) -> None:
    """The bytes of the body are what the provider's prompt cache knows."""

    async def ask(url: str) -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            model = OpenAIModel("gpt-4.1", api=api, client=client)
            if stream:
                model = model.with_options(on_text=lambda _: None)
            messages = [Message(role="user", content=("hello",))]
            replies = [
                await each.complete(messages)
                for each in (model, model.with_options(purpose="compaction"))
            ]
            return [reply.request_id for reply in replies]

    with serve(script=["Hi.", "Hi."]) as server:
        ids = asyncio.run(ask(server.url))
        plain, marked = server.requests
    assert plain.raw == marked.raw
    assert (plain.purpose, marked.purpose) == (None, "compaction")
    assert ids == ["req_1", "req_2"]


def test_a_scripted_model_records_the_purpose_too() -> None:
    async def run() -> None:
        model = ScriptedModel([words(50, "x"), summary_answer("It is about words."), "Fine."])
        session = AgentSession(model=model, tokenizer=WordTokenizer(), budget=WIDE)
        await session.run(words(200, "a"), on_text=lambda _: None)
        session.window.add(Message(role="user", content=(words(5, "b"),)))
        assert await session.compact() is not None
        await session.resume()
        assert [request.purpose for request in model.requests] == [None, "compaction", None]

    asyncio.run(run())
