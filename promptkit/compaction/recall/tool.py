"""A tool with which a model finds what a summary has left out: it searches the transcript, and reads entries in full, page by page."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import accumulate, chain, count, islice, pairwise, repeat, takewhile
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import attrs

from promptkit.compaction.planning.breadcrumb import format_call
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.tool_calls import SERVER_PREFIX
from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.messages import Message, ToolDefinition
from promptkit.pairing import ToolCallPairer
from promptkit.sizes import read_tokens
from promptkit.tokens import Tokenizer, tokenizer_for
from promptkit.tools import Tool, read_integer
from promptkit.transcript import (
    CustomMessage,
    Entry,
    MessageEntry,
    Redactor,
    SearchableStore,
    Transcript,
    ViewItem,
    extract_words,
    redact_message,
)
from promptkit.transcript.log.entry_sequence import EntrySequence, iter_redactions
from promptkit.transcript.log.search import are_forms, find_stem, list_lines
from promptkit.transcript.log.view import escape_block_tags

RECALL = ToolDefinition(
    name="recall",
    description="Find what a summary left out: search this conversation from its beginning, or read one entry of it in full.",
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words or file names. Best matches first."},
            "pattern": {
                "type": "string",
                "description": "A regular expression. Newest matches first.",
            },
            "entry": {"type": "string", "description": "The id of an entry, as a search shows it."},
            "page": {"type": "integer", "description": "From 1."},
        },
    },
)
"""The definition of the tool."""

LONG, REACH, PART = 4_096, 64, 1_024
"""Entries of a conversation that is not read as a whole; entries between a call and its result
there; entries searched at once."""

PATTERN_SECONDS = 2.0
"""The longest time that a search for a regular expression may take. A model's expression may need
exponential time."""

WEAK_DIVISOR, LEAST_GOOD = 3, 3
"""Passages with less than a third of the best score are on later pages, but the three best passages
are on the first."""

NEAR_CHARACTERS = 1_000_000
"""Characters of the newest entries in which nearly the same words are looked for."""

MAX_NEAR, LEAST_NEAR = 3, 0.75
"""The most words that are named for a word that is nowhere, and how similar they must be, from 0 to
1."""

AROUND = 200
"""Characters that are shown of a line on both sides of a match."""

MAX_EXAMPLES = 5
"""The most files, the most errors and the most requests of a summary that are tried for the example
call of its breadcrumb."""

_ANSWER = re.compile(
    r"\[(?:user|assistant|system|result of [^\]\n]*?), entry |Nothing in the conversation matches |There is nothing on this page|Error: "
)
"""Matches the beginning of a result of this tool."""


PAGE_TOKENS = 1_500
"""The most tokens of one result, where nothing else is said."""


@attrs.frozen(kw_only=True)
class RecallSettings:
    """The transcript that the tool reads, and the size of its results.

    A session changes them with its model.
    """

    transcript: Transcript
    """The conversation. The tool sees the branch that is current when it is called."""
    tokenizer: Tokenizer | None
    """Counts the tokens of results. None: o200k_base."""
    max_tokens: int = attrs.field(converter=read_tokens)
    """The most tokens of one result. The rest is on further pages."""


def recall_tool(
    transcript: Transcript,
    *,
    tokenizer: Tokenizer | None = None,
    max_tokens: int | str = PAGE_TOKENS,
    redactor: Redactor | None = None,
) -> Tool:
    """Make a tool with which the model searches and reads its own conversation, summarized parts included.

    A session that is given a transcript offers this tool by itself. A program with a loop of its
    own adds it to its tools.

    Args:
        transcript: The conversation. The tool sees the branch that is current when it is called.
        tokenizer: Counts the tokens of results. Default: o200k_base.
        max_tokens: The most tokens of one result. The rest is on further pages. Give at most a
            quarter of what messages may take: a window shows no result that is longer than half of
            that whole.
        redactor: Removes secrets from each message before it is searched and divided into pages.

    >>> window = ContextWindow(model="gpt-5", transcript=transcript, tools=[*tools, recall_tool(transcript)])
    """
    settings = RecallSettings(transcript=transcript, tokenizer=tokenizer, max_tokens=max_tokens)
    return build_recall_tool(lambda: settings, redactor=redactor)


def build_recall_tool(
    find_settings: Callable[[], RecallSettings], *, redactor: Redactor | None = None
) -> Tool:
    """Make the tool of a conversation whose settings change.

    Args:
        find_settings: Called for each call of the tool.
        redactor: Removes secrets, as for `recall_tool`.
    """

    async def run(arguments: Mapping[str, object]) -> str:
        settings = find_settings()
        transcript = settings.transcript
        path = transcript.path()  # read here, since a transcript is not for several threads
        return await asyncio.to_thread(
            recall,
            path,
            arguments,
            tokenizer=settings.tokenizer,
            max_tokens=settings.max_tokens,
            index=transcript.store if isinstance(transcript.store, SearchableStore) else None,
            redactor=redactor,
        )

    return Tool(definition=RECALL, run=run)


def recall(  # noqa: PLR0913  # keywords
    path: Sequence[Entry],
    arguments: Mapping[str, object],
    *,
    tokenizer: Tokenizer | None = None,
    max_tokens: int = PAGE_TOKENS,
    index: SearchableStore | None = None,
    redactor: Redactor | None = None,
) -> str:
    """Answer one call of the tool.

    Mistakes of the model are answered with a sentence that says what to write, after `Error: `.

    Args:
        path: The entries of the conversation.
        arguments: The arguments of the call, as `RECALL` describes them.
        tokenizer: Counts the tokens of the result. Default: o200k_base.
        max_tokens: The most tokens of the result.
        index: The store of the conversation, if it has an index of words.
        redactor: Removes secrets from each message as a whole, before it is searched and divided
            into pages: a page or a passage may contain a piece of a secret that has no shape.
    """
    tokenizer = tokenizer or tokenizer_for(None)
    page = read_integer(arguments.get("page", 1))
    if page is None or page < 1:
        return f"Error: page must be a number from 1, not {arguments['page']!r}."
    texts = {
        name: value
        for name in ("entry", "pattern", "query")
        if isinstance(value := arguments.get(name), str) and value.strip()
    }
    if not texts:
        return 'Error: give what to look for, such as {"query": "timeout in parser.py"}, or an entry to read, such as {"entry": "…"}.'
    name, text = next(iter(texts.items()))
    parts = _open_parts(path, name, text, redactor)
    room = max(max_tokens // 2, max_tokens - tokenizer.count(_describe_next(name, text, 10_000)))
    if name == "entry":
        pages = next(parts).read_entry(text, tokenizer, room)
    elif name == "pattern":
        pages = _group(_search_pattern(parts, text), tokenizer, room)
    else:
        pages = chain.from_iterable(
            _group(group, tokenizer, room) for group in next(parts).search_words(text, index)
        )
    try:
        shown, *more = islice(pages, page - 1, page + 1)
    except _RecallError as error:
        return f"Error: {error}"
    except ValueError:
        if page > 1:
            return "There is nothing on this page."
        hint = _suggest_words(path, text, redactor) if name == "query" else ""
        return f"Nothing in the conversation matches {text!r}.{hint}"
    return f"{shown}{_describe_next(name, text, page + 1)}" if more else shown


def _suggest_words(path: Sequence[Entry], query: str, redactor: Redactor | None) -> str:
    """Return what to search for where a search for words finds nothing: words of the newest entries that are spelt nearly so."""
    terms = sorted(extract_words(query))
    if not terms:
        return " These words are too short or too common: search for others, or for a pattern."
    sizes = accumulate(sum(map(len, list_lines(entry))) for entry in reversed(path))
    start = len(path) - len([*takewhile(NEAR_CHARACTERS.__ge__, sizes)])
    newest = _Conversation(
        path[start:], redacted={edit.target for edit in iter_redactions(path)}, redactor=redactor
    )
    words = dict.fromkeys(word for term in terms for word in newest.find_near_words(term))
    listed = neutralize_tags(", ".join(words))
    return listed and f" Words that are spelt nearly so: {listed}."


def _describe_next(name: str, text: str, page: int) -> str:
    """Return the end of a page that another page follows: the call that shows it."""
    return f"\n\n[there is more: {format_call(RECALL.name, {name: text, 'page': page})}]"


class _RecallError(Exception):
    """A call that cannot be answered. The text is for the model."""


def _is_recall(tool: str) -> bool:
    """Return whether a tool's name is that of this tool, with or without the prefix of an MCP server."""
    return SERVER_PREFIX.split(tool)[-1] == RECALL.name


