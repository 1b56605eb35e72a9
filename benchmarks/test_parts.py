"""Measure the parts of a render separately, in absolute times: `pytest benchmarks/test_parts.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

from benchmarks.history import HALF, History
from benchmarks.tokenizing import fresh_tokenizer
from benchmarks.workload import LONG, SHAPES, fresh, texts
from promptkit import Rendered, Renderer
from promptkit.elements.element import Children, flatten
from promptkit.rendering.expand.event_loop import drive
from promptkit.rendering.expand.expansion import Expansion
from promptkit.rendering.expand.materialize import materialize, pair_calls
from promptkit.rendering.expand.render_cache import RenderCache, RequestRuns
from promptkit.rendering.expand.sizing import Sizer, split_shares
from promptkit.rendering.prune.counting import Overhead
from promptkit.rendering.prune.pruner import Pruner, RemovalRounding
from promptkit.rendering.subtree import assemble_messages

if TYPE_CHECKING:
    from promptkit.rendering.prune.removals import PrunedTree
    from promptkit.rendering.tree import Node

Benchmark = Any  # Any: pytest-benchmark's fixture carries no types
Arguments: TypeAlias = "tuple[tuple[object, ...], dict[str, object]]"
"""Positional and keyword arguments for `pedantic`."""

FLAT: Final = SHAPES[0]
CONTENTS: Final = texts(2_000, LONG)
ROUNDS: Final = 10


@pytest.fixture(scope="module")
def history() -> History:
    return History(CONTENTS, FLAT)


def given(*arguments: object) -> Arguments:
    return arguments, {}


def elements() -> Children:
    return flatten(FLAT.build(fresh(CONTENTS)), "parts")


def expanded(sizer: Sizer, children: Children, budget: int) -> Node:
    return drive(Expansion(sizer, RenderCache(), RequestRuns(), model=None).run(children, budget))


def pruned(root: Node, sizer: Sizer, budget: int) -> PrunedTree:
    tree = materialize(root)
    pair_calls(tree, strict=True)
    return Pruner(tree, sizer, Overhead()).prune(budget, RemovalRounding(0))


def counted(sizer: Sizer) -> Sizer:
    for text in CONTENTS:
        sizer.tokenizer.count(text)
    return sizer


def rendered(history: History) -> Rendered:
    return Renderer(budget=history.tokens // HALF, tokenizer=fresh_tokenizer()).render(
        FLAT.build(CONTENTS)
    )


def test_count_of_new_texts(benchmark: Benchmark) -> None:
    def count_all(count: Any, contents: tuple[str, ...]) -> None:  # noqa: ANN401  # Any: as pedantic hands it over
        for text in contents:
            count(text)

    benchmark.pedantic(
        count_all, setup=lambda: given(fresh_tokenizer().count, fresh(CONTENTS)), rounds=ROUNDS
    )


def test_count_of_known_texts(benchmark: Benchmark) -> None:
    count = counted(Sizer(fresh_tokenizer())).tokenizer.count
    benchmark(lambda: [count(text) for text in CONTENTS])


@pytest.mark.parametrize("members", [3, 1_000])
def test_flex_shares(benchmark: Benchmark, members: int) -> None:
    bases, limits = (
        [1 + index % 3 for index in range(members)],
        [None if index % 5 else 40 for index in range(members)],
    )
    benchmark(split_shares, 128_000, bases, limits)


def test_expand(benchmark: Benchmark) -> None:
    benchmark.pedantic(
        expanded, setup=lambda: given(Sizer(fresh_tokenizer()), elements(), 100_000), rounds=ROUNDS
    )


def test_prune_with_counts_known(benchmark: Benchmark, history: History) -> None:
    sizer = counted(Sizer(fresh_tokenizer()))

    def setup() -> Arguments:
        budget = history.tokens // HALF
        return given(expanded(sizer, elements(), budget), sizer, budget)

    benchmark.pedantic(pruned, setup=setup, rounds=ROUNDS)


def test_assemble(benchmark: Benchmark, history: History) -> None:
    sizer = counted(Sizer(fresh_tokenizer()))

    def setup() -> Arguments:
        budget = history.tokens // HALF
        state = pruned(expanded(sizer, elements(), budget), sizer, budget)
        return given(state.tree.root, state.state)

    benchmark.pedantic(assemble_messages, setup=setup, rounds=ROUNDS)


@pytest.mark.parametrize("provider", ["to_chat", "to_responses", "to_anthropic"])
def test_emit(benchmark: Benchmark, history: History, provider: str) -> None:
    benchmark(getattr(rendered(history), provider))


def test_receipt(benchmark: Benchmark, history: History) -> None:
    def read(result: Rendered) -> int:
        return len(result.removals) + len(result.source_map)

    benchmark.pedantic(read, setup=lambda: given(rendered(history)), rounds=ROUNDS)
