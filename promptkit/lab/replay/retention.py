"""Measure what a policy's requests still contain of the conversation: the user's messages, and the facts that later replies use.

A fact is an identifier, a path or an error text. Facts are found by fixed rules in linear time, so
the same text has the same facts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.names import find_names, iter_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.lab.replay.message_counts import MessageCount, MessageCounts
    from promptkit.lab.replay.recordings import Recording
    from promptkit.messages import Message

OPENING = 120
"""Characters of the words of a user message that a summary must contain, so that the message counts
as known."""

SYSTEM = -1
"""The place of facts in system messages, which are never dropped."""


@attrs.frozen(kw_only=True)
class RetentionCounts:
    """Counts over the requests of one policy, from which its shares are computed."""

    facts_used: int = 0
    """Facts in replies that an earlier message contains, counted once for each reply."""
    facts_dropped: int = 0
    """Of these, facts whose first message was not in the request as it was recorded."""
    facts_present: int = 0
    """Of the dropped facts, those that another message of the request contained, such as its
    summary."""
    facts_reachable: int = 0
    """Of the dropped facts, those that only the transcript contained whose path the request
    named."""
    answers_lacking: int = 0
    """Replies that use an earlier fact which the request did not contain."""
    user_messages: int = 0
    """The user's messages so far, counted once for each request."""
    user_messages_known: int = 0
    """Of these, messages that the request, or the transcript whose path it named, contained."""
    user_messages_present: int = 0
    """Of these, messages that the request itself contained."""
    last_user_messages: int = 0
    """The user's messages at the last request of the conversation."""
    last_user_messages_known: int = 0
    """Of these, messages that the last request, or the transcript whose path it named,
    contained."""

    def __add__(self, other: RetentionCounts) -> RetentionCounts:
        return RetentionCounts(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in attrs.fields(RetentionCounts)
            }
        )


class RecordingFacts:
    """The facts of a recording that its replies use, computed once for all policies."""

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
        replies = {
            at: find_facts(count.message)
            for at, count in enumerate(self.messages)
            if count.role == "assistant"
        }
        # Only facts that a reply contains can be used, so all others are ignored.
        self._fact_numbers = {
            fact: number
            for number, fact in enumerate(sorted(frozenset[str]().union(*replies.values())))
        }
        self._facts_by_message: dict[int, frozenset[int]] = {}
        first: dict[int, int] = {}
        for message in recording.system:
            first.update(dict.fromkeys(self._number_facts(find_facts(message)), SYSTEM))
        self.facts_used: dict[int, tuple[int, ...]] = {}
        """For the place of each reply the facts in it that an earlier message contains."""
        for at, count in enumerate(self.messages):
            facts = self.facts_in(count)
            if at in replies:
                self.facts_used[at] = tuple(sorted(fact for fact in facts if fact in first))
            for fact in facts:
                first.setdefault(fact, at)
        self.first_mention = first
        """For each fact the place of the first message that contains it."""
        self.user_messages = tuple(
            (at, join_words(count.message.text)[:OPENING])
            for at, count in enumerate(self.messages)
            if count.role == "user"
        )
        """The places of the user's messages, and their first words."""

    def facts_in(self, message: MessageCount) -> frozenset[int]:
        """Return the numbers of the facts of a message that any reply contains."""
        facts = self._facts_by_message.get(message.number)
        if facts is None:
            facts = self._facts_by_message[message.number] = self._number_facts(
                find_facts(message.message)
            )
        return facts

    def _number_facts(self, facts: frozenset[str]) -> frozenset[int]:
        return frozenset(self._fact_numbers[fact] for fact in facts if fact in self._fact_numbers)


