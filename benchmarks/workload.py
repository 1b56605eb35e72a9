"""Seeded prompts to measure with: realistic text, and the shapes of a history."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from pydoc_data.topics import topics
from random import Random
from typing import TYPE_CHECKING, Final

import attrs

from promptkit.elements.builtin import AssistantMessage, Group, TextChunk, ToolMessage, UserMessage
from promptkit.messages import ToolCall

if TYPE_CHECKING:
    from promptkit.elements.element import Child, PromptElement

__all__ = ["SHAPES", "Shape", "fresh", "texts"]

LONG: Final = (70, 90)
SHORT: Final = (8, 12)
FAN_OUT: Final = 10


def _append(elements: tuple[Child, ...], question: str, answer: str) -> tuple[Child, ...]:
    """Return a history with one more turn behind it."""
    count = len(elements)
    return (
        *elements,
        UserMessage(priority=count)[question],
        AssistantMessage(priority=count + 1)[answer],
    )


def _read_texts(contents: Sequence[str]) -> tuple[str, ...]:
    return tuple(contents)


@attrs.frozen
class Shape:
    """A way to write a history as elements. What the functions do is never timed."""

    name: str
    build: Callable[[Sequence[str]], tuple[Child, ...]]
    """Creates the elements from the texts."""
    words: tuple[int, int] = LONG
    per_item: Fraction = Fraction(1)
    """Texts for each item of the benchmark: a message, or a line of one."""
    extend: Callable[[tuple[Child, ...], str, str], tuple[Child, ...]] = _append
    """Returns the elements with one more turn of two texts. What was there keeps its objects, as
    far as it does not change."""
    read: Callable[[Sequence[str]], tuple[str, ...]] = _read_texts
    """Returns everything that has to be tokenised: the texts, and the arguments of calls."""


def texts(count: int, words: tuple[int, int], *, seed: int = 2026) -> tuple[str, ...]:
    """Return English prose with identifiers, numbers, names, punctuation and some accents.

    `words` are the fewest and most per text.

    The words and their frequencies are those of the language reference that comes with Python, some
    thousands of different ones; as many invented ones serve as names. The time to tokenise a text
    depends on such variety.
    """
    random = Random(seed)
    words_seen = Counter(re.findall(r"[A-Za-z_][\w.']*\w|[AaI]", "\n".join(topics.values())))
    pool = random.choices(tuple(words_seen), tuple(words_seen.values()), k=60_000)
    for index in range(0, len(pool), 16):
        pool[index] = _unusual(random)
    return tuple(_prose(random, pool, random.randint(*words)) for _ in range(count))


def _unusual(random: Random) -> str:
    kind = random.random()
    if kind < 0.5:
        return "".join(
            random.choice("bcdfghklmnprstvwz") + random.choice("aeiouy")
            for _ in range(random.randint(2, 5))
        ).title()
    if kind < 0.95:
        return str(random.randrange(10 ** random.randint(1, 6)))
    return random.choice(("café", "naïve", "Zürich", "São", "—", "…", "≤", "日本", "été"))


def _prose(random: Random, pool: Sequence[str], words: int) -> str:
    start = random.randrange(len(pool) - words)
    chosen = list(pool[start : start + words])
    random.shuffle(chosen)
    chosen[0] = chosen[0].capitalize()
    chosen[-1] += "."
    for index in range(random.randint(3, 8), words - 1, random.randint(7, 12)):
        chosen[index] += random.choice((",", ",", ".", ".", ";", ":", "?", ".\n\n-"))
    return " ".join(chosen)


def fresh(originals: Sequence[str]) -> tuple[str, ...]:
    """Return equal texts as new objects: a string caches its hash and its UTF-8, and no measurement may profit from that."""
    return tuple(text[:1] + text[1:] for text in originals)


def _flat(contents: Sequence[str]) -> tuple[Child, ...]:
    return tuple(
        (AssistantMessage if index % 2 else UserMessage)(priority=index)[text]
        for index, text in enumerate(contents)
    )


def _ties(contents: Sequence[str]) -> tuple[Child, ...]:
    return tuple(
        (AssistantMessage if index % 2 else UserMessage)()[text]
        for index, text in enumerate(contents)
    )


def _nested(contents: Sequence[str]) -> tuple[Child, ...]:
    level = _flat(contents)
    while len(level) > FAN_OUT:
        bounds = (*range(0, len(level), FAN_OUT), len(level))
        level = tuple(
            Group(priority=index)[level[first:after]]
            for index, (first, after) in enumerate(pairwise(bounds))
        )
    return level


def _deep(contents: Sequence[str]) -> tuple[Child, ...]:
    """Return a chain of nested groups, each with one message and the group of all older ones."""
    chain: tuple[Child, ...] = ()
    for message in _flat(contents):
        chain = (Group(priority=0)[chain, message],)
    return chain


def _extend_deep(chain: tuple[Child, ...], question: str, answer: str) -> tuple[Child, ...]:
    for message in (
        UserMessage(priority=len(question))[question],
        AssistantMessage(priority=len(answer))[answer],
    ):
        chain = (Group(priority=0)[chain, message],)
    return chain


def _tools(contents: Sequence[str]) -> tuple[Child, ...]:
    """Return a call and its result for each text, which is the result. They are two messages."""
    return tuple(message for index, text in enumerate(contents) for message in _call(index, text))


def _call(index: int, text: str) -> tuple[PromptElement, PromptElement]:
    call = ToolCall(id=f"call_{index}", name="read_file", arguments=_arguments(index))
    return AssistantMessage(priority=index, tool_calls=[call]), ToolMessage(
        priority=index, tool_call_id=call.id
    )[text]


def _arguments(index: int) -> str:
    return f'{{"path": "src/module_{index}.py"}}'


def _extend_tools(elements: tuple[Child, ...], question: str, answer: str) -> tuple[Child, ...]:
    count = len(elements)
    return (*elements, UserMessage(priority=count)[question], *_call(count, answer))


def _read_tools(contents: Sequence[str]) -> tuple[str, ...]:
    return (*contents, *map(_arguments, range(len(contents))))


def _chunks(contents: Sequence[str]) -> tuple[Child, ...]:
    return (
        UserMessage()[(TextChunk(priority=index)[text] for index, text in enumerate(contents))],
    )


def _extend_chunks(elements: tuple[Child, ...], question: str, answer: str) -> tuple[Child, ...]:
    (message,) = elements
    if not isinstance(message, UserMessage):
        raise TypeError(message)
    count = len(message.children)
    return (
        UserMessage()[
            message.children,
            TextChunk(priority=count)[question],
            TextChunk(priority=count + 1)[answer],
        ],
    )


SHAPES: Final = (
    Shape("flat", _flat),
    Shape("nested", _nested),
    Shape("deep", _deep, extend=_extend_deep),
    Shape("ties", _ties),
    Shape("tools", _tools, per_item=Fraction(1, 2), extend=_extend_tools, read=_read_tools),
    Shape("short", _flat, words=SHORT),
    Shape("chunks", _chunks, words=SHORT, per_item=Fraction(2), extend=_extend_chunks),
)
