"""Why a request is ill-formed, in the words of the real endpoint as far as they are known."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import attrs

from promptkit.testing.server.as_chat import mapping, sequence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Problem", "check_content", "check_limits", "check_tools", "check_words"]

PARTS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "image_url": "image_url",
    "input_image": "image_url",
    "input_audio": "input_audio",
    "file": "file",
    "input_file": "",
}
"""Kind of content part → the key that it must have."""

NAME = 64  # characters of a tool's name
MOST_TOOLS = 128
HOTTEST = 2


@attrs.frozen
class Problem(Exception):  # noqa: N818  # what is wrong with a request, not with the server
    """What the endpoint answers 400 to."""

    message: str
    param: str | None = None
    code: str | None = None


def check_words(value: object, words: Collection[str], param: str) -> str:
    """One of these words. Raises Problem."""
    if isinstance(value, str) and value in words:
        return value
    listed = ", ".join(f"'{word}'" for word in words)
    message = f"Invalid value: {value!r}. Supported values are: {listed}."
    raise Problem(message, param, "invalid_value")


def check_content(content: object, kinds: Collection[str], param: str) -> None:
    """A text, or parts of these kinds. Raises Problem."""
    if isinstance(content, str):
        return
    parts = sequence(content)
    if not parts and content != []:
        wrong = "null" if content is None else f"a {type(content).__name__}"
        message = f"Invalid type for '{param}': expected one of a string or array of objects, but got {wrong} instead."
        raise Problem(message, param, "invalid_type")
    for place, part in enumerate(map(mapping, parts)):
        kind = check_words(part.get("type"), kinds, f"{param}[{place}].type")
        key = PARTS.get(kind)
        if key and key not in part:
            message = f"Missing required parameter: '{param}[{place}].{key}'."
            raise Problem(message, f"{param}[{place}].{key}", "missing_required_parameter")


def check_tools(body: Mapping[str, Any], functions: list[Mapping[str, Any]], where: str) -> None:  # Any: JSON
    """Tools with names and schemas, and no word about tools where there are none. Raises Problem."""
    if body.get("tools") is not None and not functions and body["tools"] != []:
        message = "Invalid type for 'tools': expected an array of objects."
        raise Problem(message, "tools", "invalid_type")
    if len(functions) > MOST_TOOLS:
        message = f"Invalid 'tools': array too long. Expected an array with maximum length {MOST_TOOLS}, but got {len(functions)} instead."
        raise Problem(message, "tools", "array_above_max_length")
    for place, function in enumerate(functions):
        name = function.get("name")
        param = where.replace("#", str(place))
        if (
            not isinstance(name, str)
            or not 0 < len(name) <= NAME
            or not name.replace("-", "").replace("_", "").isalnum()
            or not name.isascii()
        ):
            message = f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            raise Problem(message, param, "invalid_value")
        if not isinstance(function.get("parameters", {}), dict | None):
            message = f"Invalid schema for function '{name}': it is no object."
            raise Problem(message, param, "invalid_function_parameters")
    if functions:
        return
    for key in ("tool_choice", "parallel_tool_calls"):
        if body.get(key) is not None:
            message = f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified."
            raise Problem(message, key)


def check_limits(body: Mapping[str, Any], api: Literal["chat", "responses"], limits: Collection[str]) -> None:  # Any: as above
    """A model, known parameters, and figures in their range. Raises Problem."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        message = "you must provide a model parameter"
        raise Problem(message)
    for key in body:
        if key not in _known()[api]:
            message = f"Unknown parameter: '{key}'."
            raise Problem(message, key, "unknown_parameter")
    temperature = body.get("temperature")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= HOTTEST):
        message = f"Invalid 'temperature': expected a number between 0 and {HOTTEST}, but got {temperature!r} instead."
        raise Problem(message, "temperature")
    for key in limits:
        limit = body.get(key)
        if limit is not None and not (isinstance(limit, int) and limit > 0):
            message = f"Invalid '{key}': integer below minimum value. Expected a value >= 1, but got {limit!r} instead."
            raise Problem(message, key, "integer_below_min_value")


@cache
def _known() -> Mapping[str, frozenset[str]]:
    """The parameters that each API knows."""
    data = json.loads(files("promptkit.testing.server").joinpath("parameters.json").read_text(encoding="utf-8"))
    return {api: frozenset(names) for api, names in data.items()}
