"""Read a script from a JSON file, for a server that runs as a program and for clients in other languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override
from cattrs.v import format_exception

from promptkit.messages import Message, ToolCall, Usage, as_mapping
from promptkit.testing.server.journal import Exchange
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
    Step,
    TruncatedBody,
    echo,
    rate_limit_error,
    server_error,
)


@attrs.frozen(kw_only=True)
class Script:
    """The content of a script file, as arguments of `serve`."""

    steps: tuple[Answer, ...] = ()
    rules: tuple[Rule, ...] = ()
    faults: dict[int, Fault] = attrs.field(factory=dict[int, Fault])
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
        return _converter.structure({"steps": data} if isinstance(data, list) else data, Script)
    except (cattrs.BaseValidationError, TypeError) as error:
        raise ValueError(
            f"{path}: {'; '.join(cattrs.transform_error(error, format_exception=_describe_error))}."
        ) from error


def _describe_error(error: BaseException, kind: type | None) -> str:
    return (
        str(error)
        if isinstance(error, ValueError) and "fault" in str(error)
        else format_exception(error, kind)
    )


@attrs.frozen(kw_only=True)
class _Reply:
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Literal["stop", "tool_calls", "length", "content_filter"] | None = None
    usage: Usage | None = None


@attrs.frozen(kw_only=True)
class _RateLimited:
    retry_after: float | None = None


@attrs.frozen(kw_only=True)
class _ServerError:
    status: int = 500


_converter = cattrs.Converter(forbid_extra_keys=True)

FAULTS: Mapping[str, Callable[[Mapping[str, object]], Fault]] = {
    "delay": lambda fields: _converter.structure(fields, Delay),
    "hang": lambda fields: _converter.structure(fields, Hang),
    "http": lambda fields: _converter.structure(fields, HttpAnswer),
    "malformed": lambda fields: _converter.structure(fields, MalformedBody),
    "rate_limited": lambda fields: rate_limit_error(
        _converter.structure(fields, _RateLimited).retry_after
    ),
    "reset": lambda fields: _converter.structure(fields, ConnectionReset),
    "server_error": lambda fields: server_error(_converter.structure(fields, _ServerError).status),
    "truncated": lambda fields: _converter.structure(fields, TruncatedBody),
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
    if not (as_mapping(value) or value == {}):
        raise ValueError(f"an answer must be text, a reply or a fault, not {value!r}")
    reply = _converter.structure(value, _Reply)
    return ScriptedReply(
        message=Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls),
        finish=reply.finish,
        usage=reply.usage,
    )


for _kind in (Answer, Step, Step | None):
    _converter.register_structure_hook(_kind, _convert_answer)
_converter.register_structure_hook(Fault, _convert_fault)
_structure_call = make_dict_structure_fn(
    ToolCall,
    _converter,
    arguments=override(
        struct_hook=lambda value, _: value if isinstance(value, str) else json.dumps(value)
    ),
)
_converter.register_structure_hook(
    ToolCall, lambda value, kind: _structure_call({"id": "", **as_mapping(value)}, kind)
)
_After = Literal["echo", "refuse"]
_read_after = _converter.get_structure_hook(_After)
_plain = override(struct_hook=lambda value, _: value)
_converter.register_structure_hook(
    HttpAnswer, make_dict_structure_fn(HttpAnswer, _converter, body=_plain)
)
_converter.register_structure_hook(Rule, make_dict_structure_fn(Rule, _converter, match=_plain))
_converter.register_structure_hook(
    Script,
    make_dict_structure_fn(
        Script,
        _converter,
        after=override(
            struct_hook=lambda value, _: echo if _read_after(value, _After) == "echo" else None
        ),
    ),
)