def _is_answer(tool: str, result: Message) -> bool:
    """Return whether a result is of this tool.

    Other programs' tools may have the same name, so the text tells, too.
    """
    return _is_recall(tool) and _ANSWER.match(result.text) is not None


def _change_message(entry: Entry, change: Callable[[Message], Message]) -> Entry:
    """Return an entry with another message. An entry without a message stays as it is."""
    payload = entry.payload
    return (
        attrs.evolve(entry, payload=attrs.evolve(payload, message=change(payload.message)))
        if isinstance(payload, MessageEntry | CustomMessage)
        else entry
    )


def _is_look_back(entry: Entry) -> bool:
    """Return whether an entry repeats what earlier entries say: a search may also have found one line of the file among others."""
    payload = entry.payload
    if not isinstance(payload, MessageEntry) or not payload.quotes:
        return False
    quoted = sum(quote.end - quote.start for quote in payload.quotes)
    return quoted >= len(payload.message.text) or payload.quotes[0].of == "text"


def _redact_entry(entry: Entry, redactor: Redactor | None) -> Entry:
    """Return an entry without secrets in its message."""
    return (
        entry
        if redactor is None
        else _change_message(entry, partial(redact_message, redactor=redactor))
    )


def _pair_results(entries: Sequence[tuple[Entry, Message]]) -> dict[str, list[Entry | None]]:
    """Return the results of the calls of each entry, as they are paired for a request: ids may be used again in a later reply."""
    pairer = ToolCallPairer(allow_early_results=False)
    pairer.extend([message for _, message in entries])
    pairer.settle()
    paired = [
        (message, *entries[source])
        for message, source in zip(pairer.messages, pairer.sources, strict=True)
    ]
    results = {
        message.tool_call_id: entry
        for message, entry, recorded in paired
        if message.role == recorded.role == "tool"  # not one in place of a result that is missing
    }
    answers = {
        entry.id: [results.get(call.id) for call in message.tool_calls]
        for message, entry, _ in paired
        if message.role == "assistant"
    }
    return {
        entry.id: answers.get(entry.id) or [None] * len(message.tool_calls)
        for entry, message in entries
    }


