"""What a policy's requests still know of the conversation: the person's requests, and the facts that answers use again.

What a later answer may need of a message: identifiers, paths, error texts. Found by rules, the same for the same text, in one pass.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from operator import itemgetter
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit.messages import Message
    from promptkit.replay.message_counts import MessageCount, MessageCounts
    from promptkit.replay.recordings import Recording

__all__ = ["Kept", "Needs", "Retention", "mentions", "said_in", "words_of"]


# Each pattern takes every character once: what is between two matches is never looked at again.
_RUN = re.compile(r"[\w./~@+\-]+")
_ERROR = re.compile(r"(?:[Ee]rror|[Ee]xception|fatal|panic|FAILED)(?:\[\w{1,20}\])?:[ \t]([^\n]{4,400})")
_WORD = re.compile(r"\w+")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z][a-z]+[A-Z]")

SHORTEST, LONGEST = 5, 200
"""Characters of an identifier or a path."""

ERROR = 80
"""Characters of an error text that have to be there again."""


def mentions(message: Message) -> frozenset[str]:
    """The identifiers, paths and error texts of a message and of its calls.

    Of `Why does load_file in src/io.py fail? ValueError: no such row`: `load_file`, `src/io.py`, `ValueError`, `error: no such row`.
    """
    found: set[str] = set()
    for text in said_in(message):
        for match in _RUN.finditer(text):
            run = match.group().strip("./-+")
            if SHORTEST <= len(run) <= LONGEST and _tells(run):
                found.add(run)
        for match in _ERROR.finditer(text):
            found.add(f"error: {' '.join(match[1][: 2 * ERROR].split())[:ERROR]}")
    return frozenset(found)


def words_of(text: str) -> str:
    """The words of a text alone: the same however it was indented, wrapped or marked up."""
    return " ".join(_WORD.findall(text))


def said_in(message: Message) -> Iterator[str]:
    """The texts of a message: its own, and the names and texts in its calls' arguments, read as JSON where they are."""
    yield message.text
    for call in message.tool_calls:
        yield call.name
        yield from _texts(call.arguments)


def _texts(arguments: str) -> Iterator[str]:
    try:
        left: list[object] = [json.loads(arguments)]
    except (ValueError, RecursionError):
        yield arguments
        return
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            left.extend(value.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]  # JSON, looked at above
        elif isinstance(value, list):
            left.extend(value)  # pyright: ignore[reportUnknownArgumentType]  # as above


def _tells(run: str) -> bool:
    """Whether a run of characters is a name rather than a word of a language or a number."""
    if not any(character.isalpha() for character in run):
        return False
    inside = run[1:-1]
    return any(mark in inside for mark in "/_@") or _is_dotted(run) or _HUMP.search(run) is not None or any(map(str.isdigit, run))


def _is_dotted(run: str) -> bool:
    """`parser.py`, `os.path.join`; not the end of one sentence with the start of the next, nor `e.g`."""
    before, dot, behind = run.rpartition(".")
    return bool(dot) and len(before) > 1 and len(behind) > 1 and behind[0].islower()


OPENING = 120
"""Characters of a request's words that a summary must have, so that the request is there."""

SYSTEM = -1
"""The place of what the system messages say: it is never dropped."""


class Needs:
    """What the answers of a recording use of what was said before them: worked out once for all policies."""

    def __init__(self, recording: Recording, pieces: MessageCounts) -> None:
        self.pieces = pieces
        self.said = pieces.of(recording.messages)
        self.recorded = frozenset(piece.number for piece in self.said)
        answers = {at: mentions(piece.message) for at, piece in enumerate(self.said) if piece.role == "assistant"}
        # Only what an answer says can be needed by one: of all else, nothing is kept.
        self._facts = {fact: number for number, fact in enumerate(sorted(frozenset[str]().union(*answers.values())))}
        self._of: dict[int, frozenset[int]] = {}
        first: dict[int, int] = {}
        for message in recording.system:
            first.update(dict.fromkeys(self._known(mentions(message)), SYSTEM))
        self.uses: dict[int, tuple[int, ...]] = {}
        """For the place of each answer the facts that it uses, and that were said before it."""
        for at, piece in enumerate(self.said):
            facts = self.of(piece)
            if at in answers:
                self.uses[at] = tuple(sorted(fact for fact in facts if fact in first))
            for fact in facts:
                first.setdefault(fact, at)
        self.first = first
        """For each fact the place of the message that said it first."""
        self.asked = tuple((at, words_of(piece.message.text)[:OPENING]) for at, piece in enumerate(self.said) if piece.role == "user")
        """The person's requests: their places, and the words that they begin with."""

    def of(self, piece: MessageCount) -> frozenset[int]:
        """The facts of a message, by number, that any answer says."""
        found = self._of.get(piece.number)
        if found is None:
            found = self._of[piece.number] = self._known(mentions(piece.message))
        return found

    def _known(self, found: frozenset[str]) -> frozenset[int]:
        return frozenset(self._facts[fact] for fact in found if fact in self._facts)


