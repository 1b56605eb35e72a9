"""The fallback over several summarizers: who is asked, how often, how long, and what is told of those that failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import openai
import pytest

from promptkit.compaction.planning.plan import FailedAttempt, SummaryTask
from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.fallback import (
    MAX_PAUSE_SECONDS,
    FallbackSummarizer,
    summarize_within_limits,
)
from promptkit.compaction.summarizers.model_summarizers import (
    ChunkedSummarizer,
    FullSummarizer,
    SimpleSummarizer,
    SplitTurnSummarizer,
)
from promptkit.errors import (
    EmptyReplyError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
    SummaryError,
)
from promptkit.messages import Message, Usage
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing import ScriptedModel
from promptkit.testing.server import Hang, rate_limit_error, serve
from tests.conversations import summary_reply, words
from tests.unit.compaction.summarizers.tasks import (
    SUMMARY,
    TAGGED,
    TOKENIZER,
    long_task,
    parser_talk,
    refusal,
    summarized,
    task_of,
)
from tests.unit.compaction.summarizers.writers import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.compaction.planning.plan import Summary
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.providers.model import Model
    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer

TASK = task_of(parser_talk(), max_tokens=21)
USED = Usage(input_tokens=100, output_tokens=10, cached_tokens=90)
TOO_LONG = summary_reply(words(30))


def simple(model: Model) -> SimpleSummarizer:
    return SimpleSummarizer(model=model, window=4_000, tokenizer=TOKENIZER)


def full(model: Model) -> FullSummarizer:
    return FullSummarizer(model=model, window=4_000, tokenizer=TOKENIZER)


@attrs.define
class Clock:
    """Seconds that a test moves on."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@attrs.define
class Reports:
    """The attempts that failed."""

    attempts: list[FailedAttempt] = attrs.field(factory=list[FailedAttempt])

    def of(self, task: SummaryTask = TASK) -> SummaryTask:
        return attrs.evolve(task, report=self.attempts.append)

    @property
    def reasons(self) -> list[tuple[str, str]]:
        return [(each.summarizer, each.reason) for each in self.attempts]


@attrs.frozen
class Failing:
    """A summarizer that fails."""

    error: BaseException

    async def summarize(self, task: SummaryTask) -> Summary:
        _ = task
        raise self.error


