"""Measure what a compaction lost of the facts that its messages showed, and find what completes a summary that lost too much."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set as AbstractSet
from itertools import chain, pairwise
from typing import Literal, TypeAlias

import attrs

from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.names import (
    NAMES_TAG,
    find_words,
    is_name,
    iter_texts,
    remove_name_list,
)
from promptkit.messages import Json, Message, as_mapping, as_sequence

FactKind: TypeAlias = Literal["paths", "commands", "figures", "errors", "requests"]
"""The kind of a fact."""

Level: TypeAlias = Literal["quoted", "in_context", "named", "reachable", "lost"]
"""What is left of a fact, the best first: its whole text, its words beside each other, its names
alone, the way to the transcript, nothing."""

SHOWN_LEVELS = frozenset({"quoted", "in_context", "named"})
"""The levels of facts that requests show."""

FLOOR = 0.5
"""A summary that shows a smaller share of the newest facts is completed."""

NEWEST: Mapping[FactKind, int] = {"paths": 20, "commands": 12, "figures": 12, "errors": 5}
"""The facts of each kind that count for the floor. The user's requests stand beside each summary."""

LEAST_FACTS = 8
"""With fewer facts than these no summary is completed."""

FIRST_SEARCH = 64
"""The texts that are searched at first, the newest. Each further search takes twice as many."""

MAX_CLUES = 50
"""With more words to look for than these, texts are not searched for one of them first."""

MAX_MISSING = 20
"""The texts of facts that are no longer shown which a checkpoint names, the newest first."""

_USES = frozenset({"changed", "read", "file"})
"""Words of promptkit's own lists of files, which say of each what was done with it."""


@attrs.frozen
class MeasuredFact:
    """A fact that the messages before a compaction showed, and what is left of it."""

    kind: FactKind
    text: str
    level: Level


