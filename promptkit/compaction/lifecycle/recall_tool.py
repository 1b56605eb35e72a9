"""A tool with which a model finds what a summary has left out: it searches the transcript, and reads entries in full, page by page."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import attrs

from promptkit.compaction.lifecycle.recall import find_passages
from promptkit.compaction.planning.file_calls import SERVER_PREFIX
from promptkit.compaction.summarizers.breadcrumb import format_call
from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.messages import ToolDefinition
from promptkit.tokens.models import tokenizer_for
from promptkit.tools import Tool
from promptkit.transcript.entries import Edit, MessageEntry
from promptkit.transcript.search import extract_words, list_lines
from promptkit.transcript.store import SearchableStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from promptkit.messages import Json
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.transcript import Transcript

__all__ = ["RECALL", "recall", "recall_tool", "suggest_call"]

RECALL = ToolDefinition(
    name="recall",
    description="Find what a summary left out: search this conversation from its beginning, or read one entry of it in full.",
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words or file names. Best matches first."},
            "pattern": {"type": "string", "description": "A regular expression. Newest matches first."},
            "entry": {"type": "string", "description": "The id of an entry, as a search shows it."},
            "page": {"type": "integer", "description": "From 1."},
        },
    },
)
"""The definition of the tool."""

PATTERN_SECONDS = 2.0
"""The longest time that a search for a regular expression may take. A model's expression may need exponential time."""

WEAK_DIVISOR, LEAST_GOOD = 3, 3
"""Passages with less than a third of the best score are on later pages, but the three best passages are on the first."""

AROUND = 200
"""Characters that are shown of a line on both sides of a match."""


def recall_tool(
    transcript: Transcript, *, tokenizer: Tokenizer | None = None, max_tokens: int = 1_500, redactor: Redactor | None = None
) -> Tool:
    """Make a tool with which the model searches and reads its own conversation, summarized parts included.

    A session that is given a transcript offers this tool by itself. A program with a loop of its own adds it to its tools.

    Args:
        transcript: The conversation. The tool sees the branch that is current when it is called.
        tokenizer: Counts the tokens of results. Default: o200k_base.
        max_tokens: The most tokens of one result. The rest is on further pages.
        redactor: Removes secrets from results.

    >>> window = ContextWindow(model="gpt-5", transcript=transcript, tools=[*tools, recall_tool(transcript)])
    """

    async def run(arguments: Mapping[str, object]) -> str:
        path = transcript.path()  # read here, since a transcript is not for several threads
        store = transcript.store if isinstance(transcript.store, SearchableStore) else None
        work = partial(recall, path, arguments, tokenizer=tokenizer, max_tokens=max_tokens, redactor=redactor, index=store)
        return await asyncio.to_thread(work)

    return Tool(definition=RECALL, run=run)


def recall(  # noqa: PLR0913  # keywords
    path: Sequence[Entry],
    arguments: Mapping[str, object],
    *,
    tokenizer: Tokenizer | None = None,
    max_tokens: int = 1_500,
    redactor: Redactor | None = None,
    index: SearchableStore | None = None,
) -> str:
    """Answer one call of the tool. Mistakes of the model are answered with a sentence that says what to write, after `Error: `.

    Args:
        path: The entries of the conversation.
        arguments: The arguments of the call, as `RECALL` describes them.
        tokenizer: Counts the tokens of the result. Default: o200k_base.
        max_tokens: The most tokens of the result.
        redactor: Removes secrets from the result.
        index: The store of the conversation, if it has an index of words.
    """
    found = _recall(path, arguments, tokenizer or tokenizer_for(None), max_tokens, index)
    return found if redactor is None else redactor(found)


def _recall(
    path: Sequence[Entry], arguments: Mapping[str, object], tokenizer: Tokenizer, max_tokens: int, index: SearchableStore | None
) -> str:
    page = arguments.get("page", 1)
    if not isinstance(page, int) or page < 1:
        return f"Error: page must be a number from 1, not {page!r}."
    texts = {name: value for name in ("entry", "pattern", "query") if isinstance(value := arguments.get(name), str) and value.strip()}
    conversation = _Conversation(_readable(path))
    if "entry" in texts:
        name, pages = "entry", conversation.read_entry(texts["entry"], tokenizer, max_tokens)
    elif "pattern" in texts:
        name, pages = "pattern", _group(conversation.search_pattern(texts["pattern"]), tokenizer, max_tokens)
    elif "query" in texts:
        groups = conversation.search_words(texts["query"], index)
        name, pages = "query", chain.from_iterable(_group(group, tokenizer, max_tokens) for group in groups)
    else:
        return 'Error: give what to look for, such as {"query": "timeout in parser.py"}, or an entry to read, such as {"entry": "…"}.'
    try:
        shown, *more = islice(pages, page - 1, page + 1)
    except _RecallError as error:
        return f"Error: {error}"
    except ValueError:
        return "There is nothing on this page." if page > 1 else f"Nothing in the conversation matches {texts[name]!r}."
    if more:
        call = format_call(RECALL.name, {name: texts[name], "page": page + 1})
        return f"{shown}\n\n[there is more: {call}]"
    return shown


