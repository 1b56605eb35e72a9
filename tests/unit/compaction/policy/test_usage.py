from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.policy.state import Rereading
from promptkit.compaction.policy.usage import (
    FACTOR_RANGE,
    MAX_REJECTED,
    ProviderCount,
    UsageMeter,
    UsageReading,
    WindowUsage,
    iter_provider_counts,
)
from promptkit.messages import ImagePart, Message, Usage
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.entries import Checkpoint, MessageEntry
from promptkit.transcript.log.view import build_view
from tests.conversations import ConversationBuilder, user_message, words

if TYPE_CHECKING:
    from promptkit.transcript.log.view import TranscriptView

TOKENIZER = WordTokenizer(per_message=1)


def read(
    talk: ConversationBuilder,
    *,
    model: str | None = None,
    window: int | None = None,
    fixed: int = 0,
) -> UsageReading:
    return UsageMeter(TOKENIZER, model=model).read(
        talk.path, talk.view, fixed_tokens=fixed, window=window
    )


def used(tokens: int, output: int = 0, cached: int = 0) -> Usage:
    return Usage(input_tokens=tokens, output_tokens=output, cached_tokens=cached)


def asked_and_answered(
    tokens: int = 100, output: int = 10, model: str | None = None, finish: str = "stop"
) -> ConversationBuilder:
    """9 + 1 tokens asked, 4 + 1 answered, as counted here."""
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.answer(words(4), used=used(tokens, output), model=model, finish=finish)
    return talk


def test_the_reading_is_the_last_count_and_exactly_what_came_since() -> None:
    talk = asked_and_answered(100, 10)
    assert read(talk) == UsageReading(local=15, provider=110, counted_entry_id="e2", factor=2.0)
    talk.user(words(6))
    talk.round("c1", words(20))
    assert read(talk).provider == 110 + 7 + 0 + 21
    assert read(talk).local == 15 + 7 + 0 + 21
    assert read(talk).tokens == 138


def test_a_conversation_without_a_count_is_read_as_counted_here() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.answer(words(4))
    assert read(talk, fixed=50) == UsageReading(local=65)
    assert read(talk, fixed=50).tokens == 65


def test_what_every_request_has_beside_the_view_is_part_of_the_local_count_only() -> None:
    reading = read(asked_and_answered(100, 10), fixed=60)
    assert (reading.local, reading.provider) == (75, 110)


def test_the_newest_of_several_counts_is_the_anchor() -> None:
    talk = asked_and_answered(100)
    talk.user(words(3))
    talk.answer(words(2), used=used(130, 7))
    assert read(talk).counted_entry_id == "e4"
    assert read(talk).provider == 137


@pytest.mark.parametrize(
    "usage", [used(0), used(0, 500), used(100, 10, 101), used(10, 1_001), used(2_001, 10)]
)
def test_a_count_that_cannot_be_true_is_not_taken(usage: Usage) -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.answer(words(4), used=usage)
    assert read(talk, window=1_000).provider is None


@pytest.mark.parametrize(
    ("tokens", "overflowed"), [(991, False), (1_000, False), (1_001, True), (2_000, True)]
)
def test_a_count_above_the_window_is_taken_at_once(tokens: int, *, overflowed: bool) -> None:
    reading = read(asked_and_answered(tokens, 10), window=1_000)
    assert (reading.provider, reading.tokens, reading.overflowed) == (
        tokens + 10,
        tokens + 10,
        overflowed,
    )
    assert not read(asked_and_answered(tokens, 10), window=None).overflowed


def test_a_count_above_the_window_that_a_compaction_did_not_change_is_rejected() -> None:
    talk = asked_and_answered(1_200)
    talk.answer("more", used=used(1_300))
    assert read(talk, window=1_000).overflowed
    assert read(talk, window=1_000).provider == 1_300
    talk.checkpoint("S")
    talk.user("on")
    talk.answer("yes", used=used(1_250))
    reading = read(talk, window=1_000)
    assert (reading.provider, reading.overflowed) == (None, False)
    talk.answer("yes", used=used(400))
    talk.checkpoint("S")
    talk.answer("yes", used=used(1_250))
    assert read(talk, window=1_000).overflowed


