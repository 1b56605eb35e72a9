"""Try several summarizers in order, without asking a provider again that has just failed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import attrs

from promptkit.compaction.planning.plan import FailedAttempt, Summary, SummaryTask
from promptkit.compaction.planning.worker import run_beside
from promptkit.compaction.summarizers.summarizer import Summarizer, sum_usage
from promptkit.errors import (
    EmptyReplyError,
    InvalidArgumentError,
    ModelUnavailableError,
    RateLimitedError,
    SummaryError,
)

_LOGGER = logging.getLogger("promptkit")

FAILURES_BEFORE_PAUSE = 3
"""Failures in a row after which a summarizer is skipped for a while."""

PAUSE_SECONDS = 60.0
"""The first pause of a summarizer that failed repeatedly. It doubles with each further failure, up
to `MAX_PAUSE_SECONDS`."""

MAX_PAUSE_SECONDS = 600.0

TIMEOUT = "timeout"
"""The reason of an attempt that took too long, by the task's limit or by the client's own."""

TOO_LONG = frozenset({"too_large", "cut"})
"""Reasons after which the same summarizer is asked once more, for less; or the next one, where a
copy of the messages (`yields_when_too_long`) is followed by one as text, as in VS Code."""

INVALID = frozenset({"no_sections", "untagged"})
"""Reasons after which the same model is asked once more, and told what was wrong."""

NOT_ASKED = frozenset({"nothing", "no_request", "does_not_fit", "not_smaller"})
"""Reasons that say nothing about a summarizer's health: no model was asked, or no summary can
help."""


@attrs.frozen
class FallbackSummarizer:
    """Tries summarizers in order and returns the first summary that passes the task's check.

    A text that is no summary is asked for once more, with what is wrong with it. One that is too long or
    cut off is asked for with a lower limit in words: of the same summarizer, or where that sends a copy
    of the messages, of the next one. After the second time no other summarizer asks the same model.
    After a rate limit, a time-out or an unreachable
    provider, no other summarizer asks the same provider. A provider's `retry_after` is heeded in
    later passes, and a summarizer that failed three times in a row is skipped for a minute, then
    for longer.

    The last one should be a summarizer that needs no model, so that a failing provider never blocks
    a conversation. A summary that it makes in place of a model's is logged as a warning.

    >>> FallbackSummarizer([SimpleSummarizer(model=model, window=128_000), ExtractiveSummarizer()])
    """

    summarizers: Sequence[Summarizer]
    limits_time: ClassVar[bool] = True
    """The task's time limit is that of each summarizer."""
    clock: Callable[[], float] = attrs.field(
        default=time.monotonic, kw_only=True, repr=False, eq=False
    )
    """Returns seconds that only grow."""
    _pauses: dict[int, _Pause] = attrs.field(
        factory=dict[int, "_Pause"], init=False, repr=False, eq=False
    )
    """By the identity of a summarizer, or of a provider: from when on it may be asked again."""

    def __attrs_post_init__(self) -> None:
        if any(getattr(summarizer, "must_be_last", False) for summarizer in self.summarizers[:-1]):
            raise InvalidArgumentError(
                "a summarizer that never fails must be the last one: write FallbackSummarizer([..., PlaceholderSummarizer(...)])."
            )

    async def summarize(self, task: SummaryTask) -> Summary:
        """Return the first accepted summary.

        Its usage includes the usage of the attempts that failed.

        Raises:
            SummaryError: Every summarizer failed. The text lists each failure.
        """
        failures: list[str] = []
        attempts: list[FailedAttempt] = []
        # models and providers, by identity → why they are not asked again in this pass
        excluded: dict[int, str] = {}
        asked_for_less = False
        selected = self._select(task)
        for at, summarizer in enumerate(selected):
            name = type(summarizer).__name__
            why = self._find_reason_to_skip(summarizer, excluded)
            if why is not None:
                failures.append(f"{name}: {why}")
                continue
            key = _model_keys(summarizer)[:1]
            yields = getattr(summarizer, "yields_when_too_long", False) and any(
                _model_keys(each)[:1] == key for each in selected[at + 1 :]
            )
            request = _ask_for_less(task) if asked_for_less else task
            for is_last in (asked_for_less, True):
                outcome, error = await self._ask(summarizer, request)
                if not isinstance(outcome, FailedAttempt):
                    self._pauses.pop(id(summarizer), None)
                    if failures and getattr(summarizer, "without_model", False):
                        _LOGGER.warning(
                            "no model wrote the summary, and %s made one without: %s",
                            name,
                            "; ".join(failures),
                        )
                    return attrs.evolve(
                        outcome,
                        usage=sum_usage([*(attempt.usage for attempt in attempts), outcome.usage]),
                    )
                attempts.append(outcome)
                failures.append(f"{name}: {outcome.detail}")
                self._record(summarizer, outcome, error)
                is_too_long = outcome.reason in TOO_LONG
                if not is_too_long and outcome.reason not in INVALID:
                    break
                if is_last:
                    excluded |= dict.fromkeys(key, "its model wrote no valid summary twice.")
                    break
                if is_too_long and yields:
                    asked_for_less = True
                    break
                complaint = f"What was written before was rejected: {outcome.detail:.200} Write the summary again now, whole and in the form that is asked for."
                request = (
                    _ask_for_less(task) if is_too_long else attrs.evolve(task, complaint=complaint)
                )
            if (
                isinstance(error, RateLimitedError | ModelUnavailableError)
                or attempts[-1].reason == TIMEOUT
            ):
                excluded |= dict.fromkeys(
                    _model_keys(summarizer), "its provider did not answer just now."
                )
        raise SummaryError(
            reason="every",
            detail="; ".join(failures) or "the list of summarizers is empty.",
            usage=sum_usage(attempt.usage for attempt in attempts),
        )

    def _select(self, task: SummaryTask) -> Sequence[Summarizer]:
        """Return the summarizers that may be asked: those with a model, if the task requires one and any has one."""
        written = [
            summarizer
            for summarizer in self.summarizers
            if not getattr(summarizer, "without_model", False)
        ]
        return written if task.require_model and written else self.summarizers

    def _find_reason_to_skip(self, summarizer: Summarizer, excluded: dict[int, str]) -> str | None:
        keys = _model_keys(summarizer)
        why = next((excluded[key] for key in keys if key in excluded), None)
        left = (
            max(
                (
                    pause.until
                    for key in (id(summarizer), *keys)
                    if (pause := self._pauses.get(key))
                ),
                default=0.0,
            )
            - self.clock()
        )
        return why or (
            f"it is not asked for {left:.0f} more seconds, after earlier failures."
            if left > 0
            else None
        )

    async def _ask(
        self, summarizer: Summarizer, task: SummaryTask
    ) -> tuple[Summary | FailedAttempt, Exception | None]:
        started = self.clock()
        try:
            summary = await summarize_within_limits(summarizer, task)
        except Exception as error:  # noqa: BLE001  # a provider's client may raise anything; the next summarizer is tried
            failed = FailedAttempt(
                summarizer=type(summarizer).__name__,
                reason=_name_reason(error),
                detail=str(error),
                seconds=self.clock() - started,
                usage=error.usage if isinstance(error, SummaryError | EmptyReplyError) else None,
            )
            if task.report is not None:
                task.report(failed)
            return failed, error
        return summary, None

    def _record(
        self, summarizer: Summarizer, failed: FailedAttempt, error: Exception | None
    ) -> None:
        """Remember a failure for later passes."""
        now = self.clock()
        wait = error.retry_after if isinstance(error, RateLimitedError) else None
        if wait is not None:
            self._pauses.update(dict.fromkeys(_model_keys(summarizer), _Pause(until=now + wait)))
        if failed.reason not in NOT_ASKED:
            count = self._pauses.get(id(summarizer), _Pause()).failures + 1
            doublings = count - FAILURES_BEFORE_PAUSE
            pause = (
                min(MAX_PAUSE_SECONDS, PAUSE_SECONDS * 2.0 ** min(doublings, 10))
                if doublings >= 0
                else 0.0
            )
            self._pauses[id(summarizer)] = _Pause(failures=count, until=now + pause)


