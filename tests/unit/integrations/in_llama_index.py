"""What `WindowMemory` promises, through the real LlamaIndex.

Runs in its environment: see `test_frameworks.py`.
"""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import openai
import pytest
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.workflow import Context, StartEvent, StopEvent, Workflow, step

from promptkit import ContextBudget, JsonlStore, ToolCall, Transcript
from promptkit.errors import ContextWindowFullError, InvalidArgumentError
from promptkit.integrations.llama_index import WindowMemory
from promptkit.testing import summary_answer
from promptkit.testing.server import Rule, Server, serve
from tests.conversations import words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Any: more of LlamaIndex than `typings` has
workflow: Any = import_module("llama_index.core.agent.workflow")
engines: Any = import_module("llama_index.core.chat_engine")  # Any: as above
models: Any = import_module("llama_index.llms.openai")  # Any: as above

BUDGET = ContextBudget(window=2_000, reserved_output_tokens=200)
PRESETS = pytest.mark.parametrize("preset", [None, "vscode"], ids=["fit", "compaction"])


def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: {words(400)}"


def talk(rounds: int, *, long: int = 400) -> list[ChatMessage]:
    """Rounds of a question, thinking with a call, its long result and an answer, and a last question."""
    messages: list[ChatMessage] = []
    for n in range(rounds):
        call = ToolCallBlock(
            tool_call_id=f"c{n}", tool_name="read_file", tool_kwargs={"path": f"{n}.py"}
        )
        messages += [
            ChatMessage(role="user", content=f"Review {n}."),
            ChatMessage(
                role="assistant",
                blocks=[ThinkingBlock(content="I read it."), call],
                additional_kwargs={"trace": n},
            ),
            ChatMessage(
                role="tool",
                content=words(long),
                additional_kwargs={"tool_call_id": f"c{n}", "place": n},
            ),
            ChatMessage(role="assistant", content=f"{n} is sound."),
        ]
    return [*messages, ChatMessage(role="user", content="And now?")]


def make(history: list[ChatMessage] | None = None, **settings: Any) -> WindowMemory:
    given: dict[str, Any] = {"budget": BUDGET, "instructions": "You review code.", **settings}
    return WindowMemory.from_defaults(chat_history=history, model="gpt-4.1", **given)


def get_async(memory: WindowMemory) -> list[ChatMessage]:
    return asyncio.run(memory.aget())


def get_sync(memory: WindowMemory) -> list[ChatMessage]:
    return memory.get()


GET = pytest.mark.parametrize("get", [get_sync, get_async], ids=["sync", "async"])


def size(messages: list[ChatMessage]) -> int:
    return sum(len(message.content or "") for message in messages)


@GET
@PRESETS
def test_a_conversation_that_fits_is_given_as_it_is(
    get: Callable[[WindowMemory], list[ChatMessage]], preset: str | None
) -> None:
    memory = make(talk(2), preset=preset)
    assert all(one is other for one, other in zip(get(memory), memory.get_all(), strict=True))


@GET
@PRESETS
def test_what_is_given_fits_with_calls_and_results_together_and_the_store_keeps_all(
    get: Callable[[WindowMemory], list[ChatMessage]], preset: str | None
) -> None:
    history = talk(8)
    memory = make(history, preset=preset)
    given = get(memory)
    assert memory.get_all() == talk(8)
    assert all(one is other for one, other in zip(memory.get_all(), history, strict=True))
    assert size(given) < size(history) / 1.5
    called = [
        block.tool_call_id
        for message in given
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]
    assert called == [
        message.additional_kwargs["tool_call_id"] for message in given if message.role == "tool"
    ]
    assert given[-1] is history[-1]
    assert get(memory) == given


