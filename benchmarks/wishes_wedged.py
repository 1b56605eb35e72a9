"""Hold sessions with one oversized turn each, of 20 kinds, over both APIs, and count those that could not go on."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anthropic
import attrs
import openai

from promptkit import AgentSession, ContextBudget, Message, ToolCall, ToolDefinition
from promptkit.errors import PromptKitError
from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.providers import AnthropicModel, OpenAIModel
from promptkit.testing import summary_answer
from promptkit.testing.server import HttpAnswer, ScriptedReply, serve
from promptkit.tools import Tool, ToolResult
from promptkit.transcript import JsonlStore, Transcript

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.messages import Part
    from promptkit.providers import Model
    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer

__all__ = ["KINDS", "count_wedged", "hold", "main"]

WINDOW = 16_000
"""The context window of the server, in tokens."""

REPLY_TOKENS = 1_000
CLIENT_SECONDS = 30.0
MODELS = {"openai": "gpt-4.1", "anthropic": "claude-sonnet-4-6"}
"""The model of each API."""

SMALLER = 7_000
"""The tokens that a smaller model's window has in the kind `smaller`."""

TROUBLE = "Now the large thing."
"""The message that begins the oversized turn."""

QUESTIONS = ("What is the parser?", "And the lexer?", "Which is older?")
"""Ordinary turns before the oversized one."""

AFTER = ("Go on.", "Thank you. Is anything left?")
"""Ordinary turns after it, each of which must be answered."""


def _words(count: int, seed: object = 0) -> str:
    chosen = random.Random(str(seed))
    return " ".join("".join(chosen.choices("abcdefgh", k=5)) for _ in range(count))


def _picture(size: int = 60_000, seed: int = 0) -> ImagePart:
    data = base64.b64encode(random.Random(seed).randbytes(size)).decode()
    return ImagePart(url=f"data:image/png;base64,{data}", width=800, height=600)


def _document(size: int, tokens: int) -> DocumentPart:
    data = base64.b64encode(b"%PDF-1.4" + bytes(size)).decode()
    return DocumentPart(data=data, media_type="application/pdf", name="plan.pdf", tokens=tokens)


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of oversized turn."""

    content: Sequence[Part] = (TROUBLE,)
    """The user's message."""
    rounds: Sequence[Sequence[str]] = ()
    """The tool calls of each reply in that turn: the argument of each."""
    result: Callable[[int], str | Sequence[Part]] = lambda at: _words(10, at)
    """Takes the number of a call, and returns its result."""
    reply: Message | None = None
    """The last reply of the turn. None: a short one."""
    finish: str | None = None
    """Why that reply ended, if not because it was whole."""
    thinking: str = ""
    """Thinking before each reply with tool calls, over Anthropic's API."""
    max_bytes: int | None = None
    """The most bytes that the server accepts. None: no limit."""
    max_pictures: int | None = None
    """The most pictures that the server accepts in one request."""
    summaries: bool = True
    """False: the server has no good summary in the oversized turn."""
    budget: int = WINDOW
    """The window that the session believes in, in tokens."""
    tools: int = 0
    """Further tools, of some 100 tokens each."""
    smaller: bool = False
    """Switch the session to a smaller window behind the oversized turn."""
    killed: bool = False
    """Start the program anew before the results of the last calls are there."""


def _call_each(count: int, size: int = 1) -> tuple[tuple[str, ...], ...]:
    """One call in each of many replies."""
    return tuple((_words(size, at),) for at in range(count))


