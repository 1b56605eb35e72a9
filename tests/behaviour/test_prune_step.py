"""`prune_step` removes in big bites, so that a provider's prompt cache keeps hitting."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, note, strategies as st

from promptkit import (
    BudgetExceededError,
    Chunk,
    History,
    Message,
    Renderer,
    SystemMessage,
    Text,
    TextChunk,
    UserMessage,
    render,
)
from promptkit.errors import InvalidArgumentError
from promptkit.testing import WordTokenizer
from tests.behaviour.oracle import oracle
from tests.behaviour.strategies import prompts, tokenizers
from tests.behaviour.tokenizers import Bounded

if TYPE_CHECKING:
    from promptkit import Child
    from promptkit.tokens import Tokenizer


@given(prompts(), tokenizers(), st.integers(1, 20), st.floats(0, 1))
def test_the_first_state_without_the_surplus_rounded_up_is_kept(
    prompt: Child, tokenizer: Tokenizer, step: int, share: float
) -> None:
    note(f"prompt = {prompt!r}\ntokenizer = {tokenizer!r}")
    answers = oracle(prompt, tokenizer)
    assume(answers.fits)
    budget = int(answers.full * share)
    wanted = answers.full - -(-(answers.full - budget) // step) * step
    try:
        made = render(prompt, budget=budget, tokenizer=tokenizer, prune_step=step)
    except BudgetExceededError:
        assert all(state.tokens + state.reserved > budget for state in answers.states)
        return
    # Without a state that is as small, what fits is kept.
    target = budget if budget >= answers.full else wanted
    state = next(
        (each for each in answers.states if each.tokens + each.reserved <= target),
        answers.at(budget),
    )
    assert (made.messages, made.tokens) == (state.messages, state.tokens)


def test_at_each_budget_and_step_as_many_messages_leave_as_the_rounded_surplus_takes() -> None:
    sizes = (3, 1, 4, 1, 5)
    total = sum(sizes) + 1
    prompt = (
        *(UserMessage(priority=at)["w " * size] for at, size in enumerate(sizes)),
        UserMessage()["q"],
    )
    left = [total - sum(sizes[:dropped]) for dropped in range(len(sizes) + 1)]
    for budget in range(1, total + 1):
        for step in range(1, 12):
            target = total - -(-(total - budget) // step) * step
            wanted = next(
                (tokens for tokens in left if tokens <= target),
                next(tokens for tokens in left if tokens <= budget),
            )
            made = render(prompt, budget=budget, tokenizer=WordTokenizer(), prune_step=step)
            assert made.tokens == wanted, (budget, step)


def old_message(number: int, priority: int, words: int, *, in_chunks: bool) -> UserMessage:
    texts = [f"{number}.{word}" for word in range(words)]
    inner: Child = (
        [TextChunk(priority=at)[text] for at, text in enumerate(texts)]
        if in_chunks
        else " ".join(texts)
    )
    return UserMessage(priority=priority)[inner]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), min_size=1, max_size=8
    ),
    st.integers(1, 25),
    st.integers(1, 38),
)
def test_what_was_dropped_stays_dropped_when_it_would_fit_again(
    drawn: list[tuple[int, int, bool]], step: int, words: int
) -> None:
    old = tuple(
        old_message(number, priority, size, in_chunks=in_chunks)
        for number, (priority, size, in_chunks) in enumerate(drawn)
    )
    renderer = Renderer(budget=40, tokenizer=Bounded(), prune_step=step)
    question = UserMessage()["q"]
    first = renderer.render((*old, UserMessage()["long " * words]))
    again = renderer.render((SystemMessage()["rules"], *old, question))
    assert again.messages[1:-1] == first.messages[:-1]
    assert [message.text for message in renderer.render(question).messages] == ["q"]
    renderer.render((*old, UserMessage()["long " * words]))
    other = renderer.render((UserMessage(priority=1)["another"], question))
    assert [message.text for message in other.messages] == ["another", "q"]


def test_what_was_dropped_stays_dropped_where_nothing_else_may_leave() -> None:
    renderer = Renderer(budget=10, tokenizer=WordTokenizer(), prune_step=1)
    old = UserMessage(priority=1)["old"]
    renderer.render((old, UserMessage()["long " * 10]))
    again = renderer.render((old, UserMessage()["q"]))
    assert [message.text for message in again.messages] == ["q"]


def test_what_was_dropped_comes_back_where_what_replaces_it_does_not_fit() -> None:
    renderer = Renderer(budget=10, tokenizer=WordTokenizer(), prune_step=1)

    def prompt(words: int, fallback: int) -> Child:
        instead = Text(required=True)["x " * fallback]
        old = Chunk(priority=1, fallback=instead)[TextChunk()["old"], "w " * words]
        return UserMessage()[old, TextChunk()["and now"]]

    assert len(renderer.render(prompt(words=20, fallback=5)).removals) == 1
    again = renderer.render(prompt(words=1, fallback=12))
    assert (again.tokens, again.removals) == (3, ())


def test_the_first_surviving_message_changes_once_in_many_turns() -> None:
    renderer = Renderer(budget=200, tokenizer=WordTokenizer(), prune_step=60)
    turns: list[UserMessage] = []
    firsts: list[str] = []
    for index in range(60):
        turns.append(UserMessage()[f"turn{index} " + "word " * 9])
        made = renderer.render((SystemMessage(required=True)["You help."], *turns))
        assert made.tokens <= 200
        firsts.append(made.messages[1].text.split()[0])
    changes = sum(one != other for one, other in itertools.pairwise(firsts))
    # 600 tokens come in, 200 may stay: 400 leave in bites of 60 and a little more.
    assert changes <= 7
    assert firsts[-1] != "turn0"


def test_other_recorded_messages_in_the_place_of_dropped_ones_stay() -> None:
    turns = [Message(role="user", content=(f"{number} w w",)) for number in range(7)]
    renderer = Renderer(budget=13, tokenizer=WordTokenizer(), prune_step=2)

    def show(start: int, end: int) -> list[str]:
        history = History(turns=turns[start:end], omitted_marker=False)
        made = renderer.render((history, UserMessage(required=True)["q"]))
        return [message.text[:1] for message in made.messages]

    assert show(0, 6) == ["2", "3", "4", "5", "q"]
    assert show(2, 6) == ["2", "3", "4", "5", "q"]


def test_without_a_step_the_first_message_changes_with_every_turn() -> None:
    renderer = Renderer(budget=200, tokenizer=WordTokenizer())
    turns = [UserMessage()[f"turn{index} " + "word " * 9] for index in range(60)]
    firsts = [
        renderer.render(tuple(turns[: count + 1])).messages[0].text.split()[0]
        for count in range(30, 60)
    ]
    assert len(set(firsts)) == 30


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="prune_step"):
        Renderer(budget=10, tokenizer=WordTokenizer(), prune_step=-1)