@attrs.frozen(kw_only=True)
class Losses:
    """What a compaction left of the facts that the messages before it showed."""

    levels: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict[str, "Mapping[str, int]"])
    """The number of facts by kind (`paths`, `commands`, `figures`, `errors`, `requests`) and level
    (`quoted`, `in_context`, `named`, `reachable`, `lost`)."""
    missing: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Facts that are `reachable` or `lost`, the newest first, 20 at most. Logs leave them out."""

    @property
    def share(self) -> float:
        """The share of the facts that requests still show. 1 if there were none."""
        counts = Counter[str]()
        for levels in self.levels.values():
            counts.update(levels)
        total = counts.total()
        return sum(counts[level] for level in SHOWN_LEVELS) / total if total else 1.0

    def to_json(self) -> dict[str, Json]:
        """Return what a checkpoint stores. Empty if nothing was measured."""
        levels: dict[str, Json] = {kind: dict(counts) for kind, counts in self.levels.items()}
        return {"levels": levels, "missing": list(self.missing)} if levels else {}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Losses:
        """Read what a checkpoint stores. Values of another type are ignored."""
        return cls(
            levels={
                kind: {level: n for level, n in as_mapping(counts).items() if isinstance(n, int)}
                for kind, counts in as_mapping(data.get("levels")).items()
            },
            missing=tuple(
                each for each in as_sequence(data.get("missing")) if isinstance(each, str)
            ),
        )

    @classmethod
    def from_facts(cls, measured: Sequence[MeasuredFact]) -> Losses:
        """Count measured facts, the newest of each kind first."""
        levels: dict[str, Counter[str]] = defaultdict(Counter)
        for fact in measured:
            levels[fact.kind][fact.level] += 1
        missing = [fact.text for fact in measured if fact.level not in SHOWN_LEVELS]
        return cls(levels=levels, missing=tuple(missing[:MAX_MISSING]))


class LossMeter:
    """Measures what messages still show of the facts that the messages before them showed."""

    def __init__(self, facts: Facts, before: Iterable[Message]) -> None:
        """Prepare measurements.

        Args:
            facts: The facts of all that was dropped so far.
            before: The messages that a compaction drops.
        """
        self._facts = _list_facts(facts)
        self._texts = list(chain.from_iterable(map(iter_texts, before)))
        self._whole = {text.strip() for text in self._texts if NAMES_TAG not in text}
        self._earlier = _Shown(())
        # facts of which no text tells more, and those of them that no text shows, by identity
        self._searched, self._missing = set[int](), set[int]()

    def measure(self, after: Iterable[Message], *, has_way_back: bool) -> tuple[MeasuredFact, ...]:
        """Measure messages that the model is shown instead, with those that stay.

        Args:
            after: The messages.
            has_way_back: Whether the model is told how to look up the transcript.

        Returns:
            The facts that the messages before showed, of each kind the newest first.
        """
        shown, earlier = _Shown(self._facts), self._earlier
        shown.add(chain.from_iterable(map(iter_texts, after)))

        def is_open(fact: _Fact) -> bool:
            """Return whether texts that were not searched yet may tell more of a fact."""
            is_shown = fact.text in self._whole or earlier.shows(fact)
            return not is_shown or (bool(fact.forms) and shown.find_level(fact, earlier) == "named")

        # most facts are whole texts or stand in the newest messages, so that few are searched
        new = (fact for fact in self._facts if id(fact) not in self._searched)
        open_facts, end, size = list(filter(is_open, new)), len(self._texts), FIRST_SEARCH
        while open_facts and end > 0:
            earlier.look_for(open_facts)
            texts = self._texts[max(0, end - size) : end]
            clues = {clue for fact in open_facts for clue in fact.clues}
            if len(clues) <= MAX_CLUES and all(fact.clues for fact in open_facts):
                texts = [text for text in texts if any(clue in text for clue in clues)]
            earlier.add(texts)
            end, size = end - size, 2 * size
            open_facts = list(filter(is_open, open_facts))
        self._searched.update(map(id, open_facts))
        self._missing.update(id(fact) for fact in open_facts if not earlier.shows(fact))
        gone: Level = "reachable" if has_way_back else "lost"
        return tuple(
            MeasuredFact(fact.kind, fact.text, shown.find_level(fact, earlier) or gone)
            for fact in self._facts
            if id(fact) not in self._missing
        )


def find_left_out(measured: Iterable[MeasuredFact]) -> tuple[MeasuredFact, ...]:
    """Return the newest facts that complete a summary below the floor; none for one above it."""
    newest = list[MeasuredFact]()
    seen = Counter[FactKind]()
    for fact in measured:
        seen[fact.kind] += 1
        if seen[fact.kind] <= NEWEST.get(fact.kind, 0):
            newest.append(fact)
    missing = tuple(fact for fact in newest if fact.level not in SHOWN_LEVELS)
    shown = len(newest) - len(missing)
    return missing if len(newest) >= LEAST_FACTS and shown < FLOOR * len(newest) else ()


def is_shown(kind: FactKind, text: str, messages: Iterable[Message]) -> bool:
    """Return whether messages show a fact, at least by its names."""
    (fact,) = _recognize(((kind, text),))
    shown = _Shown(())
    shown.look_for((fact,))  # many texts have far more words than a fact
    shown.add(chain.from_iterable(map(iter_texts, messages)))
    return shown.shows(fact)


def _list_facts(facts: Facts) -> list[_Fact]:
    """Return the facts that are measured, of each kind the newest first."""
    paths = chain(reversed(facts.changed), reversed(facts.read))
    commands = (
        command.what
        for command in reversed(facts.commands)
        if not command.what.startswith("{")  # arguments of another tool, as JSON
    )
    texts: Mapping[FactKind, Iterable[str]] = {
        "paths": paths,
        "commands": commands,
        "figures": reversed(facts.figures),
        "errors": reversed(facts.errors),
        "requests": reversed(facts.requests),
    }
    return _recognize([(kind, text) for kind, each in texts.items() for text in each])


def _recognize(texts: Sequence[tuple[FactKind, str]]) -> list[_Fact]:
    """Return facts by their kinds and texts. A word that several of them have is judged once."""
    words = [find_words(text) for _, text in texts]
    # words whose letters are small, but for the first, are neither names nor numbers
    known = set(chain.from_iterable(words))
    rare = [word for word in known if not (word[1:].islower() and word.isalpha())]
    numbers = {word for word in rare if not word.isalpha() and any(map(str.isdigit, word))}
    names = numbers.union(filter(is_name, rare))
    return [
        _Fact(kind, text, found, numbers if kind == "figures" else names)
        for (kind, text), found in zip(texts, words, strict=True)
    ]


class _Fact:
    """A fact, and the words in which it is recognized."""

    def __init__(
        self, kind: FactKind, text: str, words: Sequence[str], names: AbstractSet[str]
    ) -> None:
        """Recognize a fact by its words, in their order, of which these are `names` or numbers."""
        self.kind: FactKind = kind
        self.text = text
        self._order = words
        self.words = frozenset(words)
        self.names = self.words & names
        self.forms: tuple[str, ...] = ()
        """The spellings of a path: as a whole, and from each of its folders on."""
        if kind == "paths" and len(words) == 1:
            parts = words[0].split("/")
            self.forms = tuple("/".join(parts[at:]) for at in range(max(1, len(parts) - 1)))

    @property
    def pairs(self) -> AbstractSet[tuple[str, str]]:
        """The words that stand beside each other, of a figure those with a number.

        They are not kept: the garbage collector would look through all of them.
        """
        pairs = set(pairwise(self._order))
        if self.kind == "figures":
            return {pair for pair in pairs if not self.names.isdisjoint(pair)}
        return pairs

    @property
    def clues(self) -> Collection[str]:
        """Words of which a text has one, or else tells nothing of the fact."""
        return self.forms[-1:] or (self.kind == "figures" and self.names) or self.words

    @property
    def is_told_by_names(self) -> bool:
        """True if texts show the fact exactly where they have all of its names."""
        return bool(self.names) and not self.forms and self.kind != "requests"


class _Shown:
    """The words of texts, as far as they can show facts."""

    def __init__(self, facts: Sequence[_Fact]) -> None:
        """Search texts for all of their words, and for what is beside the paths of these facts."""
        self._forms = {form for fact in facts for form in fact.forms}
        self._wanted: set[str] | None = None
        self._pairs: set[tuple[str, str]] | None = None
        self.words = set[str]()
        self.pairs = set[tuple[str, str]]()
        self.beside = defaultdict[str, set[str]](set)
        """The words beside each spelling of a path."""
        self._texts, self._lines = list[str](), list[str]()

    def look_for(self, facts: Sequence[_Fact]) -> None:
        """Search texts from now on for nothing but whether they show these facts. What was found of others stays."""
        self._forms = {form for fact in facts for form in fact.forms}
        self._wanted = self._forms.union(*(fact.words for fact in facts))
        self._pairs = set[tuple[str, str]]().union(
            *(fact.pairs for fact in facts if not fact.is_told_by_names)
        )

    def add(self, texts: Iterable[str]) -> None:
        """Search more texts."""
        for text in texts:
            self._texts.append(text)
            words = find_words(text)
            found = set(words) if self._wanted is None else self._wanted.intersection(words)
            self.words |= found
            if NAMES_TAG in text:
                words = find_words(remove_name_list(text))
            if self._pairs is None:
                self.pairs.update(pairwise(words))
            elif self._pairs:
                self.pairs |= self._pairs.intersection(pairwise(words))
            if not self._forms.isdisjoint(found):
                for word, other in pairwise(words):
                    if word in self._forms:
                        self.beside[word].add(other)
                    if other in self._forms:
                        self.beside[other].add(word)

    def _has_line(self, line: str) -> bool:
        """Return whether a text has this line, by whatever white space its words are apart."""
        line = " ".join(line.split())
        new = self._texts[len(self._lines) :]
        self._lines += (" ".join(text.split()) for text in new)
        return any(line in each for each in self._lines)

    def shows(self, fact: _Fact) -> bool:
        """Return whether a fact is shown at any level."""
        if fact.is_told_by_names:
            return fact.names <= self.words
        if (pairs := fact.pairs) and pairs <= self.pairs and fact.words <= self.words:
            return True  # whether its whole text is shown takes long to find in many messages
        return self.find_level(fact, self) is not None

    def find_level(self, fact: _Fact, earlier: _Shown) -> Level | None:
        """Return the level of a fact, whose words stood beside each other as `earlier` has it. None: it is not shown."""
        if fact.forms:
            if self.words.isdisjoint(fact.forms):
                return None
            beside, known = (
                set[str]().union(*(each.beside.get(form, ()) for form in fact.forms))
                for each in (self, earlier)
            )
            lower = {word.lower() for word in beside}
            return "named" if beside.isdisjoint(known) and lower.isdisjoint(_USES) else "in_context"
        own = fact.pairs
        pairs = own & self.pairs
        if pairs == own and fact.words <= self.words and self._has_line(fact.text):
            return "quoted"
        named = bool(fact.names) and fact.names <= self.words
        is_beside = pairs and (2 * len(pairs) >= len(own) or fact.kind == "figures")
        # a request may be shortened in its middle; two commands may differ in a number alone
        if is_beside and (fact.kind == "requests" or fact.names <= self.words):
            return "in_context"
        return "named" if named else None