KINDS: Mapping[str, Kind] = {
    "one_result": Kind(rounds=_call_each(1), result=lambda at: _words(60_000, at)),
    "parallel_results": Kind(rounds=[["x"] * 8], result=lambda at: _words(9_000, at)),
    "many_small_results": Kind(rounds=[["x"] * 90], result=lambda at: _words(300, at)),
    "long_turn": Kind(rounds=_call_each(40), result=lambda at: _words(600, at)),
    "user_message": Kind(content=(TROUBLE, _words(40_000))),
    "call_arguments": Kind(rounds=_call_each(1, 9_000)),
    "reply_cut": Kind(
        reply=Message(role="assistant", content=_words(900)), rounds=_call_each(2), finish="length"
    ),
    "no_spaces": Kind(rounds=_call_each(2), result=lambda at: f"{at}" + "QUFB" * 60_000),
    "other_scripts": Kind(
        rounds=_call_each(2), result=lambda at: f"{at}" + "漢字🙂ひらがな" * 9_000
    ),
    "pictures_of_tools": Kind(
        rounds=_call_each(30), result=lambda at: ("shot", _picture(2_000, at))
    ),
    "pictures_over_the_bytes": Kind(
        rounds=_call_each(20),
        result=lambda at: ("shot", _picture(60_000, at)),
        max_bytes=600_000,
        budget=WINDOW,
    ),
    "pictures_over_the_number": Kind(
        rounds=_call_each(140),
        result=lambda at: (_picture(90, at),),
        max_pictures=100,
        budget=WINDOW,
    ),
    "picture_of_the_user": Kind(content=(TROUBLE, _picture(600_000)), max_bytes=500_000),
    "document": Kind(content=(TROUBLE, _document(900_000, 40_000))),
    "no_summaries": Kind(rounds=_call_each(20), result=lambda at: _words(900, at), summaries=False),
    "window_unknown": Kind(
        rounds=_call_each(20), result=lambda at: _words(900, at), budget=200_000
    ),
    "smaller": Kind(rounds=_call_each(8), result=lambda at: _words(900, at), smaller=True),
    "many_tools": Kind(rounds=[["x"] * 6], result=lambda at: _words(4_000, at), tools=60),
    "killed": Kind(rounds=[["x"] * 6], result=lambda at: _words(9_000, at), killed=True),
    "reasoning": Kind(
        rounds=_call_each(24), result=lambda at: _words(200, at), thinking=_words(300)
    ),
}
"""The kinds of oversized turns."""