@attrs.frozen(kw_only=True)
class _Pause:
    """A summarizer or a provider that failed."""

    failures: int = 0
    """Failures in a row."""
    until: float = 0.0
    """By the clock: when it may be asked again."""


async def summarize_within_limits(summarizer: Summarizer, task: SummaryTask) -> Summary:
    """Ask a summarizer within the task's time limit, and check its summary.

    Raises:
        SummaryError: It made no summary, or not in time, or the summary does not pass the check.
    """
    # a summarizer, or one that it wraps, may apply the time limit to each request of its own
    own_limit = any(getattr(each, "limits_time", False) for each in _unwrap(summarizer))
    limit = asyncio.timeout(None if own_limit else task.seconds)
    try:
        async with limit:
            summary = await summarizer.summarize(task)
    except TimeoutError:
        if not limit.expired():
            raise
        raise SummaryError(
            reason=TIMEOUT, detail=f"none was written within {task.seconds:g} seconds."
        ) from None
    if task.check is not None:
        await run_beside((*task.plan.dropped, *task.plan.prefix), task.check, summary)
    return summary


def _unwrap(summarizer: object) -> Iterator[object]:
    while summarizer is not None:
        yield summarizer
        summarizer = getattr(summarizer, "summarizer", None)


def _model_keys(summarizer: object) -> tuple[int, ...]:
    """Return the identities of the model that a summarizer asks, if any, and of its client, which stands for the provider."""
    model = next(
        (
            model
            for each in _unwrap(summarizer)
            if (model := getattr(each, "model", None)) is not None
        ),
        None,
    )
    client = getattr(model, "client", None)
    return tuple(id(each) for each in (model, client) if each is not None)


def _name_reason(error: Exception) -> str:
    match error:
        case SummaryError(reason=reason):
            return reason
        case TimeoutError():
            return TIMEOUT
        case EmptyReplyError(finish="length" | "max_output_tokens" | "max_tokens"):
            # the reasoning took the whole output limit
            return "cut"
        case _:
            return type(error).__name__


def _ask_for_less(task: SummaryTask) -> SummaryTask:
    """Return the task with a request for a shorter summary."""
    words = max(10, task.target_tokens * 3 // 8 // 10 * 10)
    return attrs.evolve(
        task,
        complaint=f"The summary that was written before was too long. Write at most {words:,} words. Write the summary again now.",
    )
