"""A session with a scripted model, a window of a thousand words, and a record of what was told of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from promptkit import ToolCall, ToolDefinition
from promptkit.agent.session.session import AgentSession
from promptkit.compaction import Events
from promptkit.errors import (
    ContextLengthExceededError,
)
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from promptkit.transcript.log.entries import Checkpoint
from tests.unit.compaction.summarizers.writers import Recorder, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.agent.window.prompt import Prompt
    from promptkit.testing.scripted_model import Step
    from promptkit.tools import ToolOutput
    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.transcript import Transcript

__all__ = [
    "READ",
    "Held",
    "calls",
    "checkpoints",
    "held",
    "overflow",
    "reads",
    "said",
    "turn_and_rest",
]


READ = ToolDefinition(name="read")


async def reads(arguments: Mapping[str, object]) -> ToolOutput:
    return f"text of {arguments.get('path', '?')}"


@attrs.define
class Held:
    """A session with a scripted model, and what was told of it."""

    session: AgentSession
    model: ScriptedModel
    told: Recorder
    writer: Writer

    def sent(self, number: int) -> list[str]:
        """The messages of a request, counted from 0; calls by the name of the tool."""
        return [
            message.text or "+".join(call.name for call in message.tool_calls)
            for message in self.model.requests[number].messages
        ]


def held(
    *steps: Step,
    transcript: Transcript | None = None,
    budget: ContextBudget | None = None,
    prompt: Prompt | None = None,
    tools: Sequence[Tool] = (Tool(definition=READ, run=reads),),
    enabled: bool = True,
    max_steps: int = 100,
) -> Held:
    model, told, writer = ScriptedModel(steps), Recorder(), Writer()
    session = AgentSession(
        model=model,
        transcript=transcript,
        instructions=None if prompt else "Be brief.",
        prompt=prompt,
        tools=tools,
        budget=budget or ContextBudget(window=1_000, reserved_output_tokens=0),
        summarizer=writer,
        tokenizer=WordTokenizer(),
        events=Events(told),
        enabled=enabled,
        max_steps=max_steps,
        rng=lambda: 0.5,
    )
    return Held(session, model, told, writer)


def calls(*numbers: int, path: str = "a") -> list[ToolCall]:
    return [
        ToolCall(id=f"c{number}", name="read", arguments=f'{{"path": "{path}{number}"}}')
        for number in numbers
    ]


def said(session: AgentSession) -> list[str]:
    return [
        f"{message.role}: {message.text}"
        for entry in session.transcript.path()
        if (message := entry.message)
    ]


def checkpoints(session: AgentSession) -> list[Entry]:
    return [entry for entry in session.transcript.path() if isinstance(entry.payload, Checkpoint)]


async def turn_and_rest(each: Held, text: str) -> str:
    """A turn, and a moment for what goes on beside the conversation."""
    done = (await each.session.run(text)).text
    for _ in range(4):
        await asyncio.sleep(0)
    return done


def overflow(window: int | None = None) -> ContextLengthExceededError:
    error = ContextLengthExceededError("too large")
    error.window = window
    return error