@pytest.mark.parametrize(
    ("before", "model", "after", "taken"),
    [
        (1_001, "m", 1_001, False),
        (1_001, None, 1_001, False),  # the model was not recorded
        (1_001, "other", 1_001, True),
        (1_000, "m", 1_001, True),
        (1_001, "m", 1_000, True),  # not above the window
    ],
)
def test_only_a_count_above_the_window_follows_one_of_the_same_model_in_vain(
    before: int, model: str | None, after: int, *, taken: bool
) -> None:
    talk = ConversationBuilder()
    talk.answer("first", used=used(before), model=model)
    talk.checkpoint("S")
    talk.answer("yes", used=used(after), model="m")
    assert read(talk, model="m", window=1_000).provider == (after if taken else None)
    if model is not None:
        assert read(talk, window=1_000).provider == (
            after if before <= 1_000 or after <= 1_000 else None
        )


def test_a_count_above_the_window_after_a_compaction_of_what_was_never_counted_is_taken() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.checkpoint("S")
    talk.answer("yes", used=used(1_200))
    assert read(talk, window=1_000).overflowed


@pytest.mark.parametrize("usage", [used(100, 10, cached=100), used(100, 1_000), used(1_000, 10)])
def test_a_count_that_is_just_possible_is_taken(usage: Usage) -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.answer(words(4), used=usage)
    assert read(talk, window=1_000).provider == usage.input_tokens + usage.output_tokens


@pytest.mark.spec("E27")
def test_stale_usage_does_not_trigger_again() -> None:
    talk = asked_and_answered(90_000)
    talk.checkpoint("S", first_kept="e2")
    reading = read(talk)
    assert reading.provider is None
    assert reading.tokens < 30


@pytest.mark.spec("E28")
def test_what_a_checkpoint_kept_carries_no_count() -> None:
    talk = asked_and_answered(90_000)
    talk.user(words(2))
    talk.answer("kept", used=used(95_000))
    talk.checkpoint("S", first_kept="e3")
    talk.answer("failed", finish="error")
    assert read(talk).provider is None


@pytest.mark.parametrize("change", ["edit", "reset", "checkpoint"])
def test_a_count_older_than_what_changed_the_view_is_not_taken(change: str) -> None:
    talk = asked_and_answered(100)
    if change == "edit":
        talk.edit("e1", "shorter")
    elif change == "reset":
        talk.reset()
    else:
        talk.checkpoint("S")
    assert read(talk).provider is None
    talk.user(words(2))
    talk.answer("new", used=used(40, 2))
    assert read(talk).provider == 42


def test_what_does_not_change_the_view_leaves_the_count_as_it_is() -> None:
    talk = asked_and_answered(100, 10)
    talk.setting()
    talk.reminder(words(4))
    assert read(talk).provider == 110 + 5


@pytest.mark.spec("E29")
def test_persistent_errors_leave_the_last_good_count() -> None:
    talk = asked_and_answered(100, 10)
    talk.user(words(9))
    for _ in range(3):
        talk.answer("failed", used=used(0), finish="error")
    reading = read(talk)
    assert (reading.counted_entry_id, reading.provider) == ("e2", 110 + 10 + 6)
    nothing = ConversationBuilder()
    nothing.user(words(9))
    nothing.answer("failed", finish="error")
    assert read(nothing).provider is None
    assert read(nothing).tokens == 12


@pytest.mark.parametrize("finish", ["error", "aborted"])
def test_a_count_of_a_turn_that_failed_is_not_taken(finish: str) -> None:
    talk = asked_and_answered(100, finish=finish)
    assert read(talk).provider is None


@pytest.mark.spec("E34")
def test_the_count_of_an_earlier_model_is_not_taken() -> None:
    talk = asked_and_answered(100, model="large")
    assert read(talk, model="large").provider == 110
    assert read(talk, model="small").provider is None
    assert read(talk).provider == 110
    # the model was not recorded
    assert read(asked_and_answered(100), model="small").provider == 110


@pytest.mark.spec("E35")
def test_the_latest_checkpoint_counts_and_not_the_first() -> None:
    talk = asked_and_answered(90_000)
    talk.checkpoint("S1")
    talk.user(words(2))
    talk.answer("x", used=used(80_000))
    talk.checkpoint("S2")
    assert read(talk).provider is None
    talk.user(words(2))
    talk.answer("y", used=used(50, 5))
    assert read(talk).provider == 55


