"""The scripted model of `promptkit chat`, for use without an API key.

It calls the file tools by fixed rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import takewhile
from operator import eq

from promptkit import Message, ToolCall, ToolDefinition, Usage
from promptkit.cli.output.terminal import count_nouns
from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.planning.breadcrumb import BREADCRUMB_LOCATION
from promptkit.providers import Reply
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import Tokenizer

SCRIPTED = "scripted"
"""The name of the scripted model in transcripts."""

FILE_NAME = re.compile(r"[\w./-]*\w\.\w+|/?[\w.-]+(?:/[\w.-]+)+/?|\w[\w.-]*/")
SEARCH = re.compile(
    r"\b(?:search|find|grep)\b(?:\s+for)?\s+(?:[\"'“](.+?)[\"'”]|(\S+))", re.IGNORECASE
)
LOOK_UP = re.compile(r"\blook\s+up\s+(?:[\"'“](.+?)[\"'”]|(\S+))", re.IGNORECASE)
LIST = re.compile(r"\b(?:list|ls|files|folder|directory)\b", re.IGNORECASE)

MAX_FILES = 4
"""Files that are read in one turn."""

MAX_QUOTED_LINES, MAX_QUOTED_CHARACTERS = 3, 70
"""Lines of a tool result that the reply quotes, and characters of each."""


class ScriptedChatModel:
    """A model whose replies follow from the last messages by fixed rules.

    The same conversation gives the same replies.

    `tokenizer` counts the usage. The leading messages that are the same as in the last request
    count as cached, as in a provider's prompt cache.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.name = SCRIPTED
        self._sizer = Sizer(tokenizer)
        self._last: tuple[Message, ...] = ()

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Return tool calls for the files that the user's message names, or a reply that describes the tool results."""
        calls = _plan_calls(messages)
        message = (
            Message(role="assistant", tool_calls=calls)
            if calls
            else Message(role="assistant", content=(_answer(messages),))
        )
        return Reply(
            message=message,
            usage=self._usage(messages, tools, message),
            finish="tool_calls" if calls else "stop",
        )

    def _usage(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], answer: Message
    ) -> Usage:
        same = sum(takewhile(bool, map(eq, self._last, messages)))
        self._last = tuple(messages)
        overhead = self._sizer.tokenizer.count_overhead(
            tools,
            system=next((message.text for message in messages if message.role == "system"), False),
        ).tokens
        sizes = [self._sizer.count_message(message) for message in messages]
        return Usage(
            input_tokens=overhead + sum(sizes),
            output_tokens=self._sizer.count_message(answer),
            cached_tokens=overhead + sum(sizes[:same]) if same else 0,
        )


def _plan_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    last = messages[-1]
    if last.role != "user":
        return ()
    text = last.text
    planned: list[tuple[str, dict[str, str]]]
    if found := LOOK_UP.search(text):
        place = _transcript_file(messages)
        planned = [("search", {"text": found[1] or found[2], "path": place})] if place else []
    elif found := SEARCH.search(text):
        planned = [("search", {"text": (found[1] or found[2]).rstrip("?!.,;")})]
    else:
        planned = [
            ("list_files" if name.endswith("/") else "read_file", {"path": name})
            for name in dict.fromkeys(FILE_NAME.findall(text))
        ][:MAX_FILES] or ([("list_files", {})] if LIST.search(text) else [])
    asked = sum(message.role == "user" for message in messages)
    return tuple(
        ToolCall(
            id=f"call_{len(messages)}_{asked}_{at}", name=name, arguments=json.dumps(arguments)
        )
        for at, (name, arguments) in enumerate(planned)
    )


def _transcript_file(messages: Sequence[Message]) -> str | None:
    """Return the transcript file that the breadcrumb of a summary names."""
    for message in messages:
        if found := BREADCRUMB_LOCATION.search(extract_summary_text(message) or ""):
            place: str = json.loads(found[1])
            return place
    return None


def _answer(messages: Sequence[Message]) -> str:
    results = [*takewhile(lambda message: message.role == "tool", reversed(messages))][::-1]
    if results:
        calls = {call.id: call for call in messages[-len(results) - 1].tool_calls}
        return "\n\n".join(
            _describe_result(calls.get(message.tool_call_id or ""), message.text)
            for message in results
        )
    if LOOK_UP.search(messages[-1].text):
        return "There is no summary yet, so there is nothing to look up: all messages are in my context window."
    summary = (
        ", one of them a summary"
        if any(extract_summary_text(message) is not None for message in messages)
        else ""
    )
    return (
        f"I am a scripted model: I can only list, read and search files. I received {len(messages)} messages{summary}. "
        'Try "list the files", "read README.md" or "search for TODO". After a summary, "look up WORD" searches the messages it replaced.'
    )


def _describe_result(call: ToolCall | None, text: str) -> str:
    what = "The search" if call else "The call"
    if call and call.name != "search":
        what = str(json.loads(call.arguments).get("path", "The folder"))
    if text.startswith("Error: "):
        return f"{what}: that failed. {text.removeprefix('Error: ')}"
    lines = text.splitlines()
    quoted = [line.strip() for line in lines if line.strip()][:MAX_QUOTED_LINES]
    begin = ", which begin with" if len(lines) > len(quoted) else ""
    return f"{what} gave {count_nouns(len(lines), 'line')}{begin}:\n\n" + "\n".join(
        f"    {line[:MAX_QUOTED_CHARACTERS].rstrip()}" for line in quoted
    )
