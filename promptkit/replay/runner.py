"""Replay files under policies, several files at a time in separate processes. The result of a file does not depend on other files."""

from __future__ import annotations

import hashlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import PromptKitError
from promptkit.replay.policies.registry import find_policy
from promptkit.replay.recordings import read_recordings
from promptkit.replay.results import FailedFile, FileResult, ReplayTotals, price_totals
from promptkit.replay.simulate import ReplayRules, Simulation
from promptkit.transcript.addresses import is_url, open_reader
from promptkit.transcript.jsonl.format import encode_batch
from promptkit.transcript.jsonl.reader import StoredEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.replay.prices import Price
    from promptkit.replay.results import TimelineRequest

__all__ = ["ReplayOptions", "digest_recording", "replay", "replay_file"]

BLOCK_SIZE = 1 << 20
"""Bytes that are read at a time."""


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """The policies to replay, the simulated model, and its price."""

    policies: tuple[str, ...]
    """Names of policies, as `parse_policy_names` returns them."""
    rules: ReplayRules
    price: Price
    timeline: bool = False
    """Whether results contain the figures of every request."""
    summarize_with_model: bool = False
    """Let the model of the rules write the summaries, through OpenAI's API. By default they are extracted from the conversation."""


def replay(
    files: Sequence[Path | str], options: ReplayOptions, *, workers: int = 1, on_file_done: Callable[[Path | str], object] | None = None
) -> list[FileResult | FailedFile]:
    """Replay recordings under each policy, and return the results in the order of the files.

    >>> rules = ReplayRules(model="gpt-5", window=32_000, cache="openai")
    >>> options = ReplayOptions(policies=("vscode", "drop_oldest"), rules=rules, price=read_prices().for_model("gpt-5"))
    >>> results = replay([Path("session.jsonl")], options)

    Args:
        files: Recordings in any format that promptkit can import, and URLs of transcripts.
        options: The policies, the simulated model, and its price.
        workers: Number of parallel processes. With 1, files are replayed in this process.
        on_file_done: Called with each file after it was replayed, in any order.

    Returns:
        A FileResult for each file, or a FailedFile for one that could not be replayed.
    """
    results: dict[int, FileResult | FailedFile] = {}
    workers = min(workers, len(files))
    if workers <= 1:
        for number, file in enumerate(files):
            results[number] = _replay_or_fail(file, options)
            if on_file_done:
                on_file_done(file)
        return [results[number] for number in range(len(files))]
    # Processes are spawned, not forked: this works the same on every system, and they share no state with this process.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_replay_or_fail, file, options): number for number, file in enumerate(files)}
        for future in as_completed(futures):
            number = futures[future]
            results[number] = future.result()
            if on_file_done:
                on_file_done(files[number])
    return [results[number] for number in range(len(files))]


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
    seed = digest_recording(file)
    policies = [find_policy(name) for name in options.policies]
    totals = dict.fromkeys(options.policies, ReplayTotals())
    timelines: dict[str, list[TimelineRequest]] = {name: [] for name in options.policies}
    conversations = messages = 0
    for number, recording in enumerate(read_recordings(file)):
        conversations += 1
        messages += len(recording.system) + len(recording.messages)
        simulation = Simulation(recording, options.rules)
        for policy in policies:
            result = simulation.run(policy, seed=f"{seed}:{number}", summarize_with_model=options.summarize_with_model)
            totals[policy.name] += result.totals
            if options.timeline:
                timelines[policy.name] += result.timeline
    one_hour_cache = options.rules.cache == "anthropic-1h"
    return FileResult(
        file=str(file),
        conversations=conversations,
        messages=messages,
        window=options.rules.window,
        model=options.rules.model,
        policies=tuple(
            price_totals(name, totals[name], options.price, one_hour_cache=one_hour_cache, timeline=timelines[name])
            for name in options.policies
        ),
    )


def digest_recording(file: Path | str) -> str:
    """Return a hash of the content, so that a recording has the same random numbers wherever it is and whatever its name is."""
    digest = hashlib.sha256()
    if isinstance(file, str) and is_url(file):
        for item in open_reader(file):
            if isinstance(item, StoredEntry):
                digest.update(encode_batch([item.entry]))
        return digest.hexdigest()
    try:
        with Path(file).open("rb") as content:
            while block := content.read(BLOCK_SIZE):
                digest.update(block)
    except OSError:
        return ""  # the function that reads the recording reports the error
    return digest.hexdigest()
