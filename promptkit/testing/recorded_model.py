"""A model whose replies are recorded once, and then replayed without the model, so that tests of agents use real replies."""

from __future__ import annotations

import copy
import getpass
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Unpack

import anyio
import attrs
import cattrs

from promptkit import Message, ToolDefinition, Usage
from promptkit.compaction.planning.breadcrumb import BREADCRUMB_LOCATION
from promptkit.errors import ContextLengthExceededError, InvalidArgumentError, TranscriptError
from promptkit.files import write_output
from promptkit.providers.model import (
    COMPACTION,
    Finish,
    Model,
    ModelOptions,
    Reply,
    pass_text,
    with_options,
)
from promptkit.reprs import describe
from promptkit.testing.snapshots.documents import (
    HttpRequest,
    MachineFolders,
    StabilizeOptions,
    Stabilizer,
    format_request,
    shorten_media,
)
from promptkit.testing.snapshots.markdown import diff_lines, fence_json, show_first
from promptkit.tokens.models import model_name
from promptkit.transcript import (
    Redactor,
    message_from_json,
    message_to_json,
    redact_message,
    redact_secrets,
)

KEY_OPTIONS = (
    "temperature",
    "max_output_tokens",
    "reasoning_effort",
    "tool_choice",
    "parallel_tool_calls",
)
"""The options that a reply depends on. The others say how a request is sent."""

REPLY = "\n# Reply\n\n"
"""What is between a request and its reply in a file. The reply's own lines never look like it."""

_ANSWER = re.compile(r"(`{3,})json\n(.*)\n\1\s*", re.DOTALL)

MAX_LINES = 100
"""Lines of a difference that an error shows."""


@attrs.define
class NotRecordedError(AssertionError):
    """A RecordedModel that replays received a request that it has no record of."""

    folder: Path
    nearest: Path
    """The file of the record that differs least."""
    difference: Sequence[str]
    """The lines that differ, each place under the headings of its message, part or tool."""

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.folder} has no record of this request. If the request is right, delete the folder and record it again.",
                f"Compared with the nearest record, {self.nearest}:",
                *show_first(self.difference, MAX_LINES),
            )
        )


@attrs.frozen(kw_only=True)
class _Refusal:
    """A refusal of a request that was too large, which a session answers with a smaller one."""

    message: str
    tokens: int | None = None
    window: int | None = None
    status: int | None = None
    code: str | None = None


@attrs.frozen(kw_only=True)
class _Answer:
    """The answer to a request, as it is written."""

    message: Message = attrs.field(factory=partial(Message, role="assistant"))
    usage: Usage = attrs.field(factory=partial(Usage, input_tokens=0))
    finish: Finish = "stop"
    refusal: _Refusal | None = None

    def replay(self) -> Reply:
        """Return the reply. Raises ContextLengthExceededError if the request was refused."""
        if self.refusal is not None:
            raise ContextLengthExceededError(**attrs.asdict(self.refusal))
        return Reply(message=self.message, usage=self.usage, finish=self.finish)


_convert = cattrs.Converter(omit_if_default=True)
_convert.register_unstructure_hook(Message, message_to_json)
_convert.register_structure_hook(Message, lambda value, _: message_from_json(value))


@attrs.frozen
class _Record:
    path: Path
    request: str
    answer: _Answer


