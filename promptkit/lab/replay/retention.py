"""Measure what a policy's requests still contain of the conversation: the user's messages, and what later replies use of it.

A reply uses a line that it repeats word for word from an earlier message, and a name, which is an
identifier or a path. Both are found by fixed rules in linear time, so the same text has the same
uses.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from operator import itemgetter

import attrs

from promptkit.compaction.planning.names import (
    MAX_LENGTH,
    find_words,
    is_common,
    is_name,
    iter_texts,
    remove_name_list,
)
from promptkit.lab.replay.prompt_cache import MessageCount, MessageCounts
from promptkit.lab.replay.recordings import Recording
from promptkit.messages import Message

OPENING = 120
"""Characters of the words of a user message that a summary must contain, so that the message counts
as known."""

LINE_LENGTH = 20
"""Characters of a line that counts as quoted where a later reply repeats it."""


@attrs.frozen(kw_only=True)
class RetentionCounts:
    """Counts over the requests of one policy, from which its shares are computed."""

    lines_used: int = 0
    """Lines of replies that an earlier message contains, counted once for each reply."""
    lines_shown: int = 0
    """Of these, lines that the request contained."""
    names_used: int = 0
    """Names in replies that an earlier message contains, counted once for each reply, without those
    that need no memory."""
    names_shown: int = 0
    """Of these, names that the request spelled, in a list or anywhere else."""
    contexts_used: int = 0
    """Of the used names, those that stood next to another word in an earlier message."""
    contexts_shown: int = 0
    """Of these, names that the request contained next to a word next to which they were
    recorded."""
    answers_lacking: int = 0
    """Replies that quote an earlier line which the request did not contain."""
    user_messages: int = 0
    """The user's messages so far, counted once for each request."""
    user_messages_known: int = 0
    """Of these, messages that the request, or the transcript whose path it named, contained."""
    user_messages_present: int = 0
    """Of these, messages that the request itself contained."""

    def __add__(self, other: RetentionCounts) -> RetentionCounts:
        return RetentionCounts(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in attrs.fields(RetentionCounts)
            }
        )


@attrs.frozen(kw_only=True)
class Uses:
    """What one reply uses of earlier messages, as items (kind, text)."""

    lines: frozenset[tuple[str, str]]
    names: frozenset[tuple[str, str]]
    contexts: frozenset[tuple[str, str]]


class RecordingUses:
    """What the replies of a recording use of earlier messages, computed once for all policies.

    An item is a line, a name, or a name beside a word of its context. Only what a reply contains
    can be used, so nothing else is an item.
    """

    def __init__(self, recording: Recording, counts: MessageCounts) -> None:
        self.counts = counts
        self.shared = recording.shared
        self.messages = counts.count_messages(recording.messages)
        self.output_tokens = tuple(
            map(
                max,
                (each.tokens for each in self.messages),
                recording.reported or (0,) * len(self.messages),
            )
        )
        """For each message the output tokens that are billed if it is a reply: those of its text,
        or more where thinking is without text."""
        self.recorded_numbers = frozenset(message.number for message in self.messages)
        self._directory = find_working_directory(recording.messages)
        replies = [count.message for count in self.messages if count.role == "assistant"]
        self._lines = frozenset(line for each in replies for line in iter_lines(each))
        self._names = frozenset(filter(is_name, chain.from_iterable(map(self._words, replies))))
        system = counts.count_messages(recording.system)
        self._pairs = frozenset(
            pair for count in (*system, *self.messages) for pair in self._iter_pairs(count.message)
        )
        self._items: dict[int, frozenset[tuple[str, str]]] = {}
        tools = {call.name for message in recording.messages for call in message.tool_calls}
        apart = {
            name
            for name in self._names
            if name in tools or is_common(name) or f"{self._directory}/".startswith(f"{name}/")
        }
        known = set[tuple[str, str]]().union(*map(self.items_in, system))
        self.uses: dict[int, Uses] = {}
        """For the place of each reply what it uses of earlier messages."""
        for at, count in enumerate(self.messages):
            items = self.items_in(count)
            if count.role == "assistant":
                used = {text for kind, text in items & known if kind == "name"}
                self.uses[at] = Uses(
                    lines=frozenset(item for item in items & known if item[0] == "line"),
                    names=frozenset(("name", name) for name in used - apart),
                    contexts=frozenset(("context", name) for name in used - apart) & known,
                )
            known |= items
        self.user_messages = tuple(
            (at, join_words(count.message.text)[:OPENING])
            for at, count in enumerate(self.messages)
            if count.role == "user"
        )
        """The places of the user's messages, and their first words."""

    def items_in(self, message: MessageCount) -> frozenset[tuple[str, str]]:
        """Return the items that a message contains."""
        if (items := self._items.get(message.number)) is None:
            pairs = self._pairs.intersection(self._iter_pairs(message.message))
            items = self._items[message.number] = frozenset(
                [("line", line) for line in iter_lines(message.message) if line in self._lines]
                + [("name", word) for word in self._words(message.message) if word in self._names]
                + [("context", word) for pair in pairs for word in pair if word in self._names]
            )
        return items

    def _words(self, message: Message) -> Iterator[str]:
        """Return the words of a message. A path in the working directory begins below it."""
        return chain.from_iterable(map(self._words_of, iter_texts(message)))

    def _words_of(self, text: str) -> Iterator[str]:
        for word in find_words(text):
            below = word.removeprefix(f"{self._directory}/")
            yield below if is_name(below) else word

    def _iter_pairs(self, message: Message) -> Iterator[tuple[str, str]]:
        """Yield the names of a message with the words beside them. A list of names has no context."""
        return (
            pair
            for text in iter_texts(message)
            for pair in pairwise(self._words_of(remove_name_list(text)))
            if not self._names.isdisjoint(pair)
        )


