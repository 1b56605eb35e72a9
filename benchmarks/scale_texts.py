"""Make texts as they are in the work of a coding agent: requests, files, output of commands and replies, with the paths, identifiers, figures and errors that a compaction looks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from benchmarks.workload import texts

__all__ = ["KINDS", "write_texts"]

FACT_EVERY: Final = (12, 36)
"""The fewest and most words of prose from one fact to the next."""

RULES_SHARE: Final = 0.1
"""The share of requests that rule something out."""

VERBS: Final = ("build", "check", "count", "fetch", "load", "merge", "parse", "render", "split")
NOUNS: Final = ("batch", "budget", "cache", "cursor", "entry", "frame", "queue", "schema", "token")
FOLDERS: Final = ("src/core", "src/parser", "tests/unit", "lib/store", "app/api", "docs")
ERRORS: Final = ("ValueError", "KeyError", "TimeoutError", "AssertionError")
RULES: Final = ("Do not change {path}.", "Never call {name} twice.", "Go on without {name}.")
LINES: Final = (
    "{number:5}\u2192    {name} = [each for each in items if each.is_open]",
    "{number:5}\u2192    # the last one wins, since the others are old by then",
    "{number:5}\u2192        return None",
    "{number:5}\u2192    for item in sorted(items, key=str.lower):",
    "{number:5}\u2192    if not items or item in {name}:",
    "    self.assertEqual(len(items), {number})",
    "",
    "{path}:{number}: {error}: {name} has no row",
    "PASSED {path} in 0.{number:02} s",
)
"""Lines of files, and of the output of commands."""


class Project:
    """The names of a project, which come up again and again."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def describe(self) -> dict[str, object]:
        """Return facts by the names of their fields in a text."""
        choose, number = self.random.choice, self.random.randrange(1, 10**3)
        verb, noun, other = choose(VERBS), choose(NOUNS), choose(NOUNS)
        snake, camel = f"{verb}_{noun}_{other}", f"{noun.title()}{other.title()}"
        return {
            "name": choose((snake, camel, f"{noun}.{verb}_{other}")),
            "path": f"{choose(FOLDERS)}/{noun}_{other}.py",
            "figure": f"{number} {choose(('ms', 'rows', 'MB'))}",
            "error": choose(ERRORS),
            "number": number,
        }

    def tell(self, prose: str) -> str:
        """Return prose with facts in place of some words."""
        words = prose.split(" ")
        at = self.random.randint(*FACT_EVERY)
        while at < len(words):
            words[at] = str(self.describe()[self.random.choice(("name", "name", "path", "figure"))])
            at += self.random.randint(*FACT_EVERY)
        return " ".join(words)

    def ask(self, prose: str) -> str:
        """Return a request."""
        rules = self.random.random() < RULES_SHARE
        rule = self.random.choice(RULES).format(**self.describe()) if rules else ""
        return f"{self.tell(prose)} {rule}".strip()

    def show(self, prose: str) -> str:
        """Return a file, or the output of a command, about as long as the prose."""
        lines = (
            self.random.choice(LINES).format(**self.describe()) for _ in range(len(prose) // 35)
        )
        return "\n".join((self.tell(prose[:100]), *lines))

    def report(self, prose: str) -> str:
        """Return a reply: prose, and a list of what was done."""
        done = ("\n- `{name}` in {path}: {figure}".format(**self.describe()) for _ in range(2))
        return self.tell(prose) + (self.random.random() < 1 / 4) * "".join(done)


Write: TypeAlias = Callable[[Project, str], str]

KINDS: Final[Sequence[tuple[tuple[int, int], Write]]] = (
    ((10, 120), Project.ask),
    ((8, 20), Project.tell),
    ((20, 130), Project.show),
    ((20, 120), Project.report),
)
"""The texts of a round: a request, what is said before a call, its result, and a reply. Of each the
fewest and most words of the prose that it is made from, and how."""


def write_texts(count: int, kind: int) -> tuple[str, ...]:
    """Return texts of a kind."""
    words, write = KINDS[kind]
    project = Project(Random(kind))
    return tuple(write(project, prose) for prose in texts(count, words, seed=kind))
