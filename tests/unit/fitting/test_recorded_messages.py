"""`RecordedMessages`: a conversation uses the room that it has, and is never above the budget."""

from __future__ import annotations

import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st

from promptkit import (
    BudgetExceededError,
    Child,
    Group,
    History,
    Message,
    PromptElement,
    Rendered,
    Renderer,
    Sizing,
    SystemMessage,
    UserMessage,
    component,
    render,
)
from promptkit.elements import element_from_message
from promptkit.errors import BadPropError, InvalidArgumentError
from promptkit.fitting import RecordedMessages
from promptkit.fitting.choose import fit_history
from promptkit.fitting.shorten import CUT_MARKER
from promptkit.messages import CacheBreakpointPart, ToolDefinition
from promptkit.pairing import pair_tool_calls
from promptkit.testing import WordTokenizer
from promptkit.tokens import Tokenizer, tokenizer_for
from promptkit.tokens.tokenizer import count_message
from tests.behaviour.conversation_strategies import conversations
from tests.behaviour.tokenizers import Bounded
from tests.conversations import assistant_message, call_message, result_message, user_message, words
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Part

GPT = tokenizer_for("gpt-5")
COUNTED = WordTokenizer(per_message=1, per_call=2)
MARKER = re.compile(r"\[(\d+) omitted\]")


def mark(count: int) -> str:
    return f"[{count} omitted]"


def recorded(messages: Sequence[Message], **props: object) -> RecordedMessages:
    return RecordedMessages(messages=messages, marker=mark, **props)  # type: ignore[arg-type]  # props of a test


def shown(rendered: Rendered) -> list[Message]:
    """The messages without the marker."""
    return [message for message in rendered.messages if not MARKER.fullmatch(message.text)]


def marked(rendered: Rendered) -> list[int]:
    """The numbers of omitted messages that markers tell."""
    return [
        int(found[1]) for message in rendered.messages if (found := MARKER.fullmatch(message.text))
    ]


def least(messages: Sequence[Message], tokenizer: Tokenizer, *, marker: bool = True) -> int:
    """The smallest budget in which everything that always stays fits, with a marker."""
    overhead = tokenizer.count_overhead().tokens
    room = count_message(user_message(mark(len(messages))), tokenizer) if marker else 0
    return fit_history(messages, 0, tokenizer=tokenizer).tokens + overhead + room


def as_sent(messages: Sequence[Message]) -> list[Message]:
    """Messages as a render shows them: without empty texts, and without messages in which nothing is."""
    full = [
        attrs.evolve(each, content=tuple(part for part in each.content if part))
        for each in messages
    ]
    return [each for each in full if each.text.strip() or each.tool_calls or each.role == "tool"]


