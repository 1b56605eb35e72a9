"""Quotes: a tool result that repeats earlier entries is stored with references to them, and its text is put together again for the view.

Otherwise each look back into the transcript would be written into it in full. Entries never change,
so a quote gives the same text for good.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

import attrs

from promptkit.messages import Message
from promptkit.transcript.log.entries import Entry, MessageEntry, Quote
from promptkit.transcript.log.entry_sequence import EntrySequence, iter_redactions
from promptkit.transcript.stores.jsonl.format import encode_batch

QUOTE_MARK = "[…]"
"""Stands in the stored text for each quote."""

MIN_QUOTE_CHARACTERS = 200
"""A shorter repetition is stored as it is: a reference takes about 80 bytes."""

MAX_SEARCHES = 100
"""Searches in earlier entries for one result, and ids in it that are not those of entries, so that
a result of very many lines takes no long time."""

_HEADING = re.compile(
    r"^\[(?:[^\]\n]{0,200}?\bentry ([^\s;,\]]{1,200})[^\]\n]*+\]$|there is more: )", re.MULTILINE
)
"""A heading in the results of the tool `recall`: it names the entry that the following lines are
from. Or the line that ends them."""

_LINE = re.compile(r'\{"id":"([^"\\\n]{1,200})","parent_id":')
"""The beginning of an entry's line in the file of a transcript."""


def quote_sources(message: Message, find: Callable[[str], Entry | None]) -> MessageEntry:
    """Return the entry of a tool result, with quotes in place of long passages of the entries that its headings name, and of lines of the transcript's file.

    Args:
        message: The message. Messages that are not tool results, or not one text, get an entry as
            they are.
        find: Returns the entry with an id, or None if there is none before the message.
    """
    if message.role != "tool" or len(message.content) != 1 or "[" not in message.text:
        return MessageEntry(message=message)
    stored: list[str] = []
    quotes: list[Quote] = []
    length = done = 0
    for start, quote in sorted(
        [*_find_lines(message.text, find), *_find_passages(message.text, find)], key=itemgetter(0)
    ):
        if start < done:
            continue
        piece = message.text[done:start]
        stored += (piece, QUOTE_MARK)
        quotes.append(attrs.evolve(quote, at=length + len(piece)))
        length += len(piece) + len(QUOTE_MARK)
        done = start + quote.end - quote.start
    if not quotes:
        return MessageEntry(message=message)
    return MessageEntry(
        message=attrs.evolve(message, content=("".join((*stored, message.text[done:])),)),
        quotes=tuple(quotes),
    )


def restore_quotes(entry: MessageEntry, find: Callable[[str], Entry | None]) -> Message:
    """Return the message of an entry with the text of its quotes.

    A quote of an entry that is not found stays a mark.
    """
    text = entry.message.text
    pieces: list[str] = []
    done = 0
    for quote in entry.quotes:
        if (source := find(quote.entry)) is not None and text.startswith(QUOTE_MARK, quote.at):
            origin = _get_source_text(source) if quote.of == "text" else _write_line(source)
            pieces += (text[done : quote.at], origin[quote.start : quote.end])
            done = quote.at + len(QUOTE_MARK)
    return (
        attrs.evolve(entry.message, content=("".join((*pieces, text[done:])),))
        if pieces
        else entry.message
    )


def find_sources(path: Sequence[Entry]) -> Callable[[str], Entry | None]:
    """Return a function that finds the entries of a path by their ids, without those that were redacted since."""
    redacted = {edit.target for edit in iter_redactions(path)}
    if isinstance(path, EntrySequence):

        def find(entry_id: str) -> Entry | None:
            index = None if entry_id in redacted else path.find(entry_id)
            return None if index is None else path[index]

        return find
    return {entry.id: entry for entry in path if entry.id not in redacted}.get


def _find_passages(text: str, find: Callable[[str], Entry | None]) -> Iterator[tuple[int, Quote]]:
    """Yield the passages that are quotes, in order: where each begins in the text, and what it quotes.

    Their `at` is not set.
    """
    headings = list(_HEADING.finditer(text))
    searches = MAX_SEARCHES
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    for heading, end in zip(headings, ends, strict=False):
        source = find(heading[1]) if heading[1] and searches > 0 else None
        if source is None or source.message is None:
            continue
        searches -= 1
        origin = _get_source_text(source)
        start = heading.end() + 1
        body = text[start:end].rstrip("\n")
        whole = origin.find(body) if len(body) >= MIN_QUOTE_CHARACTERS else -1
        if whole >= 0:
            yield start, Quote(entry=source.id, start=whole, end=whole + len(body))
            continue
        # a line that was cut has a mark at each cut
        for match in re.finditer(r"[^…\n][^\n]+[^…\n]", body):
            if match.end() - match.start() < MIN_QUOTE_CHARACTERS or searches <= 0:
                continue
            searches -= 1
            if (at := origin.find(match[0])) >= 0:
                yield (
                    start + match.start(),
                    Quote(entry=source.id, start=at, end=at + len(match[0])),
                )


def _find_lines(text: str, find: Callable[[str], Entry | None]) -> Iterator[tuple[int, Quote]]:
    """Yield the lines of the transcript's file, and the beginnings of lines that were cut, as `_find_passages` does."""
    misses = 0
    for match in _LINE.finditer(text):
        source = find(match[1])
        line = "" if source is None else _write_line(source)
        size = _count_shared(text[match.start() : match.start() + len(line)], line)
        if source is not None and size >= MIN_QUOTE_CHARACTERS:
            yield match.start(), Quote(of="line", entry=source.id, start=0, end=size)
        elif source is None and (misses := misses + 1) >= MAX_SEARCHES:
            return


def _count_shared(text: str, line: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    return (
        len(line)
        if text == line
        else next(
            (at for at, (one, other) in enumerate(zip(text, line, strict=False)) if one != other),
            min(len(text), len(line)),
        )
    )


def _write_line(source: Entry) -> str:
    """Return the line of an entry up to its end, where the mark of a batch may be."""
    return encode_batch([source]).decode().removesuffix("}\n")


def _get_source_text(source: Entry) -> str:
    """Return the text of an entry with plain line feeds, as the tool `recall` shows it."""
    return "" if source.message is None else "\n".join(source.message.text.splitlines())
