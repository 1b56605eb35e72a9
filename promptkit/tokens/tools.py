"""What tools cost: their definitions, a forced choice, calls and results, for one way of counting text.

The figures are fitted to billed requests that others published (the two projects named in `declarations.py`; OpenAI cookbook,
"How to count tokens with tiktoken"), and meet all of those: definitions, choices, messages with one call, and the one with two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from promptkit.tokens.declarations import Dialect, declarations, is_plain
from promptkit.tokens.tokenizer import Count

if TYPE_CHECKING:
    from promptkit.messages import Json, ToolCall, ToolDefinition

__all__ = ["SYSTEM_SAVES", "call_tokens", "choice_tokens", "definition_tokens", "line_break"]

Counter: TypeAlias = Callable[[str], int]

SYSTEM_SAVES = 4
"""Definitions stand in the system message; if the request has one anyway, its framing is not needed twice."""

_DEFINITIONS: Mapping[Dialect, int] = {"functions": 9, "tools": 2}
_CALL = 10  # the framing of a message with a call, and what names the tool in the call and in its result
_PARALLEL = 9  # one billed request with two calls is known; more are taken to cost as much apiece
_NO_CHOICE = 1
_CHOICE = 4


def definition_tokens(tools: Sequence[ToolDefinition], count: Counter, dialect: Dialect = "tools") -> Count:
    """The tokens of tool definitions, without a system message.

    Exact for schemas of the keywords that the fitted requests have. Others, such as `$ref`, cost at least what is known of them
    and at least their JSON, so that the estimate is rather too high.
    """
    if not tools:
        return Count(0)
    tokens = count(declarations(tools, dialect)) + _DEFINITIONS[dialect]
    odd = [tool for tool in tools if not is_plain(tool)]
    tokens += sum(max(0, count(_json(tool)) - count(declarations([tool], dialect))) for tool in odd)
    return Count(tokens, exact=not odd)


def _json(tool: ToolDefinition) -> str:
    return json.dumps([tool.name, tool.description, tool.parameters], ensure_ascii=False, default=str)


def choice_tokens(choice: Json, count: Counter) -> int:
    """The tokens of `tool_choice` or `function_call`: `"none"`, `"auto"`, or a mapping that names a tool."""
    if isinstance(choice, Mapping):
        inner = choice.get("function", choice)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        return _CHOICE + count(name) if isinstance(name, str) else 0
    return _NO_CHOICE if choice == "none" else 0


def line_break(text: str, count: Counter) -> int:
    r"""What it costs that definitions stand behind the text of the first system message: its `"\n"`, often one token, often none."""
    return count(f"{text}\n") - count(text)


def call_tokens(calls: Sequence[ToolCall], count: Counter) -> Count:
    """The tokens of a message that has these calls and no text, its framing included.

    Arguments stand in the prompt as compact JSON. Exact for one call.
    """
    tokens = sum(_CALL + 2 * count(call.name) + count(_compact(call.arguments)) for call in calls)
    return Count(tokens + _PARALLEL if len(calls) > 1 else tokens, exact=len(calls) <= 1)


def _compact(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments
