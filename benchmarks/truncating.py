"""Measure `truncate` on a text of 1 MB: a tokenizer that can only count, against the built-in one.

    python -m benchmarks.truncating

The first row counts with the built-in vocabulary, so its ratio is that of the method alone; the bar
is 3. Rows of other vocabularies are there if their packages are installed. Their ratios hold the
speed of the vocabulary, too: Hugging Face's encodes about 1 MB a second, tiktoken 20. Exit code 1
if the bar is missed.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import attrs

from benchmarks.tokenizing import encoding
from promptkit.tokens import MistralTokenizer, OpenAITokenizer, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHARACTERS = 1_000_000
TOKENS = (100, 4_000, 16_000, 100_000)
BAR = 3.0
REPEAT = 5


@attrs.frozen
class CountingTokenizer(Tokenizer):
    """A tokenizer that can only count. Nothing is cached, so that each repetition works."""

    encode: Callable[[str], list[int]]

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        return len(self.encode(text))


def tokenizers() -> Iterator[tuple[str, Tokenizer]]:
    """Yield the tokenizers that are compared with the built-in one."""
    yield "one that only counts", CountingTokenizer(encoding().encode_ordinary)
    if find_spec("mistral_common"):
        yield "Mistral, Tekken", MistralTokenizer()


def measure(truncate: Callable[[], str]) -> float:
    """Return the median time of a call in milliseconds."""
    times: list[float] = []
    for _ in range(REPEAT):
        start = perf_counter()
        truncate()
        times.append(perf_counter() - start)
    return 1_000 * median(times)


def main() -> None:
    """Run the benchmark."""
    sample = "".join(path.read_text(encoding="utf-8") for path in sorted(Path("docs").glob("*.md")))
    text = (sample * (CHARACTERS // len(sample) + 1))[:CHARACTERS]
    missed = False
    print(f"{'tokenizer':22} {'tokens':>8} {'built in':>9} {'this':>9} {'ratio':>6}")
    for tokens in TOKENS:
        built_in = measure(partial(OpenAITokenizer().truncate, text, tokens))
        for title, tokenizer in tokenizers():
            taken = measure(partial(tokenizer.truncate, text, tokens))
            missed = missed or (title == "one that only counts" and taken > BAR * built_in)
            print(
                f"{title:22} {tokens:>8,} {built_in:>6.1f} ms {taken:>6.1f} ms {taken / built_in:>6.1f}"
            )
    sys.exit(missed)


if __name__ == "__main__":
    main()