@pytest.mark.spec("E38")
def test_a_request_that_overflowed_in_silence_is_seen_by_both_counts() -> None:
    talk = ConversationBuilder()
    talk.user(words(1_200))
    talk.answer("cut", used=used(1_203, 2))
    reading = read(talk, window=1_000)
    assert (reading.local, reading.tokens, reading.overflowed) == (1_203, 1_205, True)


@pytest.mark.spec("E39")
def test_an_aborted_turn_near_the_limit_is_read_at_the_next_request() -> None:
    talk = asked_and_answered(100)
    talk.user(words(800))
    talk.answer(words(90), used=used(920, 91), finish="aborted")
    assert read(talk, window=1_000).tokens == 110 + 801 + 91


@pytest.mark.spec("E40")
def test_a_count_inside_a_tool_loop_is_taken_at_once() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.round("c1", words(5), used=used(50, 5))
    assert read(talk).provider == 55 + 6
    talk.round("c2", words(5), used=used(70, 5))
    assert read(talk).provider == 75 + 6


@pytest.mark.spec("E42")
def test_a_provider_that_counts_oddly_does_not_move_the_reading() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    for step, odd in enumerate([used(0), used(0, 9), used(10**9), used(1, 0, 7)]):
        talk.round(f"c{step}", words(5), used=odd)
        reading = read(talk, window=1_000)
        assert reading.provider is None
        assert reading.tokens == 10 + 6 * (step + 1)


@pytest.mark.spec("E43")
def test_a_count_of_zeros_falls_to_the_one_before() -> None:
    talk = asked_and_answered(100, 10)
    talk.user(words(4))
    talk.answer(words(4), used=used(0), finish="length")
    assert (read(talk).counted_entry_id, read(talk).provider) == ("e2", 110 + 5 + 5)


@pytest.mark.spec("E44")
def test_cached_tokens_are_not_counted_twice() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.answer(words(4), used=used(100, 10, cached=90))
    assert read(talk).provider == 110


@pytest.mark.spec("E45")
def test_a_count_of_the_response_alone_is_no_count_of_the_context() -> None:
    talk = asked_and_answered(100, 10)
    talk.answer(words(4), used=Usage(input_tokens=0, output_tokens=7_000))
    assert read(talk).provider == 110 + 5


@pytest.mark.spec("E46")
def test_reminders_of_programs_and_images_of_users_are_counted() -> None:
    talk = asked_and_answered(100, 10)
    talk.user("look", ImagePart(url="https://example.com/x.png"))
    talk.reminder(words(6))
    reading = UsageMeter(WordTokenizer(per_message=1, per_image=765)).read(talk.path, talk.view)
    assert reading.provider == 110 + (1 + 1 + 765) + 7


@pytest.mark.spec("E47")
def test_what_shrinks_on_the_wire_does_not_hide_growth() -> None:
    talk = ConversationBuilder()
    talk.user(words(500))
    talk.answer(words(4), used=used(60, 4))
    reading = read(talk)
    assert reading.provider == 64
    assert reading.tokens == reading.local == 506


@pytest.mark.spec("E48")
def test_after_a_compaction_the_count_is_unknown_until_the_next_answer() -> None:
    talk = asked_and_answered(90_000)
    meter = UsageMeter(TOKENIZER)
    assert meter.read(talk.path, talk.view).provider == 90_010
    talk.checkpoint("S")
    assert meter.read(talk.path, talk.view).provider is None
    talk.user("on")
    assert meter.read(talk.path, talk.view).provider is None
    talk.answer("yes", used=used(40, 3))
    assert meter.read(talk.path, talk.view).provider == 43


@pytest.mark.spec("E53")
def test_a_corrupt_count_does_not_keep_a_conversation_from_going_on() -> None:
    talk = asked_and_answered(300_000)
    talk.user(words(4))
    talk.answer(words(4), used=used(4_000_000))
    reading = read(talk, window=570_000)
    assert (reading.counted_entry_id, reading.provider) == ("e2", 300_010 + 10)


@pytest.mark.spec("E103")
def test_what_is_measured_is_what_the_last_checkpoint_left() -> None:
    talk = ConversationBuilder()
    for _ in range(50):
        talk.user(words(1_000))
        talk.answer(words(1_000))
    talk.checkpoint(words(10))
    assert read(talk).tokens < 20


