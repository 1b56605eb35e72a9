"""Recall: find what another conversation says about a question. Only reads."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.transcript import extract_words
from promptkit.transcript.log.search import list_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from promptkit.tokens import Tokenizer
    from promptkit.transcript import Entry

CONTEXT_LINES = 1
"""Lines before and after a matching line."""


MAX_LINE_CHARACTERS = 400
"""Characters of a line that are shown."""


def build_excerpt(
    path: Sequence[Entry], question: str, *, max_tokens: int, tokenizer: Tokenizer
) -> str:
    """Collect the best passages for a question, as text in the order of the conversation.

    Args:
        path: The entries of the conversation.
        question: The question.
        max_tokens: Token limit of the text.
        tokenizer: Counts the tokens.

    Returns:
        The passages, each with the id of its entry and with its tags neutralized. Empty if nothing
        matches.
    """
    remaining = max_tokens
    chosen: list[tuple[Passage, str]] = []
    order = {entry.id: at for at, entry in enumerate(path)}
    for passage in find_passages(path, question):
        text = f"[{passage.role}, entry {passage.entry}]\n{neutralize_tags(passage.text)}"
        size = tokenizer.count(f"{text}\n\n")
        if size <= remaining:
            remaining -= size
            chosen.append((passage, text))
    return "\n\n".join(text for _, text in sorted(chosen, key=lambda each: order[each[0].entry]))


def find_passages(
    path: Iterable[Entry],
    question: str,
    *,
    find_notes: Callable[[Entry], Mapping[int, str]] | None = None,
    among: Container[str] | None = None,
    messages: int | None = None,
) -> list[Passage]:
    """Return the passages that match a question, best first.

    Words that are rare in the conversation count more.

    All messages are searched, including those that a checkpoint covers. Runs in linear time.

    Args:
        path: The entries of the conversation.
        question: The question.
        find_notes: Returns what is shown after lines of an entry, by the number of the line in
            `list_lines` from 0. None: nothing.
        among: The ids of the entries that may match, from the index of a store. None: any may
            match.
        messages: The number of messages of the conversation, where `path` has only a part of them.
            None: those of `path`.
    """
    terms = extract_words(question)
    matches: list[tuple[Entry, list[str], list[tuple[int, frozenset[str]]]]] = []
    frequencies: Counter[str] = Counter()
    count = 0
    for entry in path:
        if entry.message is None:
            continue
        count += 1
        if among is not None and entry.id not in among:
            continue
        lines = list_lines(entry)
        hits = [(at, words) for at, line in enumerate(lines) if (words := _find_terms(line, terms))]
        if hits:
            frequencies.update(frozenset[str]().union(*(words for _, words in hits)))
            matches.append((entry, lines, hits))
    weights = {
        word: math.log(1 + (count if messages is None else messages) / times)
        for word, times in frequencies.items()
    }
    passages = [
        passage
        for entry, lines, hits in matches
        for passage in _build_passages(
            entry, lines, hits, weights, find_notes(entry) if find_notes else {}
        )
    ]
    # stable: of equal scores the older comes first
    return sorted(passages, key=lambda passage: -passage.score)


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


def _find_terms(line: str, terms: frozenset[str]) -> frozenset[str]:
    """Return the terms that a line contains.

    Most lines contain none, which is seen without taking them apart.
    """
    lower = line.lower()
    return terms & extract_words(line) if any(term in lower for term in terms) else frozenset()


def _build_passages(
    entry: Entry,
    lines: Sequence[str],
    hits: Sequence[tuple[int, frozenset[str]]],
    weights: dict[str, float],
    notes: Mapping[int, str],
) -> Iterator[Passage]:
    """Yield matching lines with the lines around them.

    Lines that are close to each other form one passage.
    """
    groups: list[list[tuple[int, frozenset[str]]]] = [[hits[0]]]
    for before, hit in pairwise(hits):
        if hit[0] - before[0] <= 2 * CONTEXT_LINES + 1:
            groups[-1].append(hit)
        else:
            groups.append([hit])
    role = entry.message.role if entry.message else entry.kind
    for group in groups:
        start, end = (
            max(0, group[0][0] - CONTEXT_LINES),
            min(len(lines), group[-1][0] + CONTEXT_LINES + 1),
        )
        words = frozenset[str]().union(*(terms for _, terms in group))
        text = "\n".join(
            f"{_shorten_line(lines[at], words)}{notes.get(at, '')}" for at in range(start, end)
        )
        yield Passage(
            entry=entry.id, role=role, text=text, score=sum(weights[word] for word in words)
        )


def _shorten_line(line: str, words: Iterable[str]) -> str:
    """Return a line, or the part of a long line around its first matching word."""
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    lower = line.lower()
    first = min((at for word in words if (at := lower.find(word)) >= 0), default=0)
    start = max(0, min(first - MAX_LINE_CHARACTERS // 2, len(line) - MAX_LINE_CHARACTERS + 2))
    end = start + MAX_LINE_CHARACTERS - 2
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