class RetentionTracker:
    """Follows the requests of one policy, and counts what they contain.

    Only the messages that changed since the last request are read.

    `transcript_path` is the path of the transcript that the policy names in its messages; None if
    it keeps no transcript.
    """

    def __init__(self, facts: RecordingFacts, *, transcript_path: str | None) -> None:
        self._counts = RetentionCounts()
        self._last = 0, 0
        self._facts = facts
        self._transcript_path = transcript_path
        self._request_numbers: frozenset[int] = frozenset()
        self._fact_mentions: Counter[int] = Counter()
        """For each fact how many messages of the request contain it."""
        self._repeated: dict[int, frozenset[int]] = {}
        """For each message that was not recorded, the places of the user messages that it
        repeats."""
        self._with_path: set[int] = set()
        """The messages, among those that were not recorded, that name the transcript's path."""
        self._user_places: dict[int, list[int]] = {}
        for at, _ in facts.user_messages:
            self._user_places.setdefault(facts.messages[at].number, []).append(at)
        self._present_users: set[int] = set()

    @property
    def counts(self) -> RetentionCounts:
        """The counts so far. The `last_…` counts are those of the last request."""
        return attrs.evolve(
            self._counts, last_user_messages=self._last[0], last_user_messages_known=self._last[1]
        )

    def on_request(self, messages: Sequence[MessageCount], reply: int) -> bool:
        """Count a request, and return whether it lacks a fact that its reply uses.

        `reply` is the place of the reply in the recording. A reply that an earlier branch has, too,
        counts nothing.
        """
        facts = self._facts
        numbers = frozenset(message.number for message in messages)
        for number in self._request_numbers - numbers:
            self._remove(facts.counts[number])
        for number in sorted(numbers - self._request_numbers):
            self._add(facts.counts[number], reply)
        self._request_numbers = numbers
        if reply < facts.shared:
            return False
        reachable = bool(self._with_path)
        dropped = present = 0
        for fact in facts.facts_used[reply]:
            first = facts.first_mention[fact]
            if first != SYSTEM and facts.messages[first].number not in numbers:
                dropped += 1
                present += self._fact_mentions[fact] > 0
        user_messages = bisect_left(facts.user_messages, reply, key=itemgetter(0))
        shown = self._count_known(reply)
        known = user_messages if reachable else shown
        self._counts += RetentionCounts(
            facts_used=len(facts.facts_used[reply]),
            facts_dropped=dropped,
            facts_present=present,
            facts_reachable=dropped - present if reachable else 0,
            answers_lacking=dropped > present,
            user_messages=user_messages,
            user_messages_known=known,
            user_messages_present=shown,
        )
        self._last = user_messages, known
        return dropped > present

    def _add(self, message: MessageCount, reply: int) -> None:
        self._fact_mentions.update(self._facts.facts_in(message))
        self._present_users.update(self._user_places.get(message.number, ()))
        if message.number in self._facts.recorded_numbers:
            return
        text = message.message.text
        words = join_words(text) if message.role == "user" else ""
        self._repeated[message.number] = frozenset(
            at
            for at, opening in self._facts.user_messages
            if at < reply and opening and opening in words
        )
        if self._transcript_path is not None and self._transcript_path in text:
            self._with_path.add(message.number)

    def _remove(self, message: MessageCount) -> None:
        self._fact_mentions.subtract(self._facts.facts_in(message))
        self._present_users.difference_update(self._user_places.get(message.number, ()))
        self._repeated.pop(message.number, None)
        self._with_path.discard(message.number)

    def _count_known(self, reply: int) -> int:
        """Count the user messages before a reply that the request contains."""
        return sum(at < reply for at in self._present_users.union(*self._repeated.values()))


# The pattern matches every character at most once: text between two matches is not searched again.
_ERROR = re.compile(
    r"(?:[Ee]rror|[Ee]xception|fatal|panic|FAILED)(?:\[\w{1,20}\])?:[ \t]([^\n]{4,400})"
)
_WORD = re.compile(r"\w+")

ERROR_LENGTH = 80
"""Characters of an error text that are compared."""


def find_facts(message: Message) -> frozenset[str]:
    """Return the identifiers, paths and error texts of a message and of its tool calls.

    `Why does load_file in src/io.py fail? ValueError: no such row` has `load_file`, `src/io.py`,
    `ValueError`, `error: no such row`.
    """
    found: set[str] = set()
    for text in iter_texts(message):
        found |= find_names(text)
        for match in _ERROR.finditer(text):
            found.add(f"error: {' '.join(match[1][: 2 * ERROR_LENGTH].split())[:ERROR_LENGTH]}")
    return frozenset(found)


def join_words(text: str) -> str:
    """Join the words of a text by single spaces.

    The result does not depend on indentation, line breaks and markup.
    """
    return " ".join(_WORD.findall(text))
