"""The demo: a recorded agent conversation, and the prompt of its next turn."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING

import attrs

from promptkit import Message, PromptElement, ToolCall
from promptkit_components.agent_prompt import AgentPrompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Demo", "load_demo", "messages_from_jsonl", "messages_to_jsonl"]

INSTRUCTIONS = (
    "You are a coding agent. You read before you change, you run the tests after every change, "
    "and you say in a sentence or two what you found and what you did."
)
QUERY = "Good. Which files did we touch in all, and what is left to do?"
REMINDER = "Answer in at most five sentences, with paths."


@attrs.frozen(kw_only=True)
class Demo:
    """A conversation, the prompt for its next turn, and budgets to try."""

    title: str
    """The title, one line."""

    conversation: tuple[Message, ...]
    """The messages, in order."""

    budgets: tuple[int, ...]
    """The budgets in tokens, from large to small."""

    @property
    def prompt(self) -> PromptElement:
        """The prompt after the whole conversation."""
        return self.prompt_after(len(self.conversation))

    def prompt_after(self, messages: int) -> PromptElement:
        """Return the prompt after the given number of messages of the conversation."""
        return AgentPrompt(
            instructions=INSTRUCTIONS,
            history=self.conversation[:messages],
            query=QUERY,
            reminder=REMINDER,
        )


def load_demo() -> Demo:
    """Load the demo: a scripted agent works on promptkit's own code (recorded by `benchmarks/maintenance/record_demo.py`)."""
    lines = (
        files("promptkit_components")
        .joinpath("demo.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    return Demo(
        title="A coding agent at work on promptkit's own code",
        conversation=tuple(messages_from_jsonl(lines)),
        budgets=(16_000, 8_000, 4_000, 1_000),
    )


def messages_from_jsonl(lines: Iterable[str]) -> Iterator[Message]:
    """Read messages from JSON lines in the format of OpenAI chat messages, as `messages_to_jsonl` writes them."""
    for line in lines:
        data = json.loads(line)
        yield Message(
            role=data["role"],
            content=(data["content"],) if data["content"] else (),
            tool_calls=tuple(
                ToolCall(
                    id=call["id"],
                    name=call["function"]["name"],
                    arguments=call["function"]["arguments"],
                )
                for call in data.get("tool_calls", ())
            ),
            tool_call_id=data.get("tool_call_id"),
        )


def messages_to_jsonl(messages: Iterable[Message]) -> Iterator[str]:
    """Write one JSON line per message, in the format of OpenAI chat messages.

    Only text and tool calls are written.
    """
    for message in messages:
        data: dict[str, object] = {"role": message.role, "content": message.text}
        if message.tool_calls:
            data["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            data["tool_call_id"] = message.tool_call_id
        yield json.dumps(data, ensure_ascii=False)