@attrs.frozen(kw_only=True)
class Kept:
    """Counts over the requests of one policy, of which its shares are made."""

    uses: int = 0
    """Facts that answers used and that were said before them, once for each answer."""
    dropped: int = 0
    """Of these, those whose first message was not in the request any more as it was recorded."""
    present: int = 0
    """Of the dropped ones, those that the request said all the same: in its summary, or in another message."""
    reachable: int = 0
    """Of the dropped ones, those that it did not say, but had a way to: the place of a transcript that has them."""
    asked: int = 0
    """The person's requests so far, once for each request of the replay."""
    asked_known: int = 0
    """Of these, those that were in the request, or reachable."""
    asked_last: int = 0
    """The person's requests at the end."""
    asked_last_known: int = 0

    def __add__(self, other: Kept) -> Kept:
        return Kept(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in attrs.fields(Kept)})


class Retention:
    """Follows the requests of one policy. What changed since the request before is looked at, and nothing else.

    `place` is that of the transcript, where the policy keeps one and says so in its messages.
    """

    def __init__(self, needs: Needs, *, place: str | None) -> None:
        self._kept = Kept()
        self._last = 0, 0
        self._needs = needs
        self._place = place
        self._shown: frozenset[int] = frozenset()
        self._says: dict[int, int] = {}
        self._made: dict[int, frozenset[int]] = {}
        """Of the messages that nobody recorded, the places of the person's requests that each repeats."""
        self._ways: set[int] = set()
        """Of these, those that say where the transcript is."""
        self._places: dict[int, list[int]] = {}
        for at, _ in needs.asked:
            self._places.setdefault(needs.said[at].number, []).append(at)
        self._asked: set[int] = set()

    def request(self, pieces: Sequence[MessageCount], answer: int) -> None:
        """A request was sent, and answered by the message at a place of the recording."""
        needs = self._needs
        shown = frozenset(piece.number for piece in pieces)
        for number in self._shown - shown:
            self._leave(needs.pieces[number])
        for number in sorted(shown - self._shown):
            self._enter(needs.pieces[number], answer)
        self._shown = shown
        way = bool(self._ways)
        dropped = present = 0
        for fact in needs.uses[answer]:
            first = needs.first[fact]
            if first != SYSTEM and needs.said[first].number not in shown:
                dropped += 1
                present += fact in self._says
        asked = bisect_left(needs.asked, answer, key=itemgetter(0))
        known = asked if way else self._known(answer)
        self._kept += Kept(
            uses=len(needs.uses[answer]),
            dropped=dropped,
            present=present,
            reachable=dropped - present if way else 0,
            asked=asked,
            asked_known=known,
        )
        self._last = asked, known

    @property
    def kept(self) -> Kept:
        """The counts so far."""
        return attrs.evolve(self._kept, asked_last=self._last[0], asked_last_known=self._last[1])

    def _enter(self, piece: MessageCount, answer: int) -> None:
        for fact in self._needs.of(piece):
            self._says[fact] = self._says.get(fact, 0) + 1
        self._asked.update(self._places.get(piece.number, ()))
        if piece.number in self._needs.recorded:
            return
        text = piece.message.text
        words = words_of(text) if piece.role == "user" else ""
        self._made[piece.number] = frozenset(at for at, opening in self._needs.asked if at < answer and opening and opening in words)
        if self._place is not None and self._place in text:
            self._ways.add(piece.number)

    def _leave(self, piece: MessageCount) -> None:
        for fact in self._needs.of(piece):
            left = self._says[fact] - 1
            if left:
                self._says[fact] = left
            else:
                del self._says[fact]
        self._asked.difference_update(self._places.get(piece.number, ()))
        self._made.pop(piece.number, None)
        self._ways.discard(piece.number)

    def _known(self, answer: int) -> int:
        """Those of them that the request has."""
        return sum(at < answer for at in self._asked.union(*self._made.values()))