class _RecallError(Exception):
    """A call that cannot be answered. The text is for the model."""


def _readable(path: Sequence[Entry]) -> list[Entry]:
    """Return the entries with a message, without those that were redacted, and without earlier recalls: their calls and results."""
    hidden = {entry.payload.target for entry in path if isinstance(entry.payload, Edit) and entry.payload.reason == "redacted"}
    recalls = {call.id for entry in path if entry.message for call in entry.message.tool_calls if _is_recall(call.name)}
    readable: list[Entry] = []
    for entry in path:
        payload, message = entry.payload, entry.message
        if message is None or entry.id in hidden or message.tool_call_id in recalls:
            continue
        if isinstance(payload, MessageEntry) and payload.quotes:
            continue  # read back by a tool of another name, as over MCP
        if recalls.isdisjoint(call.id for call in message.tool_calls) or not isinstance(payload, MessageEntry):
            readable.append(entry)
            continue
        message = attrs.evolve(message, tool_calls=tuple(call for call in message.tool_calls if call.id not in recalls))
        if message.text or message.tool_calls:
            readable.append(attrs.evolve(entry, payload=attrs.evolve(payload, message=message)))
    return readable


def _is_recall(tool: str) -> bool:
    """Return whether a tool's name is that of this tool, with or without the prefix of an MCP server."""
    return SERVER_PREFIX.split(tool)[-1] == RECALL.name


