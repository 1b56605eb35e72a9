"""A history to render, and what is measured on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tokenizing import WitnessedEncoding, encoding, fresh_tokenizer, tokens
from benchmarks.workload import Shape, fresh, turn
from promptkit import Rendered, Renderer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.timing import Case
    from promptkit.element import Child

__all__ = ["HALF", "HUNDREDTH", "History", "size"]

HALF = 2
HUNDREDTH = 100


class History:
    """Texts in a shape. Budgets are given as divisors of what the tokenizer counts for all texts."""

    def __init__(self, contents: Sequence[str], shape: Shape) -> None:
        self.contents = contents
        self.shape = shape
        self.tokens = tokens(contents)

    def floor(self) -> Callable[[], object]:
        """Every content tokenised once, in a plain loop."""
        contents, encode = fresh(self.contents), encoding().encode_ordinary

        def run() -> None:
            for text in contents:
                encode(text)

        return run

    def cold(self, divisor: int) -> Case:
        """A first render: nothing has been counted, nothing is remembered; only the vocabulary is loaded."""

        def case() -> Callable[[], Rendered]:
            elements = self._elements()
            renderer = self._renderer(divisor)
            return lambda: outcome(renderer, elements)

        return case

    def incremental(self) -> Callable[[], Rendered]:
        """The next render of a kept renderer: the same element objects and one new turn. For histories of messages only."""
        elements = self._elements()
        renderer = self._renderer(HALF)
        outcome(renderer, elements)
        question, answer = fresh(self.contents[-2:])
        longer = (*elements, *turn(f"Again: {question}", f"Indeed: {answer}", priority=len(elements)))
        return lambda: outcome(renderer, longer)

    def tokenised_share(self, divisor: int) -> float:
        """The bytes that a first render gives to the tokenizer, over all bytes of the texts."""
        witness = WitnessedEncoding(encoding())
        outcome(Renderer(budget=self.tokens // divisor, tokenizer=fresh_tokenizer(witness)), self._elements())
        return witness.bytes / size(self.contents)

    def check(self, divisor: int) -> None:
        """Raises RuntimeError if a render does not fill its budget: the figures of a broken renderer say nothing."""
        budget = self.tokens // divisor
        rendered = outcome(self._renderer(divisor), self._elements())
        contents = [message.text for message in rendered.messages]
        room = 3 * max(tokens([text]) for text in self.contents[:100])
        if not budget - room < rendered.tokens <= budget or tokens(contents) > rendered.tokens or set(contents) - set(self.contents):
            message = f"{self.shape.name}: {rendered.tokens:,} tokens in {len(contents):,} messages is no full render for {budget:,}."
            raise RuntimeError(message)

    def _elements(self) -> tuple[Child, ...]:
        return self.shape.build(fresh(self.contents))

    def _renderer(self, divisor: int) -> Renderer:
        return Renderer(budget=self.tokens // divisor, tokenizer=fresh_tokenizer())


def outcome(renderer: Renderer, elements: tuple[Child, ...]) -> Rendered:
    """A render of which messages and tokens have been read, so that nothing that a caller needs is left to do."""
    rendered = renderer.render(elements)
    _ = rendered.messages, rendered.tokens
    return rendered


def size(contents: Iterable[str]) -> int:
    """The bytes of texts in UTF-8."""
    return sum(len(text.encode()) for text in contents)
