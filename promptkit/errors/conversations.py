"""What can go wrong with a conversation: its transcript, its window, its summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.errors.prompts import PromptKitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Usage
    from promptkit.transcript.entries import Entry

__all__ = [
    "CompactionError",
    "CompactionRunningError",
    "CutPointError",
    "NothingToAnswerError",
    "SettingError",
    "SummaryError",
    "ThresholdError",
    "TooManyRoundsError",
    "ToolsFillBudgetError",
    "TranscriptConflictError",
    "TranscriptError",
    "TranscriptFormatError",
    "TranscriptWriteError",
    "TurnRunningError",
    "WindowFullError",
]


class TranscriptError(PromptKitError):
    """A transcript cannot be read, or an entry cannot stand where it was put."""


class TranscriptConflictError(TranscriptError):
    """Another writer has appended since the caller looked; nothing of the caller's was written. `entries` are what is new."""

    def __init__(self, expected: str, entries: Sequence[Entry]) -> None:
        behind = f"behind {expected!r}" if expected else "to an empty transcript"
        new = f"{len(entries):,} entries were" if len(entries) != 1 else "1 entry was"
        super().__init__(f"{new} appended {behind} meanwhile, so nothing was written: look at what is new, and append again.")
        self.expected = expected
        self.entries = tuple(entries)


class TranscriptWriteError(TranscriptError):
    """A batch could not be written: the disk is full, the folder read-only, another process keeps the lock. Nothing of it is there."""

    def __init__(self, message: str, *, file: str) -> None:
        super().__init__(f"{file}: {message}")
        self.file = file


class TranscriptFormatError(TranscriptError):
    """A file that is no transcript, or one of a version that this one does not know: it is left as it is. `line` counts from 1."""

    def __init__(self, message: str, *, file: str, line: int = 1) -> None:
        super().__init__(f"{file}:{line}: {message}")
        self.file = file
        self.line = line


class CompactionError(PromptKitError):
    """A conversation cannot be made smaller as it was asked for."""


class ThresholdError(CompactionError):
    """A threshold that may be meant as a share or as tokens: `setting` is its name, `value` what it was."""

    def __init__(self, *, setting: str, value: float) -> None:
        super().__init__(
            f"{setting}={value:g} is neither a share nor a number of tokens: "
            f"write a ratio above 0 and up to 1 ({value / 100:g} for {value:g} %), or at least 100 tokens."
        )
        self.setting = setting
        self.value = value


class SettingError(CompactionError):
    """A setting that cannot be taken as it was written: `source` is the file or the variable, `setting` the name, `why` the reason."""

    def __init__(self, *, source: str, setting: str, why: str) -> None:
        super().__init__(f"{source}: {setting}: {why}." if setting else f"{source}: {why}.")
        self.source = source
        self.setting = setting
        self.why = why


class ToolsFillBudgetError(CompactionError):
    """The tool definitions alone take all that a request may have: `tools` and `budget` are tokens."""

    def __init__(self, *, tools: int, budget: int) -> None:
        super().__init__(
            f"the tool definitions take {tools:,} tokens of a budget of {budget:,}, and nothing is left for messages: "
            f"offer fewer tools, or raise the threshold, the picked context size or the window."
        )
        self.tools = tools
        self.budget = budget


class CutPointError(CompactionError):
    """A conversation cannot be cut at the entry that was named: it is not shown, or its calls are still running."""

    def __init__(self, *, entry: str, why: str) -> None:
        super().__init__(f"nothing can be dropped through the entry {entry!r}: {why}.")
        self.entry = entry


class SummaryError(CompactionError):
    """No summary was to be had.

    `reason` is `nothing`, `empty`, `untagged`, `too_large`, `not_smaller`, `tool_call`, `withheld`, `does_not_fit`, `no_request`, or
    `every` for a chain of which every link failed. `usage` is what the attempts cost, as far as a model was asked and said so.
    """

    def __init__(self, *, reason: str, detail: str, usage: Usage | None = None) -> None:
        super().__init__(f"no summary: {detail}")
        self.reason = reason
        self.usage = usage


class CompactionRunningError(CompactionError):
    """A compaction was asked for while another one of the same conversation is running: wait for it, or cancel it."""

    def __init__(self) -> None:
        super().__init__("a compaction of this conversation is running: wait for it, or cancel it.")


class WindowFullError(CompactionError):
    """A conversation does not fit its window, and no summary, no pruning and no smaller request can change that; the text says why."""


class TooManyRoundsError(PromptKitError):
    """A model went on calling tools for as many requests as a turn may have. What was said is in the transcript."""

    def __init__(self, rounds: int) -> None:
        super().__init__(f"the model went on calling tools for {rounds:,} requests: raise max_rounds, or say something to it.")
        self.rounds = rounds


class TurnRunningError(PromptKitError):
    """A conversation was to go on from elsewhere while the model works on a turn, whose answer would stand behind what it does not answer."""

    def __init__(self) -> None:
        super().__init__("the model works on a turn of this conversation: wait for it or cancel it, and go on from elsewhere then.")


class NothingToAnswerError(PromptKitError):
    """A model was to be asked and there is nothing to ask: the message is empty, or the model has had the last word."""

    def __init__(self) -> None:
        super().__init__("there is nothing for the model to answer: say something that is not empty.")