class _Conversation:
    """The entries of a conversation that may be shown."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        messages = [(entry, entry.message) for entry in entries if entry.message is not None]
        self._call_names = {call.id: call.name for _, message in messages for call in message.tool_calls}
        self._result_ids = {message.tool_call_id: entry.id for entry, message in messages if message.tool_call_id}

    def read_entry(self, entry_id: str, tokenizer: Tokenizer, max_tokens: int) -> Iterator[str]:
        """Yield the pages of an entry."""
        entry = next((entry for entry in self.entries if entry.id == entry_id), None)
        if entry is None:
            problem = f"there is no entry {entry_id!r}: use an id that a search returned."
            raise _RecallError(problem)
        notes = self._find_notes(entry)
        text = neutralize_tags("\n".join(f"{line}{notes.get(at, '')}" for at, line in enumerate(list_lines(entry))))
        start = page = 0
        while start < len(text) or start == 0:
            page += 1
            title = self._describe(entry, page=page)
            room = max(1, max_tokens - tokenizer.count(f"{title}\n") - 1)
            # A token has rarely more than 32 characters, so that the rest of a long text is not looked at for each page.
            piece = tokenizer.truncate(text[start : start + 32 * room], room) or text[start : start + 1]
            if start + len(piece) < len(text):
                piece = _cut_at_line(piece)
            yield f"{title}\n{piece}"
            start += max(1, len(piece))

    def search_words(self, query: str, index: SearchableStore | None) -> Iterator[list[str]]:
        """Yield the passages that match words, best first: those that match well, and then all others, for pages of their own.

        An index says which entries to look at.
        """
        by_id = {entry.id: entry for entry in self.entries}
        among = None if index is None else index.find_entries(extract_words(query))
        passages = find_passages(self.entries, query, find_notes=self._find_notes, among=among)
        best = passages[0].score if passages else 0.0
        good = max(LEAST_GOOD, sum(passage.score * WEAK_DIVISOR >= best for passage in passages))
        for group in (passages[:good], passages[good:]):
            yield [f"{self._describe(by_id[passage.entry])}\n{neutralize_tags(passage.text)}" for passage in group]

    def search_pattern(self, pattern: str) -> Iterator[str]:
        """Yield the lines that match a regular expression, of the newest entry first."""
        find = _compile(pattern)
        for entry in reversed(self.entries):
            notes = self._find_notes(entry)
            lines = [
                f"{_around(line, place)}{notes.get(at, '')}"
                for at, line in enumerate(list_lines(entry))
                if (place := find(line)) is not None
            ]
            if lines:
                text = neutralize_tags("\n".join(lines))
                yield f"{self._describe(entry)}\n{text}"

    def _describe(self, entry: Entry, *, page: int = 1) -> str:
        """Return the title of an entry: who wrote it, and its id."""
        message = entry.message
        name = f"entry {entry.id}{f', page {page}' if page > 1 else ''}"
        if message is None:
            return f"[{name}]"
        if message.role == "tool":
            return f"[result of {self._call_names.get(message.tool_call_id or '', 'a tool')}, {name}]"
        return f"[{message.role}, {name}]"

    def _find_notes(self, entry: Entry) -> dict[int, str]:
        """Return what is shown after the lines with calls: the entries of their results."""
        calls = entry.message.tool_calls if entry.message else ()
        if not any(call.id in self._result_ids for call in calls):
            return {}
        first = len(list_lines(entry)) - len(calls)
        return {at: f" → entry {self._result_ids[call.id]}" for at, call in enumerate(calls, first) if call.id in self._result_ids}


def _cut_at_line(piece: str) -> str:
    """Return a piece of a text up to its last line break or space, if that is in its second half."""
    half = len(piece) // 2
    end = piece.rfind("\n", half) + 1 or piece.rfind(" ", half) + 1
    return piece[:end] or piece


def _compile(pattern: str) -> Callable[[str], int | None]:
    """Return a function that finds the first match of a regular expression in a line, or None. Raises _RecallError."""
    import regex  # type: ignore[import-untyped]  # without types

    try:
        compiled: Any = regex.compile(pattern, regex.IGNORECASE)  # Any: as above
    except regex.error as error:
        problem = f"{pattern!r} is no regular expression: {error}."
        raise _RecallError(problem) from None
    deadline = time.monotonic() + PATTERN_SECONDS

    def find(line: str) -> int | None:
        try:
            match: Any = compiled.search(line, timeout=max(0.001, deadline - time.monotonic()))  # Any: as above
        except TimeoutError:
            problem = f"the expression {pattern!r} takes too long: write a simpler one."
            raise _RecallError(problem) from None
        return None if match is None else int(match.start())

    return find


def _around(line: str, at: int) -> str:
    """Return a line, or the part of a long line around a place."""
    start, end = max(0, at - AROUND), at + AROUND
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _group(pieces: Iterable[str], tokenizer: Tokenizer, max_tokens: int) -> Iterator[str]:
    """Yield pages of pieces. A piece that is longer than a page is cut."""
    page: list[str] = []
    room = max_tokens
    for piece in pieces:
        size = tokenizer.count(f"{piece}\n\n")
        if size > max_tokens:
            piece, size = tokenizer.truncate(piece, max(1, max_tokens - 2)), max_tokens  # noqa: PLW2901  # one long passage is cut
        if size > room:
            yield "\n\n".join(page)
            page, room = [], max_tokens
        page.append(piece)
        room -= size
    if page:
        yield "\n\n".join(page)


def suggest_call(
    tools: Sequence[ToolDefinition], facts: Mapping[str, Json], *, read_tool: str = "read_file", location: str | None = None
) -> str | None:
    """Return an example call with which a model finds what was dropped, or None if it has no tool for that.

    Args:
        tools: The tools of the conversation.
        facts: What is known of the dropped messages.
        read_tool: The name of a tool that reads a file, for conversations without the tool `recall`.
        location: The transcript's file, or its URL, which no tool reads.
    """
    own = next((tool.name for tool in tools if tool == RECALL or (_is_recall(tool.name) and tool.parameters == RECALL.parameters)), None)
    if own is not None:
        return format_call(own, {"query": _suggest_query(facts)})
    if location is not None and "://" not in location and any(tool.name == read_tool for tool in tools):
        return format_call(read_tool, {"path": location})
    return None


def _suggest_query(facts: Mapping[str, Json]) -> str:
    """Return what a model could look for: the last file that was changed or read, else an error, else the words of a request."""
    for name in ("changed", "read", "errors", "requests"):
        values = facts.get(name)
        texts = [value for value in values if isinstance(value, str) and value.strip()] if isinstance(values, list) else []
        if texts:
            return " ".join(texts[-1].rsplit("/", 1)[-1].split()[:6])[:80]
    return "…"
