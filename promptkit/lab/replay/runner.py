"""Replay files under policies, several files at a time in other processes.

The result of a file does not depend on other files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path

import attrs

from promptkit.errors import PromptKitError
from promptkit.lab.engines import LostItem, open_engine, run_each
from promptkit.lab.recordings.reading.remote import fetch_file
from promptkit.lab.replay.oracle import find_lower_bound, find_optimum
from promptkit.lab.replay.policies.registry import find_policy
from promptkit.lab.replay.recordings import read_recordings
from promptkit.lab.replay.results import (
    FailedFile,
    FileResult,
    PolicyResult,
    ReplayTotals,
    TimelineRequest,
    sum_bills,
)
from promptkit.lab.replay.simulate import ReplayRules, Simulation
from promptkit.tokens import Price, Prices
from promptkit.transcript.stores.addresses import is_conversation, open_reader
from promptkit.transcript.stores.jsonl.format import encode_batch
from promptkit.transcript.stores.jsonl.reader import StoredEntry

LOST_WORKER = "the process that worked on it died each time that it was tried, as one does that the system ends because it needs too much memory."
"""Why a file has no result, if its worker died."""


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """The policies to replay, the simulated model, and its price."""

    policies: tuple[str, ...]
    """Names of policies, as `parse_policy_names` returns them."""
    rules: ReplayRules
    price: Price
    prices: Prices | None = None
    """The prices of the models that recordings name, for what their providers billed. None: bills are
    not compared."""
    timeline: bool = False
    """Whether results contain the figures of every request."""
    oracle: bool = False
    """Whether results contain what each conversation costs at least, and each policy's planned
    optimum."""
    lookups: int = 0
    """Look-ups for each answer that lacks a line, in the price with look-ups."""
    summarize_with_model: bool = False
    """Let the model of the rules write the summaries, through OpenAI's API. By default they are
    extracted from the conversation."""

    def price_totals(
        self, name: str, totals: ReplayTotals, timeline: Iterable[TimelineRequest] = ()
    ) -> PolicyResult:
        """Compute the result of a policy from its counts.

        Args:
            name: The policy's name.
            totals: The policy's counts.
            timeline: All requests in order. By default none.
        """
        cost = self.price.cost
        summaries = cost(totals.summaries_billed)
        total = cost(totals.requests_billed) + summaries
        return PolicyResult(
            policy=name,
            totals=totals,
            price=total,
            price_summaries=summaries,
            price_with_lookups=total + self.lookups * cost(totals.lookups_billed),
            timeline=tuple(timeline) if self.timeline else (),
        )


def replay(
    files: Sequence[Path | str],
    options: ReplayOptions,
    *,
    executor: Executor | None = None,
    on_file_done: Callable[[Path | str], object] | None = None,
) -> list[FileResult | FailedFile]:
    """Replay recordings under each policy, and return the results in the order of the files.

    All results are in memory at the end. For more files than that allows, `promptkit.lab.corpus` writes
    rows to a file.

    >>> rules = ReplayRules(model="gpt-5", window=32_000, cache="openai")
    >>> options = ReplayOptions(policies=("vscode", "drop_oldest"), rules=rules, price=read_prices().for_model("gpt-5"))
    >>> results = replay([Path("session.jsonl")], options)

    Args:
        files: Recordings in any format that promptkit can import, as paths or URLs, and URLs of
            transcripts.
        options: The policies, the simulated model, and its price.
        executor: Replays the files, for example an engine of `promptkit.lab.engines`. It is left
            open. None: they are replayed in this process, one after the other.
        on_file_done: Called with each file after it was replayed, in any order.

    Returns:
        A FileResult for each file, or a FailedFile for one that could not be replayed.
    """
    results: dict[int, FileResult | FailedFile] = {}
    with open_engine(workers=1) if executor is None else nullcontext(executor) as engine:
        for index, result in run_each(engine, partial(_replay_files, options), files):
            results[index] = (
                FailedFile(file=str(result.item), reason=LOST_WORKER)
                if isinstance(result, LostItem)
                else result
            )
            if on_file_done:
                on_file_done(files[index])
    return [results[index] for index in range(len(files))]


def _replay_files(
    options: ReplayOptions, files: tuple[Path | str, ...]
) -> list[FileResult | FailedFile]:
    return [_replay_or_fail(file, options) for file in files]


def _replay_or_fail(file: Path | str, options: ReplayOptions) -> FileResult | FailedFile:
    try:
        return replay_file(file, options)
    except PromptKitError as error:
        return FailedFile(file=str(file), reason=str(error))


def replay_file(file: Path | str, options: ReplayOptions) -> FileResult:
    """Replay one recording under each policy.

    Raises:
        TranscriptError: The file cannot be read.
        ToolsFillBudgetError: The window is too small for the recorded tool definitions.
        UnknownPolicyError: There is no policy with one of the names.
    """
    return sum_results(list(replay_conversations(file, options)), options, file=str(file))


def replay_conversations(file: Path | str, options: ReplayOptions) -> Iterator[FileResult]:
    """Replay one recording under each policy, and yield a result for each conversation in it.

    Raises what `replay_file` raises.
    """
    policies = [find_policy(name) for name in options.policies]
    with fetch_file(file) as place:
        seed = hash_recording(place)
        for recording in read_recordings(place, address=str(file)):
            simulation = Simulation(recording, options.rules)
            played = [
                simulation.run(
                    policy,
                    seed=f"{seed}:{recording.conversation}",
                    summarize_with_model=options.summarize_with_model,
                )
                for policy in policies
            ]
            yield FileResult(
                file=str(file),
                conversations=1,
                messages=len(recording.messages)
                - recording.shared
                + (0 if recording.shared else len(recording.system)),
                lower_bound=find_lower_bound(simulation.measure(options.price))
                if options.oracle
                else None,
                window=options.rules.window,
                model=options.rules.model,
                bill=simulation.bill.add_up(
                    options.prices, model=options.rules.model, price=options.price
                )
                if options.prices and simulation.bill
                else None,
                policies=tuple(
                    attrs.evolve(
                        options.price_totals(name, result.totals, result.timeline),
                        planned_optimum=find_optimum(simulation.measure(options.price, result))[0]
                        if options.oracle
                        else None,
                    )
                    for name, result in zip(options.policies, played, strict=True)
                ),
            )


def sum_results(results: Sequence[FileResult], options: ReplayOptions, *, file: str) -> FileResult:
    """Add up the results of conversations or files. `file` is the name of the whole."""
    columns = [[result.policies[at] for result in results] for at in range(len(options.policies))]
    return FileResult(
        file=file,
        conversations=sum(result.conversations for result in results),
        messages=sum(result.messages for result in results),
        lower_bound=_sum_known([result.lower_bound for result in results]),
        window=options.rules.window,
        model=options.rules.model,
        bill=sum_bills([result.bill for result in results]),
        policies=tuple(
            attrs.evolve(
                options.price_totals(
                    name,
                    sum((each.totals for each in column), ReplayTotals()),
                    chain.from_iterable(each.timeline for each in column),
                ),
                planned_optimum=_sum_known([each.planned_optimum for each in column]),
            )
            for name, column in zip(options.policies, columns, strict=True)
        ),
    )


def _sum_known(prices: Sequence[float | None]) -> float | None:
    """Return the sum of prices; None if none is known."""
    known = [price for price in prices if price is not None]
    return sum(known) if known else None


def hash_recording(file: Path | str) -> str:
    """Return the SHA-256 of a recording's content, so that it has the same random numbers wherever it is and whatever its name is.

    `file` is a path, or the URL of a conversation.
    """
    if isinstance(file, str) and is_conversation(file):
        digest = hashlib.sha256()
        for item in open_reader(file):
            if isinstance(item, StoredEntry):
                digest.update(encode_batch([item.entry]))
        return digest.hexdigest()
    try:
        with Path(file).open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return ""  # the function that reads the recording reports the error
