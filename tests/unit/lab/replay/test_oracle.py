"""The price of a conversation in hindsight, against brute force and against the replay."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit.lab.replay import find_policy, parse_policy_names
from promptkit.lab.replay.oracle import (
    PricedConversation,
    RequestSize,
    find_lower_bound,
    find_optimum,
    measure_requests,
)
from promptkit.lab.replay.prompt_cache import MessageCounts
from promptkit.lab.replay.runner import ReplayRules, Simulation
from promptkit.messages import Message
from promptkit.testing.word_tokenizer import WordTokenizer
from promptkit.tokens.prices import Price
from tests.examples import keep_first
from tests.unit.lab.replay.conversations import long_conversation, price_of, recording_of

PRICE = Price(input=1.25, output=10.0, cached_input=0.125)
CLAUDE = Price(input=3.0, output=15.0, cached_input=0.3, cache_write=3.75)


@st.composite
def conversations(draw: st.DrawFn) -> PricedConversation:
    tokens = fixed = draw(st.integers(0, 8_000))
    time = 0.0
    requests: list[RequestSize] = []
    for _ in range(draw(st.integers(0, 9))):
        tokens += draw(st.integers(1, 12_000))
        output = draw(st.integers(1, 3_000))
        time += draw(st.sampled_from([1.0, 20.0, 400.0]))
        user = draw(st.sampled_from([0, 50, 2_000]))
        requests.append(
            RequestSize(
                tokens=tokens, output_tokens=output, user_tokens=user, sent=time, replied=time + 5
            )
        )
        tokens += output
    cache = draw(st.sampled_from(["openai", "anthropic", "off"]))
    return PricedConversation(
        requests=tuple(requests),
        fixed_tokens=fixed,
        limit=draw(st.sampled_from([None, 30_000, 12_000])),
        price=CLAUDE if cache == "anthropic" else PRICE,
        cache=cache,
    )


def is_possible(conversation: PricedConversation, places: tuple[int, ...]) -> bool:
    """Whether each request fits, or is the first after a compaction."""
    start, shift = 0, 0
    for at, request in enumerate(conversation.requests):
        if at in places:
            closed = conversation.requests[at - 1]
            kept = conversation.summary_tokens + conversation.beside_tokens + closed.user_tokens
            start, shift = at, conversation.fixed_tokens + kept - closed.tokens
        if (
            conversation.limit is not None
            and request.tokens + shift > conversation.limit
            and at > start
        ):
            return False
    return True


@given(conversations())
def test_the_optimum_is_the_cheapest_of_all_sets_of_compactions(
    conversation: PricedConversation,
) -> None:
    count = len(conversation.requests)
    sets = itertools.chain.from_iterable(
        itertools.combinations(range(1, count), size) for size in range(max(1, count))
    )
    prices = {
        places: price_of(conversation, places)
        for places in sets
        if is_possible(conversation, places)
    }

    price, places = find_optimum(conversation)

    assert price == pytest.approx(min(prices.values(), default=0.0))
    assert price_of(conversation, places) == pytest.approx(price)


@given(conversations())
def test_no_set_of_compactions_costs_less_than_the_lower_bound(
    conversation: PricedConversation,
) -> None:
    # Steps of 128 tokens aside: of the system messages and tools the cache holds a little less than
    # the bound says.
    assert find_lower_bound(conversation) <= find_optimum(conversation)[0] + 1e-9


def test_requests_that_an_earlier_branch_has_cost_nothing() -> None:
    request = RequestSize(tokens=5_000, output_tokens=100, user_tokens=0, sent=0.0, replied=1.0)
    longer = attrs.evolve(request, tokens=9_000, sent=2.0, replied=3.0)
    whole = PricedConversation(
        requests=(request, longer), fixed_tokens=2_000, limit=None, price=PRICE, cache="openai"
    )
    branch = attrs.evolve(whole, requests=(attrs.evolve(request, counted=False), longer))

    alone = PricedConversation(
        requests=(request,), fixed_tokens=2_000, limit=None, price=PRICE, cache="openai"
    )
    assert find_optimum(branch)[0] == pytest.approx(find_optimum(whole)[0] - find_optimum(alone)[0])
    assert find_lower_bound(branch) == pytest.approx(
        find_lower_bound(whole) - find_lower_bound(alone)
    )


def test_requests_are_measured_without_any_compaction() -> None:
    counts = MessageCounts(WordTokenizer())
    texts = [
        ("user", "please do it"),
        ("assistant", "done"),
        ("user", "and that"),
        ("assistant", "also done now"),
    ]
    messages = counts.count_messages([Message(role=role, content=(text,)) for role, text in texts])  # type: ignore[arg-type]  # roles of messages

    first, second = measure_requests(
        messages, (10.0, 12.0, None, 30.0), output_tokens=(0, 7, 0, 9), fixed_tokens=100
    )

    assert first.tokens == 100 + messages[0].tokens
    assert second.tokens == 100 + sum(message.tokens for message in messages[:3])
    assert (first.sent, first.replied, second.sent, second.replied) == (10.0, 12.0, 12.0, 30.0)
    assert [request.output_tokens for request in (first, second)] == [7, 9]
    assert first.user_tokens == 0  # the reply ends the turn


@pytest.mark.long
@pytest.mark.parametrize("window", keep_first(1, 4_000, 16_000))
def test_no_policy_costs_less_than_the_lower_bound(window: int) -> None:
    simulation = Simulation(
        recording_of(long_conversation(12)),
        ReplayRules(model="gpt-5", window=window, cache="openai"),
    )
    least = find_lower_bound(simulation.measure(PRICE))
    assert least > 0
    for name in parse_policy_names("all,break_even:beta=0.2"):
        totals = simulation.run(find_policy(name), seed="s").totals
        price = PRICE.cost(totals.requests_billed) + PRICE.cost(totals.summaries_billed)
        assert least <= price, name


def test_the_planned_optimum_is_charged_the_sizes_of_the_policys_own_summaries() -> None:
    simulation = Simulation(
        recording_of(long_conversation(14)),
        ReplayRules(model="gpt-5", window=8_000, cache="openai"),
    )
    result = simulation.run(find_policy("vscode"), seed="s")
    assert result.totals.checkpoints
    large = attrs.evolve(
        result,
        totals=attrs.evolve(
            result.totals,
            summaries_billed=attrs.evolve(
                result.totals.summaries_billed,
                output_tokens=3_000 * result.totals.checkpoints,
            ),
        ),
    )
    assert (
        find_optimum(simulation.measure(PRICE, result))[0]
        < find_optimum(simulation.measure(PRICE, large))[0]
    )