def find_working_directory(messages: Iterable[Message]) -> str:
    """Return the longest directory that contains more than half of the absolute paths in tool calls, without its first slash.

    An empty text: there are no such paths.
    """
    paths: list[str] = [
        path
        for message in messages
        if message.tool_calls
        for text in iter_texts(message)
        for path in _ABSOLUTE.findall(text)
        if len(path) <= MAX_LENGTH
    ]
    inside = Counter(
        directory
        for path in paths
        for directory in accumulate(path.split("/")[1:-1], "{}/{}".format)
    )
    return max(
        [directory for directory, count in inside.items() if 2 * count > len(paths)],
        key=len,
        default="",
    )


def iter_lines(message: Message) -> Iterator[str]:
    """Return the lines of a message that count as quoted if they are repeated, without the numbers that tools print before them."""
    lines = (
        _NUMBER.sub("", line, count=1).strip()
        for text in iter_texts(message)
        for line in text.splitlines()
    )
    return (line for line in lines if len(line) >= LINE_LENGTH)


class RetentionTracker:
    """Follows the requests of one policy, and counts what they contain.

    Only the messages that changed since the last request are read.

    `transcript_path` is the path of the transcript that the policy names in its messages; None if
    it keeps no transcript.
    """

    def __init__(self, recording: RecordingUses, *, transcript_path: str | None) -> None:
        self.counts = RetentionCounts()
        """The counts so far."""
        self._recording = recording
        self._transcript_path = transcript_path
        self._request_numbers: frozenset[int] = frozenset()
        self._mentions: Counter[tuple[str, str]] = Counter()
        """For each item how many messages of the request contain it."""
        self._repeated: dict[int, frozenset[int]] = {}
        """For each message that was not recorded, the places of the user messages that it
        repeats."""
        self._with_path: set[int] = set()
        """The messages, among those that were not recorded, that name the transcript's path."""
        self._user_places: dict[int, list[int]] = {}
        for at, _ in recording.user_messages:
            self._user_places.setdefault(recording.messages[at].number, []).append(at)
        self._present_users: set[int] = set()

    def on_request(self, messages: Sequence[MessageCount], reply: int) -> bool:
        """Count a request, and return whether it lacks a line that its reply quotes.

        `reply` is the place of the reply in the recording. A reply that an earlier branch has, too,
        counts nothing.
        """
        recording = self._recording
        numbers = frozenset(message.number for message in messages)
        for number in self._request_numbers - numbers:
            self._remove(recording.counts[number])
        for number in sorted(numbers - self._request_numbers):
            self._add(recording.counts[number], reply)
        self._request_numbers = numbers
        if reply < recording.shared:
            return False
        uses = recording.uses[reply]
        lines_shown = self._count_shown(uses.lines)
        user_messages = bisect_left(recording.user_messages, reply, key=itemgetter(0))
        shown = sum(at < reply for at in self._present_users.union(*self._repeated.values()))
        self.counts += RetentionCounts(
            lines_used=len(uses.lines),
            lines_shown=lines_shown,
            names_used=len(uses.names),
            names_shown=self._count_shown(uses.names),
            contexts_used=len(uses.contexts),
            contexts_shown=self._count_shown(uses.contexts),
            answers_lacking=lines_shown < len(uses.lines),
            user_messages=user_messages,
            user_messages_known=user_messages if self._with_path else shown,
            user_messages_present=shown,
        )
        return lines_shown < len(uses.lines)

    def _count_shown(self, items: Iterable[tuple[str, str]]) -> int:
        return sum(self._mentions[item] > 0 for item in items)

    def _add(self, message: MessageCount, reply: int) -> None:
        self._mentions.update(self._recording.items_in(message))
        self._present_users.update(self._user_places.get(message.number, ()))
        if message.number in self._recording.recorded_numbers:
            return
        text = message.message.text
        words = join_words(text) if message.role == "user" else ""
        self._repeated[message.number] = frozenset(
            at
            for at, opening in self._recording.user_messages
            if at < reply and opening and opening in words
        )
        if self._transcript_path is not None and self._transcript_path in text:
            self._with_path.add(message.number)

    def _remove(self, message: MessageCount) -> None:
        self._mentions.subtract(self._recording.items_in(message))
        self._present_users.difference_update(self._user_places.get(message.number, ()))
        self._repeated.pop(message.number, None)
        self._with_path.discard(message.number)


# Each pattern matches every character at most once.
_WORD = re.compile(r"\w+")
_ABSOLUTE = re.compile(r"(?<![\w./~@+\-])/[\w.~@+\-]+(?:/[\w.~@+\-]+)++")
_NUMBER = re.compile(r"\A[ \t]*+\d{1,9}(?:→|\t|:|[ ]*\|)")


def join_words(text: str) -> str:
    """Join the words of a text by single spaces.

    The result does not depend on indentation, line breaks and markup.
    """
    return " ".join(_WORD.findall(text))
