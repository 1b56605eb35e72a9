"""Measure the time of renders as multiples of the time to tokenise every text once: `python -m benchmarks.render`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Final

import attrs

from benchmarks.engines import ENGINES
from benchmarks.history import HALF, HUNDREDTH, History, size
from benchmarks.large_prompt import AIM, AgentFigures, measure_agent
from benchmarks.recorded import HistoryFigures, measure_history
from benchmarks.timing import medians, peak
from benchmarks.tokenizing import ENCODING
from benchmarks.workload import LONG, SHAPES, Shape, texts
from promptkit.testing import check_encoding_engine
from promptkit.tokens import register_encoding_engine

BARS: Final = {
    "cold_over_floor": (0.8, "first render at half of the tokens, over the floor"),
    "cold_small_over_floor": (0.3, "first render at a hundredth of the tokens, over the floor"),
    "incremental_over_floor": (0.1, "next render after one more turn, over the floor"),
    "tokenised_share_small": (0.03, "bytes tokenised at a hundredth, of all bytes"),
    "peak_memory_over_text": (6.0, "peak memory of the first render, over the text's bytes"),
}
"""Figure → its upper limit, and its description."""

OVER_FLOOR_BARS: Final = {"messages": 0.8, "tools": 0.9, "nested": 0.9, "deep": 1.0, "chunks": 2.5}
"""Shape → the upper limit of the first render at half of the tokens, over the floor of that
shape."""

INCREMENTAL_BAR: Final = 0.1
"""The upper limit of the next render after one more turn over the floor, in every shape."""

SCALING_BAR: Final = 4.4
"""The upper limit for four times the messages, in every shape."""

HISTORY_MESSAGES: Final = (200, 1_000, 4_000)
"""The messages of the recorded conversations."""

HISTORY_BARS: Final = {"first": 2.5, "next": 0.3}
"""The upper limits of the README's prompt over its floor, at each budget, from `BARRED_MESSAGES`
on."""

BARRED_MESSAGES: Final = 1_000

SHAPE_ROUNDS: Final = 15
"""The least rounds of a shape: its next render takes less than a millisecond, and the median of a few
varies by a third."""


@attrs.frozen(kw_only=True)
class Figures:
    """The figures of one run.

    Ratios are of medians that were measured in turns; the floor is every text tokenised once.
    """

    cold_over_floor: float
    cold_small_over_floor: float
    incremental_over_floor: float
    tokenised_share_small: float
    peak_memory_over_text: float
    over_floor: dict[str, float]
    """Shape → the first render of `messages` items at half of their tokens, over the floor of that
    shape."""
    incremental: dict[str, float]
    """Shape → the next render after one more turn, over the floor of that shape."""
    in_component: dict[str, dict[str, float]]
    """Shape → the `first` and the `next` render over the floor, of the same prompt in a component,
    which is expanded in each render."""
    scaling: dict[str, float]
    """Shape → the time for four times the messages, divided by the time for one times, at half of
    the tokens."""
    history: dict[int, dict[str, HistoryFigures]]
    """Messages of a recorded conversation → budget → the README's prompt over its floor."""
    agent: dict[str, AgentFigures]
    """Budget → a prompt of 45 components over its floor."""
    messages: int
    text_bytes: int
    text_tokens: int
    rounds: int
    seconds: dict[str, float]
    python: str = attrs.field(factory=platform.python_version)
    tiktoken: str = attrs.field(factory=lambda: version("tiktoken"))

    def verdicts(self) -> list[tuple[str, float, float]]:
        """Return the figures that have a limit, as (description, figure, limit)."""
        lines: list[tuple[str, float, float]] = [
            (says, getattr(self, name), bar) for name, (bar, says) in BARS.items()
        ]
        lines += [
            (f"first render over the floor, {shape}", ratio, OVER_FLOOR_BARS[shape])
            for shape, ratio in self.over_floor.items()
        ]
        lines += [
            (f"next render over the floor, {shape}", ratio, INCREMENTAL_BAR)
            for shape, ratio in self.incremental.items()
        ]
        lines += [
            (f"four times the messages, {shape}", ratio, SCALING_BAR)
            for shape, ratio in self.scaling.items()
        ]
        return lines + [
            (
                f"{name} render over the floor, history of {messages:,}, {budget}",
                getattr(figures, name),
                bar,
            )
            for messages, by_budget in self.history.items()
            if messages >= BARRED_MESSAGES
            for budget, figures in by_budget.items()
            for name, bar in HISTORY_BARS.items()
        ]

    def table(self) -> str:
        """Return the figures and their limits as a table, one per line, and the software versions."""
        lines = [f"{'':60} {'figure':>8} {'bar':>6}"]
        lines += [
            f"{says:60} {figure:8.3f} {bar:6.2f}  {'ok' if figure <= bar else 'MISSED'}"
            for says, figure, bar in self.verdicts()
        ]
        lines += [
            "",
            f"{'without a bar':60} {'first':>8} {'next':>6} {'own':>6} {'kept':>7}",
            *self._unbarred(),
            "",
        ]
        lines.append(
            f"{self.messages:,} messages, {self.text_bytes:,} bytes, {self.text_tokens:,} tokens; floor {self.seconds['floor'] * 1000:.0f} ms; "
            f"medians of {self.rounds} rounds; Python {self.python}, tiktoken {self.tiktoken}"
        )
        return "\n".join(lines)

    def _unbarred(self) -> Iterator[str]:
        """Yield lines with the figures of the README's prompt and of the large one that have no limit, and what was kept."""
        for messages, by_budget in self.history.items():
            for budget, each in by_budget.items():
                barred = messages >= BARRED_MESSAGES
                first, again = ("", "") if barred else (f"{each.first:.3f}", f"{each.next:.3f}")
                yield f"{f'history of {messages:,}, {budget}':60} {first:>8} {again:>6} {'':6} {each.kept_share:7.1%}"
        for shape, figures in self.in_component.items():
            yield f"{f'{shape}, in a component':60} {figures['first']:8.3f} {figures['next']:6.3f}"
        for budget, large in self.agent.items():
            yield f"{f'45 components, {budget} (aim {AIM:g})':60} {large.first:8.3f} {'':6} {large.own:6.3f} {large.kept_share:7.1%}"


