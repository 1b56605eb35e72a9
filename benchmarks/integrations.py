"""Run one conversation through real frameworks in a small context window, without promptkit and with it, and count what goes wrong.

Each turn has two long tool results. The model is promptkit's server on this machine, which refuses
requests that are too large or ill-formed. Variants: `without`, `own` (the framework's own means),
`fit` and `compaction`. A framework that is not installed here runs in its environment (see
`benchmarks.frameworks`); without one it is not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import attrs
import openai

from benchmarks.frameworks import PACKAGES, find_framework, missing_reason, run_python
from benchmarks.peers.environments import ROOT
from promptkit import ContextBudget, OpenAIModel, ToolCall, Transcript
from promptkit.compaction.summarizers.summarizer import SECTIONS
from promptkit.testing.server import Rule, serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pydantic_ai.messages import ModelMessage

    from promptkit.testing.server import Server

__all__ = [
    "FRAMEWORKS",
    "LACKING",
    "VARIANTS",
    "Figures",
    "main",
    "run_langchain",
    "run_litellm",
    "run_llama_index",
    "run_openai_agents",
    "run_pydantic_ai",
]

WINDOW = 4_000
REPLY_TOKENS = 300
TURNS = 14
VARIANTS = ("without", "own", "fit", "compaction")
INSTRUCTIONS = "You review code."
SUMMARY = (
    "<summary>"
    + "\n".join(
        f"{at}. {heading}: parts were read; all are sound so far."
        for at, heading in enumerate(SECTIONS, 1)
    )
    + "</summary>"
)
BUDGET = ContextBudget(window=WINDOW, reserved_output_tokens=REPLY_TOKENS)
CLOSED = {"Connection": "close"}
"""Headers with which clients keep no connections, so that those of several event loops need not be
closed."""


@attrs.frozen(kw_only=True)
class Figures:
    """The figures of one conversation.

    In promptkit's variants every turn is answered, and nothing is refused.
    """

    turns: int
    """Turns that were answered."""
    requests: int
    """Requests to the provider, those for summaries included."""
    overflows: int
    """Requests that the provider refused as too large."""
    invalid_requests: int
    """Requests that the provider refused as ill-formed."""
    cached_share: float
    """The share of input tokens that the provider's prompt cache had."""
    state_messages: int
    """Messages, or items, that the framework's state has at the end."""


def read_text(path: str) -> str:
    """Read a file."""
    return f"{path}: " + "def parse(text): return text.split()  # a line of code\n" * 25


async def read_file(path: str) -> str:
    """Read a file."""
    return read_text(path)


def start_server(turns: int) -> Server:
    """Start a model that reads two files in each turn and then answers."""
    script: list[str | list[ToolCall]] = []
    for turn in range(turns):
        calls = [
            ToolCall(
                id=f"{each}{turn}",
                name="read_file",
                arguments=json.dumps({"path": f"{each}{turn}.py"}),
            )
            for each in "ab"
        ]
        script += [calls, f"Part {turn} is sound."]
    return serve(
        window=WINDOW,
        script=script,
        rules=[Rule(match="(?i)summar|extract", answer=SUMMARY)],
        after=lambda _: "Done.",
    )


async def _count_turns(turns: int, ask: Callable[[str], Awaitable[object]]) -> int:
    """Return how many turns were answered before the provider refused one."""
    answered = 0
    with suppress(openai.BadRequestError):
        for turn in range(turns):
            await ask(f"Review part {turn}.")
            answered += 1
    return answered


def _read_figures(server: Server, *, turns: int, state_messages: int) -> Figures:
    stats = server.stats
    return Figures(
        turns=turns,
        requests=stats.requests,
        overflows=stats.overflows,
        invalid_requests=stats.invalid,
        cached_share=round(stats.cached_share, 3),
        state_messages=state_messages,
    )


