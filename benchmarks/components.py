"""Measure a prompt of 400 small components: those that run in every render, and pure ones that are kept.

    python -m benchmarks.components
    python -m benchmarks.components --json

Each component is a rule of one sentence, and all are in one system message. A Renderer that has
rendered the prompt once renders it again at a budget that it fits: the same elements (`kept`),
equal elements that are created anew before the clock runs (`anew`), the same elements declared pure
(`pure`), and the same texts in TextChunks without components (`static`). Printed is the processor
time of a render, and for each component what it takes more than a text without one. The floor is
tokenising every text once.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import attrs

from benchmarks.timing import medians
from benchmarks.tokenizing import encoding
from promptkit import (
    Child,
    PromptElement,
    Renderer,
    Sizing,
    SystemMessage,
    TextChunk,
    UserMessage,
    component,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.timing import Case

COMPONENTS = 400
BUDGET = 100_000


@component
class Rule(PromptElement):
    """One rule."""

    number: int

    def render(self, sizing: Sizing) -> Child:
        """Return the text of the rule."""
        _ = sizing
        return TextChunk()[write_rule(self.number)]


@component(pure=True)
class PureRule(Rule):
    """The same, declared pure."""


@attrs.frozen(kw_only=True)
class Figures:
    """Milliseconds of processor time for one render of each prompt."""

    floor: float
    kept: float
    anew: float
    pure: float
    static: float


def write_rule(number: int) -> str:
    """Return the text of a rule."""
    return (
        f"Rule {number}: name the file and the line whenever you mention a function of the project."
    )


def prompt(make: Callable[[int], PromptElement]) -> Child:
    """Return a prompt of rules."""
    return SystemMessage()[[make(number) for number in range(COMPONENTS)]], UserMessage()[
        "Which rule is the first?"
    ]


def again(make: Callable[[int], PromptElement], *, anew: bool = False) -> Case:
    """Return a case that renders a prompt a second time, of the same elements or of equal ones."""

    def prepare() -> Callable[[], object]:
        renderer, first = Renderer(budget=BUDGET, model="gpt-5"), prompt(make)
        second = prompt(make) if anew else first
        renderer.render(first)
        return lambda: renderer.render(second)

    return prepare


def floor() -> Callable[[], object]:
    """Return the floor: tokenising every text once."""
    encode, texts = (
        encoding().encode_ordinary,
        [write_rule(number) for number in range(COMPONENTS)],
    )
    return lambda: [encode(text) for text in texts]


def measure(rounds: int) -> Figures:
    """Measure all cases in turns."""
    cases: dict[str, Case] = {
        "floor": floor,
        "kept": again(lambda number: Rule(number=number)),
        "anew": again(lambda number: Rule(number=number), anew=True),
        "pure": again(lambda number: PureRule(number=number)),
        "static": again(lambda number: TextChunk()[write_rule(number)]),
    }
    return Figures(**{name: seconds * 1_000 for name, seconds in medians(cases, rounds).items()})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description="What a prompt of 400 small components costs per render."
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    figures = measure(options.rounds)
    if options.json:
        print(json.dumps(attrs.asdict(figures)))
        return
    print(f"{COMPONENTS} components, floor {figures.floor:.1f} ms")
    for name in ("kept", "anew", "pure", "static"):
        time: float = getattr(figures, name)
        each = (time - figures.static) * 1_000 / COMPONENTS
        print(
            f"{name:7} {time:6.1f} ms {time / figures.floor:6.2f} over the floor {each:6.1f} µs for each component"
        )


if __name__ == "__main__":
    main()