class _Conversation:
    """The entries of a conversation that may be shown: those with a message, without those that were redacted, and without earlier recalls."""

    def __init__(
        self,
        path: Sequence[Entry],
        *,
        redacted: AbstractSet[str] | None = None,
        messages: int | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """Take the entries of a path, or some of them.

        Args:
            path: The entries.
            redacted: The ids of the entries that were redacted. None: those of edits in `path`.
            messages: The number of messages of the whole conversation. None: those of `path` that
                are shown.
            redactor: Removes secrets from the messages that are shown.
        """
        self._messages = messages
        self._redactor = redactor
        self.entries: list[Entry] = []
        self._tools: dict[str, str] = {}
        """The name of the tool that returned a result, by the id of the result's entry."""
        self._results: dict[str, list[str | None]] = {}
        """The ids of the entries with the results of an entry's calls, in the order of the
        calls."""
        entries = [(entry, message) for entry in path if (message := entry.message) is not None]
        pairs = _pair_results(entries)
        hidden = (
            {edit.target for edit in iter_redactions(path)} if redacted is None else set(redacted)
        )
        # A result with quotes was read back by this tool, or by one of another name, as over MCP, or
        # from the file.
        hidden |= {entry.id for entry, _ in entries if _is_look_back(entry)}
        for entry, message in entries:
            calls = [*zip(message.tool_calls, pairs[entry.id], strict=True)]
            # a result of this tool, if there is one, is not shown again
            recalled = [
                _is_recall(call.name)
                and (
                    result is None
                    or result.id in hidden
                    or result.message is None
                    or _is_answer(call.name, result.message)
                )
                for call, result in calls
            ]
            shown = [pair for pair, gone in zip(calls, recalled, strict=True) if not gone]
            hidden.update(
                result.id
                for (_, result), gone in zip(calls, recalled, strict=True)
                if gone and result
            )
            self._tools.update((result.id, call.name) for call, result in shown if result)
            if entry.id in hidden or (calls and not shown and not message.text):
                continue
            self._results[entry.id] = [
                result.id if result and result.id not in hidden else None for _, result in shown
            ]
            self.entries.append(
                entry
                if len(shown) == len(calls)
                else _change_message(
                    entry,
                    partial(attrs.evolve, tool_calls=tuple(call for call, _ in shown)),
                )
            )

    def read_entry(self, entry_id: str, tokenizer: Tokenizer, max_tokens: int) -> Iterator[str]:
        """Yield the pages of an entry."""
        entry = next((entry for entry in self.entries if entry.id == entry_id), None)
        if entry is None:
            raise _RecallError(f"there is no entry {entry_id!r}: use an id that a search returned.")
        entry = _redact_entry(entry, self._redactor)
        notes = self._find_notes(entry)
        lines = [f"{line}{notes.get(at, '')}" for at, line in enumerate(list_lines(entry))]
        titles = (self._describe(entry, page=page) for page in count(1))
        yield from _split(neutralize_tags("\n".join(lines)), titles, tokenizer, max_tokens)

    def search_words(self, query: str, index: SearchableStore | None) -> Iterator[list[_Piece]]:
        """Yield the passages that match words, best first: those that match well, and then all others, for pages of their own.

        An index says which entries to look at.
        """
        by_id = {entry.id: entry for entry in self.entries}
        among = None if index is None else index.find_entries(map(find_stem, extract_words(query)))
        passages = find_passages(
            [entry for entry in self.entries if among is None or entry.id in among],
            query,
            find_notes=self._find_notes,
            messages=len(self.entries) if self._messages is None else self._messages,
            redactor=self._redactor,
        )
        best = passages[0].score if passages else 0.0
        good = max(LEAST_GOOD, sum(passage.score * WEAK_DIVISOR >= best for passage in passages))
        pieces = [
            (self._describe(by_id[passage.entry]), neutralize_tags(passage.text))
            for passage in passages
        ]
        yield pieces[:good]
        yield pieces[good:]

    def search_lines(self, find: Callable[[str], int | None]) -> Iterator[_Piece]:
        """Yield the lines in which a function finds a match, of the newest entry first."""
        for recorded in reversed(self.entries):
            if all(find(line) is None for line in list_lines(recorded)):
                continue  # to redact a text takes longer than to search it
            entry = _redact_entry(recorded, self._redactor)
            notes = self._find_notes(entry)
            lines = [
                f"{_clip(line, max(0, place - AROUND), place + AROUND)}{notes.get(at, '')}"
                for at, line in enumerate(list_lines(entry))
                if (place := find(line)) is not None
            ]
            if lines:
                yield self._describe(entry), neutralize_tags("\n".join(lines))

    @cached_property
    def _vocabulary(self) -> dict[str, Entry]:
        """The words of the entries, each with the newest entry that has it."""
        return {
            word: entry
            for entry in self.entries
            # not the results of calls before the first entry, which may be of this tool
            if entry.message and (entry.message.role != "tool" or entry.id in self._tools)
            for word in extract_words("\n".join(list_lines(entry)))
        }

    def find_near_words(self, word: str) -> list[str]:
        """Return the words that are spelt nearly as a word, the nearest first."""
        return [
            near
            for near in get_close_matches(word, self._vocabulary, n=MAX_NEAR, cutoff=LEAST_NEAR)
            if self._redactor is None
            or near
            in extract_words(
                "\n".join(list_lines(_redact_entry(self._vocabulary[near], self._redactor)))
            )
        ]

    def _describe(self, entry: Entry, *, page: int = 1) -> str:
        """Return the title of an entry: who wrote it, and its id."""
        role = entry.message.role if entry.message else entry.kind
        title = f"result of {self._tools.get(entry.id, 'a tool')}" if role == "tool" else role
        return f"[{title}, entry {entry.id}{f', page {page}' if page > 1 else ''}]"

    def _find_notes(self, entry: Entry) -> dict[int, str]:
        """Return what is shown after the lines with calls: the entries of their results."""
        results = self._results[entry.id]
        return {
            at: f" → entry {result}"
            for at, result in enumerate(results, len(list_lines(entry)) - len(results))
            if result is not None
        }


def _search_pattern(parts: Iterator[_Conversation], pattern: str) -> Iterator[_Piece]:
    """Yield the lines that match a regular expression, of the newest entry first."""
    newest = next(parts)  # before the time of the search begins
    find = _compile(pattern)
    for part in chain([newest], parts):
        yield from part.search_lines(find)


def _open_parts(
    path: Sequence[Entry], name: str, text: str, redactor: Redactor | None
) -> Iterator[_Conversation]:
    """Yield the parts of a conversation that an answer needs, newest first: usually all of it as one.

    Of a long one only entries that may match are read, with their calls and results. The answer is
    the same if no result stands further than `REACH` entries behind its call.
    """
    if not isinstance(path, EntrySequence) or len(path) <= LONG:
        yield _Conversation(path, redactor=redactor)
        return
    redacted, messages = {edit.target for edit in iter_redactions(path)}, path.count_messages()

    def open_at(places: Iterable[int]) -> _Conversation:
        return _Conversation(
            [path[place] for place in sorted(places)],
            redacted=redacted,
            messages=messages,
            redactor=redactor,
        )

    if name != "pattern":
        stems = sorted({find_stem(word) for word in extract_words(text)})
        found = path.find_text(stems) if name == "query" and stems else ()
        place = path.find(text) if name == "entry" else None
        places = found if place is None else [place]
        yield open_at({each for at in places for each in _list_partners(path, at)})
        return
    for stop in range(len(path), 0, -PART):
        start = max(0, stop - PART)
        part = open_at(range(max(0, start - REACH), min(len(path), stop + REACH)))
        shown = {entry.id for entry in path[start:stop]}
        part.entries = [entry for entry in part.entries if entry.id in shown]
        yield part


def _list_partners(path: Sequence[Entry], place: int) -> Iterator[int]:
    """Yield the index of an entry, those of the results of its calls, and that of the call that it answers with the other results."""
    message = path[place].message
    is_result = message is not None and message.role == "tool"
    before = range(place - 1, max(-1, place - REACH - 1), -1) if is_result else ()
    answered = message and message.tool_call_id
    call = next((at for at in before if answered in _list_calls(path[at])), place)
    yield from (place, call)
    waiting = _list_calls(path[call])
    for after in range(call + 1, min(len(path), call + REACH + 1)):
        result = path[after].message
        if result is not None and result.role == "tool" and result.tool_call_id in waiting:
            yield after
            waiting.discard(result.tool_call_id)
        if not waiting:
            return


def _list_calls(entry: Entry) -> set[str]:
    return {call.id for call in entry.message.tool_calls} if entry.message else set()


_Piece: TypeAlias = tuple[str, str]
"""The title of an entry, and a part of its text."""


def _split(
    text: str, titles: Iterable[str], tokenizer: Tokenizer, max_tokens: int
) -> Iterator[str]:
    """Yield the pages of a text, each with its title, of which there are enough."""
    start = 0
    for title in titles:
        room = max(1, max_tokens - tokenizer.count(f"{title}\n") - 1)
        # A token has rarely more than 32 characters, so that the rest of a long text is not looked
        # at for each page.
        piece = tokenizer.truncate(text[start : start + 32 * room], room) or text[start : start + 1]
        if start + len(piece) < len(text):  # up to a line break or space in its second half
            half = len(piece) // 2
            piece = piece[: piece.rfind("\n", half) + 1 or piece.rfind(" ", half) + 1] or piece
        yield f"{title}\n{piece}"
        start += max(1, len(piece))
        if start >= len(text):
            return


def _compile(pattern: str) -> Callable[[str], int | None]:
    """Return a function that finds the first match of a regular expression in a line, or None.

    Raises _RecallError.
    """
    import regex  # type: ignore[import-untyped]  # without types

    try:
        compiled: Any = regex.compile(pattern, regex.IGNORECASE)  # Any: as above
    except regex.error as error:
        raise _RecallError(f"{pattern!r} is no regular expression: {error}.") from None
    end = time.monotonic() + PATTERN_SECONDS

    def find(line: str) -> int | None:
        try:
            # Any stands for as above
            match: Any = compiled.search(line, timeout=max(0.001, end - time.monotonic()))
        except TimeoutError:
            raise _RecallError(
                f"the expression {pattern!r} takes too long: write a simpler one."
            ) from None
        return None if match is None else int(match.start())

    return find


def _clip(line: str, start: int, end: int) -> str:
    """Return a part of a line, with a mark where it is cut off."""
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _group(pieces: Iterable[_Piece], tokenizer: Tokenizer, max_tokens: int) -> Iterator[str]:
    """Yield pages of pieces.

    A piece that is longer than a page is on several, each with its title.
    """
    page: list[str] = []
    room = max_tokens
    for title, text in pieces:
        shown = f"{title}\n{text}"
        size = tokenizer.count(f"{shown}\n\n")
        if size > room and page:
            yield "\n\n".join(page)
            page, room = [], max_tokens
        if size > max_tokens:
            yield from _split(text, repeat(title), tokenizer, max_tokens)
            continue
        page.append(shown)
        room -= size
    if page:
        yield "\n\n".join(page)


def suggest_call(
    tools: Sequence[ToolDefinition],
    facts: Facts,
    dropped: Sequence[Entry],
    *,
    read_tool: str = "read_file",
    location: str | None = None,
) -> str | None:
    """Return an example call with which a model finds what was dropped, or None if it has no tool for that.

    A search is suggested only if it finds something; else the call reads the newest entry that was
    dropped.

    Args:
        tools: The tools of the conversation.
        facts: What is known of the dropped messages.
        dropped: The entries with the messages that are no longer shown.
        read_tool: The name of a tool that reads a file, for conversations without the tool
            `recall`.
        location: The transcript's file, or its URL, which no tool reads.
    """
    own = _find_recall(tools)
    if own is not None and (entries := _Conversation(dropped).entries):
        query = next(
            (
                query
                for query in _iter_queries(facts)
                if extract_words(query)
                and any(find_passages((entry,), query) for entry in reversed(entries))
            ),
            None,
        )
        return format_call(own, {"entry": entries[-1].id} if query is None else {"query": query})
    is_file = location is not None and "://" not in location
    has_tool = any(tool.name == read_tool for tool in tools)
    return format_call(read_tool, {"path": location}) if is_file and has_tool else None


def suggest_entry(
    tools: Sequence[ToolDefinition], transcript: Transcript, tool: str | None, item: ViewItem
) -> str | None:
    """Return the call with which a model reads a tool result in full, or None if no call shows it.

    What was recalled is not recalled again, and an entry that was redacted is not read at all.

    Args:
        tools: The tools of the conversation.
        transcript: The conversation.
        tool: The name of the tool that returned the result.
        item: The result in the view.
    """
    own = _find_recall(tools)
    if own is None or (tool is not None and _is_answer(tool, item.message)):
        return None
    recorded = transcript.get(item.entry_id).message
    is_same = recorded is not None and item.message.content == recorded.content
    return format_call(own, {"entry": item.entry_id}) if is_same else None


def list_look_up_tools(tools: Sequence[ToolDefinition]) -> frozenset[str]:
    """Return the names of the tools that a breadcrumb may name: all but other programs' tools that have the name of this one."""
    return frozenset(
        tool.name
        for tool in tools
        if not _is_recall(tool.name) or tool.parameters == RECALL.parameters
    )


def _find_recall(tools: Sequence[ToolDefinition]) -> str | None:
    """Return the name under which a model has the tool `recall`, or None if it does not have it.

    One under a prefix comes last.
    """
    named = (
        tool.name
        for tool in tools
        if _is_recall(tool.name) and tool.parameters == RECALL.parameters
    )
    return RECALL.name if RECALL in tools else next(named, None)


def _iter_queries(facts: Facts) -> Iterator[str]:
    """Return what a model could look for, one after the other: the newest files that were changed or read, then errors, then the words of requests."""
    newest = slice(None, -MAX_EXAMPLES - 1, -1)
    names = (
        path.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]
        for path in (*facts.changed[newest], *facts.read[newest])
    )
    texts = (*names, *facts.errors[newest], *facts.requests[newest])
    return (" ".join(text.split()[:6])[:80] for text in texts)