class TestLaws:
    @given(
        messages=conversations(), more=st.integers(0, 2_000), shorten=st.booleans(), data=st.data()
    )
    @settings(deadline=None, max_examples=examples(80))
    def test_a_render_shows_what_fits_and_how_much_is_omitted(
        self, messages: list[Message], more: int, data: st.DataObject, *, shorten: bool
    ) -> None:
        tokenizer: Tokenizer = data.draw(st.sampled_from([GPT, COUNTED]))
        messages = as_sent(messages)
        budget = least(messages, tokenizer) + more
        fitted = fit_history(
            messages,
            budget - tokenizer.count_overhead().tokens,
            tokenizer=tokenizer,
            shorten="any" if shorten else "request",
            count_marker=lambda count: count_message(user_message(mark(count)), tokenizer),
        )
        rendered = render(recorded(messages, shorten=shorten), budget=budget, tokenizer=tokenizer)
        assert shown(rendered) == list(fitted.messages)
        assert marked(rendered) == [len(messages) - len(fitted.messages)] * (
            len(messages) > len(fitted.messages)
        )
        alone = render(
            Group(required=True)[[element_from_message(each) for each in rendered.messages]],
            tokenizer=tokenizer,
        )
        assert alone.tokens == rendered.tokens <= budget
        assert rendered.tokens == (
            fitted.tokens + tokenizer.count_overhead().tokens if messages else 0
        ), "the marker counts"
        assert not pair_tool_calls(rendered.messages).repairs

    @given(
        messages=conversations(),
        more=st.integers(0, 1_500),
        other=st.integers(0, 400),
        shorten=st.booleans(),
    )
    @settings(deadline=None, max_examples=examples(50))
    def test_beside_anything_it_is_within_the_budget_and_the_marker_is_right(
        self, messages: list[Message], more: int, other: int, *, shorten: bool
    ) -> None:
        messages = [each for each in as_sent(messages) if each.role != "system"]
        tree = (
            SystemMessage(required=True)[words(other)],
            recorded(messages, shorten=shorten, flex_grow=None),
            UserMessage(required=True)[words(other // 2)],
        )
        rendered = render(tree, budget=other + other // 2 + 3 + more, tokenizer=COUNTED)
        assert rendered.tokens <= rendered.budget
        assert not pair_tool_calls(rendered.messages).repairs
        left = len(rendered.messages) - 1 - (other > 1) - len(marked(rendered))
        assert len(marked(rendered)) <= 1
        if marked(rendered):
            assert left == len(messages) - marked(rendered)[0]

    @given(messages=conversations(), budget=st.integers(1, 1_000), shorten=st.booleans())
    @settings(deadline=None, max_examples=examples(50))
    def test_the_last_request_stays_or_the_render_raises_where_it_cannot(
        self, messages: list[Message], budget: int, *, shorten: bool
    ) -> None:
        messages = [*as_sent(messages), Message(role="user", content=(words(200),), name="ada")]
        try:
            rendered = render(recorded(messages, shorten=shorten), budget=budget, tokenizer=COUNTED)
        except BudgetExceededError:
            assert budget < least(messages, COUNTED)
        else:
            assert shown(rendered)[-1].name == "ada"

    @given(
        messages=conversations(),
        budget=st.integers(20, 2_000),
        more=st.integers(1, 800),
        shorten=st.booleans(),
    )
    @settings(deadline=None, max_examples=examples(50))
    def test_a_larger_budget_shows_every_message_that_a_smaller_one_shows(
        self, messages: list[Message], budget: int, more: int, *, shorten: bool
    ) -> None:
        named = [
            Message(
                role=each.role,
                content=each.content,
                tool_calls=each.tool_calls,
                tool_call_id=each.tool_call_id,
                name=f"n{at}",
            )
            for at, each in enumerate(messages)
        ]
        try:
            smaller = render(recorded(named, shorten=shorten), budget=budget, tokenizer=COUNTED)
        except BudgetExceededError:
            return
        larger = render(recorded(named, shorten=shorten), budget=budget + more, tokenizer=COUNTED)
        assert {each.name for each in smaller.messages} - {None} <= {
            each.name for each in larger.messages
        }

    @given(
        lines=st.lists(st.sampled_from([0, 0, 1, 12]), min_size=2, max_size=8),
        marker=st.booleans(),
        shorten=st.booleans(),
        keep_request=st.booleans(),
    )
    @example(lines=[0, 0, 12], marker=False, shorten=True, keep_request=False)
    @example(lines=[0, 0, 12], marker=False, shorten=True, keep_request=True)
    @example(lines=[0, 0, 12, 0], marker=False, shorten=True, keep_request=True)
    @settings(deadline=None, max_examples=examples(20))
    def test_no_message_leaves_when_a_token_is_added_and_a_shortened_one_ends_at_a_line(
        self, lines: list[int], *, marker: bool, shorten: bool, keep_request: bool
    ) -> None:
        turns = [
            Message(
                role="assistant" if at % 2 else "user",
                content=("\n".join([words(2)] + [words(9)] * count),),
                name=f"n{at}",
            )
            for at, count in enumerate(lines)
        ]
        earlier: set[str] = set()
        for budget in range(20, 9 * sum(lines) + 5 * len(lines)):
            try:
                tree = RecordedMessages(
                    messages=turns,
                    marker=mark if marker else None,
                    shorten=shorten,
                    keep_request=keep_request,
                )
                rendered = render(
                    (SystemMessage()["Be brief."], tree), budget=budget, tokenizer=COUNTED
                )
            except BudgetExceededError:
                continue
            now = {each.name for each in rendered.messages if each.name}
            assert earlier <= now
            earlier = now

    @given(
        messages=conversations(),
        budget=st.integers(20, 2_000),
        truncate_at=st.none() | st.integers(1, 40),
        data=st.data(),
    )
    @settings(deadline=None, max_examples=examples(60))
    def test_the_same_history_gives_the_same_render_also_after_other_renders(
        self,
        messages: list[Message],
        budget: int,
        truncate_at: int | None,
        data: st.DataObject,
    ) -> None:
        messages = [*messages, user_message("And now?")]
        turns = data.draw(st.integers(0, 2))
        renderer = Renderer(budget=budget, tokenizer=COUNTED)
        ends = range(max(1, len(messages) - 6), len(messages) + 1)
        for end in (*data.draw(st.lists(st.sampled_from(ends), max_size=3)), *ends):
            keeps = data.draw(st.booleans())
            beside = UserMessage(required=True)[words(data.draw(st.integers(1, 60)))]
            history = recorded(
                messages[:end], keep_system=keeps, keep_turns=turns, truncate_at=truncate_at
            )
            prompt = history, beside
            try:
                again = renderer.render(prompt)
            except BudgetExceededError:
                with pytest.raises(BudgetExceededError):
                    render(prompt, budget=budget, tokenizer=COUNTED)
                continue
            first = render(prompt, budget=budget, tokenizer=COUNTED)
            assert again == first
            assert again.removals == first.removals
            assert again.source_map == first.source_map
            assert again.repairs == first.repairs

    def test_a_conversation_and_a_longer_one_stand_in_one_prompt(self) -> None:
        talk = [call_message("a"), result_message("a", "Done."), user_message("Go.")]
        talk += [assistant_message(words(20)), user_message("And now?"), assistant_message("So.")]
        short = recorded(talk[:3])
        renderer = Renderer(budget=30, tokenizer=COUNTED)
        for end in (3, 4, 6, 5, 6):
            prompt = short, recorded(talk[:end])
            first = render(prompt, budget=30, tokenizer=COUNTED)
            assert renderer.render(prompt) == first
            assert first.removals or end < 6

    @pytest.mark.long
    def test_renders_in_several_threads_show_each_conversation_as_it_is(self) -> None:
        talk = [user_message(f"Request {at}.") for at in range(200)]
        renderer = Renderer(budget=100_000, tokenizer=COUNTED)

        def render_all(_: int) -> bool:
            ends = range(1, len(talk) + 1)
            return all(shown(renderer.render(recorded(talk[:end]))) == talk[:end] for end in ends)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(4) as threads:
                assert all(threads.map(render_all, range(8)))
        finally:
            sys.setswitchinterval(interval)

    def test_a_conversation_that_is_rendered_within_its_own_render_stays_as_it_is(self) -> None:
        talk = [user_message("Go."), assistant_message("So."), user_message("And now?")]
        renderer = Renderer(budget=500, tokenizer=COUNTED)
        renderer.render(recorded(talk[:1]))

        def keep(_: Message) -> bool:
            renderer.render(recorded(talk))
            return False

        assert shown(renderer.render(recorded(talk[:2], keep=keep))) == talk[:2]
        assert shown(renderer.render(recorded(talk))) == talk

    @pytest.mark.long
    def test_many_results_of_one_reply_are_shortened_in_linear_time(self) -> None:
        ids = list(map(str, range(40_000)))
        talk = [user_message("Go."), call_message(*ids)]
        talk += [result_message(call_id, "one two three four") for call_id in ids]
        history = recorded(talk, truncate_at=3)
        started = time.process_time()
        history.render(Sizing(lambda: 1_000_000, COUNTED))
        assert time.process_time() - started < 6

    def test_a_render_of_something_else_than_messages_leaves_the_next_one_as_it_was(self) -> None:
        talk = [user_message("Go."), call_message("a"), result_message("a", "Done.")]
        wrong = [*talk, result_message("b", "Of no call."), "no message"]
        renderer = Renderer(budget=500, tokenizer=COUNTED)
        for _ in range(2):
            rendered = renderer.render(recorded(talk))
            assert list(rendered.messages) == talk
            assert rendered.repairs == ()
            with pytest.raises(InvalidArgumentError, match="must be a Message"):
                renderer.render(recorded(wrong))  # type: ignore[arg-type]  # what a caller without a type checker may pass


class TestMarker:
    @pytest.mark.parametrize("keep", [False, True], ids=["", "keep_request"])
    @pytest.mark.parametrize("older", [0, 3])
    def test_it_never_costs_a_render_that_fits_without_it(self, older: int, *, keep: bool) -> None:
        work = [user_message("Fix."), call_message("a"), result_message("a", words(900))]
        messages = [*(user_message(words(9, f"u{at}")) for at in range(older)), *work]
        for budget in range(1, 60):
            try:
                without = render(
                    RecordedMessages(messages=messages, keep_request=keep),
                    budget=budget,
                    tokenizer=GPT,
                )
            except BudgetExceededError:
                continue
            rendered = render(recorded(messages, keep_request=keep), budget=budget, tokenizer=GPT)
            assert 1 <= len(shown(rendered)) <= len(without.messages)


class TestRoom:
    def test_one_long_request_is_shortened_to_the_budget(self) -> None:
        rendered = render(
            recorded([assistant_message("Hi."), user_message(words(5_000))]),
            budget=1_000,
            tokenizer=COUNTED,
        )
        assert CUT_MARKER in shown(rendered)[-1].text
        assert rendered.tokens > 980

    def test_it_has_the_room_that_siblings_leave(self) -> None:
        messages = [user_message(words(40, f"u{at}")) for at in range(40)]
        tree = (
            SystemMessage(required=True)["Be brief."],
            recorded(messages),
            UserMessage(required=True)[words(100)],
        )
        rendered = render(tree, budget=1_000, tokenizer=COUNTED)
        assert rendered.tokens > 990

    def test_a_tool_result_is_shortened_before_its_round_leaves(self) -> None:
        messages = [
            user_message("Go."),
            call_message("a"),
            result_message("a", words(900)),
            user_message(words(30)),
            assistant_message("Yes."),
        ]
        rendered = render(recorded(messages), budget=300, tokenizer=COUNTED)
        assert len(rendered.messages) == len(messages)
        assert CUT_MARKER in rendered.messages[2].text

    def test_turns_that_are_kept_are_whole(self) -> None:
        messages = [
            user_message(words(300)),
            assistant_message("Yes."),
            user_message("So?"),
            assistant_message(words(200, "a")),
        ]
        rendered = render(recorded(messages, keep_turns=1), budget=250, tokenizer=COUNTED)
        assert shown(rendered)[-2:] == messages[2:]
        with pytest.raises(BudgetExceededError):
            render(recorded(messages, keep_turns=1), budget=200, tokenizer=COUNTED)

    def test_system_messages_and_messages_that_are_kept_are_whole(self) -> None:
        rules, plan = (
            Message(role="system", content=(words(50, "s"),)),
            user_message(words(50, "plan")),
        )
        messages = [
            plan,
            *(user_message(words(40, f"u{at}")) for at in range(9)),
            rules,
            user_message("So?"),
        ]
        rendered = render(
            recorded(messages, keep=[plan].__contains__), budget=150, tokenizer=COUNTED
        )
        assert {plan, rules} <= set(rendered.messages)
        assert marked(rendered)

    def test_the_request_and_the_newest_round_are_required_where_asked_for(self) -> None:
        messages = [
            user_message("Go."),
            call_message("a", "b"),
            result_message("a", words(900)),
            result_message("b", words(300)),
        ]
        rendered = render(recorded(messages, keep_request=True), budget=200, tokenizer=COUNTED)
        assert [message.role for message in rendered.messages] == [
            "user",
            "assistant",
            "tool",
            "tool",
        ]
        assert all(CUT_MARKER in message.text for message in rendered.messages[2:])
        with pytest.raises(BudgetExceededError):
            render(recorded(messages, keep_request=True), budget=8, tokenizer=COUNTED)

    def test_the_last_request_and_the_newest_round_alone_are_required(self) -> None:
        messages = [
            user_message("Go."),
            assistant_message(words(9)),
            user_message("So?"),
            assistant_message(words(5)),
            assistant_message(words(3)),
        ]
        tree = (
            RecordedMessages(messages=messages, keep_request=True),
            UserMessage(required=True)["Hm?"],
        )
        for budget in (8, 9, 13):
            rendered = render(tree, budget=budget, tokenizer=COUNTED)
            assert rendered.messages[:-1] == (messages[2], messages[4])
        with pytest.raises(BudgetExceededError):
            render(tree, budget=7, tokenizer=COUNTED)

    @pytest.mark.parametrize(
        "props",
        [
            {"keep_turns": -1},
            {"keep_turns": True},
            {"keep_turns": 1.5},
            {"keep_turns": "2"},
            {"truncate_at": 0},
        ],
    )
    def test_a_number_that_is_none_is_refused(self, props: dict[str, Any]) -> None:
        with pytest.raises(BadPropError, match="whole number of at least"):
            render(recorded([user_message("Go.")], **props))

    def test_a_result_is_truncated_also_where_there_is_room(self) -> None:
        messages = [
            user_message("Go."),
            call_message("a"),
            result_message("a", words(900)),
            assistant_message("Yes."),
        ]
        for budget, shorten in ((2_000, True), (2_000, False), (60, True)):
            rendered = render(
                recorded(messages, truncate_at=20, shorten=shorten),
                budget=budget,
                tokenizer=COUNTED,
            )
            assert COUNTED.count(rendered.messages[2].text) <= 20
            assert CUT_MARKER in rendered.messages[2].text

    def test_truncated_results_and_blank_messages_that_fit_exactly_are_shown_as_with_any_room(
        self,
    ) -> None:
        result = "\n".join(words(7) for _ in range(60))
        turns = [
            user_message("Go."),
            *(
                each
                for at in range(6)
                for each in (call_message(f"c{at}"), result_message(f"c{at}", result))
            ),
        ]
        turns += [
            assistant_message(""),
            user_message("Why?"),
            assistant_message(words(40)),
            user_message("  \n"),
        ]
        for truncate_at in (None, 50):
            whole = render(
                recorded(turns, truncate_at=truncate_at), budget=100_000, tokenizer=COUNTED
            )
            assert (
                render(
                    recorded(turns, truncate_at=truncate_at), budget=whole.tokens, tokenizer=COUNTED
                ).messages
                == whole.messages
            )

    def test_a_request_of_any_length_leaves_the_rest_of_the_budget_to_the_conversation(
        self,
    ) -> None:
        turns = [
            user_message("Run the tests."),
            call_message("a"),
            result_message("a", "\n".join(words(7) for _ in range(400))),
        ]
        for request in ("required", "last"):
            for size in (100, 500, 900):
                ask = UserMessage(required=request == "required")[words(size)]
                rendered = render(
                    (SystemMessage()["Be brief."], recorded(turns), ask),
                    budget=1_000,
                    tokenizer=COUNTED,
                )
                assert [message.role for message in rendered.messages] == [
                    "system",
                    "user",
                    "assistant",
                    "tool",
                    "user",
                ]
                assert 980 < rendered.tokens <= 1_000

    def test_the_required_tokens_of_a_prompt_with_a_conversation_that_must_stay_are_the_same_at_every_budget(
        self,
    ) -> None:
        turns = [user_message(" ".join(map(str, range(300))))]
        ask = UserMessage()["What now? " * 4]
        required: set[int] = set()
        fitting: list[int] = []
        for budget in range(60):
            try:
                render(
                    (SystemMessage()["s"], recorded(turns, keep_request=True), ask),
                    budget=budget,
                    tokenizer=COUNTED,
                )
            except BudgetExceededError as error:
                required.add(error.required)
            else:
                fitting.append(budget)
        assert required == {fitting[0]}
        assert fitting == [*range(fitting[0], 60)]

    def test_blank_messages_are_neither_the_request_nor_counted_as_omitted(self) -> None:
        turns = [
            user_message("Go."),
            assistant_message(words(40)),
            assistant_message(""),
            user_message("Why?"),
            user_message("  \n"),
        ]
        rendered = render(recorded(turns), budget=6, tokenizer=COUNTED)
        assert [message.text for message in rendered.messages] == ["[2 omitted]", "Why?"]

    def test_parts_of_a_text_are_counted_as_they_are_sent(self) -> None:
        parts = ("one ", CacheBreakpointPart(), "two", "three")
        messages = [user_message(*parts) for _ in range(30)]
        rendered = render(recorded(messages), budget=100, tokenizer=GPT)
        assert {message.content for message in shown(rendered)} == {("one twothree",)}
        assert rendered.tokens > 90

    @pytest.mark.parametrize("between", [(), ("",), (CacheBreakpointPart(),)])
    def test_a_word_in_two_parts_is_counted_as_one_word(self, between: tuple[Part, ...]) -> None:
        messages = [user_message(words(40, "w") + " thr", *between, "ee") for _ in range(12)]
        rendered = render(RecordedMessages(messages=messages), budget=420, tokenizer=COUNTED)
        assert [message.text for message in rendered.messages] == [words(40) + " three"] * 10

    def test_only_results_are_truncated_and_to_just_the_tokens_of_text_that_are_given(self) -> None:
        messages = [
            user_message(words(90)),
            call_message("a", text=words(90)),
            result_message("a", words(90)),
            assistant_message(words(90)),
        ]
        shown = render(recorded(messages, truncate_at=20), tokenizer=COUNTED).messages
        assert [COUNTED.count(each.text) for each in shown] == [90, 90, 20, 90]

    @pytest.mark.parametrize("grow", [None, 0.5])
    @pytest.mark.parametrize("history", [True, False], ids=["History", "RecordedMessages"])
    def test_it_is_sized_after_all_siblings_with_the_tokens_that_they_leave(
        self, grow: float | None, *, history: bool
    ) -> None:
        @component
        class Notes(PromptElement):
            def render(self, sizing: Sizing) -> Child:
                return UserMessage(required=True)[words(sizing.token_budget - 31)]

        turns = [user_message(words(9, f"u{at}")) for at in range(9)]
        tree = (
            History(turns=turns, omitted_marker=False)
            if history
            else RecordedMessages(messages=turns),
            Notes(flex_grow=grow),
        )
        rendered = render(tree, budget=100, tokenizer=COUNTED)
        assert [COUNTED.count(message.text) for message in rendered.messages] == [9, 9, 9, 69]

    def test_what_passes_its_priorities_on_is_pruned_round_by_round_beside_its_siblings(
        self,
    ) -> None:
        turns = [user_message(words(9, f"u{at}")) for at in range(4)]
        tree = (
            RecordedMessages(messages=turns, shorten=False, pass_priority=True, flex_grow=None),
            UserMessage(priority=1.5)[words(9, "note")],
        )
        kept = [
            [
                message.text.split()[0]
                for message in render(tree, budget=budget, tokenizer=COUNTED).messages
            ]
            for budget in (50, 40, 30, 20)
        ]
        assert kept == [
            ["u0", "u1", "u2", "u3", "note"],
            ["u1", "u2", "u3", "note"],
            ["u2", "u3", "note"],
            ["u2", "u3"],
        ]

    def test_a_text_that_surely_does_not_fit_is_not_counted(self) -> None:
        class Bounded(WordTokenizer):
            def lower_bound(self, text: str) -> int:
                return len(text) // 10

            def count(self, text: str) -> int:
                assert len(text) < 20_000
                return super().count(text)

        messages = [
            user_message("Go."),
            call_message("a"),
            result_message("a", words(20_000)),
            assistant_message("Yes."),
            user_message("So?"),
        ]
        rendered = render(recorded(messages), budget=100, tokenizer=Bounded(per_message=1))
        assert len(rendered.messages) == len(messages)


class TestHeldPrefix:
    MESSAGES = tuple(user_message(words(30, f"u{at}")) for at in range(60))

    @pytest.mark.parametrize(
        ("step", "shorten"), [(0, False), (200, True)], ids=["shorten=False", "prune_step"]
    )
    def test_older_rounds_are_whole_or_gone(self, step: int, *, shorten: bool) -> None:
        messages = [
            user_message("Go."),
            call_message("a"),
            result_message("a", words(400)),
            *self.MESSAGES[:8],
        ]
        rendered = render(
            recorded(messages, shorten=shorten), budget=500, tokenizer=COUNTED, prune_step=step
        )
        assert set(shown(rendered)) <= set(messages)
        assert marked(rendered)

    def test_with_a_prune_step_the_first_kept_message_stays_for_many_turns(self) -> None:
        renderer = Renderer(budget=600, tokenizer=COUNTED, prune_step=300)
        firsts = [
            shown(renderer.render(recorded(self.MESSAGES[:end])))[0].text for end in range(25, 55)
        ]
        assert len(set(firsts)) <= 4

    def test_what_always_stays_is_shortened_where_it_must_be(self) -> None:
        messages = [
            *self.MESSAGES[:3],
            user_message("Go."),
            call_message("a"),
            result_message("a", words(900)),
        ]
        rendered = render(
            recorded(messages, keep_request=True), budget=300, tokenizer=COUNTED, prune_step=50
        )
        assert [message.role for message in shown(rendered)] == ["user", "assistant", "tool"]
        assert CUT_MARKER in rendered.messages[-1].text
        assert rendered.tokens <= 300


class TestReceipt:
    def test_a_row_is_a_round_in_the_users_words(self) -> None:
        messages = [
            *(user_message(words(20, "old")), assistant_message(words(20))),
            *(
                user_message("Go."),
                call_message("a", "b", name="read_file"),
                result_message("a", words(20)),
                result_message("b", words(20)),
            ),
            *(
                call_message("c", name="run_tests"),
                result_message("c", words(20)),
                assistant_message(words(30)),
            ),
        ]
        removals = render(recorded(messages, shorten=False), budget=50, tokenizer=COUNTED).removals
        assert [(removal.label, removal.reason, removal.partner) for removal in removals] == [
            ("turn 1 · reply", "budget", None),
            ("turn 1 · request", "budget", None),
            ("turn 2 · read_file results", "budget", None),
            ("turn 2 · run_tests result", "budget", None),
        ]


class TestReuse:
    def test_a_long_history_is_counted_only_as_far_as_it_is_kept(self) -> None:
        class Counting(WordTokenizer):
            def count(self, text: str) -> int:
                counted.append(text)
                return super().count(text)

        counted: list[str] = []
        render(
            recorded([user_message(words(10, f"u{at}")) for at in range(500)]),
            budget=120,
            tokenizer=Counting(),
        )
        assert len({text.split()[0] for text in counted if text.startswith("u")}) < 20


def test_no_round_takes_the_tokens_that_shortened_messages_leave_with_tools_or_without() -> None:
    tokenizer, tools = Bounded(), [ToolDefinition(name="read")]
    talk = [
        *(message for _ in range(60) for message in (user_message("q"), assistant_message("a"))),
        user_message("look"),
        call_message("1"),
        result_message("1", f"{words(30)}\n" * 40),
    ]
    unspent = 0
    for budget in range(100, 130):
        fitted = fit_history(
            talk,
            budget,
            tokenizer=tokenizer,
            count_marker=lambda count: tokenizer.count(mark(count)),
        )
        unspent += fitted.unspent
        alone = render(
            recorded(talk),
            budget=budget + tokenizer.count_overhead().tokens,
            tokenizer=tokenizer,
        )
        assert shown(alone) == list(fitted.messages)
        # a budget of just these tokens removes no more
        assert alone.at_budget(alone.tokens).messages == alone.messages
        beside_tools = render(
            recorded(talk),
            budget=budget + tokenizer.count_overhead(tools).tokens,
            tokenizer=tokenizer,
            tools=tools,
        )
        assert beside_tools.messages == alone.messages
    assert unspent
