"""Measure how many tokens other models need for a token of o200k_base: the margins of `promptkit.tokens.models.MARGINS`.

    python -m benchmarks.margins PATH ...

Each path is a recording, or a folder of recordings, in any format that promptkit imports. There are
two tables:

* Vocabularies: the tokens of pieces of 8,000 characters, texts and arguments of calls of a whole
  conversation, without framing. It has the vocabularies of the packages that are installed:
  mistral-common, splintr-rs (Llama, DeepSeek), and ctok, which reconstructs Claude's counts (its
  author compared it with the counts of Anthropic's endpoint for a million texts).
* Bills: what the provider reported for a request, minus what it reported for an earlier one, for
  each token that promptkit counts for the messages between them. Hidden messages, as those that an
  agent adds by itself, make this too high; dropped thinking makes it too low.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from promptkit.errors import PromptKitError
from promptkit.lab.recordings import read_recording
from promptkit.lab.replay.recordings import read_recordings
from promptkit.messages import OpaquePart
from promptkit.tokens import OpenAITokenizer
from promptkit.tokens.tokenizer import count_message
from promptkit.transcript import Checkpoint, Edit, MessageEntry, Reset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from promptkit.messages import Message

PIECE = 8_000
"""Characters of a piece, about 2,000 tokens."""


def find_vocabularies() -> Iterator[tuple[str, Callable[[str], int]]]:
    """Yield the vocabularies that can be loaded without a network, with what counts their tokens."""
    # Any: the packages are not dependencies, so their types may be unknown.
    if find_spec("ctok"):
        ctok: Any = import_module("ctok")
        yield (
            "Claude 3 to 4.6 (ctok)",
            lambda text: ctok.token_count(text, "3.0") - ctok.token_count("", "3.0"),
        )
        yield (
            "Claude 4.7 and later (ctok)",
            lambda text: ctok.token_count(text, "4.8") - ctok.token_count("", "4.8"),
        )
    if find_spec("mistral_common"):
        package: Any = import_module("mistral_common")
        module: Any = import_module("mistral_common.tokens.tokenizers.tekken")
        tekkenizer = module.Tekkenizer.from_file(
            Path(package.__file__).parent / "data" / "tekken_240911.json"
        )
        yield (
            "Mistral, Tekken (mistral-common)",
            lambda text: len(tekkenizer.encode(text, bos=False, eos=False)),
        )
    if find_spec("splintr"):
        splintr: Any = import_module("splintr")
        names = {
            "Mistral, 32k": "mistral_v1",
            "Llama 2": "llama2",
            "Llama 3": "llama3",
            "DeepSeek V3": "deepseek_v3",
        }
        for title, name in names.items():
            yield (
                f"{title} (splintr-rs)",
                _count_ids(splintr.Tokenizer.from_pretrained(name).encode_ordinary),
            )


def _count_ids(encode: Callable[[str], Sequence[int]]) -> Callable[[str], int]:
    return lambda text: len(encode(text))


def iter_pieces(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the texts of a conversation in pieces of 8,000 characters.

    A shorter rest is left out.
    """
    text = "\n".join(
        text
        for each in messages
        for text in (each.text, *(call.arguments for call in each.tool_calls))
        if text
    )
    for start in range(0, len(text) - PIECE + 1, PIECE):
        yield text[start : start + PIECE]


def iter_bills(
    file: Path, tokenizer: OpenAITokenizer, *, stretch: int, opaque: bool
) -> Iterator[tuple[str, int, int]]:
    """Yield stretches between two requests: the model, the tokens that the provider reported, and those that are counted.

    A stretch has at least `stretch` counted tokens, and opaque parts, such as thinking, only if
    `opaque` is true.
    """
    billed: int | None = None
    counted = 0
    for entry in (entry for _, batch in read_recording(file) for entry in batch.entries):
        payload = entry.payload
        if isinstance(payload, Checkpoint | Edit | Reset):
            billed = None
        if not isinstance(payload, MessageEntry):
            continue
        usage = payload.usage
        if usage and payload.message.role == "assistant" and usage.input_tokens > 0:
            if billed is not None and counted >= stretch and usage.input_tokens > billed:
                yield payload.model or "", usage.input_tokens - billed, counted
                billed = None
            if billed is None or usage.input_tokens < billed:
                billed, counted = usage.input_tokens, 0
        if not opaque and any(isinstance(part, OpaquePart) for part in payload.message.content):
            billed = None
        counted += count_message(payload.message, tokenizer)


def print_row(title: str, ratios: Sequence[float]) -> None:
    """Print the mean, the 95th percentile and the highest of some ratios."""
    if not ratios:
        return
    ordered = sorted(ratios)
    high = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    print(f"{title:34} {len(ordered):>7,} {mean(ordered):>6.3f} {high:>6.3f} {ordered[-1]:>7.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="recordings, or folders of them")
    parser.add_argument(
        "--stretch", type=int, default=4_000, help="counted tokens between two bills"
    )
    parser.add_argument(
        "--opaque",
        action="store_true",
        help="also stretches with opaque parts, such as thinking that later requests drop",
    )
    options = parser.parse_args(arguments)
    files = sorted(
        file for path in options.paths for file in (path.rglob("*.*") if path.is_dir() else [path])
    )
    tokenizer = OpenAITokenizer()
    pieces: list[str] = []
    bills: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for file in files:
        try:
            for recording in read_recordings(file):
                pieces += iter_pieces(recording.messages)
            for model, billed, counted in iter_bills(
                file, tokenizer, stretch=options.stretch, opaque=options.opaque
            ):
                bills[model].append((billed, counted))
        except PromptKitError:
            continue
    base = [tokenizer.count(piece) for piece in pieces]
    print(f"{'vocabulary':34} {'pieces':>7} {'mean':>6} {'p95':>6} {'highest':>7}")
    for title, count in find_vocabularies():
        print_row(
            title, [count(piece) / tokens for piece, tokens in zip(pieces, base, strict=True)]
        )
    print(f"\n{'bills':34} {'stretch':>7} {'mean':>6} {'p95':>6} {'highest':>7}")
    for model, stretches in sorted(bills.items()):
        print_row(model, [billed / counted for billed, counted in stretches])


if __name__ == "__main__":
    main()
