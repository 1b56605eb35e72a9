"""What a job is, and the jobs that the command line runs over many files: replay, fit and import.

Jobs and what they return are values that other processes receive and send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import quote

import attrs
import cattrs

from promptkit.errors import PromptKitError, TranscriptWriteError
from promptkit.fitting.fit import fit, format_ranges
from promptkit.lab.recordings import (
    AUTO,
    import_recording,
    read_recording,
    to_anthropic_json,
    to_chat_json,
)
from promptkit.lab.recordings.reading.remote import fetch_file
from promptkit.lab.replay import FileResult, Recording, ReplayOptions, read_recordings
from promptkit.lab.replay.prompt_cache import count_overhead
from promptkit.lab.replay.results import result_rows
from promptkit.lab.replay.runner import hash_recording, replay_conversations, sum_results
from promptkit.messages import Json
from promptkit.reprs import describe_fields
from promptkit.tokens import tokenizer_for
from promptkit.tokens.tokenizer import count_message
from promptkit.transcript import open_store
from promptkit.transcript.stores.addresses import is_url
from promptkit.wire import tools_to_anthropic, tools_to_chat


@attrs.frozen(kw_only=True)
class FileRows:
    """The rows of a file, and what is added up over all files."""

    rows: Sequence[Mapping[str, object]] = ()
    """Rows of the output. Their values are JSON. A row with an `error` tells why there is no
    other."""
    totals: Json = None

    __repr__ = describe_fields


class CorpusJob(Protocol):
    """Works on the files of a corpus, one at a time.

    A frozen value that can be pickled; its `repr` tells one job from another.
    """

    def run(self, file: str) -> FileRows:
        """Work on a file. An exception becomes a row with the file's name and an `error`."""
        ...


@attrs.frozen(kw_only=True)
class ReplayJob:
    """Replay the conversations of each file: a row for each conversation and policy.

    >>> run_job(ReplayJob(options=options), ["logs/*.jsonl"], "replay.jsonl", executor=engine)
    """

    options: ReplayOptions

    def run(self, file: str) -> FileRows:
        """Replay a file. Its totals are its `FileResult`, which `read_totals` reads."""
        results = list(replay_conversations(file, self.options))
        return FileRows(
            rows=[
                row for number, result in enumerate(results) for row in result_rows(result, number)
            ],
            totals=cattrs.unstructure(sum_results(results, self.options, file=file)),
        )

    @staticmethod
    def read_totals(totals: Json) -> FileResult:
        """Return the result of a file from its totals."""
        return cattrs.structure(totals, FileResult)


@attrs.frozen(kw_only=True)
class FitJob:
    """Make a window of each conversation: a row with its messages, and a receipt of what was kept.

    >>> run_job(FitJob(budget=8_000, model="gpt-5"), ["logs/*.jsonl"], "windows.jsonl", executor=engine)
    """

    budget: int | None = None
    """The most tokens of a window. None: the context window of the model, less the tokens reserved
    for the reply."""
    model: str | None = None
    """Decides the tokenizer. None: o200k_base with OpenAI's framing."""
    to: Literal["chat", "anthropic"] = "chat"
    """The format of the messages."""
    keep: Literal["newest", "oldest"] = "newest"
    """The rounds that stay longest."""
    shorten: bool = True
    """Whether messages may be shortened. Otherwise rounds are kept whole, or removed."""

    def run(self, file: str) -> FileRows:
        """Make the windows of a file.

        A conversation that does not fit has a row with an `error`.
        """
        with fetch_file(file) as place:
            source = {"file": file, "sha256": hash_recording(place)}
            return FileRows(
                rows=[
                    {**source, "conversation": number, **self._make_window(recording)}
                    for number, recording in enumerate(read_recordings(place, address=file))
                ]
            )

    def _make_window(self, recording: Recording) -> dict[str, object]:
        messages = (*recording.system, *recording.messages)
        tokenizer = tokenizer_for(self.model)
        try:
            fitted = fit(
                messages,
                budget=self.budget,
                model=self.model,
                tools=recording.tools,
                keep=self.keep,
                shorten=self.shorten,
            )
            window = (
                to_chat_json(fitted.messages)
                if self.to == "chat"
                else to_anthropic_json(fitted.messages)
            )
        except PromptKitError as error:
            return {"error": str(error)}
        convert_tools = tools_to_chat if self.to == "chat" else tools_to_anthropic
        return {
            **({"messages": window} if isinstance(window, list) else window),
            **({"tools": convert_tools(recording.tools)} if recording.tools else {}),
            "tokens": fitted.tokens,
            # The tokenizer has counted most of these messages already, and keeps the counts.
            "tokens_before": count_overhead(tokenizer, recording.tools, recording.system)
            + sum(count_message(message, tokenizer) for message in messages),
            "exact": fitted.exact,
            "budget": fitted.budget,
            "model": self.model,
            "tokenizer": tokenizer.name,
            "messages_before": len(messages),
            "kept": format_ranges(fitted.kept),
            "changed": format_ranges(fitted.changed),
            "removed": format_ranges(fitted.removed),
            "repairs": len(fitted.repairs),
        }


@attrs.frozen(kw_only=True)
class ImportJob:
    """Write each recording as a transcript: a row with its counts.

    >>> run_job(ImportJob(out="talks", root="logs/"), ["logs/**/*.jsonl"], "counts.jsonl", executor=engine)
    """

    out: str | None = None
    """The folder of the transcripts, which every worker must see, or the URL of a place for
    conversations. None: only count."""
    root: str = ""
    """The beginning of the files' names that is left out of the names of the transcripts. See
    `find_root`."""
    format_name: str = AUTO
    """The format of all files, a name in `FORMATS`. By default it is recognized."""

    def run(self, file: str) -> FileRows:
        """Import a file."""
        target = self.find_target(file)
        if isinstance(target, Path):
            if not target.resolve().is_relative_to(Path(self.out or "").resolve()):
                raise TranscriptWriteError(f"a link leads out of {self.out}.", file=str(target))
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            result = import_recording(
                file, target, format_name=self.format_name, overwrite=isinstance(target, Path)
            )
        except TranscriptWriteError:
            # A worker that died after it wrote the conversation, and before it said so, has left
            # the same entries.
            batches = read_recording(file, format_name=self.format_name)
            if not isinstance(target, str) or open_store(target).load().entries != tuple(
                entry for _, batch in batches for entry in batch.entries
            ):
                raise
            result = import_recording(file, format_name=self.format_name)
        counts: dict[str, Json] = attrs.asdict(result.counts)
        return FileRows(
            rows=[
                {
                    "file": file,
                    **({} if target is None else {"transcript": str(target)}),
                    "format": result.format,
                    "entries": result.entries,
                    **counts,
                }
            ],
            totals=counts,
        )

    def find_target(self, file: str) -> Path | str | None:
        """Return where the transcript of a file is written; None if it is not."""
        if self.out is None:
            return None
        name = self._make_name(file)
        return (
            f"{self.out}#{quote(name.removesuffix('.jsonl'), safe='')}"
            if is_url(self.out)
            else Path(self.out, name)
        )

    def _make_name(self, file: str) -> str:
        """Return the path of a transcript below the output. Nothing in it leads out of there."""
        parts = [
            part
            for part in file.removeprefix(self.root).replace("\\", "/").replace("#", "/").split("/")
            if part not in ("", ".")
        ]
        name = "/".join("__" if part == ".." else part.replace(":", "") for part in parts)
        return name if name.endswith(".jsonl") else f"{name}.jsonl"
