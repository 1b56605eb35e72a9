"""What answers in `promptkit chat` where there is no key: a script that calls the file tools as a model would, and says that it is one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.messages import Message, ToolCall, Usage
from promptkit.providers.model import Reply
from promptkit.rendering.sizing import Sizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import ToolDefinition
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["SCRIPTED", "ScriptedChatModel"]

SCRIPTED = "scripted"
"""Its name, as transcripts have it."""

FILE_NAME = re.compile(r"[\w./-]*\w\.\w+|/?[\w.-]+(?:/[\w.-]+)+/?|\w[\w.-]*/")
SEARCH = re.compile(r"\b(?:search|find|grep)\b(?:\s+for)?\s+(?:[\"'“](.+?)[\"'”]|(\S+))", re.IGNORECASE)
LOOK_UP = re.compile(r"\blook\s+up\s+(?:[\"'“](.+?)[\"'”]|(\S+))", re.IGNORECASE)
LIST = re.compile(r"\b(?:list|ls|files|folder|directory)\b", re.IGNORECASE)
BREADCRUMB_FILE = re.compile(r'is kept in the transcript ("(?:[^"\\]|\\.)*")')

MAX_FILES = 4
"""Files that are read at once."""

MAX_QUOTED_LINES, MAX_QUOTED_CHARACTERS = 3, 70
"""Lines of a result that are repeated, and characters of each."""


class ScriptedChatModel:
    """A model in form only: what it answers follows from the last messages by rule, the same for the same conversation.

    Its usage is counted by `tokenizer`; of the input the messages that its last request began with are cached, as a provider's prompt
    cache would have them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.name = SCRIPTED
        self._sizer = Sizer(tokenizer)
        self._last: tuple[Message, ...] = ()

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> Reply:
        """Calls for the files that the last message names, else a few words on what the calls came to."""
        calls = _calls(messages)
        message = Message(role="assistant", tool_calls=calls) if calls else Message(role="assistant", content=(_answer(messages),))
        usage = self._usage(messages, tools, message)
        return Reply(message=message, usage=usage, finish="tool_calls" if calls else "stop")

    def _usage(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], answer: Message) -> Usage:
        same = 0
        for before, now in zip(self._last, messages, strict=False):
            if before != now:
                break
            same += 1
        self._last = tuple(messages)
        system = next((message.text for message in messages if message.role == "system"), False)
        overhead = self._sizer.tokenizer.request(tools, system=system).tokens
        sizes = [self._sizer.count_message(message) for message in messages]
        return Usage(
            input_tokens=overhead + sum(sizes),
            output_tokens=self._sizer.count_message(answer),
            cached_tokens=overhead + sum(sizes[:same]) if same else 0,
        )


def _calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    last = messages[-1]
    if last.role != "user":
        return ()
    text = last.text
    wanted: list[tuple[str, dict[str, str]]] = []
    if found := LOOK_UP.search(text):
        place = _transcript(messages)
        wanted = [("search", {"text": found[1] or found[2], "path": place})] if place else []
    elif found := SEARCH.search(text):
        wanted = [("search", {"text": (found[1] or found[2]).rstrip("?!.,;")})]
    else:
        wanted = [_named(name) for name in dict.fromkeys(FILE_NAME.findall(text))][:MAX_FILES]
        if not wanted and LIST.search(text):
            wanted = [("list_files", {})]
    asked = sum(message.role == "user" for message in messages)
    return tuple(
        ToolCall(id=f"call_{len(messages)}_{asked}_{at}", name=name, arguments=json.dumps(arguments))
        for at, (name, arguments) in enumerate(wanted)
    )


def _named(name: str) -> tuple[str, dict[str, str]]:
    return ("list_files" if name.endswith("/") else "read_file"), {"path": name}


def _transcript(messages: Sequence[Message]) -> str | None:
    """The file that the breadcrumb of a summary names."""
    for message in messages:
        summary = extract_summary_text(message)
        if summary is not None and (found := BREADCRUMB_FILE.search(summary)):
            place: str = json.loads(found[1])
            return place
    return None


def _answer(messages: Sequence[Message]) -> str:
    start = len(messages)
    while start and messages[start - 1].role == "tool":
        start -= 1
    results = messages[start:]
    if results:
        calls = {call.id: call for call in messages[start - 1].tool_calls}
        return "\n\n".join(_of_result(calls.get(message.tool_call_id or ""), message.text) for message in results)
    if LOOK_UP.search(messages[-1].text):
        return "No summary stands before us yet, so there is nothing to look up: all that was said is shown to me."
    summary = "a summary among them, " if any(extract_summary_text(message) is not None for message in messages) else ""
    return (
        f"I am a script and no model: I can only list, read and search files. I was shown {len(messages)} messages, {summary}this one last. "
        'Try "list the files", "read README.md" or "search for TODO"; once there is a summary, "look up WORD" searches what it left out.'
    )


def _of_result(call: ToolCall | None, text: str) -> str:
    what = "The call" if call is None else _subject(call)
    if text.startswith("Error: "):
        return f"{what}: that did not work. {text.removeprefix('Error: ')}"
    lines = text.splitlines()
    told = [line.strip() for line in lines if line.strip()][:MAX_QUOTED_LINES]
    begin = ", which begin with" if len(lines) > len(told) else ""
    shown = "\n".join(f"    {line[:MAX_QUOTED_CHARACTERS].rstrip()}" for line in told)
    return f"{what} gave {len(lines):,} {'line' if len(lines) == 1 else 'lines'}{begin}:\n\n{shown}"


def _subject(call: ToolCall) -> str:
    path = json.loads(call.arguments).get("path", "The folder")
    return "The search" if call.name == "search" else str(path)
