"""Seeded prompts to measure with: realistic text, and the shapes of a history."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pydoc_data.topics import topics
from random import Random
from typing import TYPE_CHECKING, Final

import attrs

from promptkit.elements.chat import AssistantMessage, ToolMessage, UserMessage
from promptkit.elements.layout import Group
from promptkit.elements.text import TextChunk
from promptkit.messages import ToolCall

if TYPE_CHECKING:
    from promptkit.element import Child, PromptElement

__all__ = ["SHAPES", "Shape", "fresh", "texts", "turn"]

LONG: Final = (70, 90)
SHORT: Final = (8, 12)
FAN_OUT: Final = 10


@attrs.frozen
class Shape:
    """A way to write a history as elements. `build` creates the elements; it is never timed."""

    name: str
    build: Callable[[Sequence[str]], tuple[Child, ...]]
    words: tuple[int, int] = LONG
    per_message: int = 1
    """Texts for each message of the benchmark."""


def texts(count: int, words: tuple[int, int], *, seed: int = 2026) -> tuple[str, ...]:
    """Return English prose with identifiers, numbers, names, punctuation and some accents. `words` are the fewest and most per text.

    The words and their frequencies are those of the language reference that comes with Python, some thousands of different ones; as many
    invented ones serve as names. The time to tokenise a text depends on such variety.
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
        return "".join(random.choice("bcdfghklmnprstvwz") + random.choice("aeiouy") for _ in range(random.randint(2, 5))).title()
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


def turn(question: str, answer: str, priority: int) -> tuple[PromptElement, PromptElement]:
    """Return the elements that one more turn adds to a flat history."""
    return UserMessage(priority=priority)[question], AssistantMessage(priority=priority + 1)[answer]


def _flat(contents: Sequence[str]) -> tuple[Child, ...]:
    return tuple((AssistantMessage if index % 2 else UserMessage)(priority=index)[text] for index, text in enumerate(contents))


def _ties(contents: Sequence[str]) -> tuple[Child, ...]:
    return tuple((AssistantMessage if index % 2 else UserMessage)()[text] for index, text in enumerate(contents))


def _nested(contents: Sequence[str]) -> tuple[Child, ...]:
    level = _flat(contents)
    while len(level) > FAN_OUT:
        bounds = (*range(0, len(level), FAN_OUT), len(level))
        level = tuple(Group(priority=index)[level[first:after]] for index, (first, after) in enumerate(pairwise(bounds)))
    return level


def _deep(contents: Sequence[str]) -> tuple[Child, ...]:
    """Return a chain of nested groups, each with one message and the group of all older ones."""
    chain: tuple[Child, ...] = ()
    for message in _flat(contents):
        chain = (Group(priority=0)[chain, message],)
    return chain


def _tools(contents: Sequence[str]) -> tuple[Child, ...]:
    """Return calls and results: every second text is a result, and call and result are two messages."""
    elements: list[Child] = []
    for index, text in enumerate(contents[1::2]):
        call = ToolCall(id=f"call_{index}", name="read_file", arguments=f'{{"path": "src/module_{index}.py"}}')
        elements += [AssistantMessage(priority=index, tool_calls=[call]), ToolMessage(priority=index, tool_call_id=call.id)[text]]
    return tuple(elements)


def _chunks(contents: Sequence[str]) -> tuple[Child, ...]:
    return (UserMessage()[(TextChunk(priority=index)[text] for index, text in enumerate(contents))],)


SHAPES: Final = (
    Shape("flat", _flat),
    Shape("nested", _nested),
    Shape("deep", _deep),
    Shape("ties", _ties),
    Shape("tools", _tools),
    Shape("short", _flat, words=SHORT),
    Shape("chunks", _chunks, words=SHORT, per_message=2),
)