class TestOrder:
    @pytest.mark.spec("E64")
    @pytest.mark.parametrize(
        "error",
        [
            SummaryError(reason="empty", detail="nothing."),
            ModelUnavailableError("no answer"),
            RateLimitedError("later", status=429),
            ModelRequestError("no key", status=401),
            TimeoutError("slow"),
            RuntimeError("a client's own"),
        ],
    )
    def test_the_next_one_is_asked_whatever_the_first_failed_of(self, error: Exception) -> None:
        with ScriptedModel([TAGGED]) as model:
            chain = FallbackSummarizer([Failing(error), simple(model)])

            assert summarized(chain, TASK).mode == "simple"

    def test_the_first_that_succeeds_is_the_last_that_is_asked(self) -> None:
        with ScriptedModel([TAGGED]) as model:
            first = simple(model)

            assert summarized(FallbackSummarizer([first, first]), TASK).text == SUMMARY

    def test_what_the_failures_cost_is_added(self) -> None:
        with ScriptedModel(["<summary></summary>", TAGGED], usage=USED) as model:
            link = simple(model)

            assert summarized(FallbackSummarizer([link, link]), TASK).usage == Usage(
                input_tokens=200, output_tokens=20, cached_tokens=180
            )

    def test_where_all_fail_every_failure_is_listed(self) -> None:
        with ScriptedModel(["", ModelUnavailableError("no answer")], usage=USED) as model:
            link = simple(model)
            error = refusal(FallbackSummarizer([link, link]), TASK)

        assert error.reason == "every"
        assert error.usage == USED
        assert "empty summary" in str(error)
        assert "no answer" in str(error)

    def test_nothing_in_it_is_a_failure(self) -> None:
        assert refusal(FallbackSummarizer([]), TASK).reason == "every"

    @pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt()])
    def test_what_cancels_passes_through_and_nobody_else_is_asked(
        self, error: BaseException
    ) -> None:
        with pytest.raises(type(error)), ScriptedModel([]) as model:
            summarized(FallbackSummarizer([Failing(error), simple(model)]), TASK)

        assert model.requests == []

    def test_with_no_model_at_its_end_a_conversation_is_never_lost_and_a_warning_is_logged(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        failing = Failing(ModelUnavailableError("no answer"))
        chain = FallbackSummarizer([failing, failing, ExtractiveSummarizer(tokenizer=TOKENIZER)])

        assert summarized(chain, task_of(parser_talk())).mode == "extractive"
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("promptkit", "WARNING")
        assert record.getMessage() == (
            "no model wrote the summary, and ExtractiveSummarizer made one without: "
            "Failing: no answer; Failing: no answer"
        )

    def test_an_extract_that_is_wanted_logs_no_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        chain = FallbackSummarizer([ExtractiveSummarizer(tokenizer=TOKENIZER)])

        assert summarized(chain, task_of(parser_talk())).mode == "extractive"
        assert caplog.records == []


class Hosted(ScriptedModel):
    """A model over a provider's client, as a real one is."""

    client: object = None


class TestTooLong:
    def test_the_same_summarizer_is_asked_once_more_for_fewer_words(self) -> None:
        reports = Reports()
        with ScriptedModel([TOO_LONG, TAGGED], usage=USED) as model:
            summary = summarized(FallbackSummarizer([simple(model), full(model)]), reports.of())

        assert (summary.mode, summary.text) == ("simple", SUMMARY)
        assert summary.usage == Usage(input_tokens=200, output_tokens=20, cached_tokens=180)
        assert reports.reasons == [("SimpleSummarizer", "too_large")]
        first, second = (
            "\n".join(message.text for message in request.messages) for request in model.requests
        )
        assert "too long" not in first
        assert "too long. Write at most 10 words." in second

    def test_the_user_s_own_instructions_are_repeated_with_it(self) -> None:
        with ScriptedModel([TOO_LONG, TAGGED]) as model:
            summarized(
                FallbackSummarizer([simple(model)]),
                attrs.evolve(TASK, instructions="Mind the parser."),
            )

        assert all("Mind the parser." in request.messages[0].text for request in model.requests)

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (TOO_LONG, "too_large"),
            (EmptyReplyError("nothing"), "EmptyReplyError"),
            ("<summary>I cannot.</summary>", "no_sections"),
        ],
    )
    def test_after_the_second_time_the_model_is_asked_by_nobody_else(
        self, answer: str | Exception, reason: str
    ) -> None:
        reports = Reports()
        with ScriptedModel([answer, answer]) as model:
            chain = FallbackSummarizer(
                [simple(model), full(model), ExtractiveSummarizer(tokenizer=TOKENIZER)]
            )
            summary = summarized(chain, reports.of(attrs.evolve(TASK, max_tokens=46)))

        assert summary.mode == "extractive"
        # an empty reply is no summary that could be corrected
        second = "FullSummarizer" if reason == "EmptyReplyError" else "SimpleSummarizer"
        assert reports.reasons == [("SimpleSummarizer", reason), (second, reason)]

    def test_a_text_without_headings_is_asked_for_once_more_with_what_is_wrong(self) -> None:
        reports = Reports()
        with ScriptedModel(["<summary>We talked.</summary>", TAGGED]) as model:
            summary = summarized(FallbackSummarizer([full(model), simple(model)]), reports.of(TASK))

        assert (summary.mode, reports.reasons) == ("full", [("FullSummarizer", "no_sections")])
        first, second = (request.messages for request in model.requests)
        assert [*second[:-1]] == [*first]
        assert all(one is other for one, other in zip(first, second, strict=False))
        assert (second[-1].role, second[-1].text.partition(", such")[0]) == (
            "user",
            "What was written before was rejected: no summary: the summary lacks 8 of the 8 headings that were asked for",
        )

    def test_too_long_a_summary_of_messages_is_asked_for_as_text_next(self) -> None:
        reports = Reports()
        with ScriptedModel([TOO_LONG, TAGGED]) as model:
            summary = summarized(FallbackSummarizer([full(model), simple(model)]), reports.of(TASK))

        assert (summary.mode, reports.reasons) == ("simple", [("FullSummarizer", "too_large")])
        assert "too long. Write at most" in model.requests[-1].messages[-1].text

    @pytest.mark.parametrize("finish", ["length", "max_output_tokens"])
    def test_reasoning_that_takes_the_whole_output_limit_counts_as_too_long(
        self, finish: str
    ) -> None:
        error = EmptyReplyError("nothing")
        error.finish, error.usage = finish, USED
        reports = Reports()
        with ScriptedModel([error, error]) as model:
            assert refusal(
                FallbackSummarizer([simple(model), full(model)]), reports.of()
            ).usage == Usage(input_tokens=200, output_tokens=20, cached_tokens=180)
        assert [reason for _, reason in reports.reasons] == ["cut", "cut"]

    def test_another_model_of_the_same_provider_is_still_asked(self) -> None:
        with Hosted([TOO_LONG] * 2) as wordy, Hosted([TAGGED]) as terse:
            wordy.client = terse.client = object()
            assert (
                summarized(FallbackSummarizer([simple(wordy), simple(terse)]), TASK).text == SUMMARY
            )


