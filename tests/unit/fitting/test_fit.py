"""`fit`: what stays of a conversation, and what it costs."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st
from openai.types.chat import ChatCompletionMessage

from benchmarks.tokenizing import WitnessedEncoding, encoding, fresh_tokenizer
from benchmarks.workload import texts
from promptkit import (
    BudgetExceededError,
    Fitted,
    Group,
    Message,
    ToolCall,
    ToolDefinition,
    fit,
    render,
)
from promptkit.elements import element_from_message
from promptkit.errors import InvalidArgumentError
from promptkit.fitting import RecordedMessages
from promptkit.fitting.shorten import CUT_MARKER, divide_tokens, find_level, shorten_arguments
from promptkit.messages import OpaquePart
from promptkit.pairing import pair_tool_calls
from promptkit.testing import WordTokenizer
from promptkit.tokens import HeuristicTokenizer, Tokenizer, count_request, tokenizer_for
from promptkit.tokens.tokenizer import count_message
from promptkit.wire import messages_from_chat
from tests.behaviour.conversation_strategies import conversations, talks
from tests.conversations import assistant_message, call_message, result_message, user_message, words
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.wire.parts import WireFormat
    from tests.conversations import ConversationBuilder

GPT = tokenizer_for("gpt-5")
CALIBRATED = tokenizer_for("claude-opus-4-5")
COUNTED = WordTokenizer(per_message=1, per_call=2, per_image=5)
READ = ToolDefinition(name="read", description="Read a file.")


def fit_or_refuse(
    messages: Sequence[Message],
    *,
    budget: int,
    tokenizer: Tokenizer,
    tools: Sequence[ToolDefinition] = (),
    shorten: bool = True,
) -> Fitted[Message] | int:
    """What fits, or the tokens that are required."""
    try:
        return fit(messages, budget=budget, tokenizer=tokenizer, tools=tools, shorten=shorten)
    except BudgetExceededError as error:
        return error.required


def given_indices(fitted: Fitted[Message]) -> set[int]:
    return {*fitted.kept, *fitted.changed}


def is_blank(message: Message) -> bool:
    return (
        message.role in ("user", "assistant")
        and not message.text.strip()
        and not message.tool_calls
        and set(message.content) <= {message.text}
    )


def required(messages: Sequence[Message]) -> set[int]:
    """The system messages, the last user message, and the newest round."""
    users = [
        at
        for at, message in enumerate(messages)
        if message.role == "user" and not is_blank(message)
    ]
    starts = [
        at
        for at, message in enumerate(messages)
        if message.role not in ("tool", "system") and not is_blank(message)
    ]
    newest = (
        {at for at in range(starts[-1], len(messages)) if messages[at].role != "system"}
        if starts
        else set[int]()
    )
    newest = {at for at in newest if not is_blank(messages[at])}
    return (
        {at for at, message in enumerate(messages) if message.role == "system"}
        | newest
        | set(users[-1:])
    )


def as_parts(content: Any) -> list[dict[str, str]]:  # Any: of a request
    return [{"text": content}] if isinstance(content, str) else content


class TestLaws:
    @given(
        messages=conversations(),
        budget=st.integers(1, 3_000),
        tools=st.booleans(),
        shorten=st.booleans(),
        data=st.data(),
    )
    @settings(deadline=None, max_examples=examples(150 * 2))
    def test_what_fits_is_within_the_budget_and_costs_what_a_render_of_it_costs(
        self,
        messages: list[Message],
        budget: int,
        data: st.DataObject,
        *,
        tools: bool,
        shorten: bool,
    ) -> None:
        tokenizer: Tokenizer = data.draw(st.sampled_from([GPT, COUNTED]))
        offered = [READ] if tools else []
        fitted = fit_or_refuse(
            messages, budget=budget, tokenizer=tokenizer, tools=offered, shorten=shorten
        )
        if isinstance(fitted, int):
            assert fitted > budget
            return
        shown = Group(required=True)[[element_from_message(message) for message in fitted.messages]]
        rendered = render(shown, budget=1_000_000, tokenizer=tokenizer, tools=offered)
        # a render does not send blank messages
        blank = len(rendered.messages) != len(fitted.messages)
        assert rendered.tokens <= fitted.tokens <= budget
        assert blank or rendered.tokens == fitted.tokens
        assert not pair_tool_calls(fitted.messages).repairs
        assert sorted([*fitted.kept, *fitted.changed, *fitted.removed]) == list(
            range(len(messages))
        )
        assert required(messages) <= given_indices(fitted)
        assert all(
            any(message is each for each in fitted.messages)
            for message in (messages[at] for at in fitted.kept)
        )
        if not shorten:
            assert not fitted.changed
        if fitted.removed or fitted.changed:
            assert fitted == fit(
                messages, budget=budget, tokenizer=tokenizer, tools=offered, shorten=shorten
            )
        else:
            assert list(fitted.messages) == messages

    @given(texts=st.lists(st.text("ab \n", max_size=9), min_size=1, max_size=5), data=st.data())
    @settings(deadline=None, max_examples=examples(80 * 2))
    def test_a_message_counts_what_a_render_of_it_counts(
        self, texts: list[str], data: st.DataObject
    ) -> None:
        tokenizer: Tokenizer = data.draw(
            st.sampled_from([GPT, CALIBRATED, HeuristicTokenizer(), COUNTED])
        )
        role = data.draw(st.sampled_from(["system", "user", "assistant"]))
        messages = messages_from_chat(
            [{"role": role, "content": [{"type": "text", "text": text} for text in texts]}]
        )
        if role == "assistant" and data.draw(st.booleans()):
            messages = [
                attrs.evolve(
                    messages[0],
                    tool_calls=(ToolCall(id="a", name="read", arguments='{"path": "a b"}'),),
                ),
                result_message("a", "R"),
            ]
        if data.draw(st.booleans()):
            thinking = OpaquePart(value={"type": "thinking", "thinking": "Hm, so."})
            messages[0] = attrs.evolve(messages[0], content=(*messages[0].content, thinking))
        rendered = render(
            [element_from_message(message) for message in messages],
            budget=9_000,
            tokenizer=tokenizer,
        )
        overhead = tokenizer.count_overhead().tokens
        if rendered.messages:
            assert (
                rendered.tokens
                == sum(count_message(message, tokenizer) for message in messages) + overhead
            )
            assert fit(messages, budget=9_000, tokenizer=tokenizer).tokens in (
                rendered.tokens,
                overhead,
                0,
            )

    @given(parts=st.lists(st.integers(0, 40), min_size=1, max_size=6), budget=st.integers(5, 120))
    @settings(deadline=None, max_examples=examples(80 * 2))
    def test_what_fits_a_calibrated_budget_counts_the_same_when_it_is_fit_again(
        self, parts: list[int], budget: int
    ) -> None:
        message = Message(
            role="user", content=[{"type": "text", "text": words(length, "w")} for length in parts]
        )
        fitted = fit_or_refuse([user_message("Hi"), message], budget=budget, tokenizer=CALIBRATED)
        if not isinstance(fitted, int):
            assert (
                fitted.tokens
                == fit(fitted.messages, budget=9_000, tokenizer=CALIBRATED).tokens
                <= budget
            )

    @given(messages=conversations(), shorten=st.booleans(), data=st.data())
    @settings(deadline=None, max_examples=examples(150 * 2))
    def test_messages_that_fit_exactly_are_never_changed(
        self, messages: list[Message], data: st.DataObject, *, shorten: bool
    ) -> None:
        tokenizer: Tokenizer = data.draw(st.sampled_from([GPT, CALIBRATED, COUNTED]))
        whole = fit(messages, budget=1_000_000, tokenizer=tokenizer)
        if whole.tokens:
            exactly = fit(messages, budget=whole.tokens, tokenizer=tokenizer, shorten=shorten)
            assert (exactly.messages, exactly.changed, exactly.removed) == (
                whole.messages,
                (),
                whole.removed,
            )

    @given(
        messages=conversations(),
        budgets=st.lists(st.integers(1, 6_000), max_size=5),
        shorten=st.booleans(),
        data=st.data(),
    )
    @settings(deadline=None, max_examples=examples(150 * 2))
    def test_a_refusal_names_the_smallest_budget_that_works_whatever_the_budget_was(
        self, messages: list[Message], budgets: list[int], data: st.DataObject, *, shorten: bool
    ) -> None:
        tokenizer: Tokenizer = data.draw(st.sampled_from([GPT, CALIBRATED, COUNTED]))
        needed = fit_or_refuse(messages, budget=1, tokenizer=tokenizer, shorten=shorten)
        if not isinstance(needed, int):
            return
        for budget in (needed - 1, needed, needed + 1, *budgets):
            fitted = fit_or_refuse(
                messages, budget=max(1, budget), tokenizer=tokenizer, shorten=shorten
            )
            assert isinstance(fitted, int) == (budget < needed)
            assert fitted == needed if isinstance(fitted, int) else fitted.tokens <= budget

    @given(
        room=st.integers(0, 300),
        parts=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), max_size=9),
    )
    def test_tokens_are_divided_without_a_rest(self, room: int, parts: list[list[int]]) -> None:
        least, needs = [floor for floor, _ in parts], [need for _, need in parts]
        tokens = sum(least) + room
        divided = divide_tokens(tokens, needs, least)
        assert sum(divided) == min(tokens, sum(needs))
        assert all(
            floor <= tokens <= need
            for floor, tokens, need in zip(least, divided, needs, strict=True)
        )
        above = [
            tokens - floor
            for floor, tokens, need in zip(least, divided, needs, strict=True)
            if tokens < need
        ]
        assert max(above, default=0) - min(above, default=0) <= 1

    @given(
        messages=conversations(),
        budget=st.integers(1, 3_000),
        more=st.integers(1, 1_000),
        shorten=st.booleans(),
    )
    @settings(deadline=None, max_examples=examples(150 * 2))
    def test_a_larger_budget_shows_every_message_that_a_smaller_one_shows(
        self, messages: list[Message], budget: int, more: int, *, shorten: bool
    ) -> None:
        smaller = fit_or_refuse(messages, budget=budget, tokenizer=COUNTED, shorten=shorten)
        if isinstance(smaller, int):
            return
        larger = fit(messages, budget=budget + more, tokenizer=COUNTED, shorten=shorten)
        assert given_indices(smaller) <= given_indices(larger)

    @given(talk=talks(), budget=st.integers(1, 200))
    @settings(deadline=None, max_examples=examples(100 * 2))
    def test_recordings_with_faults_are_repaired_and_told(
        self, talk: ConversationBuilder, budget: int
    ) -> None:
        messages = [entry.message for entry in talk.path if entry.message]
        fitted = fit_or_refuse(messages, budget=budget, tokenizer=COUNTED)
        if isinstance(fitted, int):
            return
        assert fitted.tokens <= budget
        assert not pair_tool_calls(fitted.messages).repairs
        assert fitted.repairs == pair_tool_calls(messages).repairs

    @given(wants=st.lists(st.integers(0, 50)), room=st.integers(-10, 300))
    @example(wants=[2, 5], room=5)
    def test_a_level_is_the_largest_that_fits(self, wants: list[int], room: int) -> None:
        level = find_level(wants, room)
        if room >= 0:
            assert sum(min(want, level) for want in wants) <= room
            assert (
                level >= max(wants, default=0) or sum(min(want, level + 1) for want in wants) > room
            )


class TestTextInOpaqueParts:
    """A refusal, thinking and summaries count as the text that they are."""

    LONG = "I can not do that. " * 100

    def test_a_refusal_counts_as_its_text_and_its_round_is_removed(self) -> None:
        asked: list[dict[str, Any]] = [  # Any: of a request
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "refusal": self.LONG},
            {"role": "user", "content": "why?"},
        ]
        whole = fit(asked, budget=5_000, model="gpt-4o")
        counted = count_request({"model": "gpt-4o", "messages": [*asked]})
        assert (whole.tokens, whole.exact) == counted
        assert counted.exact
        rendered = render(
            RecordedMessages(messages=messages_from_chat(asked)), budget=5_000, model="gpt-4o"
        )
        assert (rendered.tokens, rendered.exact) == counted
        fitted = fit(asked, budget=40, model="gpt-4o")
        assert 1 in fitted.removed
        assert (
            fitted.tokens
            == count_request({"model": "gpt-4o", "messages": list(fitted.messages)}).tokens
            <= 40
        )

    @pytest.mark.parametrize(
        ("asked", "form"),
        [
            (
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "think " * 500, "signature": "c2ln" * 500}
                    ],
                },
                "anthropic",
            ),
            (
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "refusal", "refusal": "think " * 500}],
                },
                "responses",
            ),
            (
                {
                    "type": "reasoning",
                    "id": "r" * 900,
                    "summary": [{"type": "summary_text", "text": "think " * 500}],
                },
                "responses",
            ),
            ({"role": "assistant", "content": "ok", "reasoning_content": "think " * 500}, "chat"),
        ],
        ids=["thinking", "refusal", "reasoning", "field"],
    )
    @pytest.mark.parametrize("model", ["gpt-4o", "claude-opus-4-5", "an-unknown-model"])
    def test_the_text_in_a_part_counts_and_its_signature_does_not(
        self, asked: dict[str, Any], form: WireFormat, model: str
    ) -> None:
        fitted = fit([asked], budget=9_000, model=model, format=form)
        text = tokenizer_for(model).count("think " * 500)
        assert text <= fitted.tokens <= text + 30
        assert not fitted.exact
        assert "estimated" in fitted.explain()


class TestBlankMessages:
    def test_blank_text_beside_a_tool_result_is_no_user_message(self) -> None:
        asked: list[dict[str, Any]] = [  # Any: of a request
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "t1", "name": "run", "input": {"q": words(300)}}
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": words(300)},
                    {"type": "text", "text": " \n"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "ok"}]},
        ]
        fitted = fit(asked, budget=30, model="gpt-4o", format="anthropic")
        assert fitted.messages == (asked[0], asked[3])
        assert (fitted.kept, fitted.changed, fitted.removed) == ((0, 3), (), (1, 2))
        assert (
            fitted.tokens
            == fit(fitted.messages, budget=900, model="gpt-4o", format="anthropic").tokens
        )
        whole = fit(asked, budget=9_000, model="gpt-4o", format="anthropic")
        assert whole.kept == (0, 1, 2, 3)
        assert whole.messages[2] is asked[2]

    def test_a_blank_message_is_removed_and_not_counted(self) -> None:
        # Any stands for as above
        asked: list[dict[str, Any]] = [
            {"role": "user", "content": "Hi"},
            {"role": "user", "content": " \n"},
        ]
        fitted = fit(asked, budget=20, model="gpt-4o")
        assert fitted.messages == (asked[0],)
        assert fitted.removed == (1,)
        assert fitted.tokens == count_request({"messages": [asked[0]]}).tokens

    def test_a_message_of_blank_texts_or_of_nothing_is_removed_and_one_with_an_image_is_not(
        self,
    ) -> None:
        blank = {"type": "text", "text": " "}
        image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        asked: list[dict[str, Any]] = [  # Any: as above
            {"role": "user", "content": [blank, blank]},
            {"role": "user", "content": []},
            {"role": "user", "content": [blank, image]},
            {"role": "user", "content": [image]},
        ]
        fitted = fit(asked, budget=5_000, model="gpt-4o")
        assert (fitted.kept, fitted.changed, fitted.removed) == ((2, 3), (), (0, 1))

    def test_a_message_of_one_opaque_part_is_not_blank(self) -> None:
        thinking = Message(
            role="assistant", content=(OpaquePart(value={"type": "thinking", "thinking": "Hm."}),)
        )
        assert fit([thinking, user_message("So?")], budget=90, tokenizer=GPT).kept == (0, 1)

    def test_a_repair_names_the_message_that_was_given(self) -> None:
        asked = [user_message(" "), user_message("Go."), result_message("a", "lost")]
        assert [
            repair.detail.partition(":")[0]
            for repair in fit(asked, budget=90, tokenizer=COUNTED, system="Be brief.").repairs
        ] == ["turns[2]"]


class TestManyParts:
    @pytest.mark.parametrize("budget", [20, 60, 1_000, 1_300, 3_000])
    def test_a_last_request_of_many_texts_is_cut_in_the_middle(self, budget: int) -> None:
        # Any stands for of a request
        parts: Any = [{"type": "text", "text": f"m{at} " * 20} for at in range(200)]
        asked: list[dict[str, Any]] = [{"role": "user", "content": parts}]  # Any: as above
        fitted = fit(asked, budget=budget, model="gpt-4o")
        texts = [part["text"] for part in as_parts(fitted.messages[0]["content"])]
        assert budget * 0.7 - 10 <= fitted.tokens <= budget
        assert fitted.tokens == count_request({"messages": [*fitted.messages]}).tokens
        if budget <= 1_300:
            assert sum(CUT_MARKER.strip() in text for text in texts) == 1
        if budget == 1_000:
            assert texts[0] == parts[0]["text"]
            assert texts[-1] == parts[-1]["text"]

    def test_a_short_text_stays_beside_one_that_is_cut(self) -> None:
        least = fit([user_message("Hi", words(900))], budget=9, tokenizer=COUNTED)
        assert least.messages[0].content[0] == "Hi"


class TestErrors:
    def test_an_error_names_the_messages_that_were_given_and_what_helps(self) -> None:
        asked: list[dict[str, Any]] = [  # Any: as above
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "run", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": words(30)},
                    {"type": "text", "text": words(50)},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": words(90)}]},
        ]
        with pytest.raises(
            BudgetExceededError, match=r"Raise the budget, or allow shorten=True\.$"
        ) as raised:
            fit(
                asked,
                budget=30,
                model="gpt-4o",
                format="anthropic",
                system=words(20),
                shorten=False,
            )
        assert set(raised.value.largest) == {"messages[2]", "messages[3]", "system"}
        with pytest.raises(
            BudgetExceededError, match=r"Raise the budget, or shorten these yourself\.$"
        ):
            fit(asked, budget=30, model="gpt-4o", format="anthropic", system=words(200))

    def test_an_error_names_the_three_largest_messages_with_their_sizes(self) -> None:
        asked = [Message(role="system", content=(words(size),)) for size in (5, 20, 9, 40, 30)]
        with pytest.raises(BudgetExceededError) as raised:
            fit(asked, budget=50, tokenizer=COUNTED)
        assert raised.value.largest == {"messages[3]": 41, "messages[4]": 31, "messages[1]": 21}
        assert list(raised.value.largest) == ["messages[3]", "messages[4]", "messages[1]"]


class TestWhatStays:
    @pytest.mark.parametrize("results", [2, 3, 7])
    def test_results_that_fit_exactly_are_not_shortened(self, results: int) -> None:
        names = [f"c{at}" for at in range(results)]
        messages = [user_message("Read them."), call_message(*names)]
        messages += [result_message(name, words(20 + at)) for at, name in enumerate(names)]
        needed = fit(messages, budget="8k", tokenizer=COUNTED).tokens
        assert fit(messages, budget=needed, tokenizer=COUNTED).changed == ()
        assert fit(messages, budget=needed - 1, tokenizer=COUNTED).tokens > needed - 20

    @pytest.mark.parametrize("budget", [1_000, 1_100, 1_300])
    def test_arguments_that_can_be_shortened_are_shortened_beside_others_that_cannot(
        self, budget: int
    ) -> None:
        points = ToolCall(
            id="a",
            name="plot",
            arguments=json.dumps({"points": [at * 37 % 1_000 for at in range(450)]}),
        )
        report = ToolCall(
            id="b",
            name="write",
            arguments=json.dumps({"path": "r.md", "text": "The curve rises and falls. " * 200}),
        )
        call = Message(role="assistant", tool_calls=(points, report))
        asked = [
            user_message("Plot it."),
            call,
            result_message("a", "done"),
            result_message("b", "done"),
        ]
        fitted = fit(asked, budget=budget, tokenizer=GPT)
        assert fitted.tokens > budget - 60
        shortened = fitted.messages[1].tool_calls
        assert shortened[0] == points
        assert json.loads(shortened[1].arguments)["text"].startswith("The curve rises")

    def test_a_long_tool_result_is_shortened_before_a_round_is_removed(self) -> None:
        messages = [
            user_message("Look."),
            call_message("a"),
            result_message("a", words(500)),
            assistant_message("Seen."),
            user_message("And now?"),
        ]
        fitted = fit(messages, budget=200, tokenizer=COUNTED)
        assert fitted.removed == ()
        assert fitted.changed == (2,)
        assert fitted.tokens > 190
        assert CUT_MARKER.strip() in fitted.messages[2].text

    def test_the_first_round_that_does_not_fit_is_shortened_to_what_is_left(self) -> None:
        messages = [user_message(words(60, f"u{at}")) for at in range(10)]
        fitted = fit(messages, budget=250, tokenizer=COUNTED)
        assert fitted.kept == (6, 7, 8, 9) or fitted.changed
        assert fitted.removed == tuple(range(min(given_indices(fitted))))
        assert fitted.tokens > 240

    def test_the_last_request_is_shortened_last_and_never_removed(self) -> None:
        messages = [
            user_message(words(1_000, "u")),
            call_message("a"),
            result_message("a", words(1_000, "r")),
        ]
        fitted = fit(messages, budget=600, tokenizer=COUNTED)
        assert fitted.changed == (0, 2)
        assert len(fitted.messages[0].text.split()) > 500
        assert len(fitted.messages[2].text.split()) < 20

    def test_one_long_turn_of_an_agent_fits(self) -> None:
        messages = [user_message("Fix the parser.")]
        for at in range(50):
            messages += [call_message(f"c{at}"), result_message(f"c{at}", words(200))]
        fitted = fit(messages, budget=1_000, tokenizer=COUNTED)
        assert fitted.messages[0] is messages[0]
        assert fitted.tokens > 950
        assert len(fitted.messages) > len(
            fit(messages, budget=1_000, tokenizer=COUNTED, shorten=False).messages
        )

    def test_the_oldest_rounds_stay_if_they_are_asked_for(self) -> None:
        messages = [user_message(words(10, f"u{at}")) for at in range(10)]
        fitted = fit(messages, budget=60, tokenizer=COUNTED, keep="oldest", shorten=False)
        assert fitted.kept == (0, 1, 2, 3, 9)

    def test_what_fits_is_what_was_given(self) -> None:
        messages = [user_message("a"), assistant_message("b")]
        fitted = fit(messages, budget="1k", model="gpt-4o")
        assert all(one is other for one, other in zip(fitted.messages, messages, strict=True))
        assert fitted.explain().splitlines() == [
            f"{fitted.tokens} of 1,000 tokens (1%) in 2 messages",
            "kept 2 messages: 0-1",
        ]

    @pytest.mark.parametrize("budget", [600, 1_000_000])
    def test_a_budget_is_the_most_tokens_whatever_the_tools_and_the_window_are(
        self, budget: int
    ) -> None:
        assert (
            fit([user_message("a")], budget=budget, model="gpt-4o", tools=[READ]).budget == budget
        )

    def test_one_message_that_is_estimated_makes_the_sum_an_estimate(self) -> None:
        thinking = OpaquePart(value={"type": "thinking", "thinking": "Hm."})
        asked = [user_message("a"), Message(role="assistant", content=("b", thinking))]
        assert fit(asked[:1], budget=90, model="gpt-4o").exact
        assert not fit(asked, budget=90, model="gpt-4o").exact

    def test_without_a_budget_it_is_the_models_window(self) -> None:
        assert fit([user_message("a")], model="gpt-4o").budget > 100_000


class TestArguments:
    @given(
        data=st.recursive(
            st.text() | st.integers() | st.none(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
        tokens=st.integers(0, 60),
    )
    @settings(deadline=None, max_examples=examples(100 * 2))
    def test_shortened_arguments_are_json_with_the_same_keys(
        self, data: object, tokens: int
    ) -> None:
        before = json.dumps({"value": data, "text": words(100)})
        after = json.loads(shorten_arguments(before, tokens, tokenizer=GPT))
        assert list(after) == ["value", "text"]
        assert type(after["value"]) is type(json.loads(before)["value"])

    @pytest.mark.parametrize("arguments", ["not json " * 50, '"a text"', "[" * 100_000])
    def test_arguments_that_are_no_object_stay(self, arguments: str) -> None:
        assert shorten_arguments(arguments, 5, tokenizer=GPT) == arguments

    def test_arguments_use_the_tokens_that_they_have(self) -> None:
        arguments = json.dumps({"path": "src/a.py", "text": words(2_000)})
        shortened = shorten_arguments(arguments, 500, tokenizer=GPT)
        assert 400 < GPT.count(shortened) <= 500
        assert json.loads(shortened)["path"] == "src/a.py"

    @pytest.mark.parametrize("budget", [180, 240, 290])
    def test_a_call_with_one_long_argument_is_shortened_to_exactly_what_fits(
        self, budget: int
    ) -> None:
        call = Message(
            role="assistant",
            tool_calls=(
                ToolCall(id="a", name="write", arguments=json.dumps({"text": words(300)})),
            ),
        )
        assert (
            fit(
                [user_message("Go."), call, result_message("a", "done")],
                budget=budget,
                tokenizer=GPT,
            ).tokens
            == budget
        )


class TestRefusals:
    def test_system_messages_that_do_not_fit_are_refused_with_their_sizes(self) -> None:
        with pytest.raises(BudgetExceededError, match=r"messages\[0\]"):
            fit(
                [Message(role="system", content=(words(100),)), user_message("Hi.")],
                budget=50,
                tokenizer=COUNTED,
            )

    def test_an_unknown_end_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError, match='"newest" or "oldest"'):
            fit([], budget=10, keep="middle")  # type: ignore[arg-type]  # wrong on purpose

    def test_the_arguments_of_an_older_call_are_shortened_and_stay_json(self) -> None:
        call = Message(
            role="assistant",
            tool_calls=(ToolCall(id="a", name="read", arguments=json.dumps({"text": words(300)})),),
        )
        fitted = fit(
            [user_message("Go."), call, result_message("a", "done"), user_message("Next.")],
            budget=120,
            tokenizer=GPT,
        )
        assert json.loads(fitted.messages[1].tool_calls[0].arguments)["text"].endswith("[…]")


LONG = words(2_000)
CHAT: list[dict[str, Any]] = [  # Any: of a request
    {"role": "system", "content": "You review code."},
    {"role": "user", "content": "Read the log."},
    {
        "role": "assistant",
        "content": None,
        "reasoning": "hm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": LONG},
    {"role": "user", "content": "What went wrong?"},
]
ANTHROPIC: list[dict[str, Any]] = [  # Any: as above
    {"role": "user", "content": "Read the log."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "log"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": LONG},
            {"type": "text", "text": "Say more."},
        ],
    },
    {"role": "user", "content": "What went wrong?"},
]
RESPONSES: list[dict[str, Any]] = [  # Any: as above
    {"role": "user", "content": "Read the log."},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"},
    {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "read", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": LONG},
    {"role": "user", "content": "What went wrong?"},
]


class TestProviders:
    @pytest.mark.parametrize(("messages", "long"), [(CHAT, 3), (ANTHROPIC, 2), (RESPONSES, 3)])
    # Any stands for as above
    def test_dicts_stay_the_callers_own_where_nothing_changed(
        self, messages: list[dict[str, Any]], long: int
    ) -> None:
        fitted = fit(
            messages,
            budget=600,
            model="gpt-5",
            system=None if messages is CHAT else "You review code.",
        )
        assert fitted.changed == (long,)
        assert fitted.removed == ()
        assert len(fitted.messages) == len(messages)
        assert all(
            one is other
            for at, (one, other) in enumerate(zip(fitted.messages, messages, strict=True))
            if at != long
        )
        assert 570 < fitted.tokens <= 600
        assert len(str(fitted.messages[long])) < len(str(messages[long]))
        assert list(fitted.messages[long]) == list(messages[long])

    def test_a_removed_round_takes_its_reasoning_with_it(self) -> None:
        later = [
            *RESPONSES,
            {"role": "assistant", "content": [{"type": "output_text", "text": words(50)}]},
            {"role": "user", "content": "So?"},
        ]
        fitted = fit(later, budget=70, model="gpt-5", shorten=False)
        assert [item.get("content") for item in fitted.messages][-1] == "So?"
        assert {1, 2, 3} <= set(fitted.removed)

    @pytest.mark.parametrize("before", [0, 1, 2])
    def test_a_request_beside_what_the_model_wrote_is_changed_alone(self, before: int) -> None:
        written: list[dict[str, Any]] = [  # Any: of a request
            {"type": "reasoning", "id": f"rs_{at}", "summary": [], "encrypted_content": "opaque"}
            for at in range(before)
        ]
        reply = [{"type": "output_text", "text": "Yes."}]
        answer = {"type": "message", "role": "assistant", "id": "m", "content": reply}
        request = {"role": "user", "content": words(500)}
        items = [*written, answer, request, *written, answer, {"role": "user", "content": "So?"}]
        fitted = fit(items, budget=200, model="gpt-5", format="responses")
        assert fitted.changed == (before + 1,)
        assert fitted.removed == ()
        assert len(fitted.messages) == len(items)

    def test_several_calls_with_ids_and_long_results_are_fitted(self) -> None:
        items = [
            {"role": "user", "content": "Review it."},
            *(
                {
                    "type": "function_call",
                    "id": f"fc_{n}",
                    "call_id": f"c{n}",
                    "name": "read",
                    "arguments": "{}",
                }
                for n in (1, 2)
            ),
            *(
                {"type": "function_call_output", "call_id": f"c{n}", "output": words(500)}
                for n in (1, 2)
            ),
        ]
        fitted = fit(items, budget=300, model="gpt-4.1", format="responses")
        assert fitted.tokens <= 300
        assert fitted.messages[:3] == tuple(items[:3])
        assert fitted.changed == (3, 4)

    def test_sdk_objects_are_given_back(self) -> None:
        reply = ChatCompletionMessage(role="assistant", content="It is long.")
        messages = [{"role": "user", "content": LONG}, reply, {"role": "user", "content": "So?"}]
        fitted = fit(messages, budget=300, model="gpt-5")
        assert fitted.messages[1] is reply

    def test_the_system_prompt_beside_the_messages_counts(self) -> None:
        with_system = fit(ANTHROPIC, budget="8k", model="gpt-5", system="You review code.")
        assert with_system.tokens > fit(ANTHROPIC, budget="8k", model="gpt-5").tokens
        assert list(with_system.messages) == ANTHROPIC

    def test_a_result_that_is_missing_is_added_behind_its_call(self) -> None:
        fitted = fit([*CHAT[:3], CHAT[4]], budget="1k", model="gpt-5")
        assert fitted.messages[2] is CHAT[2]
        assert fitted.messages[3]["role"] == "tool"
        assert fitted.repairs[0].kind == "missing result"

    @pytest.mark.parametrize("wrong", [["Hello."], [user_message("a"), 3], [None]])
    def test_what_is_no_message_is_refused_with_its_place(self, wrong: list[object]) -> None:
        with pytest.raises(TypeError, match=r"messages\[[01]\]"):
            fit(wrong, budget=100)

    def test_an_unknown_format_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError, match='"chat", "responses" or "anthropic"'):
            fit(CHAT, budget=100, format="openai")  # type: ignore[arg-type]  # wrong on purpose


@dataclass(frozen=True)
class FrameworkMessage:
    """A message of some framework, with an id that must not be lost."""

    id: str
    role: str
    text: str


class TestConverters:
    def messages(self) -> list[FrameworkMessage]:
        texts = ["Read the log.", "It says: " + "retry " * 900, "And then?"]
        return [
            FrameworkMessage(f"m{at}", ("user", "assistant", "user")[at], text)
            for at, text in enumerate(texts)
        ]

    def test_objects_with_a_converter_stay_the_callers_own_and_shortened_ones_are_rebuilt(
        self,
    ) -> None:
        given = self.messages()
        fitted = fit(
            given,
            budget=300,
            model="gpt-5",
            convert=lambda each: {"role": each.role, "content": each.text},
            rebuild=lambda each, short: dataclasses.replace(each, text=short["content"]),
        )
        assert [each.id for each in fitted.messages] == ["m0", "m1", "m2"]
        assert (fitted.messages[0] is given[0], fitted.messages[2] is given[2]) == (True, True)
        assert fitted.changed == (1,)
        assert fitted.messages[1].text.startswith("It says: retry")
        assert len(fitted.messages[1].text) < len(given[1].text)

    def test_a_converter_may_make_messages(self) -> None:
        given = self.messages()
        fitted = fit(
            given,
            budget="8k",
            model="gpt-5",
            convert=lambda each: Message(role="user", content=(each.text,)),
        )
        assert list(fitted.messages) == given

    def test_without_a_way_back_a_shortened_message_is_as_the_converter_made_it(self) -> None:
        fitted = fit(
            self.messages(),
            budget=300,
            model="gpt-5",
            convert=lambda each: {"role": each.role, "content": each.text},
        )
        shortened: object = fitted.messages[1]
        assert isinstance(shortened, dict)


def test_messages_may_come_from_a_generator() -> None:
    messages = [{"role": "user", "content": f"word {at}"} for at in range(9)]
    fitted = fit((message for message in messages), budget=12, tokenizer=WordTokenizer())
    assert fitted == fit(messages, budget=12, tokenizer=WordTokenizer())
    assert all(message in messages for message in fitted.messages)
    assert fitted.removed


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_tokenizes_texts_one_and_a_half_times_at_most_also_where_it_shortens_them(
    share: float,
) -> None:
    pages = texts(100, (200, 400))
    code = "\n".join(pages[0][:60] + str(number) for number in range(700))
    talk = [
        *(user_message(page) for page in pages[:10]),
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="a", name="write", arguments=json.dumps({"text": code})),),
        ),
        result_message("a", "\n".join(pages[:20])),
        *(user_message(page) for page in pages[10:]),
    ]
    given = [message.text for message in talk] + [talk[10].tool_calls[0].arguments]
    whole = sum(map(fresh_tokenizer().count, given))
    witness = WitnessedEncoding(encoding())
    fitted = fit(talk, budget=int(whole * share), tokenizer=fresh_tokenizer(witness))
    assert fitted.changed
    assert witness.bytes <= 1.5 * sum(len(text.encode()) for text in given)