async def run_langchain(variant: str, turns: int = TURNS, *, sync: bool = False) -> Figures:
    """Run the conversation through LangChain's `create_agent`, with its asynchronous or its synchronous calls."""
    from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]  # a part of its signature has no types
    from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
    from langchain_core.tools import StructuredTool
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver
    from pydantic import SecretStr

    from promptkit.integrations.langchain import CompactionMiddleware, FitMiddleware

    with start_server(turns) as server, openai.DefaultHttpxClient(headers=CLOSED) as client:
        async_client = openai.DefaultAsyncHttpxClient(headers=CLOSED)
        model = ChatOpenAI(
            model="gpt-4.1",
            base_url=server.url,
            api_key=SecretStr("none"),
            max_completion_tokens=REPLY_TOKENS,
            max_retries=0,
            http_client=client,
            http_async_client=async_client,
        )
        # Any stands for of any state and context
        make: Mapping[str, Callable[[], AgentMiddleware[Any, Any, Any]]] = {
            "own": lambda: SummarizationMiddleware(
                model, trigger=("tokens", 3_000), keep=("messages", 4)
            ),
            "fit": lambda: FitMiddleware(budget=BUDGET),
            "compaction": lambda: CompactionMiddleware(budget=BUDGET, summarizer=model),
        }
        agent: Any = create_agent(  # Any: a graph of any state
            model,
            tools=[StructuredTool.from_function(read_text, name="read_file")],
            system_prompt=INSTRUCTIONS,
            middleware=[make[variant]()] if variant in make else [],
            checkpointer=InMemorySaver(),
        )
        config = {"configurable": {"thread_id": "review"}}

        async def ask(text: str) -> object:
            given = {"messages": [{"role": "user", "content": text}]}
            return agent.invoke(given, config) if sync else await agent.ainvoke(given, config)

        async with async_client:
            answered = await _count_turns(turns, ask)
        return _read_figures(
            server, turns=answered, state_messages=len(agent.get_state(config).values["messages"])
        )


async def run_openai_agents(variant: str, turns: int = TURNS, *, responses: bool = True) -> Figures:
    """Run the conversation through OpenAI Agents, over the Responses API or Chat Completions."""
    from agents import (
        Agent,
        ModelSettings,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        RunConfig,
        Runner,
        function_tool,
    )
    from agents.extensions.tool_output_trimmer import ToolOutputTrimmer

    from promptkit.integrations.openai_agents import (
        TranscriptSession,
        compaction_input_filter,
        fit_input_filter,
    )

    with start_server(turns) as server:
        client, summaries = (
            openai.AsyncOpenAI(
                base_url=server.url,
                api_key="none",
                max_retries=0,
                http_client=openai.DefaultAsyncHttpxClient(headers=CLOSED),
            )
            for _ in range(2)
        )
        make: Mapping[str, Callable[[], Any]] = {  # Any: filters of the framework's own type
            "own": lambda: ToolOutputTrimmer(recent_turns=2),
            "fit": lambda: fit_input_filter(budget=BUDGET),
            "compaction": lambda: compaction_input_filter(
                budget=BUDGET, summarizer=OpenAIModel("gpt-4.1", api="chat", client=summaries)
            ),
        }
        agent = Agent[None](
            name="reviewer",
            instructions=INSTRUCTIONS,
            tools=[function_tool(read_text, name_override="read_file")],
            model=(OpenAIResponsesModel if responses else OpenAIChatCompletionsModel)(
                model="gpt-4.1", openai_client=client
            ),
            model_settings=ModelSettings(max_tokens=REPLY_TOKENS),
        )
        config = RunConfig(
            call_model_input_filter=make[variant]() if variant in make else None,
            tracing_disabled=True,
        )
        session = TranscriptSession(session_id="review", transcript=Transcript())
        async with client:
            answered = await _count_turns(
                turns, lambda text: Runner.run(agent, text, session=session, run_config=config)
            )
        return _read_figures(server, turns=answered, state_messages=len(await session.get_items()))


async def run_pydantic_ai(variant: str, turns: int = TURNS, *, responses: bool = False) -> Figures:
    """Run the conversation through pydantic-ai, over Chat Completions or the Responses API."""
    from pydantic_ai import Agent, Tool
    from pydantic_ai.exceptions import ModelContextWindowExceededError
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from promptkit.integrations.pydantic_ai import Compaction, Fit

    with start_server(turns) as server:
        client, summaries = (
            openai.AsyncOpenAI(
                base_url=server.url,
                api_key="none",
                max_retries=0,
                http_client=openai.DefaultAsyncHttpxClient(headers=CLOSED),
            )
            for _ in range(2)
        )
        make: Mapping[str, Callable[[], Fit | Compaction]] = {
            "fit": lambda: Fit(budget=BUDGET),
            "compaction": lambda: Compaction(
                budget=BUDGET, summarizer=OpenAIModel("gpt-4.1", api="chat", client=summaries)
            ),
        }
        agent = Agent(
            (OpenAIResponsesModel if responses else OpenAIChatModel)(
                "gpt-4.1", provider=OpenAIProvider(openai_client=client)
            ),
            instructions=INSTRUCTIONS,
            tools=[Tool(read_text, name="read_file")],
            capabilities=[make[variant]()] if variant in make else [],
            model_settings={"max_tokens": REPLY_TOKENS},
        )
        history: list[ModelMessage] = []

        async def ask(text: str) -> object:
            try:
                result = await agent.run(text, message_history=history)
            except ModelContextWindowExceededError as error:
                raise error.__cause__ or error from None  # the SDK's
            history[:] = result.all_messages()
            return result

        async with client:
            answered = await _count_turns(turns, ask)
        return _read_figures(server, turns=answered, state_messages=len(history))


async def run_litellm(variant: str, turns: int = TURNS, *, router: bool = True) -> Figures:
    """Run the conversation through litellm, which has no agent: the loop is the program's.

    With its `Router`, or with `acompletion`.
    """
    litellm: Any = import_module("litellm")  # Any: only in its own environment
    trim: Any = import_module("litellm.utils").trim_messages  # Any: as above

    from promptkit.integrations.litellm import FitHook

    with start_server(turns) as server:
        litellm.callbacks = [FitHook(budget=BUDGET)] if variant == "fit" else []
        place = {"model": "openai/gpt-4.1", "api_base": server.url, "api_key": "none"}
        asked = (
            litellm.Router(
                model_list=[{"model_name": "reviewer", "litellm_params": place}], num_retries=0
            )
            if router
            else litellm
        )
        own = {"model": "reviewer"} if router else place
        function = {
            "name": "read_file",
            "description": read_text.__doc__,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        }
        messages: list[dict[str, Any]] = [{"role": "system", "content": INSTRUCTIONS}]  # Any: JSON

        async def ask(text: str) -> object:
            messages.append({"role": "user", "content": text})
            while True:
                shown = (
                    trim(messages, model="gpt-4.1", max_tokens=WINDOW - REPLY_TOKENS)
                    if variant == "own"
                    else messages
                )
                answer = await asked.acompletion(
                    messages=shown,
                    tools=[{"type": "function", "function": function}],
                    max_tokens=REPLY_TOKENS,
                    **own,
                )
                reply = answer.choices[0].message
                messages.append(reply.model_dump(exclude_none=True))
                if not reply.tool_calls:
                    return reply
                messages.extend(
                    {
                        "role": "tool",
                        "tool_call_id": call.id,
                        "content": read_text(**json.loads(call.function.arguments)),
                    }
                    for call in reply.tool_calls
                )

        answered = await _count_turns(turns, ask)
        # without the system prompt
        return _read_figures(server, turns=answered, state_messages=len(messages) - 1)


