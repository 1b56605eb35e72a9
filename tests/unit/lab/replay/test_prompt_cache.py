"""Prompt caches: what providers say theirs remember, and for how long."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from promptkit import Message, ToolCall
from promptkit.lab.replay import prompt_cache
from promptkit.lab.replay.prompt_cache import (
    MessageCounts,
    PromptCache,
    cache_rule_for,
)
from promptkit.messages import OpaquePart
from promptkit.tokens import tokenizer_for
from promptkit.wire.anthropic import find_breakpoints
from tests.conversations import assistant_message, result_message, user_message
from tests.unit.lab.replay.conversations import run_call

if TYPE_CHECKING:
    from promptkit.lab.replay.prompt_cache import MessageCount

PIECES = MessageCounts(tokenizer_for("gpt-5"))


def pieces(*messages: Message) -> list[MessageCount]:
    return PIECES.count_messages(messages)


def big(name: str, words: int = 600) -> Message:
    return user_message(f"{name} " + "word " * words)


def test_a_request_is_cached_in_steps_of_128_from_1024_on() -> None:
    cache = PromptCache("openai", 300)
    first = pieces(big("a", 1_200))
    sent = cache.send(3, first, 0)
    total = 3 + first[0].tokens
    assert (sent.input_tokens, sent.cached_tokens) == (total, 0)
    again = cache.send(3, [*first, *pieces(assistant_message("Yes."), user_message("Go on."))], 10)
    assert again.cached_tokens == total // 128 * 128
    assert again.cached_tokens + again.written_tokens <= again.input_tokens


def test_a_short_request_is_never_cached() -> None:
    cache = PromptCache("openai", 300)
    short = pieces(big("a", 900))
    assert short[0].tokens < 1_024
    assert [cache.send(0, short, 0).cached_tokens for _ in range(3)] == [0, 0, 0]


def test_1024_tokens_are_enough_and_one_less_is_not() -> None:
    (short,) = pieces(big("a", 300))
    for tokens, cached in ((1_023, 0), (1_024, 1_024), (1_151, 1_024), (1_152, 1_152)):
        cache = PromptCache("openai", 300)
        cache.send(tokens - short.tokens, [short], 0)
        assert cache.send(tokens - short.tokens, [short], 0).cached_tokens == cached


def test_only_the_longest_common_prefix_counts_and_a_branch_finds_the_older_one() -> None:
    cache = PromptCache("openai", 300)
    a, b, c, d = (pieces(big(name, 1_100))[0] for name in "abcd")
    cache.send(0, [a, b, c], 0)
    assert cache.send(0, [a, d, c], 1).cached_tokens == a.tokens // 128 * 128
    assert cache.send(0, [b, c], 2).cached_tokens == 0
    assert cache.send(0, [a, b, d], 3).cached_tokens == (a.tokens + b.tokens) // 128 * 128


def test_equal_messages_are_the_same_prefix_though_they_are_other_objects() -> None:
    cache = PromptCache("openai", 300)
    cache.send(0, pieces(big("a", 1_200)), 0)
    assert cache.send(0, pieces(big("a", 1_200)), 0).cached_tokens > 1_024


def test_what_is_not_used_for_a_life_time_is_forgotten_and_use_renews_it() -> None:
    cache = PromptCache("openai", 300)
    a = pieces(big("a", 1_200))
    cache.send(0, a, 0)
    assert cache.send(0, a, 300).cached_tokens
    assert cache.send(0, a, 600).cached_tokens
    assert not cache.send(0, a, 901).cached_tokens


def test_a_longer_prefix_may_be_forgotten_while_a_shorter_one_lives() -> None:
    cache = PromptCache("openai", 300)
    a, b = pieces(big("a", 1_200))[0], pieces(big("b", 1_200))[0]
    cache.send(0, [a, b], 0)
    cache.send(0, [a], 250)
    assert cache.send(0, [a, b], 400).cached_tokens == a.tokens // 128 * 128


def test_a_cache_agrees_with_a_plain_search_of_all_requests() -> None:
    rng = random.Random(7)
    known = pieces(*(big(str(number), rng.randrange(50, 700)) for number in range(6)))
    cache = PromptCache("openai", 100)
    sent: list[tuple[float, list[MessageCount]]] = []
    now = 0.0
    for _ in range(300):
        now += rng.choice((1, 20, 60))
        request = [rng.choice(known[:2]), *rng.choices(known, k=rng.randrange(6))]
        best = 0
        for end in range(1, len(request) + 1):
            if any(now - time <= 100 and before[:end] == request[:end] for time, before in sent):
                best = end
        tokens = sum(piece.tokens for piece in request[:best])
        assert cache.send(0, request, now).cached_tokens == (
            tokens // 128 * 128 if tokens >= 1_024 else 0
        )
        sent.append((now, request))


def test_memory_is_bounded_and_the_newest_requests_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompt_cache, "MAX_PREFIXES", 50)
    cache = PromptCache("openai", 1e9)
    for number in range(200):
        request = pieces(*(big(f"{number} {at}", 300) for at in range(6)))
        cache.send(0, request, 0)
        assert cache.send(0, request, 0).cached_tokens
    assert len(cache.prefixes.last_used) <= 60


def test_anthropic_reads_what_a_breakpoint_ended_and_writes_the_rest() -> None:
    cache = PromptCache("anthropic", 300)
    system = Message(role="system", content=("rule " * 1_100,))
    talk = [system, big("a"), run_call("c"), result_message("c", "out " * 500)]
    first = cache.send(0, pieces(*talk[:2]), 0)
    assert (first.cached_tokens, first.written_tokens) == (0, first.input_tokens)
    second = cache.send(0, pieces(*talk), 10)
    assert second.cached_tokens == first.input_tokens
    assert second.cached_tokens + second.written_tokens == second.input_tokens


@pytest.mark.parametrize("rule", ["anthropic", "openai"])
def test_a_prefix_below_the_models_minimum_is_neither_written_nor_read(rule: str) -> None:
    request = pieces(big("a", 2_000))
    short, long = PromptCache(rule, minimum=4_096), PromptCache(rule, minimum=1_024)
    for now in (0, 1):
        below, above = short.send(0, request, now), long.send(0, request, now)
        assert (below.cached_tokens, below.written_tokens) == (0, 0)
        assert above.cached_tokens if now else above.written_tokens


def test_anthropic_finds_the_instructions_again_after_a_cut() -> None:
    cache = PromptCache("anthropic", 300)
    system = pieces(Message(role="system", content=("rule " * 1_100,)))
    cache.send(0, [*system, *pieces(big("a"), assistant_message("Yes."), big("b"))], 0)
    assert (
        cache.send(0, [*system, *pieces(big("summary"), big("b"))], 1).cached_tokens
        == system[0].tokens
    )


def test_anthropic_looks_no_further_back_than_twenty_blocks_before_a_breakpoint() -> None:
    near, far = PromptCache("anthropic", 300), PromptCache("anthropic", 300)
    start = pieces(big("a", 1_200))
    for cache, more in ((near, 18), (far, 25)):
        cache.send(0, start, 0)
        behind = pieces(*(user_message(f"note {number}") for number in range(more)))
        assert bool(cache.send(0, [*start, *behind], 1).cached_tokens) is (cache is near)


def test_anthropic_sets_at_most_four_breakpoints() -> None:
    talk = pieces(
        Message(role="system", content=("rules",)),
        *(
            each
            for number in range(9)
            for each in (big(str(number), 10), assistant_message("Yes."))
        ),
        big("z"),
    )
    places = find_breakpoints(talk)
    assert places == [0, len(talk) - 5, len(talk) - 3, len(talk) - 1]


def test_rules_go_by_the_models_provider() -> None:
    assert (
        cache_rule_for("claude-sonnet-4-5")
        == cache_rule_for("anthropic/claude-opus-5")
        == "anthropic"
    )
    assert cache_rule_for("gpt-5") == "openai"
    hour = PromptCache("anthropic-1h")
    request = pieces(big("a", 1_200))
    hour.send(0, request, 0)
    assert hour.send(0, request, 3_000).cached_tokens
    assert not PromptCache("off").send(0, request, 0).cached_tokens


def test_an_equal_message_with_a_providers_own_part_is_the_same_message_and_read_from_the_cache() -> (
    None
):
    def thought() -> Message:
        part = OpaquePart(
            value={"type": "thinking", "thinking": "word " * 2_000}, provider="anthropic"
        )
        return Message(
            role="assistant",
            content=(part,),
            tool_calls=(ToolCall(id="c", name="run", arguments="{}"),),
        )

    counts = MessageCounts(tokenizer_for("gpt-5"))
    assert counts.count_messages([thought()]) == counts.count_messages([thought()])