def test_a_shortened_message_keeps_its_other_fields_and_blocks() -> None:
    history = talk(1, long=5_000)
    history[1].blocks.insert(0, TextBlock(text=words(5_000)))
    given = {message.role: message for message in make(history, keep="oldest").get()[:-2]}
    asked, result = given[history[1].role], given[history[2].role]
    assert result.additional_kwargs == history[2].additional_kwargs
    assert 0 < len(result.content or "") < len(history[2].content or "")
    assert asked.additional_kwargs == {"trace": 0}
    assert asked.blocks[1] == history[1].blocks[1]
    (call,) = (block for block in asked.blocks if isinstance(block, ToolCallBlock))
    # shortened as well, as it was counted
    assert (call.tool_call_id, call.tool_kwargs) == ("c0", {"path": "[…]"})
    assert len(asked.content or "") < len(history[1].content or "")


def test_calls_that_an_integration_keeps_beside_the_blocks_stay_with_their_results() -> None:
    history = talk(8)
    for n in range(8):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "read_file", "arguments": "{}"},
        }
        history[4 * n + 1] = ChatMessage(
            role="assistant", content="", additional_kwargs={"tool_calls": [call]}
        )
    history[1].blocks = [TextBlock(text=words(5_000))]
    given = make(history, keep="oldest").get()
    assert 0 < len(given[1].content or "") < len(words(5_000))
    assert given[1].additional_kwargs == history[1].additional_kwargs
    called = [
        call["id"] for message in given for call in message.additional_kwargs.get("tool_calls", ())
    ]
    assert called
    assert called == [
        message.additional_kwargs["tool_call_id"] for message in given if message.role == "tool"
    ]


@PRESETS
@pytest.mark.parametrize("rounds", [3, 12])
@pytest.mark.parametrize("beside", [False, True])
def test_ids_of_calls_that_a_server_uses_again_stay_those_of_their_results(
    preset: str | None, rounds: int, beside: bool
) -> None:
    history = talk(rounds, long=50 if rounds == 3 else 400)
    for n in range(rounds):
        asked, result = history[4 * n + 1], history[4 * n + 2]
        result.additional_kwargs["tool_call_id"] = "call_0"
        if beside:
            call = {
                "id": "call_0",
                "type": "function",
                "function": {"name": "read_file", "arguments": "{}"},
            }
            asked.blocks, asked.additional_kwargs = [], {"tool_calls": [call]}
        else:
            asked.blocks = [
                ToolCallBlock(
                    tool_call_id="call_0", tool_name="read_file", tool_kwargs={"path": str(n)}
                )
            ]
    given = make(history, preset=preset).get()
    called = [
        block.tool_call_id
        for message in given
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]
    called += [
        call["id"] for message in given for call in message.additional_kwargs.get("tool_calls", ())
    ]
    assert len(set(called)) == len(called)
    assert called or rounds > 3  # they may be summarized
    assert called == [
        message.additional_kwargs["tool_call_id"] for message in given if message.role == "tool"
    ]


def test_instructions_and_tools_count() -> None:
    def describe(path: str) -> str:
        return path

    describe.__doc__ = words(500)
    plain = size(make(talk(8)).get())
    assert size(make(talk(8), instructions=words(500)).get()) < plain - 500
    assert size(make(talk(8), tools=[describe]).get()) < plain - 500


def script(turns: int) -> list[str | list[ToolCall]]:
    steps: list[str | list[ToolCall]] = []
    for turn in range(turns):
        arguments = json.dumps({"path": f"{turn}.py"})
        steps += [
            [ToolCall(id=f"c{turn}", name="read_file", arguments=arguments)],
            f"Part {turn} is sound.",
        ]
    return steps


def agent_for(server: Server, **settings: Any) -> Any:  # Any: a FunctionAgent
    llm = models.OpenAI(
        model="gpt-4.1", api_base=server.url, api_key="none", max_retries=0, max_tokens=200
    )
    return workflow.FunctionAgent(
        name="reviewer",
        tools=[read_file],
        llm=llm,
        system_prompt="You review code.",
        timeout=None,
        **settings,
    )