def measure(messages: int, rounds: int, shapes: Sequence[Shape]) -> Figures:
    """Measure all figures. Takes about two minutes for 5,000 messages."""
    contents = texts(messages, LONG)
    flat = History(contents, SHAPES[0])
    flat.check(HALF)
    flat.check(HUNDREDTH)
    seconds = medians(
        {
            "floor": flat.floor,
            "cold": flat.cold(HALF),
            "cold_small": flat.cold(HUNDREDTH),
            "incremental": flat.incremental,
        },
        rounds,
    )
    floor = seconds["floor"]
    by_shape = {
        name: over_floor(shape, messages, rounds, seconds) for name, shape in _FLOOR_SHAPES.items()
    }
    wrapped = {
        name: over_floor(shape, messages, rounds, seconds, in_component=True)
        for name, shape in _FLOOR_SHAPES.items()
    }
    return Figures(
        cold_over_floor=seconds["cold"] / floor,
        cold_small_over_floor=seconds["cold_small"] / floor,
        incremental_over_floor=seconds["incremental"] / floor,
        tokenised_share_small=flat.tokenised_share(HUNDREDTH),
        peak_memory_over_text=peak(flat.cold(HALF)) / size(contents),
        over_floor={name: cold for name, (cold, _) in by_shape.items()},
        incremental={name: again for name, (_, again) in by_shape.items()},
        in_component={
            name: {"first": cold, "next": again} for name, (cold, again) in wrapped.items()
        },
        scaling={shape.name: scaling(shape, messages, rounds, seconds) for shape in shapes},
        history={size: measure_history(size, rounds, seconds) for size in HISTORY_MESSAGES},
        agent=measure_agent(rounds, seconds),
        messages=messages,
        text_bytes=size(contents),
        text_tokens=flat.tokens,
        rounds=rounds,
        seconds=seconds,
    )


_FLOOR_SHAPES: Final = {
    {"flat": "messages"}.get(shape.name, shape.name): shape
    for shape in SHAPES
    if shape.name in {"flat", "tools", "nested", "deep", "chunks"}
}


