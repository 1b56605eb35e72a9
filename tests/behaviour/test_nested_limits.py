"""Limits inside each other keep what each would keep by itself, and the work grows with the nodes, not with the depth times the width."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

import attrs
import pytest
from hypothesis import currently_in_test_context, given, note, settings, strategies as st

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Child,
    Group,
    Isolate,
    KeepWith,
    Message,
    PromptElement,
    Rendered,
    TextChunk,
    TokenLimit,
    UserMessage,
    render,
)
from promptkit.errors import TreeError
from promptkit.fitting import RecordedMessages
from promptkit.rendering.prune import pruner as prune
from promptkit.rendering.prune.counting import BackwardScan
from promptkit.rendering.prune.removal_order import RemovalOrder
from promptkit.testing import WordTokenizer
from tests.behaviour import tokenizers
from tests.behaviour.strategies import prompts
from tests.examples import examples

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from promptkit.rendering.prune.removal_order import Step
    from promptkit.rendering.tree import Node


@attrs.frozen(kw_only=True)
class Bounded(WordTokenizer):
    """Tells, as real tokenizers do, how many tokens a text has at most."""

    def upper_bound(self, text: str) -> int:
        return len(text)


def nested(size: int) -> SearchStrategy[Child]:
    """Prompts in limits in limits.

    The limits are close to each other, so that many of them bind.
    """

    def limit(isolated: bool, tokens: int, parts: tuple[Child, ...], grouped: bool) -> Child:
        inner = Group(priority=1)[parts] if grouped else parts
        return Isolate(tokens=tokens)[inner] if isolated else TokenLimit(max_tokens=tokens)[inner]

    def message(priority: int, words: int) -> Child:
        return UserMessage(priority=priority)["w " * words]

    messages = st.lists(st.builds(message, st.integers(0, 5), st.integers(1, 4)), max_size=5)
    return st.recursive(
        prompts(size=size) | messages,
        lambda inner: st.builds(
            limit,
            st.booleans(),
            st.integers(2, 16),
            st.tuples(inner, messages | prompts(size=2)),
            st.booleans(),
        ),
        max_leaves=6,
    )


def outcome(prompt: Child, budget: int) -> Rendered | str:
    try:
        return render(
            prompt, budget=budget, tokenizer=Bounded(per_message=1, per_call=1), pairing="lenient"
        )
    except (BudgetExceededError, TreeError) as error:
        return str(error)


@contextmanager
def counted_from_the_end() -> Generator[None]:
    """Let every limit be counted from its last state back, which knows nothing of the limits inside it."""
    with patch.object(prune, "prune_from_first", return_value=None):
        yield


def check_same(prompt: Child, budget: int) -> None:
    if currently_in_test_context():
        note(f"{prompt!r}")
    found = outcome(prompt, budget)
    with counted_from_the_end():
        expected = outcome(prompt, budget)
    assert found == expected
    if isinstance(found, Rendered) and isinstance(expected, Rendered):
        assert found.removals == expected.removals


@settings(max_examples=examples(200))
@given(nested(3), st.integers(4, 60))
def test_limits_inside_each_other_keep_what_counting_each_of_them_keeps(
    prompt: Child, budget: int
) -> None:
    check_same(prompt, budget)


def outcome_of_chain(limits: Sequence[int], width: int) -> Rendered | str:
    """Each limit has the one before as its oldest item, and `width` messages of ten tokens."""
    chain: Child = ()
    for level, tokens in enumerate(limits):
        messages = [UserMessage(priority=index)[f"{level}.{index} " * 9] for index in range(width)]
        chain = TokenLimit(priority=-1, max_tokens=tokens)[chain, messages]
    return outcome(chain, 10_000)


def test_a_limit_that_removes_nothing_puts_back_no_more_than_it_took() -> None:
    with counted_from_the_end():
        rendered = outcome_of_chain((10, 30, 30), 2)
    assert isinstance(rendered, Rendered)
    assert [removal.path.rpartition(" > ")[2] for removal in rendered.removals] == [
        "UserMessage[0]",
        "TokenLimit[0]",
        "UserMessage[1]",
    ]


@settings(max_examples=examples(300))
@given(st.lists(st.integers(5, 120), min_size=2, max_size=4).map(sorted), st.integers(1, 5))
def test_chains_of_limits_keep_what_counting_each_of_them_keeps(
    limits: list[int], width: int
) -> None:
    found = outcome_of_chain(limits, width)
    with counted_from_the_end():
        expected = outcome_of_chain(limits, width)
    assert found == expected
    if isinstance(found, Rendered) and isinstance(expected, Rendered):
        assert found.removals == expected.removals


def test_the_marker_of_a_conversation_counts_in_a_limit_around_another_one() -> None:
    talk = [Message(role="assistant", content=(text,)) for text in ("a a a", "b b b", "c c c", "d")]
    conversation = RecordedMessages(
        messages=talk,
        marker=lambda count: f"{count} were left out",
        shorten=False,
        keep_request=False,
    )
    limit = TokenLimit(max_tokens=12)[TokenLimit(max_tokens=5)[UserMessage()["x"]], conversation]
    check_same((limit, UserMessage(required=True)["stays"]), 99)


@pytest.mark.slow
@settings(max_examples=examples(6_000))
@given(nested(5), st.integers(4, 90))
def test_limits_inside_each_other_keep_what_counting_each_of_them_keeps_thoroughly(
    prompt: Child, budget: int
) -> None:
    check_same(prompt, budget)


def work(depth: int, width: int, kind: Callable[[int], PromptElement]) -> int:
    """Steps of the removal order that were taken or undone for limits that all bind, each with messages of its own."""
    node: Child = ()
    for level in range(depth):
        messages = [
            UserMessage(priority=index)[f"message {index} of five words"] for index in range(width)
        ]
        node = kind(5 * (level + 1) * (width - 1))[node, messages]
    steps = 0
    step_back = BackwardScan.step_back
    take_steps = RemovalOrder.take_steps

    def counted_back(scan: BackwardScan) -> None:
        nonlocal steps
        steps += 1
        step_back(scan)

    def counted_steps(
        order: RemovalOrder, root: Node, taken: list[Step], *, batch: bool
    ) -> Iterator[None]:
        nonlocal steps
        for _ in take_steps(order, root, taken, batch=batch):
            steps += 1
            yield

    with (
        patch.object(BackwardScan, "step_back", counted_back),
        patch.object(RemovalOrder, "take_steps", counted_steps),
    ):
        rendered = render(node, budget=100_000, tokenizer=Bounded())
    assert rendered.tokens <= 5 * depth * (width - 1)
    return steps


def limit(tokens: int) -> PromptElement:
    return TokenLimit(priority=9, max_tokens=tokens)


def isolate(tokens: int) -> PromptElement:
    return Isolate(priority=9, tokens=tokens)


@pytest.mark.parametrize("kind", [limit, isolate])
def test_limits_that_all_bind_take_work_in_proportion_to_their_number(
    kind: Callable[[int], PromptElement],
) -> None:
    assert work(40, 10, kind) <= 4.4 * work(10, 10, kind)


def test_a_limit_in_a_message_is_counted_with_its_joins() -> None:
    lines = [TextChunk(priority=index)[f"line {index}"] for index in range(9)]
    inner = TokenLimit(max_tokens=12)[lines]
    rendered = render(
        UserMessage()[TokenLimit(max_tokens=8)[inner]], budget=100, tokenizer=Bounded()
    )
    assert rendered.messages[0].text == "line 5\nline 6\nline 7\nline 8"


def test_a_partner_leaves_with_the_last_message_also_if_a_limit_has_put_others_back() -> None:
    """A limit around another one puts messages back when it comes to a long message."""
    kept_with = KeepWith(group=1, priority=1)[
        UserMessage(priority=0)["a a"], UserMessage(priority=9)["b " * 7]
    ]
    long = UserMessage(priority=1)[[TextChunk(priority=5)[f"l{number}"] for number in range(10)]]
    prompt = (
        TokenLimit(max_tokens=8, priority=5)[
            TokenLimit(max_tokens=50, priority=9)[UserMessage(priority=9)["y"]], kept_with, long
        ],
        KeepWith(group=1, priority=9)[AssistantMessage()["partner"]],
        UserMessage(required=True)["z"],
    )
    tokenizer = tokenizers.Bounded()
    whole = render(prompt, budget=12, tokenizer=tokenizer)
    assert [message.text for message in whole.messages] == ["y", "b " * 7, "partner", "z"]
    small = render(prompt, budget=11, tokenizer=tokenizer)
    assert [message.text for message in small.messages] == ["y", "z"]