CONTEXT_LINES = 1
"""Lines before and after a matching line."""


FORM_WEIGHT = 0.7
"""The weight of another form of a word. The word itself has weight 1."""


MAX_LINE_CHARACTERS = 400
"""Characters of a line that are shown."""


def build_excerpt(  # noqa: PLR0913  # keywords
    path: Sequence[Entry],
    question: str,
    *,
    max_tokens: int,
    tokenizer: Tokenizer,
    redactor: Redactor | None = None,
    shown: str = "",
) -> str:
    """Collect the best passages for a question, as text in the order of the conversation.

    Args:
        path: The entries of the conversation.
        question: The question.
        max_tokens: Token limit of the text.
        tokenizer: Counts the tokens.
        redactor: Removes secrets.
        shown: A text whose passages are left out.

    Returns:
        The passages, each with the id of its entry and with its tags neutralized. Empty if nothing
        matches.
    """
    remaining = max_tokens
    chosen: list[tuple[int, str]] = []
    order = {entry.id: at for at, entry in enumerate(path)}
    for passage in find_passages(path, question, redactor=redactor):
        text = f"[{passage.role}, entry {passage.entry}]\n{neutralize_tags(passage.text)}"
        size = tokenizer.count(f"{text}\n\n")
        if size <= remaining and passage.text not in shown:
            remaining -= size
            chosen.append((order[passage.entry], text))
    return "\n\n".join(text for _, text in sorted(chosen, key=itemgetter(0)))