@pytest.mark.spec("E77")
def test_an_edit_is_counted_anew() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.round("c1", words(500))
    talk.user(words(9))
    meter = UsageMeter(TOKENIZER)
    assert meter.read(talk.path, talk.view).tokens == 10 + 501 + 10
    talk.edit("e3", words(2), reason="pruned")
    assert meter.read(talk.path, talk.view).tokens == 10 + 3 + 10


def test_a_count_of_an_answer_that_is_not_shown_is_passed_over() -> None:
    talk = asked_and_answered(100, 10)
    talk.calls("c1", used=used(200), finish="length")
    shown = attrs.evolve(talk.view, items=talk.view.items[:2])
    assert UsageMeter(TOKENIZER).read(talk.path, shown).counted_entry_id == "e2"


def test_a_result_that_was_put_in_is_counted_behind_the_anchor() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.calls("c1", used=used(50, 5))
    # "[no result was recorded]" is four words, in a message
    assert read(talk).provider == 55 + 1 + 4


@pytest.mark.parametrize(
    ("tokens", "factor"),
    [(10, 1.0), (13, 1.3), (7, 0.7), (5, 0.5), (1, 0.5), (20, 2.0), (500, 2.0)],
)
def test_the_factor_is_the_count_of_the_request_by_the_local_one_within_bounds(
    tokens: int, factor: float
) -> None:
    assert read(asked_and_answered(tokens)).factor == factor
    assert FACTOR_RANGE == (0.5, 2.0)


@pytest.mark.parametrize(("window", "factor"), [(12, 1.0), (13, 1.3), (None, 1.3)])
def test_a_count_above_the_window_corrects_nothing(window: int | None, factor: float) -> None:
    assert read(asked_and_answered(13), window=window).factor == factor


def test_a_request_that_is_nothing_as_counted_here_has_a_factor_too() -> None:
    talk = ConversationBuilder()
    talk.answer("hello", used=used(1))
    assert read(talk).factor == 1.0


def test_the_factor_is_the_median_of_the_newest_counts() -> None:
    talk = ConversationBuilder()
    local = 0
    meter = UsageMeter(TOKENIZER)
    for factor in (2.0, 2.0, 1.2, 1.1, 1.3, 1.9, 1.25):  # the last five: 1.25
        talk.user(words(99))
        local += 100
        talk.answer(words(99), used=used(round(local * factor)))
        local += 100
        meter.read(talk.path, talk.view)
    assert (
        meter.read(talk.path, talk.view).factor
        == read(talk).factor
        == pytest.approx(1.25, abs=0.01)
    )


