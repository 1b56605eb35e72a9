"""What another conversation holds about a question, read on demand. Nothing is written, there or here."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.compactor import redact_summary, redact_task
from promptkit.compaction.planning.blocks import block_spans
from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.errors import SummaryError
from promptkit.transcript.view import build_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.redaction import Redactor

__all__ = ["Passage", "answer_from_transcript", "build_excerpt", "find_passages"]

AROUND = 1
"""Lines before and behind a line that matches."""

LONGEST = 400
"""Characters of a line that are shown."""

COMMON = frozenset(
    [
        "about",
        "above",
        "after",
        "again",
        "also",
        "and",
        "any",
        "are",
        "because",
        "been",
        "before",
        "but",
        "can",
        "could",
        "did",
        "does",
        "done",
        "for",
        "from",
        "had",
        "has",
        "have",
        "how",
        "into",
        "its",
        "just",
        "like",
        "make",
        "made",
        "many",
        "more",
        "most",
        "much",
        "not",
        "now",
        "only",
        "other",
        "our",
        "out",
        "over",
        "should",
        "some",
        "such",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "use",
        "used",
        "was",
        "way",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
"""Words that tell nothing of a question."""

_WORD = re.compile(r"[^\W_]+(?:[._/\\:-]+[^\W_]+)*|[^\W_]+", re.UNICODE)
_PART = re.compile(r"[^\W_]+")


@attrs.frozen(kw_only=True)
class Passage:
    """Some lines of one message that concern a question."""

    entry: str
    """The id of the message's entry."""
    role: str
    text: str
    score: float


def find_passages(path: Iterable[Entry], question: str) -> list[Passage]:
    """The passages of a path that concern a question, the best first: those with the words of it that are rare in the conversation.

    Every message is looked at, also what a checkpoint covers. Linear in the text.
    """
    asked = _terms(question)
    found: list[tuple[Entry, list[str], list[tuple[int, frozenset[str]]]]] = []
    seen: Counter[str] = Counter()
    count = 0
    for entry in path:
        if entry.message is None:
            continue
        count += 1
        lines = _lines(entry)
        hits = [(at, words) for at, line in enumerate(lines) if (words := asked & _terms(line))]
        if hits:
            seen.update(frozenset[str]().union(*(words for _, words in hits)))
            found.append((entry, lines, hits))
    worth = {word: math.log(1 + count / times) for word, times in seen.items()}
    made = [passage for entry, lines, hits in found for passage in _around(entry, lines, hits, worth)]
    return sorted(made, key=lambda each: -each.score)  # where two are as good, the older first


def build_excerpt(path: Sequence[Entry], question: str, *, max_tokens: int, tokenizer: Tokenizer) -> str:
    """What a conversation holds about a question, as text of at most so many tokens, in the order in which it was said.

    The best passages, each with the id of its entry; empty where nothing is found. What was said there is material: no tag in it is ours.
    """
    left = max_tokens
    chosen: list[tuple[Passage, str]] = []
    order = {entry.id: at for at, entry in enumerate(path)}
    for passage in find_passages(path, question):
        shown = f"[{passage.role}, entry {passage.entry}]\n{neutralize_tags(passage.text)}"
        size = tokenizer.count(f"{shown}\n\n")
        if size <= left:
            left -= size
            chosen.append((passage, shown))
    return "\n\n".join(shown for _, shown in sorted(chosen, key=lambda each: order[each[0].entry]))


async def answer_from_transcript(  # noqa: PLR0913  # keywords
    path: Sequence[Entry],
    question: str,
    *,
    summarizer: Summarizer,
    max_tokens: int,
    redactor: Redactor | None = None,
    only_matching: bool = True,
) -> str:
    """What a conversation holds about a question, told by a summarizer in at most so many tokens.

    `only_matching` gives it the messages in which words of the question occur; else it reads all of them. Raises SummaryError where
    nothing is found. Calls are told with their results.
    """
    matching = {passage.entry for passage in find_passages(path, question)}
    said = [entry for entry in path if entry.message is not None]
    if only_matching:
        blocks = block_spans([entry.message for entry in said if entry.message is not None])
        said = [entry for start, end in blocks if any(each.id in matching for each in said[start:end]) for entry in said[start:end]]
    items = build_view(said).items
    if not items:
        raise SummaryError(reason="nothing", detail="the other conversation holds nothing about it.")
    instructions = f"Tell only what serves to answer this question, and nothing else: {question}"
    task = SummaryTask(plan=Plan(leaf=path[-1].id, dropped=items), max_tokens=max_tokens, instructions=instructions)
    made = await summarizer.summarize(task if redactor is None else redact_task(task, redactor))
    return (made if redactor is None else redact_summary(made, redactor)).text


def _lines(entry: Entry) -> list[str]:
    message = entry.message
    if message is None:
        return []
    return [*message.text.splitlines(), *(f"{call.name} {call.arguments}" for call in message.tool_calls)]


def _terms(text: str) -> frozenset[str]:
    """The words of a text, and what names and paths are made of."""
    words: set[str] = set()
    for match in _WORD.finditer(text.lower()):
        words.add(match[0])
        words.update(_PART.findall(match[0]))
    return frozenset(word for word in words if len(word) > 2 and word not in COMMON)  # noqa: PLR2004  # letters: shorter ones are everywhere


def _around(entry: Entry, lines: Sequence[str], hits: Sequence[tuple[int, frozenset[str]]], worth: dict[str, float]) -> Iterator[Passage]:
    """Lines that match, with those around them; those that are near each other in one passage."""
    groups: list[list[tuple[int, frozenset[str]]]] = [[hits[0]]]
    for before, hit in pairwise(hits):
        if hit[0] - before[0] <= 2 * AROUND + 1:
            groups[-1].append(hit)
        else:
            groups.append([hit])
    role = entry.message.role if entry.message else entry.kind
    for group in groups:
        start, end = max(0, group[0][0] - AROUND), min(len(lines), group[-1][0] + AROUND + 1)
        words = frozenset[str]().union(*(found for _, found in group))
        text = "\n".join(line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…" for line in lines[start:end])
        yield Passage(entry=entry.id, role=role, text=text, score=sum(worth[word] for word in words))
