"""Summaries of conversations that are larger than the window."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.summarizers.model_summarizers import ChunkedSummarizer
from promptkit.compaction.summarizers.summarizer import updated_facts
from promptkit.errors import ContextLengthExceededError, EmptyReplyError, ModelUnavailableError
from promptkit.messages import Usage
from promptkit.rendering.expand.sizing import Sizer
from promptkit.testing import ScriptedModel
from promptkit.tokens.models import tokenizer_for
from tests.conversations import ConversationBuilder, summary_reply, summary_text, words
from tests.unit.compaction.summarizers.tasks import (
    TOKENIZER,
    long_task,
    nothing_new,
    refusal,
    shown,
    summarized,
    task_of,
)

if TYPE_CHECKING:
    from promptkit.testing import Request
    from promptkit.testing.scripted_model import Answer, Step

USED = Usage(input_tokens=10, output_tokens=1, cached_tokens=2)


def chunked(model: ScriptedModel, window: int = 1_000) -> ChunkedSummarizer:
    return ChunkedSummarizer(model=model, window=window, tokenizer=TOKENIZER)


def turns_in(request: Request) -> list[int]:
    """The numbers of the turns that a request tells of."""
    return [int(number) for number in re.findall(r"<user>\nw(\d+)", request.messages[1].text)]


def summarized_in(
    task_turns: int, *steps: Step, previous: str | None = None
) -> tuple[ScriptedModel, str]:
    with ScriptedModel(steps, usage=USED) as model:
        summary = summarized(chunked(model), long_task(task_turns, previous=previous))
    return model, summary.text


def test_every_message_is_in_exactly_one_request_and_the_last_answer_is_the_summary() -> None:
    model, text = summarized_in(25, *(summary_reply(f"S{number}") for number in range(4)))

    assert [number for request in model.requests for number in turns_in(request)] == list(range(25))
    assert text == summary_text("S3")


def test_every_request_brings_the_summary_so_far() -> None:
    model, _ = summarized_in(
        25, *(summary_reply(f"S{number}") for number in range(4)), previous="before"
    )

    brought = [
        re.findall(
            r"<conversation-summary>\n(.*?)\n</conversation-summary>", shown(model, at), re.DOTALL
        )
        for at in range(4)
    ]
    assert brought == [["before"], *([summary_text(f"S{number}")] for number in range(3))]


def test_the_size_of_the_first_message_does_not_count_as_instructions() -> None:
    talk = ConversationBuilder()
    for size in (450, 30, 200):
        talk.user(words(size))
        talk.answer("Yes.")
    talk.user("last")
    with ScriptedModel([summary_reply("S0"), summary_reply("S1")]) as model:
        task = task_of(talk, max_tokens=100)
        assert summarized(chunked(model, 1_128), task).text == summary_text("S1")


def test_the_memories_of_all_answers_become_a_fact() -> None:
    answers = [
        f"{summary_reply(f'S{number}')}\n<memories>- m{number}</memories>" for number in range(3)
    ]
    with ScriptedModel([*answers, summary_reply("S3")]) as model:
        summary = summarized(attrs.evolve(chunked(model), memories=True), long_task(25))

    assert (summary.text, summary.facts) == (
        summary_text("S3"),
        Facts(memories="- m0\n- m1\n- m2"),
    )
    assert all(
        "write inside <memories> tags" in request.messages[0].text for request in model.requests
    )
    plain, _ = summarized_in(25, *(summary_reply(f"S{number}") for number in range(4)))
    assert "<memories>" not in plain.requests[0].messages[0].text


def test_the_model_is_shown_the_memories_that_are_known_and_those_of_the_chunks_before() -> None:
    answers = [
        f"{summary_reply(f'S{number}')}\n<memories>- m{number}</memories>" for number in range(4)
    ]
    task = attrs.evolve(long_task(25), known_memories=("Likes tabs.",), memories=True)
    with ScriptedModel(answers) as model:
        summary = summarized(chunked(model), task)

    shown = [request.messages[-1].text for request in model.requests]
    assert all("<known-memories>\n- Likes tabs.\n" in text for text in shown)
    assert ["- m0" in text for text in shown] == [False, True, True, True]
    assert summary.facts.memories == "- m0\n- m1\n- m2\n- m3"
    with ScriptedModel([summary_reply(f"S{number}") for number in range(4)]) as plain:
        summarized(chunked(plain), attrs.evolve(task, memories=False))
    assert "Likes tabs" not in str([request.messages for request in plain.requests])


def test_what_the_requests_cost_is_added_up_and_the_facts_are_those_of_all() -> None:
    with ScriptedModel([summary_reply(f"S{number}") for number in range(4)], usage=USED) as model:
        summary = summarized(chunked(model), long_task(25))

    assert summary.usage == Usage(input_tokens=40, output_tokens=4, cached_tokens=8)
    assert updated_facts(long_task(25)).messages == 50
    assert (summary.mode, summary.model) == ("chunked", "scripted")


@pytest.mark.spec("E109")
@pytest.mark.parametrize(
    "failure",
    [
        "",
        "<summary></summary>",
        summary_reply(words(50)),
        "I cannot help with that.",
        ContextLengthExceededError("too long"),
        EmptyReplyError("nothing"),
    ],
)
def test_a_chunk_of_which_no_summary_was_had_is_named_in_what_follows(failure: Answer) -> None:
    model, text = summarized_in(
        25, summary_reply("S0"), failure, summary_reply("S2"), summary_reply("S3")
    )

    assert re.search(
        rf"<conversation-summary>\n{summary_text('S0')}\n\n\[1\d messages that followed could not be summarized\]",
        shown(model, 2),
    )
    assert text == summary_text("S3")


@pytest.mark.spec("E109")
def test_a_last_chunk_that_fails_is_named_in_the_summary() -> None:
    _, text = summarized_in(25, *(summary_reply(f"S{number}") for number in range(3)), "")

    assert re.fullmatch(
        rf"{summary_text('S2')}\n\n\[\d+ messages that followed could not be summarized\]", text
    )


def test_a_summary_that_is_too_large_with_what_it_names_is_a_failure() -> None:
    with ScriptedModel(
        [summary_reply(), summary_reply(), summary_reply(words(33)), ""], usage=USED
    ) as model:
        error = refusal(chunked(model), long_task(25))

    assert error.reason == "too_large"
    assert error.usage == Usage(input_tokens=40, output_tokens=4, cached_tokens=8)


def test_where_no_chunk_succeeds_the_whole_fails_and_the_summary_before_is_no_result() -> None:
    with ScriptedModel(["", "", "", ""], usage=USED) as model:
        error = refusal(chunked(model), long_task(25, previous="before"))

    assert error.reason == "every"
    assert error.usage == Usage(input_tokens=40, output_tokens=4, cached_tokens=8)


@pytest.mark.spec("E62")
@pytest.mark.parametrize(
    "error", [ModelUnavailableError("no answer"), TimeoutError("slow"), asyncio.CancelledError()]
)
def test_a_provider_that_fails_is_not_asked_once_for_each_chunk(error: BaseException) -> None:
    with pytest.raises(type(error)), ScriptedModel([summary_reply(), error]) as model:
        summarized(chunked(model), long_task(25))

    assert len(model.requests) == 2


def test_calls_are_not_parted_from_their_results() -> None:
    talk = ConversationBuilder()
    for number in range(12):
        talk.round(f"c{number}", words(60))
    talk.round("last", "x")
    with ScriptedModel([summary_reply()] * 4) as model:
        summarized(chunked(model), attrs.evolve(task_of(talk), max_tokens=50))

    for at in range(4):
        assert shown(model, at).count("<call ") == shown(model, at).count("<result ") > 0


class TestFitting:
    @pytest.mark.spec("I31")
    @pytest.mark.parametrize("window", range(990, 3_000, 210))
    def test_every_request_fits_and_nothing_is_left_out(self, window: int) -> None:
        tokenizer = tokenizer_for("gpt-4o")
        with_room = summary_text(words(60))
        model = ScriptedModel([summary_reply(words(60))] * 100, name="gpt-4o")

        summarized(
            ChunkedSummarizer(model=model, window=window),
            long_task(40, max_tokens=100, previous=with_room),
        )

        for request in model.requests:
            frame = tokenizer.count_overhead(system=request.messages[0].text).tokens
            assert (
                frame + sum(map(Sizer(tokenizer).count_message, request.messages)) + 100 <= window
            )
        assert [number for request in model.requests for number in turns_in(request)] == list(
            range(40)
        )

    @pytest.mark.spec("E56")
    @pytest.mark.parametrize("window", [1, 100, 420, 440])
    def test_a_window_without_room_for_two_summaries_is_an_error(self, window: int) -> None:
        with ScriptedModel([]) as model:
            assert refusal(chunked(model, window), long_task()).reason == "does_not_fit"

    @pytest.mark.spec("E56", "E109")
    def test_one_huge_message_is_named_and_not_sent(self) -> None:
        talk = ConversationBuilder()
        talk.user("small")
        talk.answer("fine")
        talk.user(words(20_000, "huge"))
        talk.answer("done")
        talk.user("last")
        with ScriptedModel([summary_reply(), summary_reply()]) as model:
            summarized(chunked(model), attrs.evolve(task_of(talk), max_tokens=50))

        assert "huge" not in shown(model, 0) + shown(model, 1)
        assert "[1 message that followed could not be summarized]" in shown(model, 1)

    @pytest.mark.spec("E20")
    def test_where_nothing_is_new_no_model_is_asked(self) -> None:
        with ScriptedModel([]) as model:
            assert refusal(chunked(model), nothing_new()).reason == "nothing"