class TestProviders:
    @pytest.mark.spec("E62")
    @pytest.mark.parametrize(
        "error",
        [
            RateLimitedError("later", status=429),
            ModelUnavailableError("no answer"),
            TimeoutError("slow"),
        ],
    )
    def test_one_that_is_busy_or_away_is_not_asked_again_in_the_same_pass(
        self, error: Exception
    ) -> None:
        with Hosted([error]) as model, Hosted([]) as sibling:
            model.client = sibling.client = object()
            chain = FallbackSummarizer(
                [
                    simple(model),
                    full(model),
                    simple(sibling),
                    ExtractiveSummarizer(tokenizer=TOKENIZER),
                ]
            )
            summary = summarized(chain, task_of(parser_talk()))

        assert summary.mode == "extractive"

    def test_another_provider_is_asked_at_once(self) -> None:
        with (
            ScriptedModel([RateLimitedError("later", status=429)]) as busy,
            ScriptedModel([TAGGED]) as other,
        ):
            assert (
                summarized(FallbackSummarizer([simple(busy), full(busy), simple(other)]), TASK).mode
                == "simple"
            )

    def test_the_error_says_who_was_not_asked_and_why(self) -> None:
        with ScriptedModel([ModelUnavailableError("no answer")]) as model:
            error = refusal(FallbackSummarizer([simple(model), full(model)]), TASK)

        assert "FullSummarizer: its provider did not answer just now." in str(error)

    def test_a_refused_request_is_tried_in_the_next_form(self) -> None:
        with ScriptedModel([ModelRequestError("unknown role", status=400), TAGGED]) as model:
            assert (
                summarized(FallbackSummarizer([full(model), simple(model)]), TASK).mode == "simple"
            )

    def test_retry_after_is_heeded_in_later_passes(self) -> None:
        clock, busy = Clock(), RateLimitedError("later", status=429)
        busy.retry_after = 30.0
        with ScriptedModel([busy, TAGGED]) as model:
            chain = FallbackSummarizer([simple(model), full(model)], clock=clock)
            refusal(chain, TASK)
            clock.now = 29.0
            assert "not asked for 1 more seconds" in str(refusal(chain, TASK))
            assert len(model.requests) == 1
            clock.now = 30.0
            assert summarized(chain, TASK).text == SUMMARY