def over_floor(
    shape: Shape, items: int, rounds: int, seconds: dict[str, float], *, in_component: bool = False
) -> tuple[float, float]:
    """Return the first render at half of the tokens, and the next one after one more turn, both over the floor of a shape.

    A chunk is an item, as a message is. Adds the times to `seconds`.
    """
    count = items if shape.name == "chunks" else int(items * shape.per_item)
    history = History(texts(count, shape.words), shape, in_component=in_component)
    history.check(HALF)
    cases = {"floor": history.floor, "cold": history.cold(HALF), "incremental": history.incremental}
    timed = medians(cases, rounds if in_component else max(rounds, SHAPE_ROUNDS))
    prefix = f"{shape.name}_in_component" if in_component else shape.name
    seconds |= {f"{prefix}_{name}": spent for name, spent in timed.items()}
    return timed["cold"] / timed["floor"], timed["incremental"] / timed["floor"]


def scaling(shape: Shape, messages: int, rounds: int, seconds: dict[str, float]) -> float:
    """Return how much longer four times the messages take, at half of their tokens; 4 is linear.

    These are the least times of twice the rounds. A machine that does something else as well costs
    the longer render more, since it needs more of the processor's cache. Adds both times to
    `seconds`.
    """
    contents = texts(4 * int(messages * shape.per_item), shape.words)
    few, many = History(contents[: len(contents) // 4], shape), History(contents, shape)
    timed = medians({"few": few.cold(HALF), "many": many.cold(HALF)}, 2 * rounds, choose=min)
    seconds |= {
        f"{shape.name}_{len(history.contents)}": timed[key]
        for key, history in (("few", few), ("many", many))
    }
    return timed["many"] / timed["few"]


ENGINE_BAR: Final = 0.25
"""The upper limit of the first render with gigatoken, over tokenising everything with tiktoken."""


def measure_engine(name: str, messages: int, rounds: int) -> float:
    """Return the first render of flat messages at half of their tokens with another engine, over the floor of tiktoken.

    The engine is compared with tiktoken before.
    """
    engine = ENGINES[name]()
    check_encoding_engine(engine, ENCODING)
    register_encoding_engine(ENCODING, engine)
    history = History(texts(messages, LONG), SHAPES[0])
    history.check(HALF)
    timed = medians({"floor": history.floor, "cold": history.cold(HALF)}, rounds)
    return timed["cold"] / timed["floor"]


def profile(messages: int) -> None:
    """Print a profile of a cold render of flat messages."""
    import cProfile
    import pstats

    run = History(texts(messages, LONG), SHAPES[0]).cold(HALF)()
    profiler = cProfile.Profile()
    profiler.runcall(run)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit status: 0, or with --check 1 if a limit is exceeded.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="1,000 messages and five rounds, where no other number is given",
    )
    parser.add_argument(
        "--messages",
        type=int,
        help="messages of the flat history, a quarter of the largest (default 5,000)",
    )
    parser.add_argument("--rounds", type=int, help="repetitions, at least 5 (default 7)")
    parser.add_argument(
        "--shape",
        action="append",
        choices=[shape.name for shape in SHAPES],
        help="scale this shape only; repeatable",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    parser.add_argument(
        "--profile", action="store_true", help="print where a cold render spends its time instead"
    )
    parser.add_argument(
        "--engine",
        choices=list(ENGINES),
        help="measure a cold render of flat messages with this engine instead",
    )
    options = parser.parse_args(arguments)
    messages: int = options.messages or (1_000 if options.quick else 5_000)
    rounds: int = max(5, options.rounds or (5 if options.quick else 7))
    if options.profile:
        profile(messages)
        return 0
    if options.engine:
        ratio = measure_engine(options.engine, messages, rounds)
        print(
            json.dumps({"engine": options.engine, "cold_over_floor": ratio})
            if options.json
            else f"first render with {options.engine}, over the floor: {ratio:.3f}"
        )
        return int(options.check and ratio > ENGINE_BAR)
    figures = measure(
        messages,
        rounds,
        [shape for shape in SHAPES if not options.shape or shape.name in options.shape],
    )
    print(json.dumps(attrs.asdict(figures), indent=2) if options.json else figures.table())
    return int(options.check and any(figure > bar for _, figure, bar in figures.verdicts()))


if __name__ == "__main__":
    sys.exit(main())
