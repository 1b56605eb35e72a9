"""Files played under policies, several at a time in processes of their own; what comes of one does not depend on the others."""

from __future__ import annotations

import hashlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import PromptKitError
from promptkit.replay.policies.registry import policy_named
from promptkit.replay.recordings import read_recordings
from promptkit.replay.results import Failed, FileResult, ReplayTotals, priced
from promptkit.replay.simulate import ReplayRules, Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.replay.prices import Price
    from promptkit.replay.results import Step

__all__ = ["ReplayOptions", "replay", "replay_file"]

BYTES = 1 << 20


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """What is to be played, and at what price."""

    policies: tuple[str, ...]
    """Their names."""
    rules: ReplayRules
    price: Price
    timeline: bool = False
    """Keep every request's figures."""
    model: bool = False
    """Summaries are written by the model of the rules, over OpenAI's interface; else by nobody's."""


def replay(
    files: Sequence[Path], order: ReplayOptions, *, workers: int = 1, done: Callable[[Path], object] | None = None
) -> list[FileResult | Failed]:
    """The result of every file, in the order of the files. `done` is told of each that is played, as it happens."""
    found: dict[int, FileResult | Failed] = {}
    workers = min(workers, len(files))
    if workers <= 1:
        for number, file in enumerate(files):
            found[number] = _tried(file, order)
            if done:
                done(file)
        return [found[number] for number in range(len(files))]
    # Spawned and not forked: the same on every system, and nothing of this process's state can matter.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(_tried, file, order): number for number, file in enumerate(files)}
        for future in as_completed(waiting):
            number = waiting[future]
            found[number] = future.result()
            if done:
                done(files[number])
    return [found[number] for number in range(len(files))]


def replay_file(file: Path, order: ReplayOptions) -> FileResult:
    """The result of one file. Raises TranscriptError for one that cannot be read, and ToolsFillBudgetError for too small a window."""
    seed = _digest(file)
    contenders = [policy_named(name) for name in order.policies]
    tallies = dict.fromkeys(order.policies, ReplayTotals())
    steps: dict[str, list[Step]] = {name: [] for name in order.policies}
    conversations = messages = 0
    for number, recording in enumerate(read_recordings(file)):
        conversations += 1
        messages += len(recording.system) + len(recording.messages)
        stage = Simulation(recording, order.rules)
        for contender in contenders:
            played = stage.play(contender, seed=f"{seed}:{number}", model=order.model)
            tallies[contender.name] += played.tally
            if order.timeline:
                steps[contender.name] += played.steps
    hour = order.rules.cache == "anthropic-1h"
    return FileResult(
        file=str(file),
        conversations=conversations,
        messages=messages,
        window=order.rules.window,
        model=order.rules.model,
        policies=tuple(priced(name, tallies[name], order.price, hour=hour, steps=steps[name]) for name in order.policies),
    )


def _tried(file: Path, order: ReplayOptions) -> FileResult | Failed:
    try:
        return replay_file(file, order)
    except PromptKitError as error:
        return Failed(file=str(file), why=str(error))


def _digest(file: Path) -> str:
    """Of the content: the same recording draws the same chances, wherever it lies and whatever it is called."""
    digest = hashlib.sha256()
    try:
        with file.open("rb") as content:
            while block := content.read(BYTES):
                digest.update(block)
    except OSError:
        return ""  # what reads the file says why it cannot be read
    return digest.hexdigest()
