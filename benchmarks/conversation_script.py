"""The script of the long conversation: the user's messages, the model's replies and the tools.

It is the same each time.

The model's summaries contain none of the facts, so the model can only find them through the
summary's breadcrumb.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING

import attrs

from promptkit import Message, ToolCall, ToolDefinition
from promptkit.compaction.summarizers.summarizer import SECTIONS
from promptkit.testing.server import Delay, Rule
from promptkit.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.messages import Json
    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer

__all__ = ["FACTS", "INSTRUCTIONS", "PLANTED", "Script", "is_summary_request", "tools"]

FACTS = {"release code": "heron-4711", "staging port": "18443", "first reviewer": "Oyelaran"}
"""Facts that the user states in turn 3 and asks for in the last turn."""

PLANTED = 3
"""The turn in which the facts are stated."""

INSTRUCTIONS = "You are a coding agent. Read before you change, run the tests after every change, and say in a sentence what you found."

_BREADCRUMB = re.compile(r'kept in the transcript "([^"]+)"')
_WORDS = topics["assignment"].split()


def words(count: int, seed: int) -> str:
    """Return `count` words, the same for the same seed."""
    return " ".join(random.Random(seed).choices(_WORDS, k=count))


def is_summary_request(exchange: Exchange) -> bool:
    """Return True if a request asks for a summary, for the first time or again."""
    return exchange.purpose == "compaction"


@attrs.frozen(kw_only=True)
class Script:
    """A conversation of `turns` turns.

    A summary takes `summary_seconds`, any other reply `answer_seconds`.
    """

    turns: int
    answer_seconds: float
    summary_seconds: float

    def asks(self, turn: int) -> str:
        """Return the user's message of a turn, counted from 1."""
        if turn == PLANTED:
            return (
                "Remember this: "
                + "; ".join(f"the {name} is {value}" for name, value in FACTS.items())
                + "."
            )
        if turn == self.turns:
            return f"Last question: what are the {', the '.join(FACTS)}?"
        return f"Turn {turn}: look at module_{turn}.py and say whether {words(12, turn)}."

    def rule(self) -> Rule:
        """Return the server rule that answers summary requests."""
        return Rule(
            match=is_summary_request, answer=Delay(seconds=self.summary_seconds, answer=_summary)
        )

    def answer(self, exchange: Exchange) -> Answer:
        """Return the model's reply."""
        return Delay(seconds=self.answer_seconds, answer=self._next(exchange))

    def _next(self, exchange: Exchange) -> Answer:
        asked = max(
            at for at, message in enumerate(exchange.messages) if message.get("role") == "user"
        )
        question = str(exchange.messages[asked].get("content"))
        results = [
            str(message.get("content"))
            for message in exchange.messages[asked:]
            if message.get("role") == "tool"
        ]
        if question.startswith("Last question"):
            return self._recall(exchange, results)
        turn = int(match[1]) if (match := re.match(r"Turn (\d+):", question)) else 0
        rounds = sum(
            1 for message in exchange.messages[asked:] if message.get("role") == "assistant"
        )
        if not turn or rounds >= turn % 3:
            return f"Module {turn} is as you say. {words(20, turn + 1_000)}"
        called = [
            ToolCall(
                id="", name="read_file", arguments=f'{{"path": "module_{turn}_{rounds}_{at}.py"}}'
            )
            for at in range(1 + turn % 2)
        ]
        return Message(role="assistant", content=("I look at it.",), tool_calls=tuple(called))

    def _recall(self, exchange: Exchange, results: list[str]) -> Answer:
        """Return the facts if the request contains them.

        Otherwise search the transcript, if the summary names it.
        """
        shown = "\n".join(str(message.get("content")) for message in exchange.messages)
        place = _BREADCRUMB.search(shown)
        if results or place is None or all(value in shown for value in FACTS.values()):
            return (
                "; ".join(
                    f"the {name} is {value}" for name, value in FACTS.items() if value in shown
                )
                or "I do not know."
            )
        return [
            ToolCall(
                id="",
                name="search_file",
                arguments=f'{{"path": "{place[1]}", "text": "Remember this"}}',
            )
        ]


def _summary(exchange: Exchange) -> Answer:
    sections = "\n".join(
        f"{number}. {title}: {words(28, exchange.number + number)}"
        for number, title in enumerate(SECTIONS, 1)
    )
    return f"<analysis>{words(40, exchange.number)}</analysis>\n<summary>\n{sections}\n</summary>"


def tools() -> list[Tool]:
    """Return the tools: one that reads a file, as long as its name says, and one that really searches files."""
    path: dict[str, Json] = {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }
    both: dict[str, Json] = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
        "required": ["path", "text"],
    }
    return [
        Tool(
            definition=ToolDefinition(
                name="read_file", description="The text of a file.", parameters=path
            ),
            run=_read,
        ),
        Tool(
            definition=ToolDefinition(
                name="search_file", description="The lines with a text.", parameters=both
            ),
            run=_search,
        ),
    ]


def _read(arguments: Mapping[str, object]) -> str:
    path = str(arguments["path"])
    return f"# {path}\n{words(60, sum(path.encode()))}"


def _search(arguments: Mapping[str, object]) -> str:
    text = str(arguments["text"])
    with Path(str(arguments["path"])).open(encoding="utf-8") as lines:
        return "\n".join(line[:500] for line in lines if text in line) or "Nothing found."