RECALLED = "promptkit.recalled"
"""The name of the messages that `build_note` makes."""

RECALLED_TITLE = "Earlier passages of this conversation that may belong to the message before. The program found them; the user did not write this:"


def build_note(  # noqa: PLR0913  # keywords
    dropped: Sequence[Entry],
    question: str,
    *,
    shown: Iterable[Message],
    max_tokens: int,
    tokenizer: Tokenizer,
    redactor: Redactor | None = None,
) -> CustomMessage | None:
    """Build the note with the best passages for a message of the user, or None if nothing matches.

    Args:
        dropped: The entries that are no longer shown.
        question: The message's text.
        shown: The messages that are shown. What they contain is not repeated.
        max_tokens: The most tokens of the passages.
        tokenizer: Counts the tokens.
        redactor: Removes secrets.
    """
    excerpt = build_excerpt(
        [
            entry
            for entry in _Conversation(dropped, redactor=redactor).entries
            if isinstance(entry.payload, MessageEntry)
        ],
        question,
        max_tokens=max_tokens,
        tokenizer=tokenizer,
        redactor=redactor,
        shown="\n".join(message.text for message in shown),
    )
    if not excerpt:
        return None
    text = f"<recalled>\n{RECALLED_TITLE}\n{escape_block_tags(excerpt)}\n</recalled>"
    return CustomMessage(name=RECALLED, message=Message(role="user", content=(text,)))


