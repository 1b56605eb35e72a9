"""Estimated tokens: by characters, and by the tokens of another model with a margin that is learned."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import example, given, settings, strategies as st

from promptkit import TextChunk, UserMessage, render
from promptkit.compaction.policy.usage import UsageMeter
from promptkit.errors import InvalidArgumentError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    ToolCall,
    ToolDefinition,
    Usage,
)
from promptkit.rendering.expand.sizing import Sizer
from promptkit.testing import WordTokenizer
from promptkit.tokens import Count, Tokenizer, tokenizer_for
from promptkit.tokens.estimates import CalibratedTokenizer, HeuristicTokenizer
from promptkit.tokens.tokenizer import count_message, is_exact, truncate_by_counting
from tests.conversations import ConversationBuilder
from tests.examples import examples

if TYPE_CHECKING:
    import re

    from promptkit.messages import Json, Role

EXACT = HeuristicTokenizer(margin=1.0)
USUAL = HeuristicTokenizer()
BASE = tokenizer_for("gpt-5")


def test_of_a_tokenizer_that_only_counts_text_all_else_is_0() -> None:
    class Words(Tokenizer):
        def count(self, text: str) -> int:
            return len(text.split())

    tokenizer = Words()
    parts = (
        ImagePart(url="https://example.org/a.png"),
        DocumentPart(data="", media_type="application/pdf"),
        OpaquePart(value="text"),
    )
    assert [tokenizer.count_part(part) for part in parts] == [(0, True)] * 3
    assert (
        tokenizer.count_framing("user")
        == tokenizer.count_overhead([ToolDefinition(name="read")])
        == (0, True)
    )
    assert (
        tokenizer.lower_bound("two words"),
        tokenizer.upper_bound("two words"),
        tokenizer.safe_cut,
    ) == (0, None, None)
    assert tokenizer.truncate("one two three", 2).split() == ["one", "two"]
    message = Message(role="user", content=("two words", *parts, CacheBreakpointPart()))
    assert (count_message(message, tokenizer), is_exact(message, tokenizer)) == (2, True)


def test_four_characters_are_a_token_and_the_margin_comes_on_top() -> None:
    assert EXACT.count("x" * 400) == 100
    assert USUAL.count("x" * 400) == 120
    assert EXACT.count("xxxxx") == 2
    assert HeuristicTokenizer(characters_per_token=0.5, margin=1.0).count("xx") == 4
    assert EXACT.count("") == 0
    assert USUAL.name == "characters/4*1.2"


def test_letters_beyond_latin_script_are_a_token_each() -> None:
    assert EXACT.count("漢字漢字") == 4
    assert EXACT.count("größe") == 2
    assert EXACT.count("\u024f" * 4) == 1  # the last letter of Latin script in everyday use
    assert EXACT.count("\u0250" * 4) == 4
    assert EXACT.truncate("\u0250" * 4, 2) == "\u0250" * 2


def test_a_letter_never_has_more_than_a_token() -> None:
    letters = HeuristicTokenizer(characters_per_token=1.0, margin=1.0)
    for text in ("x" * 50, "漢" * 50):
        assert letters.count(text) == letters.upper_bound(text) == 50
        assert letters.truncate(text, 40) == text[:40]


def test_every_image_costs_the_same_wherever_it_stands_and_calls_cost_their_arguments() -> None:
    image = ImagePart(url="https://example.org/a.png")
    sizer = Sizer(EXACT)
    asked = sizer.count_message(Message(role="user", content=(image,)))
    returned = sizer.count_message(Message(role="tool", content=(image,), tool_call_id="c"))
    assert asked == 1_600 + 4
    assert returned == asked + 1  # the call id
    call = Message(
        role="assistant", tool_calls=(ToolCall(id="c1c1", name="read", arguments="x" * 400),)
    )
    assert sizer.count_message(call) == 4 + 4 + 102
    assert EXACT.count_part(image) == (1_600, False)


def test_opaque_parts_documents_and_tools_are_counted() -> None:
    assert EXACT.count_part(OpaquePart(value={"thinking": "x" * 400, "signature": "s" * 400})) == (
        100,
        False,
    )
    assert EXACT.count_part(OpaquePart(value=None, tokens=7)) == (7, False)
    assert EXACT.count_part(DocumentPart(data="x" * 300, media_type="application/pdf")) == (
        100,
        False,
    )
    assert EXACT.count_framing("user") == (4, False)
    assert EXACT.count_overhead([ToolDefinition(name="read", description="x" * 400)]) == (
        4 + 101,
        False,
    )


# What of an opaque part a model reads.
@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        # everything in what was written
        ({"type": "tool", "input": {"any": ["a", {"deep": "b"}]}, "id": "c"}, 2),
        ({"type": "text", "data": "a"}, 1),
        ({"type": "base64", "data": "a"}, 0),
        ({"type": "text", "id": "a"}, 0),
        ({"content": [{"text": "a"}, {"url": "b"}, "c"]}, 2),
        ("a", 0),
        (["a"], 0),
    ],
)
def test_the_text_in_an_opaque_part_is_what_a_model_reads(value: Json, tokens: int) -> None:
    assert WordTokenizer().count_part(OpaquePart(value=value)).tokens == tokens


def test_a_message_with_calls_and_any_text_has_the_framing_of_a_text() -> None:
    image, call = (
        ImagePart(url="https://example.org/a.png"),
        ToolCall(id="c", name="read", arguments="{}"),
    )
    tokenizer = WordTokenizer(per_message=10)
    assert (
        count_message(
            Message(role="assistant", content=("text", image), tool_calls=(call,)), tokenizer
        )
        == 11
    )
    assert (
        count_message(Message(role="assistant", content=(image,), tool_calls=(call,)), tokenizer)
        == 0
    )


@given(text=st.text(), more=st.text())
def test_more_text_never_has_fewer_tokens(text: str, more: str) -> None:
    assert USUAL.count(text) <= USUAL.count(text + more) <= (USUAL.upper_bound(text + more) or 0)


@given(
    text=st.text(),
    tokens=st.integers(min_value=0, max_value=30),
    keep=st.sampled_from(["head", "tail"]),
)
@example(text="x" * 40 + "漢" * 40, tokens=20, keep="head")
@example(text="x" * 40 + "漢" * 40, tokens=20, keep="tail")
def test_a_cut_fits_and_is_the_longest_that_does(text: str, tokens: int, keep: str) -> None:
    kept = USUAL.truncate(text, tokens, keep="head" if keep == "head" else "tail")
    assert USUAL.count(kept) <= tokens
    if kept != text:
        longer = text[: len(kept) + 1] if keep == "head" else text[len(text) - len(kept) - 1 :]
        assert USUAL.count(longer) > tokens


@pytest.mark.parametrize(
    "wrong", [{"characters_per_token": 0.0}, {"margin": -1.0}, {"margin": 0.0}]
)
def test_figures_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match="above 0"):
        HeuristicTokenizer(**wrong)


def test_the_provider_s_count_goes_first_and_the_estimate_is_for_what_came_since() -> None:
    talk = ConversationBuilder()
    talk.user("x" * 4_000)
    meter = UsageMeter(EXACT)
    assert meter.read(talk.path, talk.view).tokens == 1_004  # nothing else is known
    talk.answer("y" * 40, used=Usage(input_tokens=1_500, output_tokens=10))
    talk.user("z" * 400)
    assert meter.read(talk.path, talk.view).provider == 1_500 + 10 + 104


class TestCalibrated:
    @given(text=st.text(), more=st.text(), margin=st.floats(0.5, 3))
    def test_a_count_is_that_of_the_base_raised_by_the_margin(
        self, text: str, more: str, margin: float
    ) -> None:
        calibrated = CalibratedTokenizer(BASE, margin)
        tokens = calibrated.count(text)
        assert (
            tokens
            == calibrated.scale(calibrated.base.count(text))
            == ceil(round(margin * BASE.count(text), 6))
        )
        assert calibrated.lower_bound(text) <= tokens <= (calibrated.upper_bound(text) or 0)
        assert tokens <= calibrated.scale(BASE.count(text) + BASE.count(more))

    @given(
        text=st.text(),
        tokens=st.integers(0, 30),
        margin=st.floats(0.5, 3),
        keep=st.sampled_from(["head", "tail"]),
    )
    def test_a_cut_fits(
        self, text: str, tokens: int, margin: float, keep: Literal["head", "tail"]
    ) -> None:
        calibrated = CalibratedTokenizer(BASE, margin)
        kept = calibrated.truncate(text, tokens, keep=keep)
        assert calibrated.count(kept) <= tokens
        assert text.startswith(kept) if keep == "head" else text.endswith(kept)

    def test_framing_and_tools_are_raised_and_images_are_not(self) -> None:
        calibrated = CalibratedTokenizer(BASE, 1.5)
        image = ImagePart(url="https://example.org/a.png")
        read = ToolDefinition(name="read", description="Read a file.")
        assert calibrated.count_framing("user") == (6, False)
        assert calibrated.count_part(image).tokens == BASE.count_part(image).tokens
        assert calibrated.count_overhead([read]) == (
            ceil(1.5 * BASE.count_overhead([read]).tokens),
            False,
        )
        assert calibrated.name == "o200k_base*1.5"

    def test_text_that_is_cut_into_parts_is_counted_once(self) -> None:
        counted = Witness()
        lines = [f"line {number} of the log\n" for number in range(2_000)]
        rendered = render(
            UserMessage()[[TextChunk(priority=1)[line] for line in lines]],
            budget=10**6,
            tokenizer=CalibratedTokenizer(counted, 1.3),
        )
        text = "".join(lines)
        # the message and the start of the reply
        assert rendered.tokens == ceil(1.3 * BASE.count(text)) + 6 + 4
        assert counted.characters < 10 * len(text)

    @pytest.mark.parametrize(
        ("reports", "margin"),
        [
            ([1.2], 1.26),  # 5 % above the highest ratio
            ([1.2, 1.3, 1.2], 1.38),  # it rises at once
            ([1.2, 1.19, 1.21], 1.28),
            ([1.3] + [1.0] * 4, 1.38),  # one high report counts five requests long
            ([1.3] + [1.0] * 5, 1.06),
            ([0.6], 1.0),  # never below the floor
            ([0.4], 1.45),  # a report without the cached tokens
            ([50.0], 1.45),  # hidden content of the provider is no way of counting
            ([2.9], 3.06),
            ([1e7, 1.371], 1.45),  # a report of another request
            ([1.371, 1.36, 1.35, 1.35, 1.35, 1.36], 1.45),  # a fall of one step is none
        ],
    )
    def test_it_learns_from_what_the_provider_reports(
        self, reports: list[float], margin: float
    ) -> None:
        tokenizer = CalibratedTokenizer(BASE, 1.45)
        for ratio in reports:
            tokenizer = tokenizer.learn(
                counted=tokenizer.scale(100_000), reported=int(100_000 * ratio)
            )
        assert tokenizer.margin == margin

    def test_small_requests_and_missing_reports_teach_nothing(self) -> None:
        tokenizer = CalibratedTokenizer(BASE, 1.45)
        assert tokenizer.learn(counted=999, reported=1_500) is tokenizer
        assert tokenizer.learn(counted=1_000, reported=1_500) != tokenizer
        assert tokenizer.learn(counted=10_000, reported=0) is tokenizer
        assert BASE.learn(counted=10_000, reported=20_000) is BASE

    @pytest.mark.parametrize(
        ("reported", "learned"), [(999, False), (1_000, True), (6_000, True), (6_001, False)]
    )
    def test_reports_of_half_a_token_to_three_for_one_are_learned(
        self, reported: int, *, learned: bool
    ) -> None:
        tokenizer = CalibratedTokenizer(BASE, 1.0)
        assert (tokenizer.learn(counted=2_000, reported=reported) is not tokenizer) == learned

    @pytest.mark.parametrize(
        ("margin", "floor", "learned"),
        [
            (1.0, 0.98, 1.0),
            (1.0, 0.97, 1.0),
            (1.0, 0.96, 0.96),
            (1.0, 0.95, 0.96),
            (1.01, 1.01, 1.01),
        ],
    )
    def test_a_margin_falls_when_it_is_four_hundredths_too_high(
        self, margin: float, floor: float, learned: float
    ) -> None:
        tokenizer = CalibratedTokenizer(BASE, margin, floor=floor)
        assert tokenizer.learn(counted=10_000, reported=6_000).margin == learned

    def test_a_tenth_of_a_token_is_not_lost_where_a_cut_fits_exactly(self) -> None:
        calibrated = CalibratedTokenizer(WordTokenizer())
        assert calibrated.margin == 1.2
        for count in range(1, 40):
            kept = calibrated.truncate("w " * 50, ceil(round(count * 1.2, 6)))
            assert WordTokenizer().count(kept) == count

    def test_the_text_in_an_opaque_part_is_raised_and_tokens_that_are_told_are_not(self) -> None:
        calibrated = CalibratedTokenizer(WordTokenizer(), 1.5)
        thinking = {"type": "thinking", "thinking": "one two three four"}
        assert calibrated.count_part(OpaquePart(value=thinking)) == (6, False)
        assert calibrated.count_part(OpaquePart(value=thinking, tokens=8)).tokens == 8

    @pytest.mark.parametrize("reported", [None, "12000", True])
    def test_a_report_that_is_no_number_is_refused_with_a_sentence(self, reported: Any) -> None:
        with pytest.raises(
            InvalidArgumentError,
            match=r"reported must be a whole number.*without a report, do not call learn",
        ):
            CalibratedTokenizer(BASE, 1.45).learn(counted=10_000, reported=reported)

    def test_a_report_that_changes_no_margin_gives_an_equal_tokenizer(self) -> None:
        tokenizer = CalibratedTokenizer(BASE, 1.3)
        assert tokenizer.learn(counted=13_000, reported=12_200) == tokenizer

    def test_margins_without_a_sense_are_refused(self) -> None:
        with pytest.raises(InvalidArgumentError, match="must be above 0"):
            CalibratedTokenizer(BASE, 0)
        with pytest.raises(InvalidArgumentError, match="must be above 0"):
            CalibratedTokenizer(BASE, 1.1, floor=0)
        with pytest.raises(InvalidArgumentError, match="must be above 0"):
            CalibratedTokenizer(BASE, inf)
        with pytest.raises(InvalidArgumentError, match="must be above 0"):
            CalibratedTokenizer(BASE, 1.1, floor=inf)
        with pytest.raises(InvalidArgumentError, match="calibrated already"):
            CalibratedTokenizer(CalibratedTokenizer(BASE, 1.1), 1.2)


class TenLetters(Tokenizer):
    """Counts runs of ten letters, whatever stands before them: a short piece says nothing of the whole."""

    characters = 0

    def count(self, text: str) -> int:
        self.characters += len(text)
        return -(-len(text) // 10)


class Witness(Tokenizer):
    """Counts with the base, and the characters that it counts."""

    characters = 0

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        return BASE.safe_cut

    def count(self, text: str) -> int:
        self.characters += len(text)
        return BASE.count(text)

    def count_framing(self, role: Role, **_: Any) -> Count:
        return BASE.count_framing(role)

    def count_overhead(self, *_: Any, **__: Any) -> Count:
        return BASE.count_overhead()


class TestTruncateByCounting:
    """What a tokenizer inherits that only counts."""

    @settings(max_examples=examples(200))
    @given(
        text=st.text(alphabet="ab \n1é漢", max_size=300),
        tokens=st.integers(-1, 60),
        keep=st.sampled_from(["head", "tail"]),
        tokenizer=st.sampled_from([BASE, WordTokenizer(), USUAL]),
    )
    @example(text="ab " * 25, tokens=20, keep="head", tokenizer=USUAL)
    @example(text=" \u00e9a\u200d\U0001f1e9", tokens=2, keep="tail", tokenizer=USUAL)
    @example(text="abc", tokens=-1, keep="head", tokenizer=BASE)
    def test_the_end_that_is_kept_fits_and_cannot_grow(
        self, text: str, tokens: int, keep: Literal["head", "tail"], tokenizer: Tokenizer
    ) -> None:
        count = tokenizer.count
        kept = truncate_by_counting(text, tokens, count, keep=keep)
        assert text.startswith(kept) if keep == "head" else text.endswith(kept)
        assert count(kept) <= max(tokens, 0)
        longer = text[: len(kept) + 1] if keep == "head" else text[len(text) - len(kept) - 1 :]
        assert kept == text or count(longer) > tokens

    def test_the_last_letter_but_one_is_kept_where_it_fits(self) -> None:
        for size in (5, 1_001, 5_001):
            kept = truncate_by_counting(
                "a" * size, (size - 1) // 10, lambda text: -(-len(text) // 10)
            )
            assert len(kept) == (size - 1) // 10 * 10

    def test_a_text_whose_pieces_mislead_takes_no_longer_than_halving(self) -> None:
        witness = TenLetters()
        assert len(witness.truncate("a" * 1_000_000, 4_000)) == 40_000
        assert witness.characters < 30 * 40_000

    @pytest.mark.parametrize(
        "tokens", [1, 100, 4_000, pytest.param(100_000, marks=pytest.mark.slow)]
    )
    @pytest.mark.parametrize("keep", ["head", "tail"])
    @pytest.mark.parametrize(
        "sample", ["The quick brown fox jumps over it. ", "x = {'a': [1, 2, 3]}\n", "漢字 ", "a"]
    )
    def test_three_times_what_the_built_in_one_encodes_is_counted_at_most(
        self, tokens: int, keep: Literal["head", "tail"], sample: str
    ) -> None:
        witness = Witness()
        text = sample * (1_000_000 // len(sample))
        kept = witness.truncate(text, tokens, keep=keep)
        assert BASE.count(kept) <= tokens
        assert len(kept) >= 0.99 * len(BASE.truncate(text, tokens, keep=keep))
        # the excerpt of `OpenAITokenizer`, and its result
        assert witness.characters <= 3 * (6 * tokens + 64 + 1_024 + len(kept)) + 4_000