class TestPauses:
    def fails(self, chain: FallbackSummarizer, clock: Clock, writer: Writer, at: float) -> int:
        """How often the writer is asked in a pass at a time."""
        clock.now = at
        before = len(writer.tasks)
        refusal(chain, TASK)
        return len(writer.tasks) - before

    def test_after_three_failures_in_a_row_a_summarizer_is_skipped_for_a_minute_and_then_for_longer(
        self,
    ) -> None:
        clock, writer = Clock(), Writer(error=ValueError("broken"))
        chain = FallbackSummarizer([writer], clock=clock)

        asked = [self.fails(chain, clock, writer, at) for at in (0, 1, 2, 3, 61, 62, 100, 181, 182)]
        assert asked == [1, 1, 1, 0, 0, 1, 0, 0, 1]

    def test_a_pause_has_a_longest_time(self) -> None:
        clock, writer = Clock(), Writer(error=ValueError("broken"))
        chain = FallbackSummarizer([writer], clock=clock)
        for number in range(1, 30):
            assert self.fails(chain, clock, writer, number * MAX_PAUSE_SECONDS) == 1

    def test_a_success_begins_the_count_anew(self) -> None:
        clock, writer = Clock(), Writer(error=ValueError("broken"))
        chain = FallbackSummarizer([writer], clock=clock)
        for _ in range(3):
            assert [self.fails(chain, clock, writer, clock.now) for _ in range(2)] == [1, 1]
            writer.error = None
            summarized(chain, TASK)
            writer.error = ValueError("broken")

    @pytest.mark.parametrize("reason", ["nothing", "no_request", "does_not_fit", "not_smaller"])
    def test_what_is_no_fault_of_a_summarizer_is_not_counted(self, reason: str) -> None:
        clock, writer = Clock(), Writer(error=SummaryError(reason=reason, detail="no."))
        chain = FallbackSummarizer([writer], clock=clock)

        assert [self.fails(chain, clock, writer, 0) for _ in range(6)] == [1] * 6


class TestTimeLimit:
    def test_a_summarizer_that_hangs_is_left_for_the_next_one(self) -> None:
        reports = Reports()
        hanging, next_one = Writer(gate=asyncio.Event()), Writer()
        summarized(
            FallbackSummarizer([hanging, next_one]), attrs.evolve(reports.of(), seconds=0.01)
        )

        assert (len(hanging.tasks), len(next_one.tasks)) == (1, 1)
        (attempt,) = reports.attempts
        assert (attempt.reason, attempt.detail) == (
            "timeout",
            "no summary: none was written within 0.01 seconds.",
        )
        assert attempt.seconds >= 0.01

    def test_it_is_that_of_each_summarizer_and_not_of_all_together(self) -> None:
        hanging = [Writer(gate=asyncio.Event()) for _ in range(3)]

        assert (
            summarized(
                FallbackSummarizer([*hanging, Writer()]), attrs.evolve(TASK, seconds=0.01)
            ).mode
            == "test"
        )

    def test_without_one_it_is_waited_for(self) -> None:
        async def late() -> Summary:
            writer = Writer(gate=asyncio.Event())
            asked = asyncio.ensure_future(FallbackSummarizer([writer]).summarize(TASK))
            await asyncio.sleep(0.02)
            assert not asked.done()
            assert writer.gate is not None
            writer.gate.set()
            return await asked

        assert asyncio.run(late()).mode == "test"

    def test_a_chain_inside_another_summarizer_has_it_for_each_of_its_own(self) -> None:
        chain = FallbackSummarizer(
            [Writer(gate=asyncio.Event()), Writer(gate=asyncio.Event()), Writer()]
        )
        both = SplitTurnSummarizer(summarizer=chain, tokenizer=TOKENIZER)

        assert (
            asyncio.run(summarize_within_limits(both, attrs.evolve(TASK, seconds=0.02))).mode
            == "test"
        )

    @pytest.mark.slow
    def test_of_a_summary_in_stretches_each_request_has_it(self) -> None:
        async def slow(request: object) -> str:
            _ = request
            await asyncio.sleep(0.25)
            return summary_reply()

        task = attrs.evolve(long_task(25), seconds=0.8)
        with ScriptedModel([slow] * 4) as model:
            chunked = ChunkedSummarizer(model=model, window=1_000, tokenizer=TOKENIZER)
            assert summarized(FallbackSummarizer([chunked]), task).mode == "chunked"

    def test_a_time_out_of_the_program_s_own_is_not_taken_for_it(self) -> None:
        with pytest.raises(TimeoutError, match="my own"):
            asyncio.run(
                summarize_within_limits(
                    Writer(error=TimeoutError("my own")), attrs.evolve(TASK, seconds=5)
                )
            )