def find_passages(
    path: Iterable[Entry],
    question: str,
    *,
    find_notes: Callable[[Entry], Mapping[int, str]] | None = None,
    messages: int | None = None,
    redactor: Redactor | None = None,
) -> list[Passage]:
    """Return the passages that match a question, best first.

    Words that are rare in the conversation count more, other forms of a word less.

    All messages are searched, including those that a checkpoint covers. Runs in linear time.

    Args:
        path: The entries of the conversation.
        question: The question.
        find_notes: Returns what is shown after lines of an entry, by the number of the line in
            `list_lines` from 0. None: nothing.
        messages: The number of messages of the conversation, where `path` has only a part of them.
            None: those of `path`.
        redactor: Removes secrets from the messages that match, which are then searched again.
    """
    terms = extract_words(question)
    matches: list[tuple[Entry, list[str], list[_Hit]]] = []
    frequencies: Counter[str] = Counter()
    count = 0
    for recorded in path:
        count += recorded.message is not None
        if recorded.message is None or not _find_hits(list_lines(recorded), terms):
            continue  # to redact a text takes longer than to search it
        entry = _redact_entry(recorded, redactor)
        lines = list_lines(entry)
        if hits := _find_hits(lines, terms):
            frequencies.update({word for hit in hits for _, word in hit.matches})
            matches.append((entry, lines, hits))
    weights = {
        word: math.log(1 + (count if messages is None else messages) / times)
        for word, times in frequencies.items()
    }
    return sorted(
        (
            passage
            for entry, lines, hits in matches
            for passage in _build_passages(
                entry, lines, hits, weights, find_notes(entry) if find_notes else {}
            )
        ),
        # stable: of equal scores what the user said comes first, and then the older
        key=lambda passage: (-passage.score, passage.role != "user"),
    )