def test_a_factor_corrects_the_count_where_the_providers_is_unknown_and_never_lowers_it() -> None:
    talk = asked_and_answered(13, 5)
    meter = UsageMeter(TOKENIZER)
    assert meter.read(talk.path, talk.view).factor == 1.3
    talk.checkpoint(words(98))
    reading = meter.read(talk.path, talk.view)
    local = reading.local
    assert reading.provider is None
    assert reading.tokens == -(-local * 13 // 10)
    low = attrs.evolve(reading, factor=0.5)
    assert low.local * low.factor < low.local == low.tokens


def test_another_model_starts_without_a_factor() -> None:
    talk = asked_and_answered(13, 5, model="a")
    assert UsageMeter(TOKENIZER, model="a").read(talk.path, talk.view).factor == 1.3
    reading = UsageMeter(TOKENIZER, model="b").read(talk.path, talk.view)
    assert (reading.factor, reading.provider) == (1.0, None)


class Counting(WordTokenizer):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(per_message=1)
        object.__setattr__(self, "asked", [])

    asked: list[str]

    def count(self, text: str) -> int:
        self.asked.append(text)
        return super().count(text)


@pytest.mark.slow
def test_each_message_is_counted_once_while_a_conversation_grows() -> None:
    tokenizer = Counting()
    meter = UsageMeter(tokenizer)
    talk = ConversationBuilder()
    for number in range(200):
        talk.user(f"question {number}")
        talk.round(f"c{number}", f"output {number}")
        assert meter.read(talk.path, talk.view) == read(talk)
    assert len(tokenizer.asked) == len(set(tokenizer.asked)) == 400


def test_a_change_in_the_middle_counts_only_what_is_new() -> None:
    tokenizer = Counting()
    meter = UsageMeter(tokenizer)
    talk = ConversationBuilder()
    for number in range(100):
        talk.user(f"question {number}")
        talk.round(f"c{number}", f"output {number}")
    meter.read(talk.path, talk.view)
    tokenizer.asked.clear()
    talk.edit("e60", "short")
    assert meter.read(talk.path, talk.view) == read(talk)
    assert tokenizer.asked == ["short"]
    tokenizer.asked.clear()
    talk.checkpoint("S", first_kept="e250")
    assert meter.read(talk.path, talk.view) == read(talk)
    assert len(tokenizer.asked) == 1


def test_messages_that_were_read_again_from_a_file_are_not_counted_anew() -> None:
    tokenizer = Counting()
    meter = UsageMeter(tokenizer)
    talk = ConversationBuilder()
    for number in range(10):
        talk.user(f"question {number}")
    meter.read(talk.path, talk.view)
    tokenizer.asked.clear()
    again = [attrs.evolve(item, message=attrs.evolve(item.message)) for item in talk.view.items]
    again[7] = attrs.evolve(again[7], message=user_message("changed"))
    assert meter.read(talk.path, attrs.evolve(talk.view, items=tuple(again[:8]))).local == 7 * 3 + 2
    assert tokenizer.asked == ["changed"]


@pytest.mark.parametrize("left_out", [slice(10, None), slice(25, None), slice(0, 0)])
def test_a_meter_that_was_used_for_a_longer_path_reads_the_same(left_out: slice) -> None:
    talk = ConversationBuilder()
    for number in range(10):
        talk.user(words(number))
        talk.round(f"c{number}", words(number), used=used(100 * number + 1))
    meter = UsageMeter(TOKENIZER)
    meter.read(talk.path, talk.view)
    path = list(talk.path)
    del path[left_out]
    again, fresh = (each.read(path, build_view(path)) for each in (meter, UsageMeter(TOKENIZER)))
    # the factors of counts that have left the path go on
    assert attrs.evolve(again, factor=1.0) == attrs.evolve(fresh, factor=1.0)


def test_what_has_left_the_requests_since_the_provider_counted_them_is_subtracted() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.round("c1", words(40))
    talk.answer(words(4), used=used(100, 10))
    meter = UsageMeter(TOKENIZER)
    assert meter.read(talk.path, talk.view).provider == 110
    talk.user(words(6))
    cleared = attrs.evolve(
        talk.view.items[2], message=attrs.evolve(talk.view.items[2].message, content="gone")
    )
    shown = attrs.evolve(talk.view, items=(*talk.view.items[:2], cleared, *talk.view.items[3:]))
    assert meter.read(talk.path, shown).provider == 110 - 39 + 7
    assert meter.read(talk.path, talk.view).provider == 110 + 7


def test_what_a_view_leaves_out_before_the_anchor_is_subtracted_once() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.user(words(40))
    talk.answer(words(4), used=used(100, 10))
    user, _, answer = talk.view.items
    meter = UsageMeter(TOKENIZER)
    assert meter.read(talk.path, talk.view).provider == 110
    assert meter.read(talk.path, attrs.evolve(talk.view, items=(user, answer))).provider == 110 - 41
    assert meter.read(talk.path, talk.view).provider == 110


def test_a_message_that_was_left_out_and_comes_back_is_measured_where_it_is() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.user(words(40))
    talk.answer(words(4), used=used(100, 10))
    user, _, answer = talk.view.items
    meter = UsageMeter(TOKENIZER)
    assert meter.read(talk.path, talk.view).provider == 110
    assert meter.read(talk.path, attrs.evolve(talk.view, items=(user,))).provider is None
    assert meter.read(talk.path, attrs.evolve(talk.view, items=(user, answer))).provider == 110


def test_a_result_that_comes_later_takes_the_place_of_its_placeholder() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.calls("c1", used=used(50, 5))
    meter = UsageMeter(TOKENIZER)
    assert meter.read(talk.path, talk.view).provider == 55 + 5
    talk.result("c1", words(20))
    assert meter.read(talk.path, talk.view).provider == 55 + 21


def test_the_same_words_on_another_branch_have_a_count_of_their_own() -> None:
    talk = ConversationBuilder()
    start = talk.setting()
    talk.user("same")
    talk.answer("words", used=used(100, 10))
    meter = UsageMeter(TOKENIZER)
    assert meter.read(talk.path, talk.view).counted_entry_id == "e3"
    talk.log.rewind(start)
    talk.user("same")
    talk.answer("words", used=used(200, 10))
    assert (
        meter.read(talk.path, talk.view).counted_entry_id,
        meter.read(talk.path, talk.view).provider,
    ) == ("e6", 210)


def test_a_provider_that_never_counts_costs_no_more_looks_than_a_few() -> None:
    talk = asked_and_answered(100, 10)
    for _ in range(MAX_REJECTED - 1):
        talk.answer("x", used=used(0))
    assert read(talk).provider is not None
    talk.answer("x", used=used(0))
    assert read(talk).provider is None


def test_anchors_are_listed_newest_first_with_those_that_tell_nothing() -> None:
    talk = asked_and_answered(100, 10)
    talk.answer("x", used=used(0))
    talk.append(MessageEntry(message=Message(role="assistant", content=("no count",))))
    assert list(iter_provider_counts(talk.path)) == [
        None,
        ProviderCount(entry_id="e2", usage=Usage(input_tokens=100, output_tokens=10)),
    ]
    assert ProviderCount(entry_id="e2", usage=Usage(input_tokens=100)).tokens == 100


def test_the_cached_share_is_that_of_the_last_request_where_the_provider_reports_any() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.round("c1", words(20), used=used(100))
    assert read(talk).cached_share is None
    talk.round("c2", words(20), used=used(200, cached=150))
    assert read(talk).cached_share == 0.75
    talk.round("c3", words(20), used=used(300))
    assert read(talk).cached_share == 0.0
    talk.checkpoint("S")
    assert read(talk).cached_share is None
    talk.round("c4", words(20), used=used(100, cached=1))
    assert read(talk).cached_share == 0.01
    talk.checkpoint("S")
    assert read(talk).cached_share is None


def measure(talk: ConversationBuilder, tokenizer: WordTokenizer = TOKENIZER) -> WindowUsage:
    """The usage of a conversation's window, whose requests have 7 tokens besides the view."""

    def changed(leaf: str) -> str | None:
        kinds = [
            type(entry.payload)
            for entry in talk.path[[entry.id for entry in talk.path].index(leaf) + 1 :]
        ]
        return "compacted" if Checkpoint in kinds else None

    return WindowUsage(
        talk.log,
        view=lambda: build_view(talk.path),
        changed=changed,
        tokenizer=tokenizer,
        model="m",
        fixed_tokens=7,
    )


class TestWindowUsage:
    def test_before_the_first_render_nothing_is_known_but_the_fixed_tokens(self) -> None:
        talk = ConversationBuilder()
        usage = measure(talk)
        assert (usage.items, usage.fixed_tokens, usage.moved) == (0, 7, False)
        assert usage.reading(None).tokens == 7
        talk.checkpoint("S")
        assert not usage.moved
        talk.reset()
        usage.fixed_tokens = 0
        assert usage.on_reply(None) == usage.reading(None).tokens == 0

    def test_a_render_measures_what_every_request_has_besides_the_view(self) -> None:
        talk = ConversationBuilder()
        talk.user(words(9))
        usage = measure(talk)
        usage.on_rendered(50, None, items=1, pruned=False)
        assert (usage.items, usage.leaf, usage.fixed_tokens, usage.reading(None).tokens) == (
            1,
            "e1",
            40,
            50,
        )
        talk.user(words(9))
        usage.on_rendered(65, None, items=2, pruned=False)
        assert (usage.fixed_tokens, usage.reading(None).tokens) == (45, 65)
        usage.on_rendered(30, None, items=2, pruned=True)  # a part of the conversation is missing
        assert (usage.fixed_tokens, usage.reading(None).tokens) == (45, 65)
        usage.on_rendered(3, None, items=2, pruned=False)  # the request has less than the view
        assert usage.fixed_tokens == 0

    def test_a_reading_follows_the_view_the_window_and_the_fixed_tokens(self) -> None:
        talk = asked_and_answered(1_200, 10)
        usage = measure(talk)
        assert usage.reading(None) == usage.reading(None)
        assert [usage.reading(window).overflowed for window in (None, 1_000, 2_000, 1_000)] == [
            False,
            True,
            False,
            True,
        ]
        usage.fixed_tokens = 100
        assert usage.reading(None).local == 100 + 15
        talk.user(words(4))
        assert usage.reading(None).local == 100 + 15 + 5

    def test_an_unchanged_view_is_measured_once(self) -> None:
        talk = asked_and_answered()
        view = talk.view
        reads: list[object] = []

        def shown() -> TranscriptView:
            reads.append(view)
            return view

        usage = WindowUsage(
            talk.log,
            view=shown,
            changed=lambda _: None,
            tokenizer=TOKENIZER,
            model="m",
            fixed_tokens=0,
        )
        assert usage.reading(5) is usage.reading(5)
        assert len(reads) == 2
        usage.set_tokenizer(WordTokenizer(per_message=100))
        assert usage.reading(5).local == 200 + 13

    def test_after_a_reply_the_larger_of_the_rendered_request_and_the_reading_counts(self) -> None:
        talk = ConversationBuilder()
        talk.user(words(9))
        usage = measure(talk)
        usage.on_rendered(50, None, items=1, pruned=False)
        talk.answer(words(4))
        assert usage.on_reply(None) == 55
        usage.on_rendered(80, None, items=2, pruned=True)
        assert usage.on_reply(None) == 80

    def test_a_reply_to_a_request_from_before_a_compaction_does_not_count(self) -> None:
        talk = ConversationBuilder()
        talk.user(words(9))
        usage = measure(talk)
        usage.on_rendered(5_000, None, items=1, pruned=False)
        usage.fixed_tokens = 0
        talk.checkpoint(words(3))
        assert usage.moved
        talk.answer(words(4), used=used(5_000, 5))
        assert usage.on_reply(None) == usage.reading(None).local < 20
        talk.answer("first", used=used(40, 1))  # the first count after it is used again
        assert usage.reading(None).provider == 41

    def test_the_requests_of_a_conversation_that_is_opened_again_are_added_once(self) -> None:
        talk = ConversationBuilder()
        for number, cached in enumerate((0, 0, 1)):
            talk.user("question")
            talk.answer("reply", used=used(1_000 + 300 * number, cached=cached))
        usage = measure(talk)
        first = usage.add_request(Rereading(), checkpoint_id=None)
        assert first == Rereading(first=1_000, tokens=300 + 600, cached=True)
        talk.user("question")
        talk.answer("reply", used=used(1_100))
        assert usage.add_request(first, checkpoint_id=None).tokens == 300 + 600 + 100

    @pytest.mark.parametrize(("second", "known"), [(0, False), (1, True)])
    def test_one_cached_token_of_an_earlier_request_shows_that_there_is_a_cache(
        self, second: int, *, known: bool
    ) -> None:
        talk = ConversationBuilder()
        for cached in (0, second, 0):
            talk.answer("reply", used=used(1_000, cached=cached))
        assert measure(talk).add_request(Rereading(), checkpoint_id=None).cached is known

    def test_failed_requests_of_a_conversation_that_is_opened_again_are_not_added(self) -> None:
        talk = ConversationBuilder()
        talk.answer("reply", used=used(1_000, cached=1))
        talk.answer("failed", used=used(0))
        talk.answer("reply", used=used(1_100))
        assert measure(talk).add_request(Rereading(), checkpoint_id="c") == Rereading(
            first=1_000, tokens=100, cached=False, checkpoint_id="c"
        )

    def test_a_reply_without_a_count_adds_the_rendered_request(self) -> None:
        talk = ConversationBuilder()
        talk.user("question")
        talk.answer("reply", used=used(1_000))
        usage = measure(talk)
        usage.on_rendered(1_700, None, items=2, pruned=False)
        before = Rereading(first=1_000)
        talk.answer("no count")
        assert usage.add_request(before, checkpoint_id=None) == Rereading(first=1_000, tokens=700)
        talk.answer("a useless count", used=used(0))
        assert usage.add_request(before, checkpoint_id=None) == Rereading(first=1_000, tokens=700)
        talk.answer("a count", used=used(1_300, cached=1))
        assert usage.add_request(before, checkpoint_id=None) == Rereading(
            first=1_000, tokens=300, cached=True
        )