class TestReports:
    def test_each_failed_attempt_has_its_reason_seconds_and_cost(self) -> None:
        reports, clock = Reports(), Clock()

        def answer(text: str) -> Callable[[object], str]:
            def late(request: object) -> str:
                _ = request
                clock.now += 2
                return text

            return late

        with ScriptedModel([answer("I am sorry."), answer(TAGGED)], usage=USED) as model:
            summarized(FallbackSummarizer([simple(model), full(model)], clock=clock), reports.of())

        (attempt,) = reports.attempts
        assert attempt == FailedAttempt(
            summarizer="SimpleSummarizer",
            reason="untagged",
            detail="no summary: the reply has no <summary> tags.",
            seconds=2,
            usage=USED,
        )

    def test_who_is_not_asked_is_not_reported(self) -> None:
        reports = Reports()
        with ScriptedModel([ModelUnavailableError("no answer")]) as model:
            refusal(FallbackSummarizer([simple(model), full(model)]), reports.of())

        assert reports.reasons == [("SimpleSummarizer", "ModelUnavailableError")]


class TestRequireModel:
    def test_where_one_is_required_the_summary_without_a_model_is_not_written(self) -> None:
        with ScriptedModel([ModelUnavailableError("no answer")]) as model:
            chain = FallbackSummarizer([simple(model), ExtractiveSummarizer(tokenizer=TOKENIZER)])
            error = refusal(chain, attrs.evolve(task_of(parser_talk()), require_model=True))

        assert "no answer" in str(error)

    def test_a_conversation_without_a_summarizing_model_has_it_all_the_same(self) -> None:
        chain = FallbackSummarizer([ExtractiveSummarizer(tokenizer=TOKENIZER)])

        assert (
            summarized(chain, attrs.evolve(task_of(parser_talk()), require_model=True)).mode
            == "extractive"
        )


class TestOverHttp:
    """The same with a real client, over a server on this machine."""

    def asked(
        self, answer: Answer, seconds: float | None = None
    ) -> tuple[Sequence[Exchange], Summary, Reports]:
        """The requests for a summary, what came of them, and the attempts that failed.

        The connection is open before.
        """
        reports = Reports()
        task = attrs.evolve(reports.of(task_of(parser_talk(), max_tokens=100)), seconds=seconds)

        async def ask(url: str) -> Summary:
            async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
                model = OpenAIModel("gpt-4.1", api="chat", client=client)
                await model.complete([Message(role="user", content=("Hello.",))])
                mini = OpenAIModel("gpt-4.1-mini", api="chat", client=client)
                models: list[Summarizer] = [full(model), simple(model), simple(mini)]
                return await FallbackSummarizer(
                    [*models, ExtractiveSummarizer(tokenizer=TOKENIZER)]
                ).summarize(task)

        with serve(script=["Hello.", answer, TAGGED]) as server:
            summary = asyncio.run(ask(server.url))
        return list(server.requests[1:]), summary, reports

    def test_a_rate_limit_is_one_request(self) -> None:
        requests, summary, reports = self.asked(rate_limit_error(retry_after=20))

        assert len(requests) == 1
        assert reports.reasons == [("FullSummarizer", "RateLimitedError")]
        assert summary.mode == "extractive"

    @pytest.mark.long
    def test_a_server_that_hangs_costs_the_time_limit_once(self) -> None:
        requests, summary, reports = self.asked(Hang(), seconds=0.4)

        assert len(requests) == 1
        assert reports.reasons == [("FullSummarizer", "timeout")]
        assert summary.mode == "extractive"

    def test_a_request_says_how_much_may_be_written(self) -> None:
        requests, summary, _ = self.asked(TAGGED)

        assert summary.mode == "full"
        # twice the summary's 100, and 2,000 for the analysis
        assert requests[0].body["max_completion_tokens"] == 2_200
