"""Read a script from a JSON file, for a server that runs as a program and for clients in other languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NewType, cast

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
        message = f"{path}: the file is no valid JSON ({error})."
        raise ValueError(message) from error
    try:
        read = _converter.structure({"steps": data} if isinstance(data, list) else data, _File)
    except (cattrs.BaseValidationError, TypeError) as error:
        message = (
            f"{path}: {'; '.join(cattrs.transform_error(error, format_exception=_describe_error))}."
        )
        raise ValueError(message) from error
    return Script(
        steps=cast("tuple[Answer, ...]", read.steps),  # the hooks below converted them
        # the hooks below converted them
        rules=tuple(
            Rule(match=rule.match, answer=cast("Answer", rule.answer)) for rule in read.rules
        ),
        faults=cast("dict[int, Fault]", read.faults),  # the hooks below converted them
        after=echo if read.after == "echo" else None,
    )


def _describe_error(error: BaseException, kind: type | None) -> str:
    return (
        str(error)
        if isinstance(error, ValueError) and "fault" in str(error)
        else format_exception(error, kind)
    )


AnswerJson = NewType("AnswerJson", object)
"""Marks a value for the converter as an Answer in its JSON form."""

FaultJson = NewType("FaultJson", object)
"""Marks a value for the converter as a Fault in its JSON form."""

PlainJson = NewType("PlainJson", object)
"""Marks a value for the converter as JSON to keep as it is."""


@attrs.frozen(kw_only=True)
class _Call:
    name: str
    id: str = ""
    arguments: PlainJson = attrs.field(factory=lambda: PlainJson("{}"))
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
    body: PlainJson = attrs.field(factory=lambda: PlainJson(None))
    headers: dict[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen(kw_only=True)
class _Delay:
    seconds: float
    answer: AnswerJson | None = None


@attrs.frozen(kw_only=True)
class _RateLimited:
    retry_after: float | None = None


@attrs.frozen(kw_only=True)
class _ServerError:
    status: int = 500


FAULTS: Mapping[str, type[attrs.AttrsInstance]] = {
    "delay": _Delay,
    "hang": Hang,
    "http": _Http,
    "malformed": MalformedBody,
    "rate_limited": _RateLimited,
    "reset": ConnectionReset,
    "server_error": _ServerError,
    "truncated": TruncatedBody,
}
"""Value of `"fault"` in a script file → the class that its other keys are read into."""


def _convert_fault(value: object, _: object) -> Fault:
    fields = dict(as_mapping(value))
    kind = fields.pop("fault", None)
    if not isinstance(kind, str) or kind not in FAULTS:
        problem = f"a fault must be one of {', '.join(FAULTS)}, not {kind!r}"
        raise ValueError(problem)
    match _converter.structure(fields, FAULTS[kind]):
        case _Delay(seconds=seconds, answer=answer):
            # the hook converted it
            return Delay(seconds=seconds, answer=cast("Answer | None", answer))
        case _Http(status=status, body=body, headers=headers):
            # it was read from JSON
            return HttpAnswer(status=status, body=cast("Json", body), headers=headers)
        case _RateLimited(retry_after=seconds):
            return rate_limit_error(seconds)
        case _ServerError(status=status):
            return server_error(status)
        case other:
            return cast("Fault", other)  # the other classes are faults already


def _convert_answer(value: object, kind: object) -> Answer:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and "fault" in value:
        return _convert_fault(cast("object", value), kind)  # the function checks the type itself
    reply = _converter.structure(value, _Reply)
    calls = tuple(
        ToolCall(id=call.id, name=call.name, arguments=_arguments_text(call.arguments))
        for call in reply.tool_calls
    )
    message = Message(
        role="assistant", content=(reply.text,) if reply.text else (), tool_calls=calls
    )
    return ScriptedReply(message=message, finish=reply.finish, usage=reply.usage)


def _arguments_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


_converter = make_converter(forbid_extra_keys=True)
_converter.register_structure_hook(AnswerJson, _convert_answer)
_converter.register_structure_hook(FaultJson, _convert_fault)
_converter.register_structure_hook(PlainJson, lambda value, _: value)