@PRESETS
@pytest.mark.parametrize("streaming", [True, False])
def test_an_agent_survives_many_turns_in_a_small_window(
    preset: str | None, streaming: bool
) -> None:
    with serve(
        window=3_000,
        script=script(10),
        rules=[Rule(match="(?i)summar", answer=summary_answer("Every part so far is sound."))],
    ) as server:
        agent = agent_for(server, streaming=streaming)
        budget = ContextBudget(window=3_000, reserved_output_tokens=200)
        memory = make(
            tools=[read_file],
            budget=budget,
            preset=preset,
            summarizer=agent.llm if preset else None,
        )

        async def run() -> None:
            for turn in range(10):
                answer = await agent.run(f"Review part {turn}.", memory=memory)
                assert str(answer) == f"Part {turn} is sound."

        asyncio.run(run())
        assert server.stats.overflows == server.stats.invalid == 0
        assert (server.stats.requests > 20) is (preset is not None)
    assert [message.role for message in memory.get_all()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ] * 10


@PRESETS
def test_one_long_turn_fits_too(preset: str | None) -> None:
    steps = [
        ToolCall(id=f"c{n}", name="read_file", arguments=json.dumps({"path": f"{n}.py"}))
        for n in range(10)
    ]
    with serve(window=2_000, script=[*steps, "All is sound."]) as server:
        agent, memory = agent_for(server), make(tools=[read_file], preset=preset)

        async def run() -> object:
            return await agent.run("Review all parts.", memory=memory, max_iterations=50)

        assert str(asyncio.run(run())) == "All is sound."
        assert server.stats.overflows == server.stats.invalid == 0
    assert [message.role for message in memory.get_all()] == [
        "user",
        *["assistant", "tool"] * 10,
        "assistant",
    ]


@PRESETS
def test_after_a_refusal_the_same_turn_goes_on_with_a_smaller_request(preset: str | None) -> None:
    large = ContextBudget(window=8_000, reserved_output_tokens=200)
    with serve(window=2_000, script=script(8)) as server:
        agent, memory = agent_for(server), make(budget=large, tools=[read_file], preset=preset)

        async def run() -> None:
            for turn in range(8):
                try:
                    await agent.run(f"Review part {turn}.", memory=memory)
                except openai.BadRequestError as error:
                    if not await memory.arecover(error):
                        raise
                    await agent.run(chat_history=memory.get_all(), memory=memory)

        asyncio.run(run())
        assert (server.stats.overflows, server.stats.invalid) == (1, 0)
    assert [message.role for message in memory.get_all()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ] * 8


@PRESETS
def test_other_errors_are_no_refusals(preset: str | None) -> None:
    memory = make(talk(8), preset=preset)
    assert not memory.recover(RuntimeError("no"))
    before = memory.get()
    assert not memory.recover(RuntimeError("no"))
    assert memory.get() == before


def test_a_chat_engine_takes_the_memory_synchronously_too() -> None:
    with serve(window=2_000, after=lambda _: words(300)) as server:
        llm = models.OpenAI(
            model="gpt-4.1", api_base=server.url, api_key="none", max_retries=0, max_tokens=200
        )
        memory = make()
        engine = engines.SimpleChatEngine.from_defaults(
            llm=llm, memory=memory, system_prompt="You review code."
        )
        for turn in range(8):
            engine.chat(f"Review part {turn}.")
        assert (server.stats.answered, server.stats.overflows) == (8, 0)
    assert len(memory.get_all()) == 16


def test_the_window_is_what_promptkit_or_llama_index_knows_of_the_model() -> None:
    known = WindowMemory.from_defaults(
        chat_history=talk(8), llm=models.OpenAI(model="gpt-4.1", api_key="none")
    )
    assert len(known.get()) == len(talk(8))
    core: Any = import_module("llama_index.core.llms")
    unknown = core.MockLLM()
    assert unknown.metadata.context_window < 4_000
    assert size(WindowMemory.from_defaults(chat_history=talk(16), llm=unknown).get()) < size(
        talk(10)
    )


