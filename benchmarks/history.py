"""A history to render, and the measurements on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tokenizing import WitnessedEncoding, encoding, fresh_tokenizer, tokens
from benchmarks.workload import Shape, fresh
from promptkit import Child, PromptElement, Rendered, Renderer, Sizing, component

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.timing import Case

__all__ = ["HALF", "HUNDREDTH", "History", "size"]

HALF = 2
HUNDREDTH = 100


@component
class Wrapper(PromptElement):
    """Shows its children. A prompt with a component is expanded in each render."""

    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return self.children


class History:
    """Texts in a shape, by themselves or in a component.

    Budgets are given as divisors of the tokens of all texts.
    """

    def __init__(
        self, contents: Sequence[str], shape: Shape, *, in_component: bool = False
    ) -> None:
        self.contents = contents
        self.shape = shape
        self.in_component = in_component
        self.read = shape.read(contents)
        """All texts that a request of the whole history has."""
        self.tokens = tokens(self.read)

    def floor(self) -> Callable[[], object]:
        """Return a call that tokenises every text once, in a plain loop."""
        contents, encode = fresh(self.read), encoding().encode_ordinary

        def run() -> None:
            for text in contents:
                encode(text)

        return run

    def cold(self, divisor: int) -> Case:
        """Return a case for a first render: nothing is cached except the loaded vocabulary."""

        def case() -> Callable[[], Rendered]:
            elements = self._show(self._elements())
            renderer = self._renderer(divisor)
            return lambda: outcome(renderer, elements)

        return case

    def incremental(self) -> Callable[[], Rendered]:
        """Return a call for the next render with the same Renderer: the same element objects and one new turn."""
        elements = self._elements()
        renderer = self._renderer(HALF)
        outcome(renderer, self._show(elements))
        question, answer = fresh(self.contents[-2:])
        longer = self._show(self.shape.extend(elements, f"Again: {question}", f"Indeed: {answer}"))
        return lambda: outcome(renderer, longer)

    def tokenised_share(self, divisor: int) -> float:
        """Return the bytes that a first render tokenises, as a share of all bytes of the texts."""
        witness = WitnessedEncoding(encoding())
        outcome(
            Renderer(budget=self.tokens // divisor, tokenizer=fresh_tokenizer(witness)),
            self._elements(),
        )
        return witness.bytes / size(self.read)

    def check(self, divisor: int) -> None:
        """Raise RuntimeError if a render does not fill its budget: figures of a broken renderer are worthless."""
        budget = self.tokens // divisor
        rendered = outcome(self._renderer(divisor), self._show(self._elements()))
        contents = [message.text for message in rendered.messages if message.text]
        room = 3 * max(tokens([text]) for text in self.contents[:100])
        whole = "\n".join(self.contents)  # messages hold one text, or lines that follow each other
        foreign = [text for text in {*contents} - {*self.contents} if text not in whole]
        if (
            not budget - room < rendered.tokens <= budget
            or tokens(contents) > rendered.tokens
            or foreign
        ):
            raise RuntimeError(
                f"{self.shape.name}: {rendered.tokens:,} tokens in {len(contents):,} messages is no full render for {budget:,}."
            )

    def _elements(self) -> tuple[Child, ...]:
        return self.shape.build(fresh(self.contents))

    def _show(self, elements: tuple[Child, ...]) -> tuple[Child, ...]:
        return (Wrapper()[elements],) if self.in_component else elements

    def _renderer(self, divisor: int) -> Renderer:
        return Renderer(budget=self.tokens // divisor, tokenizer=fresh_tokenizer())


def outcome(renderer: Renderer, elements: tuple[Child, ...]) -> Rendered:
    """Render, and read messages and tokens, so that no lazy work is left."""
    rendered = renderer.render(elements)
    _ = rendered.messages, rendered.tokens
    return rendered


def size(contents: Iterable[str]) -> int:
    """Return the bytes of texts in UTF-8."""
    return sum(len(text.encode()) for text in contents)
