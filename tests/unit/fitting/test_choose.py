"""Which messages of a conversation stay, in which order they are dropped, and how many at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from promptkit import ImagePart, Message
from promptkit.fitting.choose import FittedHistory, fit_history, order_newest, split_blocks
from promptkit.fitting.shorten import CUT_MARKER
from promptkit.testing import WordTokenizer
from promptkit.tokens import tokenizer_for
from promptkit.tokens.tokenizer import count_message
from tests.behaviour.conversation_strategies import conversations
from tests.conversations import assistant_message, call_message, result_message, user_message, words
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.fitting.choose import Shortened
    from promptkit.messages import Role

TOKENIZER = WordTokenizer()
COUNTED = WordTokenizer(per_message=1, per_call=2)


def test_results_without_a_call_belong_to_what_is_before_them() -> None:
    result = result_message("x", "r")
    assert split_blocks([result, result, Message(role="user"), result]) == [(0, 2), (2, 4)]
    assert split_blocks([]) == []


def test_the_newest_turn_is_kept_longest_and_in_it_the_question_then_the_newest_reply() -> None:
    messages = [
        assistant_message("Hello."),
        user_message("Look."),
        call_message("a", "b"),
        result_message("a", "A"),
        result_message("b", "B"),
        assistant_message("Seen."),
        user_message("So?"),
    ]
    assert list(order_newest([message.role for message in messages])) == [
        (6, 7),
        (1, 2),
        (5, 6),
        (2, 5),
        (0, 1),
    ]
    assert list(order_newest([])) == []


@given(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), max_size=8))
def test_the_order_has_every_block_once_and_splits_none(roles: list[Role]) -> None:
    assert sorted(order_newest(roles)) == split_blocks([Message(role=role) for role in roles])


# One token each: what goes is told by what is left.
REQUEST = (
    Message(role="system", content=("s",)),
    user_message("u1"),
    call_message("a", text="call"),
    result_message("a", "r1"),
    assistant_message("a1"),
    user_message("u2"),
    assistant_message("a2"),
    user_message("u3"),
    call_message("b", text="call"),
    result_message("b", "r2"),
    call_message("c", text="call"),
    result_message("c", "r3"),
)


@pytest.mark.parametrize(
    ("limit", "texts"),
    [
        (12, "s u1 call r1 a1 u2 a2 u3 call r2 call r3"),
        (11, "s u1 a1 u2 a2 u3 call r2 call r3"),  # a round is a step
        (10, "s u1 a1 u2 a2 u3 call r2 call r3"),
        (9, "s a1 u2 a2 u3 call r2 call r3"),
        (8, "s u2 a2 u3 call r2 call r3"),
        (7, "s a2 u3 call r2 call r3"),
        (6, "s u3 call r2 call r3"),
        (5, "s u3 call r3"),
        (4, "s u3 call r3"),
    ],
)
def test_old_turns_go_first_and_none_shows_its_request_without_the_answer(
    limit: int, texts: str
) -> None:
    left = fit_history(
        REQUEST, limit, tokenizer=TOKENIZER, shorten="none", keep="answered"
    ).messages
    assert " ".join(message.text for message in left) == texts


def test_a_conversation_without_a_user_message_gives_up_its_oldest_rounds() -> None:
    talk = [message for at in "abc" for message in (call_message(at), result_message(at, at))]
    assert fit_history(talk, 2, tokenizer=TOKENIZER, shorten="none", keep="answered").sources == (
        2,
        3,
        4,
        5,
    )


class TestShares:
    def test_an_older_text_has_a_quarter_of_the_budget_and_a_tool_result_an_eighth(self) -> None:
        texts = [user_message(words(400, f"u{at}_")) for at in range(10)]
        assert (
            len(fit_history([*texts, user_message("So?")], 801, tokenizer=TOKENIZER).messages)
            == 1 + 4
        )
        rounds = [
            message
            for at in range(12)
            for message in (call_message(f"c{at}"), result_message(f"c{at}", words(400)))
        ]
        results = fit_history(
            [user_message("Go."), *rounds, user_message("So?")], 802, tokenizer=TOKENIZER
        ).messages
        assert sum(message.role == "tool" for message in results) == 8

    @pytest.mark.parametrize(
        ("size", "budget", "shown"), [(500, 1_000, 500), (501, 1_001, 500), (501, 1_002, 501)]
    )
    def test_the_newest_round_has_half_of_the_budget_while_there_are_older_messages(
        self, size: int, budget: int, shown: int
    ) -> None:
        older = [user_message(words(200, f"u{at}_")) for at in range(9)]
        newest = fit_history(
            [*older, call_message("a"), result_message("a", words(size))],
            budget,
            tokenizer=TOKENIZER,
        ).messages[-1]
        assert TOKENIZER.count(newest.text) == shown

    def test_what_is_left_lengthens_tool_results_then_calls_then_texts(self) -> None:
        tokenizer = tokenizer_for("gpt-5")
        long = call_message("b", arguments=json.dumps({"text": words(600)}))
        talk = [
            *(
                user_message("Go."),
                call_message("a"),
                result_message("a", words(200)),
                long,
                result_message("b", "ok"),
            ),
            *(assistant_message(words(600)), user_message("So?")),
        ]
        shown = fit_history(talk, 900, tokenizer=tokenizer)
        assert shown.sources == tuple(range(7))
        assert shown.messages[2] == talk[2]
        assert 200 < count_message(shown.messages[3], tokenizer) < count_message(long, tokenizer)
        assert count_message(shown.messages[5], tokenizer) <= 225

    def test_what_is_left_lengthens_the_newest_result_first(self) -> None:
        rounds = [
            message for at in "ab" for message in (call_message(at), result_message(at, words(400)))
        ]
        talk = [user_message("Go."), *rounds, user_message("So?")]
        shown = fit_history(talk, 702, tokenizer=TOKENIZER).messages
        assert TOKENIZER.count(shown[2].text) == 300
        assert shown[4] == talk[4]

    def test_a_budget_is_used_where_a_message_is_shortened(self) -> None:
        talk = [
            message
            for at in range(9)
            for message in (
                user_message(words(30)),
                call_message(f"c{at}"),
                result_message(f"c{at}", words(90)),
            )
        ]
        for budget in range(130, 420):
            fitted = fit_history(talk, budget, tokenizer=TOKENIZER)
            if any(
                message is not talk[at]
                for at, message in zip(fitted.sources, fitted.messages, strict=True)
            ):
                assert fitted.tokens == budget

    @pytest.mark.parametrize(("request_tokens", "sources"), [(181, (0, 1)), (182, (1,))])
    def test_the_first_round_that_does_not_fit_is_cut_if_16_tokens_of_its_text_fit(
        self, request_tokens: int, sources: tuple[int, ...]
    ) -> None:
        talk = [assistant_message(words(100)), user_message(words(request_tokens))]
        fitted = fit_history(talk, 200, tokenizer=TOKENIZER)
        assert fitted.sources == sources
        if len(sources) == 2:
            assert TOKENIZER.count(fitted.messages[0].text) == 16 + TOKENIZER.count(CUT_MARKER)

    def test_what_the_marker_does_not_need_lengthens_a_message(self) -> None:
        talk = [*(user_message(words(90)) for _ in range(20)), user_message("So?")]
        fitted = fit_history(talk, 200, tokenizer=TOKENIZER, count_marker=lambda omitted: omitted)
        assert len(fitted.messages) < len(talk)
        assert fitted.tokens == 200

    def test_the_marker_is_counted_for_the_messages_that_are_omitted(self) -> None:
        asked: list[int] = []
        talk = [
            Message(role="system", content=("s",)),
            *(user_message(words(10)) for _ in range(20)),
        ]

        def count_marker(omitted: int) -> int:
            asked.append(omitted)
            return 3

        fitted = fit_history(
            talk, 100, tokenizer=TOKENIZER, shorten="none", count_marker=count_marker
        )
        assert asked == [20, len(talk) - len(fitted.messages)]
        assert fitted.tokens == 1 + 3 + 10 * (len(fitted.messages) - 1)


class Bounded(WordTokenizer):
    """Tells, without counting, that a text has half of its words at least."""

    def lower_bound(self, text: str) -> int:
        return len(text) // 4


LITTLE = [user_message("Why?"), call_message("a"), result_message("a", "b"), user_message("c")]


@pytest.mark.parametrize(
    ("messages", "known", "is_counted"),
    [
        pytest.param(LITTLE, -1, True, id="little text"),
        pytest.param([user_message("d" * 300), *LITTLE], -1, False, id="a long text"),
        pytest.param(
            [call_message("e", arguments="f" * 300), *LITTLE],
            -1,
            False,
            id="a long call",
        ),
        pytest.param(
            [Message(role="user", content=(ImagePart(url="data:"),)), *LITTLE],
            -1,
            False,
            id="a picture",
        ),
        pytest.param(LITTLE, 4, False, id="one that was counted before"),
    ],
)
def test_messages_that_probably_fit_are_counted_straight_after_each_other(
    messages: list[Message], known: int, *, is_counted: bool
) -> None:
    ahead: list[Message] = []

    class Engine(WordTokenizer):
        def count_ahead(self, messages: Sequence[Message]) -> None:
            ahead.extend(messages)

    tokens = [*[-1] * (len(messages) - 1), known]
    fit_history(messages, 100, tokenizer=Engine(), tokens=tokens)
    assert ahead == (messages if is_counted else [])


def test_a_long_message_that_fits_stays_and_has_its_exact_tokens() -> None:
    talk = [user_message(words(4_000)), assistant_message("done"), user_message("next")]
    fitted = fit_history(talk, 4_003, tokenizer=Bounded())
    assert (fitted.messages, fitted.tokens, fitted.unspent) == (tuple(talk), 4_002, 1)


class TestMarker:
    @pytest.mark.parametrize(
        "talk",
        [
            [user_message(words(5))],
            [assistant_message("a"), user_message("u")],
            [call_message("a"), result_message("a", "r"), assistant_message("a")],
            [user_message(words(90)), call_message("a"), result_message("a", words(90))],
        ],
        ids=["one", "two", "round", "long"],
    )
    @pytest.mark.parametrize("shorten", ["any", "request", "none"])
    @pytest.mark.parametrize("step", [0, 10, 40])
    def test_what_fits_without_the_marker_is_shown_whole_and_without_it(
        self, talk: list[Message], shorten: Shortened, step: int
    ) -> None:
        tokenizer = WordTokenizer(per_message=1, per_call=1)
        total = sum(count_message(message, tokenizer) for message in talk)
        for marker in (1, 3, 8):
            for budget in range(total, total + 12):
                assert fit_history(
                    talk,
                    budget,
                    tokenizer=tokenizer,
                    shorten=shorten,
                    step=step,
                    count_marker=[0, *[marker] * len(talk)].__getitem__,
                ) == FittedHistory(
                    messages=tuple(talk), sources=tuple(range(len(talk))), tokens=total, unspent=0
                )

    def test_a_message_of_one_token_stays_where_the_marker_would_take_its_place(self) -> None:
        fitted = fit_history(
            [assistant_message("a"), user_message("u u")],
            3,
            tokenizer=TOKENIZER,
            shorten="none",
            count_marker=lambda _: 1,
        )
        assert fitted.sources == (0, 1)


class TestStep:
    def fit(self, messages: list[Message], budget: int, step: int) -> FittedHistory:
        return fit_history(
            messages, budget, tokenizer=COUNTED, shorten="request", keep="answered", step=step
        )

    @given(messages=conversations(), budget=st.integers(1, 3_000), step=st.integers(1, 900))
    @settings(deadline=None, max_examples=examples(150))
    def test_the_tokens_that_are_dropped_are_rounded_up_and_no_more_is_dropped(
        self, messages: list[Message], budget: int, step: int
    ) -> None:
        exact, stepped = self.fit(messages, budget, 0), self.fit(messages, budget, step)
        assert set(stepped.sources) <= set(exact.sources)
        total = sum(count_message(message, COUNTED) for message in messages)
        if exact.tokens > budget or total <= budget:
            assert stepped == exact
            return
        assert stepped.tokens <= budget
        whole = all(
            message is messages[at]
            for at, message in zip(stepped.sources, stepped.messages, strict=True)
        )
        least = self.fit(messages, exact.tokens, 10**6)  # what always stays
        if whole and stepped.sources != least.sources:
            target = -(-(total - budget) // step) * step
            assert total - stepped.tokens >= target

    @given(
        messages=conversations(),
        budget=st.integers(1, 3_000),
        more=st.integers(1, 500),
        step=st.integers(1, 900),
    )
    @settings(deadline=None, max_examples=examples(150))
    def test_a_larger_budget_shows_every_message_that_a_smaller_one_shows(
        self, messages: list[Message], budget: int, more: int, step: int
    ) -> None:
        smaller = self.fit(messages, budget, step)
        if smaller.tokens <= budget:
            assert set(smaller.sources) <= set(self.fit(messages, budget + more, step).sources)

    def test_the_next_requests_drop_the_same_messages(self) -> None:
        talk = [user_message("Go.")]
        firsts: list[int] = []
        for at in range(100):
            talk += [call_message(f"c{at}"), result_message(f"c{at}", words(7))]
            firsts.append(self.fit(talk, 300, 100).sources[1])
        assert len(set(firsts)) <= 10
        assert firsts == sorted(firsts)

    def test_one_token_too_many_drops_a_whole_step(self) -> None:
        talk = [user_message(words(9)) for _ in range(10)]  # 10 tokens each, framing included
        assert self.fit(talk, 100, 30).sources == tuple(range(10))
        assert self.fit(talk, 99, 30).sources == tuple(range(3, 10))