def test_a_copy_with_another_key_is_the_memory_of_another_conversation() -> None:
    transcripts: dict[str, Transcript] = {}

    def open_transcript(key: str) -> Transcript:
        return transcripts.setdefault(key, Transcript())

    memory = make(talk(8), preset="vscode", transcripts=open_transcript)
    other = memory.model_copy(update={"chat_store_key": "b"})
    other.put(ChatMessage(role="user", content="Hello."))
    assert other.get() == [ChatMessage(role="user", content="Hello.")]
    assert size(memory.get()) < size(talk(8))
    assert [*transcripts] == ["b", "chat_history"]


def test_summaries_survive_a_restart(tmp_path: Path) -> None:
    def open_transcript(key: str) -> Transcript:
        return Transcript(JsonlStore(tmp_path / f"{key}.jsonl"))

    first = make(talk(8), preset="vscode", transcripts=open_transcript).get()
    assert make(talk(8), preset="vscode", transcripts=open_transcript).get() == first


def test_a_summarizer_without_a_preset_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="preset="):
        make(transcripts=Transcript)
    with pytest.raises(InvalidArgumentError, match="max_threads"):
        make(preset="vscode", max_threads=0)


def test_what_cannot_fit_is_an_error() -> None:
    with pytest.raises(ContextWindowFullError):
        make(
            [ChatMessage(role="user", content=words(50_000))],
            preset="vscode",
            instructions=words(1_900),
        ).get()


def test_blocks_of_all_kinds_are_read_and_kept() -> None:
    types: Any = import_module("llama_index.core.base.llms.types")
    cited = types.CitableBlock(title="t", source="s", content=[TextBlock(text=words(3_000))])
    blocks = [
        TextBlock(text="Look."),
        types.ImageBlock(url="https://example.com/a.png"),
        types.ImageBlock(image=b"aGVsbG8=", image_mimetype="image/png"),
        types.AudioBlock(audio=b"aGVsbG8=", format="wav"),
        types.CachePoint(cache_control=types.CacheControl(type="ephemeral")),
    ]
    memory = make([*talk(2), ChatMessage(role="user", blocks=blocks)], budget=10_000)
    assert memory.get()[-1] is memory.get_all()[-1]
    (given,) = make([ChatMessage(role="user", blocks=[cited])]).get()
    assert 0 < len(given.content or "") < len(words(3_000))


def test_what_a_program_keeps_under_the_name_of_the_scratchpad_stays() -> None:
    memory = make(talk(1))

    class Program(Workflow):
        @step
        async def read_memory(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("scratchpad", ["a note"])
            given = await memory.aget()
            return StopEvent(result=(len(given), await ctx.store.get("scratchpad")))

    async def run() -> Any:
        return await Program().run()

    assert asyncio.run(run()) == (len(talk(1)), ["a note"])


def test_the_summarizer_is_given_the_agents_tools() -> None:
    with serve(
        window=3_000,
        script=script(10),
        rules=[Rule(match="(?i)summar", answer=summary_answer("Every part so far is sound."))],
    ) as server:
        agent = agent_for(server)
        budget = ContextBudget(window=3_000, reserved_output_tokens=200)
        memory = make(tools=[read_file], budget=budget, preset="vscode", summarizer=agent.llm)

        async def run() -> None:
            for turn in range(10):
                await agent.run(f"Review part {turn}.", memory=memory)

        asyncio.run(run())
        first = server.requests[0].body["tools"]
        summaries = [exchange for exchange in server.requests if "summar" in exchange.text.lower()]
        assert summaries
        assert any(exchange.body.get("tools") == first for exchange in summaries)


def test_a_wrong_argument_is_refused_at_once_and_the_memory_is_shown_in_a_line() -> None:
    with pytest.raises(InvalidArgumentError, match="truncate_only"):
        WindowMemory.from_defaults(preset="vscod")
    with pytest.raises(InvalidArgumentError, match="use 8000, 8k or 1m"):
        WindowMemory.from_defaults(budget="8q")
    shown = repr(make(talk(8), budget="8k"))
    assert shown == "<WindowMemory key: 'chat_history', model: 'gpt-4.1', budget: '8k'>"