class _Server:
    """The model behind the server: it calls what the kind says in the oversized turn, and answers every other one."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.rounds = list(kind.rounds)
        self.numbers = 0
        self.in_trouble = False
        self.replied = False
        self.started = asyncio.Event()
        """Set when a tool that never ends has begun."""

    def answer(self, exchange: Exchange) -> Answer:
        kind = self.kind
        pictures = exchange.raw.count(b'"image_url"') // 2 + exchange.raw.count(b'"type": "base64"')
        too_many = kind.max_pictures is not None and pictures > kind.max_pictures
        if too_many or (kind.max_bytes is not None and len(exchange.raw) > kind.max_bytes):
            return HttpAnswer(status=413, body="<h1>413 Request Entity Too Large</h1>")
        if exchange.purpose == "compaction":
            return summary_answer(_words(120)) if kind.summaries or not self.in_trouble else "No."
        if not self.in_trouble:
            return f"Fine. {_words(60, exchange.number)}"
        if self.rounds:
            texts = self.rounds.pop(0)
            self.numbers += len(texts)
            calls = [
                ToolCall(id="", name="look", arguments=json.dumps({"text": text})) for text in texts
            ]
            thought = {"type": "thinking", "thinking": kind.thinking}
            content = [OpaquePart(value=thought, provider="anthropic")] if kind.thinking else []
            return Message(role="assistant", content=content, tool_calls=calls)
        if kind.reply is not None and not self.replied:
            self.replied = kind.finish is None
            return ScriptedReply(message=kind.reply, finish=kind.finish)
        return "Done."


async def hold(name: str, api: str = "openai") -> str:
    """Hold a session with an oversized turn of a kind, and return what became of it.

    Returns:
        `fine`; `refused: …` if the oversized turn ended with an error, and the session went on; or
        `wedged: …` if an ordinary turn after it was not answered, or a request was ill-formed.
    """
    kind = KINDS[name]
    behind = _Server(kind)
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(window=WINDOW, after=behind.answer) as server,
    ):
        async with (
            openai.AsyncOpenAI(
                base_url=server.url, api_key="none", max_retries=0, timeout=CLIENT_SECONDS
            ) as chat,
            anthropic.AsyncAnthropic(
                base_url=server.anthropic_url, api_key="none", max_retries=0, timeout=CLIENT_SECONDS
            ) as messages,
        ):
            model: Model = (
                OpenAIModel(MODELS[api], api="chat", client=chat)
                if api == "openai"
                else AnthropicModel(MODELS[api], client=messages)
            )
            outcome = await _converse(kind, behind, model, Path(folder) / "talk.jsonl")
        problems = [exchange.problem for exchange in server.requests if exchange.problem]
    return f"wedged: {problems[0]}" if problems else outcome


async def _converse(kind: Kind, behind: _Server, model: Model, file: Path) -> str:
    session = _open(kind, behind, model, file)
    for question in QUESTIONS:
        await session.run(question)
    behind.in_trouble, outcome = True, "fine"
    try:
        if kind.killed:
            session = await _kill(session, kind, behind, model, file)
        else:
            await session.run(kind.content)
    except PromptKitError as error:
        outcome = f"refused: {error}"
    behind.in_trouble = False
    if kind.smaller:
        session.set_model(model, budget=_budget(SMALLER))
    try:
        for text in AFTER:
            await session.run(text)
    except PromptKitError as error:
        outcome = f"wedged: {error}"
    await session.close()
    return outcome


def _budget(window: int) -> ContextBudget:
    return ContextBudget(window=window, reserved_output_tokens=REPLY_TOKENS)


def _open(kind: Kind, behind: _Server, model: Model, file: Path) -> AgentSession:
    async def look(_: Mapping[str, object]) -> ToolResult:
        if kind.killed and not behind.started.is_set():
            behind.started.set()
            await asyncio.Event().wait()
        return ToolResult(kind.result(next(numbers)))

    numbers = iter(range(10_000))
    definition = ToolDefinition(
        name="look",
        description="Look at something.",
        parameters={"type": "object", "properties": {"text": {"type": "string"}}},
    )
    others = [
        Tool(
            definition=attrs.evolve(definition, name=f"other_{at}", description=_words(30, at)),
            run=lambda _: "",
        )
        for at in range(kind.tools)
    ]
    return AgentSession(
        model=model,
        transcript=Transcript(JsonlStore(file)),
        instructions="You are a coding agent.",
        tools=[
            Tool(definition=definition, run=look),
            *others,
        ],
        budget=_budget(kind.budget),
        max_steps=200,
        rng=lambda: 0.5,
    )


async def _kill(
    session: AgentSession, kind: Kind, behind: _Server, model: Model, file: Path
) -> AgentSession:
    """End the program while tools run, and start it again."""
    turn = asyncio.ensure_future(session.run(kind.content))
    await behind.started.wait()
    turn.cancel()
    await asyncio.wait([turn])
    await session.close()
    again = _open(kind, behind, model, file)
    await again.resume()
    return again


async def _hold_all(names: Sequence[str]) -> dict[str, str]:
    return {f"{name} ({api})": await hold(name, api) for name in names for api in MODELS}


def count_wedged(names: Sequence[str] = tuple(KINDS)) -> int:
    """Hold a session of each kind over each API, and count those that could not go on."""
    outcomes = asyncio.run(_hold_all(names))
    return sum(outcome.startswith("wedged") for outcome in outcomes.values())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what became of each session."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wishes_wedged", description=__doc__)
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", help=f"all by default: {', '.join(KINDS)}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.kinds if name not in KINDS]
    if unknown:
        parser.error(f"there is no kind {unknown[0]!r}: choose from {', '.join(KINDS)}")
    outcomes = asyncio.run(_hold_all(options.kinds or list(KINDS)))
    wedged = sum(outcome.startswith("wedged") for outcome in outcomes.values())
    if options.json:
        print(json.dumps({"sessions": len(outcomes), "wedged": wedged, "outcomes": outcomes}))
    else:
        for name, outcome in outcomes.items():
            print(f"{name:<40} {outcome:.100}")
        print(f"{wedged} of {len(outcomes)} sessions could not go on")
    sys.exit(bool(wedged))


if __name__ == "__main__":
    main()
