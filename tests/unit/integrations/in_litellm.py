"""What `FitHook` promises, through the real litellm.

Runs in its environment: see `test_frameworks.py`.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import ContextBudget
from promptkit.errors import InvalidArgumentError, UnknownModelError
from promptkit.integrations.litellm import FitHook
from promptkit.testing.server import Server, serve
from tests.conversations import words

if TYPE_CHECKING:
    from collections.abc import Iterator

litellm: Any = import_module("litellm")  # Any: only in its own environment

BUDGET = ContextBudget(window=2_000, reserved_output_tokens=200)
MODEL = "openai/gpt-4.1"
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {"type": "object"},
    },
}

Messages = list[dict[str, Any]]


def talk(rounds: int, *, long: int = 400) -> Messages:
    messages: Messages = [{"role": "system", "content": "You review code."}]
    for n in range(rounds):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "read_file", "arguments": "{}"},
        }
        messages += [
            {"role": "user", "content": f"Review {n}."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call],
                "thinking_blocks": [{"type": "thinking", "thinking": "I read."}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": words(long), "name": "read_file"},
            {"role": "assistant", "content": f"{n} is sound."},
        ]
    return [*messages, {"role": "user", "content": "And now?"}]


@pytest.fixture(autouse=True)
def no_callbacks_are_left() -> Iterator[None]:
    litellm.suppress_debug_info = True
    yield
    litellm.callbacks = []


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(window=2_000, after=lambda _: "Done.") as running:
        yield running


def fit(hook: FitHook, messages: Messages, **keywords: Any) -> Messages:
    given = {"model": MODEL, "messages": messages, **keywords}
    sent = asyncio.run(hook.async_pre_call_deployment_hook(given, "acompletion"))
    assert sent is not None
    assert {**sent, "messages": messages} == given
    return [*sent["messages"]]


def size(messages: Messages) -> int:
    """Characters."""
    return sum(len(message["content"] or "") for message in messages)


def test_messages_that_did_not_change_are_the_callers_own_and_the_list_stays() -> None:
    messages = talk(8)
    kept = [*messages]
    sent = fit(FitHook(budget=BUDGET), messages, tools=[TOOL])
    assert messages == kept
    assert 3 < len(sent) < len(messages)
    copies = [message for message in sent if not any(message is each for each in messages)]
    assert {message["role"] for message in copies} == {"tool"}
    short = talk(2)
    assert all(
        one is other for one, other in zip(fit(FitHook(budget=BUDGET), short), short, strict=True)
    )


def test_a_shortened_message_keeps_all_its_other_fields() -> None:
    messages = talk(1, long=5_000)
    (result,) = [
        message for message in fit(FitHook(budget=BUDGET), messages) if message["role"] == "tool"
    ]
    assert len(result["content"]) < len(messages[3]["content"])
    assert {**result, "content": ""} == {**messages[3], "content": ""}


def test_objects_of_litellm_are_kept_and_shortened(server: Server) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    own = litellm.Message(
        role="assistant", content=words(3_000), tool_calls=[call], reasoning_content="I read."
    )
    small = litellm.Message(role="assistant", content="Fine.")
    messages = [
        {"role": "user", "content": "Hi."},
        own,
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        small,
        *talk(0),
    ]
    sent = fit(FitHook(budget=BUDGET), messages)
    assert any(each is small for each in sent)
    litellm.callbacks = [FitHook(budget=BUDGET)]
    asyncio.run(
        litellm.acompletion(model=MODEL, messages=messages, api_base=server.url, api_key="none")
    )
    assert server.stats.overflows == server.stats.invalid == 0


def test_tools_and_the_format_of_the_reply_count() -> None:
    long = {**TOOL, "function": {**TOOL["function"], "description": words(600)}}  # type: ignore[dict-item]  # JSON
    plain = size(fit(FitHook(budget=BUDGET), talk(8)))
    assert size(fit(FitHook(budget=BUDGET), talk(8), tools=[long])) < plain - 1_000
    found = {
        "type": "object",
        "properties": {"found": {"type": "string", "description": words(600)}},
    }
    schema = {"type": "json_schema", "json_schema": {"name": "Found", "schema": found}}
    assert size(fit(FitHook(budget=BUDGET), talk(8), response_format=schema)) < plain - 1_000


def test_acompletion_its_streams_and_a_router_are_reached(server: Server) -> None:
    litellm.callbacks = [FitHook(budget=BUDGET)]
    place = {"model": MODEL, "api_base": server.url, "api_key": "none"}
    router = litellm.Router(
        model_list=[{"model_name": "m", "litellm_params": place}], num_retries=0
    )

    async def run() -> None:
        await litellm.acompletion(messages=talk(8), **place)
        await litellm.acompletion(MODEL, messages=talk(8), api_base=server.url, api_key="none")
        async for _ in await litellm.acompletion(messages=talk(8), stream=True, **place):
            pass
        await router.acompletion(model="m", messages=talk(8))
        async for _ in await router.acompletion(model="m", messages=talk(8), stream=True):
            pass

    asyncio.run(run())
    assert (server.stats.answered, server.stats.overflows, server.stats.invalid) == (5, 0, 0)


def test_responses_and_anthropic_messages_are_reached(server: Server) -> None:
    litellm.callbacks = [FitHook(budget=BUDGET)]
    place = {"model": MODEL, "api_base": server.url, "api_key": "none"}
    router = litellm.Router(
        model_list=[{"model_name": "m", "litellm_params": place}], num_retries=0
    )
    items = [
        {"role": message["role"], "content": words(300)}
        for message in talk(8)
        if message["role"] == "user"
    ]

    async def run() -> None:
        await litellm.aresponses(input=items, instructions="You review code.", **place)
        await litellm.anthropic_messages(
            messages=items, system="You review code.", max_tokens=100, **place
        )
        await router.aresponses(model="m", input=items)
        await router.aanthropic_messages(model="m", messages=items, max_tokens=100)
        await litellm.aresponses(input="Hello.", **place)

    asyncio.run(run())
    assert (server.stats.answered, server.stats.overflows, server.stats.invalid) == (5, 0, 0)


def test_synchronous_calls_and_messages_without_their_keyword_are_not_reached(
    server: Server,
) -> None:
    litellm.callbacks = [FitHook(budget=BUDGET)]
    place = {"api_base": server.url, "api_key": "none", "num_retries": 0}
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(model=MODEL, messages=talk(8), **place)
    with pytest.raises(litellm.ContextWindowExceededError):
        asyncio.run(litellm.acompletion(MODEL, talk(8), **place))


def test_a_refusal_makes_the_next_request_smaller_and_a_router_asks_again_itself(
    server: Server,
) -> None:
    hook = FitHook(budget=ContextBudget(window=8_000, reserved_output_tokens=200))
    litellm.callbacks = [hook]
    place = {"model": MODEL, "api_base": server.url, "api_key": "none"}

    async def ask() -> None:
        await litellm.acompletion(messages=talk(12), num_retries=0, **place)

    with pytest.raises(litellm.ContextWindowExceededError):
        asyncio.run(ask())
    asyncio.run(ask())
    assert (server.stats.answered, server.stats.overflows) == (1, 1)

    litellm.callbacks = [FitHook(budget=ContextBudget(window=8_000, reserved_output_tokens=200))]
    models = [{"model_name": name, "litellm_params": place} for name in ("m", "m again")]
    router = litellm.Router(
        model_list=models, num_retries=0, context_window_fallbacks=[{"m": ["m again"]}]
    )
    asyncio.run(router.acompletion(model="m", messages=talk(12)))
    assert (server.stats.answered, server.stats.overflows) == (2, 2)


def test_any_other_failure_lowers_nothing(server: Server) -> None:
    hook = FitHook(budget=BUDGET)
    before = fit(hook, talk(8))
    failed = hook.async_post_call_failure_deployment_hook(
        {"model": MODEL, "messages": before}, RuntimeError("no"), "acompletion"
    )
    asyncio.run(failed)
    assert len(fit(hook, talk(8))) == len(before)


def test_what_cannot_fit_is_an_overflow_of_litellm_before_it_is_sent() -> None:
    with pytest.raises(litellm.ContextWindowExceededError, match="budget"):
        fit(FitHook(budget=50, shorten=False), [{"role": "user", "content": words(100)}])


def test_the_window_is_the_deployments_then_what_promptkit_or_litellm_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(fit(FitHook(), talk(8))) == len(talk(8))
    assert len(fit(FitHook(), talk(8), model_info={"max_input_tokens": 2_000})) < len(talk(8))
    assert len(fit(FitHook(), talk(8), metadata={"model_info": {"max_input_tokens": 2_000}})) < len(
        talk(8)
    )
    with pytest.raises(UnknownModelError, match="budget"):
        fit(FitHook(), talk(8), model="local/mystery")
    monkeypatch.setitem(
        litellm.model_cost, "mystery", {"max_input_tokens": 2_000, "max_output_tokens": 500}
    )
    assert len(fit(FitHook(), talk(8), model="local/mystery")) < len(talk(8))


def test_a_wrong_argument_is_refused_at_once_and_all_are_keywords() -> None:
    with pytest.raises(InvalidArgumentError, match="use 8000, 8k or 1m"):
        FitHook(budget="8q")
    with pytest.raises(TypeError, match="positional"):
        FitHook(*["8k"])  # a list, so that type checkers do not refuse it first
    assert repr(FitHook(budget="8k")) == "<FitHook budget: '8k', keep: 'newest'>"
