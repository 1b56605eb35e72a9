"""Read a script from a JSON file, for a server that runs as a program and for clients in other languages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NewType, TypeAlias, TypeVar

import attrs
import cattrs
from cattrs.preconf.json import make_converter
from cattrs.v import format_exception

from promptkit.messages import Json, Message, ToolCall, Usage, as_mapping
from promptkit.testing.server.replies import (
    Answer,
    ConnectionReset,
    Delay,
    Fault,
    Hang,
    HttpAnswer,
    MalformedBody,
    Rule,
    ScriptedReply,
    TruncatedBody,
    echo,
    rate_limit_error,
    server_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from promptkit.testing.server.journal import Exchange


@attrs.frozen(kw_only=True)
class Script:
    """The content of a script file, as arguments of `serve`."""

    steps: tuple[Answer, ...] = ()
    rules: tuple[Rule, ...] = ()
    faults: Mapping[int, Fault] = attrs.field(factory=dict[int, "Fault"])
    after: Callable[[Exchange], Answer] | None = None


def read_script(path: Path) -> Script:
    """Read a script: a list of steps, or an object with `steps`, `rules`, `faults` and `after`.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no script. The message has one line and names the place.
    """
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the file is no valid JSON ({error}).") from error
    try:
        read = _converter.structure({"steps": data} if isinstance(data, list) else data, _File)
    except (cattrs.BaseValidationError, TypeError) as error:
        raise ValueError(
            f"{path}: {'; '.join(cattrs.transform_error(error, format_exception=_describe_error))}."
        ) from error
    return Script(
        steps=read.steps,
        rules=tuple(Rule(match=rule.match, answer=rule.answer) for rule in read.rules),
        faults=read.faults,
        after=echo if read.after == "echo" else None,
    )


def _describe_error(error: BaseException, kind: type | None) -> str:
    return (
        str(error)
        if isinstance(error, ValueError) and "fault" in str(error)
        else format_exception(error, kind)
    )


if TYPE_CHECKING:
    AnswerJson: TypeAlias = Answer
    FaultJson: TypeAlias = Fault
    PlainJson: TypeAlias = Json
else:  # marks of the types that the converter has a hook of its own for
    AnswerJson = NewType("AnswerJson", object)
    FaultJson = NewType("FaultJson", object)
    PlainJson = NewType("PlainJson", object)


@attrs.frozen(kw_only=True)
class _Call:
    name: str
    id: str = ""
    arguments: PlainJson = "{}"
    """JSON as text, or an object."""


@attrs.frozen(kw_only=True)
class _Reply:
    text: str = ""
    tool_calls: tuple[_Call, ...] = ()
    finish: Literal["stop", "tool_calls", "length", "content_filter"] | None = None
    usage: Usage | None = None


@attrs.frozen(kw_only=True)
class _Rule:
    match: str
    answer: AnswerJson


@attrs.frozen(kw_only=True)
class _File:
    steps: tuple[AnswerJson, ...] = ()
    rules: tuple[_Rule, ...] = ()
    faults: dict[int, FaultJson] = attrs.field(factory=dict[int, FaultJson])
    after: Literal["echo", "refuse"] = "refuse"


@attrs.frozen(kw_only=True)
class _Http:
    status: int
    body: PlainJson = None
    headers: dict[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen(kw_only=True)
class _Delay:
    seconds: float = 0
    between: float = 0
    answer: AnswerJson | None = None


@attrs.frozen(kw_only=True)
class _RateLimited:
    retry_after: float | None = None


@attrs.frozen(kw_only=True)
class _ServerError:
    status: int = 500


T = TypeVar("T")


def _reader(form: type[T], build: Callable[[T], Fault]) -> Callable[[Mapping[str, object]], Fault]:
    return lambda fields: build(_converter.structure(fields, form))


FAULTS: Mapping[str, Callable[[Mapping[str, object]], Fault]] = {
    "delay": _reader(
        _Delay,
        lambda read: Delay(seconds=read.seconds, between=read.between, answer=read.answer),
    ),
    "hang": _reader(Hang, lambda read: read),
    "http": _reader(
        _Http, lambda read: HttpAnswer(status=read.status, body=read.body, headers=read.headers)
    ),
    "malformed": _reader(MalformedBody, lambda read: read),
    "rate_limited": _reader(_RateLimited, lambda read: rate_limit_error(read.retry_after)),
    "reset": _reader(ConnectionReset, lambda read: read),
    "server_error": _reader(_ServerError, lambda read: server_error(read.status)),
    "truncated": _reader(TruncatedBody, lambda read: read),
}
"""Value of `"fault"` in a script file → a function that reads its other keys."""


def _convert_fault(value: object, _: object) -> Fault:
    fields = dict(as_mapping(value))
    kind = fields.pop("fault", None)
    if not isinstance(kind, str) or kind not in FAULTS:
        raise ValueError(f"a fault must be one of {', '.join(FAULTS)}, not {kind!r}")
    return FAULTS[kind](fields)


def _convert_answer(value: object, kind: object) -> Answer:
    if isinstance(value, str):
        return value
    if "fault" in as_mapping(value):
        return _convert_fault(value, kind)
    reply = _converter.structure(value, _Reply)
    calls = tuple(
        ToolCall(
            id=call.id,
            name=call.name,
            arguments=call.arguments
            if isinstance(call.arguments, str)
            else json.dumps(call.arguments),
        )
        for call in reply.tool_calls
    )
    message = Message(role="assistant", content=reply.text, tool_calls=calls)
    return ScriptedReply(message=message, finish=reply.finish, usage=reply.usage)


_converter = make_converter(forbid_extra_keys=True)
_converter.register_structure_hook(AnswerJson, _convert_answer)
_converter.register_structure_hook(FaultJson, _convert_fault)
_converter.register_structure_hook(PlainJson, lambda value, _: value)
