"""A script as a JSON file: for a server that runs by itself, and for clients in other languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NewType, cast

import attrs
import cattrs
from cattrs.preconf.json import make_converter
from cattrs.v import format_exception

from promptkit.messages import Json, Message, ToolCall, Usage
from promptkit.testing.server.replies import (
    Answer,
    Delay,
    Fault,
    Hang,
    HttpAnswer,
    Malformed,
    Reset,
    Rule,
    Scripted,
    Truncated,
    echo,
    rate_limited,
    server_error,
)

if TYPE_CHECKING:
    from promptkit.testing.server.journal import Exchange

__all__ = ["Script", "read_script"]


@attrs.frozen(kw_only=True)
class Script:
    """What a file says: arguments of `serve`."""

    steps: tuple[Answer, ...] = ()
    rules: tuple[Rule, ...] = ()
    faults: Mapping[int, Fault] = attrs.field(factory=dict[int, "Fault"])
    after: Callable[[Exchange], Answer] | None = None


def read_script(path: Path) -> Script:
    """The script in a file: a list of steps, or an object with `steps`, `rules`, `faults` and `after`.

    Raises OSError, and ValueError, in one line and with the place, for what is no script.
    """
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        message = f"{path}: it is no JSON that can be read ({error})."
        raise ValueError(message) from error
    try:
        read = _convert.structure({"steps": data} if isinstance(data, list) else data, _File)
    except (cattrs.BaseValidationError, TypeError) as error:
        message = f"{path}: {'; '.join(cattrs.transform_error(error, format_exception=_told))}."
        raise ValueError(message) from error
    return Script(
        steps=cast("tuple[Answer, ...]", read.steps),  # the hooks below made them so
        rules=tuple(Rule(match=rule.match, answer=cast("Answer", rule.answer)) for rule in read.rules),  # likewise
        faults=cast("dict[int, Fault]", read.faults),  # likewise
        after=echo if read.after == "echo" else None,
    )


def _told(error: BaseException, kind: type | None) -> str:
    return str(error) if isinstance(error, ValueError) and "fault" in str(error) else format_exception(error, kind)


AnAnswer = NewType("AnAnswer", object)
"""To the converter: an Answer in its JSON form."""

AFault = NewType("AFault", object)
"""To the converter: a Fault in its JSON form."""

AnyJson = NewType("AnyJson", object)
"""To the converter: JSON that stays as it is."""


@attrs.frozen(kw_only=True)
class _Call:
    name: str
    id: str = ""
    arguments: AnyJson = attrs.field(factory=lambda: AnyJson("{}"))
    """Text as it is, or an object."""


@attrs.frozen(kw_only=True)
class _Reply:
    text: str = ""
    tool_calls: tuple[_Call, ...] = ()
    finish: Literal["stop", "tool_calls", "length", "content_filter"] | None = None
    usage: Usage | None = None


@attrs.frozen(kw_only=True)
class _Rule:
    match: str
    answer: AnAnswer


@attrs.frozen(kw_only=True)
class _File:
    steps: tuple[AnAnswer, ...] = ()
    rules: tuple[_Rule, ...] = ()
    faults: dict[int, AFault] = attrs.field(factory=dict[int, AFault])
    after: Literal["echo", "refuse"] = "refuse"


@attrs.frozen(kw_only=True)
class _Http:
    status: int
    body: AnyJson = attrs.field(factory=lambda: AnyJson(None))
    headers: dict[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen(kw_only=True)
class _Delay:
    seconds: float
    answer: AnAnswer | None = None


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
    "malformed": Malformed,
    "rate_limited": _RateLimited,
    "reset": Reset,
    "server_error": _ServerError,
    "truncated": Truncated,
}
"""What `{"fault": …}` may say."""


def _fault(value: object, _: object) -> Fault:
    given = dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else {}  # JSON has no other keys
    kind = given.pop("fault", None)
    if not isinstance(kind, str) or kind not in FAULTS:
        problem = f"a fault is one of {', '.join(FAULTS)}, not {kind!r}"
        raise ValueError(problem)
    match _convert.structure(given, FAULTS[kind]):
        case _Delay(seconds=seconds, answer=answer):
            return Delay(seconds=seconds, answer=cast("Answer | None", answer))  # the hook made it one
        case _Http(status=status, body=body, headers=headers):
            return HttpAnswer(status=status, body=cast("Json", body), headers=headers)  # it was read from JSON
        case _RateLimited(retry_after=seconds):
            return rate_limited(seconds)
        case _ServerError(status=status):
            return server_error(status)
        case other:
            return cast("Fault", other)  # the other classes stand for themselves


def _answer(value: object, kind: object) -> Answer:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and "fault" in value:
        return _fault(cast("object", value), kind)  # which narrows it itself
    reply = _convert.structure(value, _Reply)
    calls = tuple(ToolCall(id=call.id, name=call.name, arguments=_text(call.arguments)) for call in reply.tool_calls)
    message = Message(role="assistant", content=(reply.text,) if reply.text else (), tool_calls=calls)
    return Scripted(message=message, finish=reply.finish, usage=reply.usage)


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


_convert = make_converter(forbid_extra_keys=True)
_convert.register_structure_hook(AnAnswer, _answer)
_convert.register_structure_hook(AFault, _fault)
_convert.register_structure_hook(AnyJson, lambda value, _: value)