async def run_llama_index(variant: str, turns: int = TURNS, *, streaming: bool = True) -> Figures:
    """Run the conversation through LlamaIndex's `FunctionAgent`."""
    core: Any = import_module("llama_index.core.agent.workflow")  # Any: only in its own environment
    memories: Any = import_module("llama_index.core.memory")  # Any: as above
    models: Any = import_module("llama_index.llms.openai")  # Any: as above

    from promptkit.integrations.llama_index import WindowMemory

    with start_server(turns) as server:
        model = models.OpenAI(
            model="gpt-4.1",
            api_base=server.url,
            api_key="none",
            max_retries=0,
            max_tokens=REPLY_TOKENS,
        )
        agent = core.FunctionAgent(
            name="reviewer",
            tools=[read_file],
            llm=model,
            system_prompt=INSTRUCTIONS,
            streaming=streaming,
            timeout=None,
        )
        make: Mapping[str, Callable[[], Any]] = {  # Any: memories of the framework's own type
            "without": lambda: memories.Memory.from_defaults(token_limit=1_000_000),
            "own": lambda: memories.Memory.from_defaults(token_limit=3_000),
            "fit": lambda: WindowMemory.from_defaults(
                llm=model, instructions=INSTRUCTIONS, tools=[read_file], budget=BUDGET
            ),
            "compaction": lambda: WindowMemory.from_defaults(
                llm=model,
                instructions=INSTRUCTIONS,
                tools=[read_file],
                budget=BUDGET,
                preset="vscode",
                summarizer=model,
            ),
        }
        memory = make[variant]()

        async def ask(text: str) -> object:
            return await agent.run(text, memory=memory)

        answered = await _count_turns(turns, ask)
        return _read_figures(server, turns=answered, state_messages=len(await memory.aget_all()))


FRAMEWORKS: Mapping[str, tuple[str, Callable[[str, int], Awaitable[Figures]]]] = {
    "langchain": ("langchain_openai", run_langchain),
    "openai-agents": ("agents", run_openai_agents),
    "pydantic-ai": ("pydantic_ai", run_pydantic_ai),
    "litellm": ("litellm", run_litellm),
    "llama-index": ("llama_index", run_llama_index),
}
"""Each framework's module, and what runs it."""
LACKING: Mapping[str, str] = {"pydantic-ai": "own", "litellm": "compaction"}
"""Framework → the variant that it lacks: pydantic-ai has no means of its own for every provider;
litellm knows no conversations."""


@attrs.frozen
class _Found:
    measured: dict[str, dict[str, Figures]]
    not_measured: dict[str, str]
    """Framework → why not."""


async def _run(names: Sequence[str], turns: int) -> _Found:
    found = _Found({}, {})
    for name in names:
        module, run = FRAMEWORKS[name]
        if find_spec(module) is not None:
            found.measured[name] = {
                variant: await run(variant, turns)
                for variant in VARIANTS
                if variant != LACKING.get(name)
            }
        elif name not in PACKAGES:
            found.not_measured[name] = f"{module} is not installed"
        elif find_framework(name).python is None:
            found.not_measured[name] = missing_reason(name)
        else:
            found.measured[name] = _run_elsewhere(name, turns)
    return found


def _run_elsewhere(name: str, turns: int) -> dict[str, Figures]:
    done = run_python(
        name, ["-m", "benchmarks.integrations", name, "--json", "--turns", str(turns)], folder=ROOT
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return {
        variant: Figures(**figures)
        for variant, figures in json.loads(done.stdout)["frameworks"][name].items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.integrations", description=__doc__)
    parser.add_argument(
        "frameworks",
        nargs="*",
        metavar="FRAMEWORK",
        default=[*FRAMEWORKS],
        help="names of frameworks (default: all)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--turns", type=int, default=TURNS, help=f"of the conversation (default {TURNS})"
    )
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.frameworks) - set(FRAMEWORKS))
    if unknown:
        parser.error(f"there is no framework {unknown[0]!r}: use {', '.join(FRAMEWORKS)}")
    found = asyncio.run(_run(asked.frameworks, max(1, asked.turns)))
    if asked.json:
        shown = {
            name: {variant: attrs.asdict(figures) for variant, figures in each.items()}
            for name, each in found.measured.items()
        }
        print(json.dumps({"frameworks": shown, "not_measured": found.not_measured}, indent=2))
        return 0
    columns = [field.name for field in attrs.fields(Figures)]
    rows = [["framework", "variant", *columns]]
    rows += [
        [name, variant, *(str(getattr(figures, column)) for column in columns)]
        for name, each in found.measured.items()
        for variant, figures in each.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print(
        "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )
    )
    print(
        "".join(
            f"{name} is not measured: {reason}.\n" for name, reason in found.not_measured.items()
        ),
        end="",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