@attrs.frozen(kw_only=True)
class Passage:
    """Lines of one message that match a question."""

    entry: str
    """The id of the message's entry."""
    role: str
    """The message's role."""
    text: str
    """The matching lines and the lines around them."""
    score: float
    """The higher the better."""


class _Hit(NamedTuple):
    """A line that matches a question."""

    line: int
    matches: frozenset[tuple[str, str]]
    """Words of the question, each with a word of the line: the same one, or else every other form of
    it."""


def _find_hits(lines: Sequence[str], terms: frozenset[str]) -> list[_Hit]:
    """Return the lines that match.

    Most lines match nothing, which is seen without taking them apart.
    """
    stems = {find_stem(term) for term in terms}
    hits: list[_Hit] = []
    for at, line in enumerate(lines):
        if not any(map(line.lower().__contains__, stems)):
            continue
        words = extract_words(line)
        exact = terms & words
        forms = ((term, word) for term in terms - exact for word in words if are_forms(term, word))
        if matches := frozenset(chain(zip(exact, exact, strict=True), forms)):
            hits.append(_Hit(at, matches))
    return hits


def _build_passages(
    entry: Entry,
    lines: Sequence[str],
    hits: Sequence[_Hit],
    weights: Mapping[str, float],
    notes: Mapping[int, str],
) -> Iterator[Passage]:
    """Yield matching lines with the lines around them.

    Lines that are close to each other form one passage.
    """
    groups = [[hits[0]]]
    for before, hit in pairwise(hits):
        if hit.line - before.line > 2 * CONTEXT_LINES + 1:
            groups.append([])
        groups[-1].append(hit)
    role = entry.message.role if entry.message else entry.kind
    for group in groups:
        start = max(0, group[0].line - CONTEXT_LINES)
        end = min(len(lines), group[-1].line + CONTEXT_LINES + 1)
        scores: dict[str, float] = {}
        for term, word in chain.from_iterable(hit.matches for hit in group):
            score = weights[word] if word == term else FORM_WEIGHT * weights[word]
            scores[term] = max(score, scores.get(term, 0.0))
        words = {word for hit in group for _, word in hit.matches}
        text = "\n".join(
            f"{_shorten_line(lines[at], words)}{notes.get(at, '')}" for at in range(start, end)
        )
        # sorted: a sum of the same numbers in another order may be another one
        yield Passage(entry=entry.id, role=role, text=text, score=sum(sorted(scores.values())))


def _shorten_line(line: str, words: Iterable[str]) -> str:
    """Return a line, or the part of a long line around its first matching word."""
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    first = min((at for at in map(line.lower().find, words) if at >= 0), default=0)
    start = max(0, min(first - MAX_LINE_CHARACTERS // 2, len(line) - MAX_LINE_CHARACTERS + 2))
    return _clip(line, start, start + MAX_LINE_CHARACTERS - 2)