class RecordedModel:
    """A model whose replies are recorded once in a folder, and then replayed from it without the model.

    If the folder has no records, each request is sent to the model, and a file with the request and
    the reply is written. If it has records, the model is never asked: a request without a record
    raises NotRecordedError. Delete the folder to record again.

    A request is recognized by what the model is shown: messages, tools, and the options that a
    reply depends on. Ids, dates, times, this machine's folders, the transcript's place in a summary
    and secrets do not count, and secrets are not written. A request that was recorded a moment ago,
    or is being recorded, is not sent again: it gets the same reply. A refusal of a request that was
    too large is recorded too; other errors are not.

    >>> model = RecordedModel(OpenAIModel("gpt-5"), Path(__file__).parent / "records" / "review")
    """

    def __init__(
        self,
        model: Model | str,
        folder: str | os.PathLike[str],
        *,
        redactor: Redactor = redact_secrets,
    ) -> None:
        """Read the records of a folder.

        Args:
            model: The model that is recorded; or its name, with which nothing can be recorded.
            folder: The folder of the records, of one test or one program.
            redactor: Removes secrets, and what else must not count, from all texts.

        Raises:
            InvalidArgumentError: A file in the folder is no record, or the folder has none although
                only the model's name is given.
        """
        self.name = model_name(model)
        self.provider = None if isinstance(model, str) else getattr(model, "provider", None)
        self.folder = Path(folder)
        self._redactor = redactor
        self.options: ModelOptions = {}
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._records = {
            record.request: record for record in map(_read_record, sorted(self.folder.glob("*.md")))
        }
        self._model = None if self._records or isinstance(model, str) else model
        if not self._records and self._model is None:
            raise InvalidArgumentError(
                f"{self.folder} has no records: give RecordedModel the model object instead of {model!r} once, to record."
            )

    def __repr__(self) -> str:
        return describe(self, name=self.name, folder=str(self.folder), records=self._records)

    def with_options(self, **options: Unpack[ModelOptions]) -> Model:
        """Return the same model with these options, over the same records."""
        changed = copy.copy(self)
        changed.options = {**self.options, **options}
        return changed

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Return the recorded reply, or record one.

        Raises:
            NotRecordedError: There is no record of the request.
            ContextLengthExceededError: The model refused the request as too large.
        """
        request = self._format(messages, tools)
        if self._model is not None:
            async with self._locks[request]:
                if request not in self._records:
                    return await self._record(request, self._model, messages, tools)
        if (record := self._records.get(request)) is None:
            difference, path = min(
                [(diff_lines(each.request, request), each.path) for each in self._records.values()],
                key=lambda each: len(each[0]),
            )
            raise NotRecordedError(self.folder, path, tuple(difference))
        return pass_text(record.answer.replay(), self.options)

    async def _record(
        self,
        request: str,
        model: Model,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
    ) -> Reply:
        try:
            reply = await with_options(model, **self.options).complete(messages, tools=tools)
        except ContextLengthExceededError as error:
            self._write(
                request,
                _Answer(
                    refusal=_Refusal(
                        message=self._redactor(str(error)),
                        tokens=error.tokens,
                        window=error.window,
                        status=error.status,
                        code=error.code,
                    )
                ),
            )
            raise
        self._write(
            request,
            _Answer(
                message=redact_message(reply.message, self._redactor),
                usage=reply.usage,
                finish=reply.finish,
            ),
        )
        return reply

    def _write(self, request: str, answer: _Answer) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        key = sha256(request.encode(errors="surrogatepass")).hexdigest()[:12]
        path = self.folder / f"{len(self._records) + 1:03}-{key}.md"
        text = f"{request}{REPLY}{fence_json(_convert.unstructure(answer))}\n"
        write_output(path, lambda file: file.write(text.encode()), mode=0o666)
        self._records[request] = _Record(path, request, answer)

    def _format(self, messages: Sequence[Message], tools: Sequence[ToolDefinition]) -> str:
        stabilizer = Stabilizer(
            StabilizeOptions(
                functions=(_hide_location,), ids=True, dates=True, find_folders=_find_folders
            )
        )
        # The limit of a summary is what the window leaves: it varies with the ids in the conversation.
        left_out = "max_output_tokens" if self.options.get("purpose") == COMPACTION else None
        body = {
            "model": self.name,
            **{
                name: value
                for name, value in self.options.items()
                if name in KEY_OPTIONS and name != left_out
            },
            "tools": [attrs.asdict(tool) for tool in tools],
            "messages": [
                message_to_json(message) for message in stabilizer.stabilize_messages(messages)
            ],
        }
        return format_request(
            HttpRequest(body=json.loads(json.dumps(body), object_pairs_hook=shorten_media)),
            stabilizer,
            redactor=self._redactor,
        )


def _read_record(path: Path) -> _Record:
    request, _, rest = path.read_text(encoding="utf-8").rpartition(REPLY)
    written = _ANSWER.fullmatch(rest)
    try:
        answer = _convert.structure(json.loads(written[2] if written else ""), _Answer)
    except (cattrs.BaseValidationError, TranscriptError, ValueError):
        raise InvalidArgumentError(
            f"{path} is no record of a request and its reply: delete it, or the folder to record again."
        ) from None
    return _Record(path, request, answer)


def _hide_location(text: str) -> str:
    """Replace the place of the transcript that a summary names, and leave out the number of its entries.

    A test has a transcript of its own, and a replayed summary is written earlier.
    """
    for found in BREADCRUMB_LOCATION.finditer(text):
        text = text.replace(found[0], f"{found[1]}.")
        text = text.replace(found[1], '"<transcript>"')  # an example call may name it again
    return text


def _find_folders() -> MachineFolders:
    temporary = Path(tempfile.gettempdir())
    return MachineFolders(
        root=Path.cwd(),
        home=Path.home(),
        temporary=temporary,
        pytest=temporary / f"pytest-of-{getpass.getuser()}",
    )
