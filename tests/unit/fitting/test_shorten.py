"""`shorten_message` and `shorten_arguments`: what is left of one message, and that it has the tokens that it may have."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st

from promptkit import Message, ToolCall
from promptkit.fitting.shorten import CUT_MARKER, shorten_arguments, shorten_message
from promptkit.messages import ImagePart
from promptkit.testing import WordTokenizer
from promptkit.tokens import Tokenizer, tokenizer_for
from promptkit.tokens.tokenizer import count_message
from tests.conversations import call_message, user_message, words
from tests.examples import examples

WORDS = WordTokenizer()
FRAMED = WordTokenizer(per_message=1, per_call=2, per_image=5)
GPT = tokenizer_for("gpt-5")
CALIBRATED = tokenizer_for("claude-opus-4-5")
IMAGE = ImagePart(url="https://example.com/a.png", width=9, height=9)
OWN_MARKER = "\n[cut: read the file]\n"


def numbered(count: int, name: str = "w") -> str:
    """A text of different words, so that it shows which of them are left."""
    return " ".join(f"{name}{at}" for at in range(1, count + 1))


def shorten_texts(
    tokens: int, *texts: str, marker: str = CUT_MARKER, tokenizer: Tokenizer = WORDS
) -> list[object]:
    """The parts that are left of a message, each text with a bar for the default marker."""
    shortened = shorten_message(user_message(*texts), tokens, tokenizer=tokenizer, marker=marker)
    return [
        " ".join(part.replace(CUT_MARKER, " | ").split()) if isinstance(part, str) else part
        for part in shortened.content
    ]


class TestTexts:
    @pytest.mark.parametrize(
        "message",
        [
            user_message(numbered(40), numbered(30)),
            user_message(numbered(40), IMAGE),
            call_message("a", text=numbered(40), arguments='{"text": "a b c d e f"}'),
            call_message("a", "b", arguments='{"text": "a b c d e f"}'),
        ],
        ids=["texts", "image", "text and call", "calls"],
    )
    @pytest.mark.parametrize("more", [0, 1, 50])
    def test_a_message_that_fits_is_given_back(self, message: Message, more: int) -> None:
        tokens = count_message(message, FRAMED) + more
        assert shorten_message(message, tokens, tokenizer=FRAMED) is message

    def test_a_long_text_keeps_40_percent_at_its_head_and_60_at_its_tail(self) -> None:
        shown = shorten_message(user_message(numbered(1_000)), 104, tokenizer=FRAMED).text
        head, tail = shown.split(CUT_MARKER)
        assert head.split() == numbered(1_000).split()[:40]
        assert tail.split() == numbered(1_000).split()[-60:]

    def test_the_texts_have_all_that_images_and_calls_leave(self) -> None:
        message = attrs.evolve(
            call_message("a", arguments='{"at": [1, 2]}'), content=(IMAGE, numbered(90))
        )
        for tokens in range(1 + 2 + 5 + 3, 98):
            shortened = shorten_message(message, tokens, tokenizer=FRAMED)
            assert count_message(shortened, FRAMED) == tokens
            assert (shortened.content[0], shortened.tool_calls) == (IMAGE, message.tool_calls)

    def test_a_text_has_all_that_the_frame_leaves(self) -> None:
        shortened = shorten_message(user_message('"q" "q" "q"'), 10, tokenizer=GPT)
        assert count_message(shortened, GPT) == 10

    def test_first_arguments_are_shortened_and_the_text_only_if_it_must_be(self) -> None:
        arguments = json.dumps({"text": words(300)})
        message = call_message("a", text=numbered(90), arguments=arguments)
        short = call_message("a", text=numbered(90), arguments='{"text":"[…]"}')
        least = count_message(short, GPT)
        assert shorten_message(message, least + 50, tokenizer=GPT).text == message.text
        assert shorten_message(message, least, tokenizer=GPT) == short
        both = shorten_message(message, least - 1, tokenizer=GPT)
        assert both.tool_calls == short.tool_calls
        assert CUT_MARKER in both.text

    def test_a_marker_of_more_than_half_of_the_text_gives_way_to_the_default_one(self) -> None:
        assert shorten_texts(8, numbered(99), marker=OWN_MARKER) == [
            "w1 [cut: read the file] w97 w98 w99"
        ]
        assert shorten_texts(7, numbered(99), marker=OWN_MARKER) == ["w1 | w97 w98 w99"]

    def test_a_text_no_longer_than_the_marker_stays(self) -> None:
        assert shorten_texts(1, "one two three") == ["one two three"]
        assert shorten_texts(1, "one two three four") == ["|"]

    def test_two_texts_are_both_cut_while_each_shows_16_tokens(self) -> None:
        texts = numbered(100, "a"), numbered(100, "b")
        both = "a1 a2 a3 a4 a5 a6 | a91 a92 a93 a94 a95 a96 a97 a98 a99 a100"
        assert shorten_texts(38, *texts) == [both, both.replace("a", "b")]
        (one,) = shorten_texts(37, *texts)
        assert isinstance(one, str)
        head, tail = one.split(" | ")
        assert head.split() == numbered(13, "a").split()
        assert tail.split() == numbered(100, "b").split()[-21:]

    @pytest.mark.parametrize(
        ("tokens", "shown"),
        [
            (24, ["| c10", numbered(10, "d"), numbered(10, "e")]),
            (27, ["a1 | c8 c9 c10", numbered(10, "d"), numbered(10, "e")]),
            (28, [numbered(10, "a"), "b1 b2 | d8 d9 d10", numbered(10, "e")]),
            (37, [numbered(10, "a"), "b1 | c8 c9 c10", numbered(10, "d"), numbered(10, "e")]),
        ],
    )
    def test_short_texts_are_cut_as_one_between_the_first_and_the_last_that_fit(
        self, tokens: int, shown: list[str]
    ) -> None:
        assert shorten_texts(tokens, *(numbered(10, name) for name in "abcde")) == shown

    @pytest.mark.parametrize(
        ("tokens", "sizes", "shown"),
        [
            (9, (1, 100, 5), ["w1", "|", "w1 w2 w3 w4 w5"]),
            (4, (1, 900), ["w1", "|"]),
            (3, (1, 900), ["|"]),
            (3, (100, 100, 1), ["|"]),
            (0, (0, 9, 0), ["", "|", ""]),
        ],
    )
    def test_short_texts_stay_beside_the_marker_where_there_is_room(
        self, tokens: int, sizes: tuple[int, ...], shown: list[str]
    ) -> None:
        assert shorten_texts(tokens, *map(numbered, sizes)) == shown

    def test_the_marker_stands_where_the_first_text_was_cut(self) -> None:
        message = user_message(numbered(1), numbered(60), IMAGE, numbered(60), numbered(2))
        shown = shorten_message(message, 6 + 8, tokenizer=FRAMED).content
        assert [part for part in shown if not isinstance(part, str)] == [IMAGE]
        at = next(at for at, part in enumerate(shown) if CUT_MARKER in str(part))
        assert shown[at + 1] is IMAGE


LINES = st.lists(
    st.sampled_from(["w", "alpha", "naïve", "日本語", "x\n", "\n", '"q"', "\\", "  ", "é", "🙂"]),
    max_size=60,
).map(" ".join)


class TestLimits:
    @given(
        texts=st.lists(LINES, max_size=4),
        arguments=st.none() | st.lists(LINES, max_size=3),
        tokens=st.integers(0, 150),
        tokenizer=st.sampled_from([WORDS, GPT, CALIBRATED]),
    )
    @example(texts=["🙂   ", "able w   "], arguments=None, tokens=8, tokenizer=GPT)
    @example(texts=[""], arguments=['\n "q" "q"', ""], tokens=42, tokenizer=CALIBRATED)
    @example(
        texts=[],
        arguments=['🙂 naïve é    x\n retry "q" \\ \\ "q"', ""],
        tokens=55,
        tokenizer=CALIBRATED,
    )
    @settings(deadline=None, max_examples=examples(60))
    def test_a_message_has_its_tokens_or_is_shortened_as_far_as_possible(
        self, texts: list[str], arguments: list[str] | None, tokens: int, tokenizer: Tokenizer
    ) -> None:
        message = user_message(*texts)
        if arguments is not None:
            written = json.dumps({f"a{at}": text for at, text in enumerate(arguments)})
            message = attrs.evolve(call_message("a", arguments=written), content=message.content)
        least = count_message(shorten_message(message, 0, tokenizer=tokenizer), tokenizer)
        shortened = shorten_message(message, tokens, tokenizer=tokenizer)
        assert count_message(shortened, tokenizer) <= max(tokens, least)

    def test_where_joined_texts_cost_more_than_planned_no_more_goes_than_that(self) -> None:
        arguments = json.dumps(
            {"a0": [], "a1": '🙂 naïve é    x\n retry "q" \\ \\ "q"', "a2": ""}, ensure_ascii=False
        )
        shortened = shorten_message(
            call_message("c0", name="write", arguments=arguments), 55, tokenizer=CALIBRATED
        )
        assert json.loads(shortened.tool_calls[0].arguments)["a1"].startswith("🙂 naïve é")

    def test_one_token_shows_no_more_than_none(self) -> None:
        lines = {"a": "retry alpha x\n retry \n able é able \n   "}
        long = json.dumps({**lines, "b": {"c": "", "d": "retry naïve w un x\n retry"}})
        message = attrs.evolve(
            call_message("a"),
            tool_calls=[
                ToolCall(id="a", name="write", arguments='{"a":"abab"}'),
                ToolCall(id="b", name="write", arguments=long),
            ],
        )
        assert shorten_message(message, 1, tokenizer=FRAMED) == shorten_message(
            message, 0, tokenizer=FRAMED
        )

    @pytest.mark.parametrize("tokens", [1_000, 2_000])
    def test_a_bound_that_is_just_what_a_text_may_have_does_not_pass_for_its_tokens(
        self, tokens: int
    ) -> None:
        class Bounded(WordTokenizer):
            def lower_bound(self, text: str) -> int:
                return len(text) // 10

        text = words(tokens * 5)
        assert Bounded().lower_bound(text + " ") == tokens
        shortened = shorten_message(user_message(text + " "), tokens, tokenizer=Bounded())
        assert WORDS.count(shortened.text) == tokens


class TestArguments:
    def test_a_short_string_stays_and_a_long_one_has_all_other_tokens(self) -> None:
        arguments = json.dumps({"a": "x x", "b": numbered(100)})
        shortened = shorten_arguments(arguments, 50, tokenizer=WORDS)
        assert json.loads(shortened)["a"] == "x x"
        assert WORDS.count(shortened) == 50

    @given(texts=st.lists(LINES, max_size=4), tokens=st.integers(0, 60))
    @example(texts=[words(19), "un    alpha é \\ retry", words(6)], tokens=25)
    @settings(deadline=None, max_examples=examples(60))
    def test_they_have_at_most_their_tokens_if_their_shortest_form_has(
        self, texts: list[str], tokens: int
    ) -> None:
        arguments = json.dumps({f"a{at}": text for at, text in enumerate(texts)})
        least = WORDS.count(shorten_arguments(arguments, 0, tokenizer=WORDS))
        shortened = shorten_arguments(arguments, tokens, tokenizer=WORDS)
        assert WORDS.count(shortened) <= max(tokens, least)

    def test_a_token_too_many_takes_one_word(self) -> None:
        # the line break is no word, but the two characters are that JSON writes for it
        arguments = json.dumps({"a": "w retry naive \n able"})
        assert shorten_arguments(arguments, 4, tokenizer=WORDS) == '{"a":"w retry naive […]"}'

    def test_where_json_writes_tabs_as_more_than_they_cost_most_tokens_are_used(self) -> None:
        texts = {name: " \t ".join([numbered(9, name)] * 20) for name in "abc"}
        for tokens in range(60, 160):
            shortened = shorten_arguments(json.dumps(texts), tokens, tokenizer=WORDS)
            assert 0.85 * tokens <= WORDS.count(shortened) <= tokens
