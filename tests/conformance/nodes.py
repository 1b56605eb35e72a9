"""From a job's language-neutral spec to a promptkit tree."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from promptkit.elements.builtin import (
    AssistantMessage,
    CacheBreakpoint,
    Chunk,
    Document,
    Expandable,
    Group,
    IfEmpty,
    Image,
    KeepWith,
    LegacyPrioritization,
    Metadata,
    Opaque,
    PrioritizedList,
    Reference,
    SystemMessage,
    TextChunk,
    TokenLimit,
    ToolMessage,
    UserMessage,
)
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.messages import ToolCall
from promptkit.rendering.serialize import from_json, to_json
from tests.conformance.schema import Node, Spec, is_fragment, is_node

if TYPE_CHECKING:
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["MAX_SAFE_INTEGER", "ComponentError", "Context", "build"]

MAX_SAFE_INTEGER = 2**53 - 1
LONGEST_ARRAY = 2**32 - 1

Props: TypeAlias = dict[str, Any]  # of whichever element


class ComponentError(Exception):
    """What a component of the harness raises itself."""


class Context:
    """What one render of a job shares: its tokenizer, and the budgets that its Expandables were given, in order."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.sizings: list[str] = []
        self.priority: float | None = None
        """Of the element whose children are being built."""


@component
class Wrap(PromptElement):
    """A plain user component."""

    def render(self, sizing: Sizing) -> Child:
        return self.children


@component
class Empty(PromptElement):
    """Renders nothing."""

    def render(self, sizing: Sizing) -> Child:
        return None


@component
class Throws(PromptElement):
    """Fails."""

    def render(self, sizing: Sizing) -> Child:
        raise ComponentError("test error")


@component
class Echo(PromptElement):
    """Says what its budget is."""

    key: str
    prefixes: tuple[str, ...] = ()
    in_message: bool = False

    def render(self, sizing: Sizing) -> Child:
        parts = (*self.prefixes, f"{self.key}={sizing.token_budget}")
        return UserMessage()[parts] if self.in_message else parts


@component
class Fill(PromptElement):
    """Fills its budget with words."""

    word: str = "w"
    most: float = math.inf
    factor: float = 1
    plus: int = 0

    def render(self, sizing: Sizing) -> Child:
        wanted = max(0, min(self.most, math.floor(sizing.token_budget * self.factor) + self.plus))
        if wanted > LONGEST_ARRAY:
            raise ComponentError("Invalid array length")
        return " ".join([self.word] * int(wanted))


def build(node: Spec, context: Context) -> Child:
    """The child that a spec describes."""
    if node is None or isinstance(node, bool):
        return None
    if isinstance(node, str | int | float):
        return _text(node)
    if is_fragment(node):
        return tuple(build(each, context) for each in node)
    return _BUILDERS[node["type"]](node, context)


def _text(value: str | float) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _children(node: Node, context: Context) -> Child:
    given = (
        node["children"]
        if node.get("children") is not None
        else ([node["text"]] if "text" in node else [])
    )
    outer = context.priority
    if node["type"] != "fragment":
        context.priority = node.get("priority")
    try:
        return tuple(build(each, context) for each in given)
    finally:
        context.priority = outer


def _props(node: Node) -> Props:
    names = {
        "priority": "priority",
        "flexGrow": "flex_grow",
        "flexReserve": "flex_reserve",
        "flexBasis": "flex_basis",
        "passPriority": "pass_priority",
    }
    return {ours: node[theirs] for theirs, ours in names.items() if node.get(theirs) is not None}


def _picked(node: Node, **names: str) -> Props:
    """Props that are called differently here: ours=theirs."""
    return {ours: node[theirs] for ours, theirs in names.items() if node.get(theirs) is not None}


def _plain(cls: Callable[..., PromptElement], **names: str) -> Callable[[Node, Context], Child]:
    return lambda node, context: cls(**_props(node), **_picked(node, **names))[
        _children(node, context)
    ]


def _childless(cls: Callable[..., PromptElement], **names: str) -> Callable[[Node, Context], Child]:
    return lambda node, context: cls(**_props(node), **_picked(node, **names))


def _fragment(node: Node, context: Context) -> Child:
    return _children(node, context)


def _assistant(node: Node, context: Context) -> Child:
    calls: list[Node] = node.get("toolCalls") or []
    return AssistantMessage(
        tool_calls=[
            ToolCall(id=call["id"], name=call["name"], arguments=call.get("arguments") or "")
            for call in calls
        ],
        keep_with={
            call["id"]: call["keepWith"] for call in calls if call.get("keepWith") is not None
        },
        **_props(node),
        **_picked(node, name="name"),
    )[_children(node, context)]


def _tool(node: Node, context: Context) -> Child:
    # `name` is left out: the reference takes it and does not send it.
    return ToolMessage(tool_call_id=node.get("toolCallId") or "", **_props(node))[
        _children(node, context)
    ]


def _text_chunk(node: Node, context: Context) -> Child:
    props = _props(node)
    if node.get("breakOnWhitespace"):
        props["break_on_whitespace"] = True
    elif node.get("breakOnRegex") is not None:
        props["break_on"] = re.compile(node["breakOnRegex"])
    elif node.get("breakOn"):
        props["break_on"] = node["breakOn"]
    return TextChunk(**props)[_children(node, context)]


def _list(node: Node, context: Context) -> Child:
    # JavaScript's falsy children are passed over by the reference's list, though they count as
    # places.
    given: list[Spec] = [
        child if child not in ("", 0) else None for child in node.get("children") or ()
    ]
    top, count = node.get("priority") or 0, len(given)
    ranked: list[Spec] = [
        {**child, "priority": top - index if node.get("descending") else top - count + index}
        if is_node(child)
        else child
        for index, child in enumerate(given)
    ]
    return PrioritizedList(**_props(node), **_picked(node, descending="descending"))[
        [build(child, context) for child in ranked]
    ]


def _if_empty(node: Node, context: Context) -> Child:
    # Its two sides stand in wrappers without a priority.
    alternative, given = (
        _children({"type": "wrap", "children": side}, context)
        for side in ([node.get("alt")], node.get("children"))
    )
    return IfEmpty(alt=alternative, **_props(node))[given]


def _expandable(node: Node, context: Context) -> Child:
    word = node.get("word", "e")
    most, least, over = node.get("max", math.inf), node.get("min", 0), node.get("over", 0)

    def value(sizing: Sizing) -> str:
        budget = sizing.token_budget
        context.sizings.append(f"{node.get('name') or word}={budget}")
        if node.get("constant") is not None:
            return str(node["constant"])
        wanted = max(least, min(most, budget + over))
        if not 0 <= wanted <= LONGEST_ARRAY:
            raise ComponentError("Invalid array length")
        return " ".join([word] * int(wanted))

    return Expandable(value=value, **_props(node))


def _echo(node: Node, context: Context) -> Child:
    prefixes = [f"consume={_text(node['consume'])}, "] if "consume" in node else []
    if node.get("use"):
        prefixes.append(" ".join(["u"] * node["use"]) + " ")
    key = node.get("name", "undefined")
    return Echo(
        key=_text(key),
        prefixes=tuple(prefixes),
        in_message=bool(node.get("message")),
        **_props(node),
    )


def _opaque(node: Node, context: Context) -> Child:
    # To the reference an opaque part is no element: like bare text it has the priority of the
    # element around it.
    priority = context.priority if node.get("priority") is None else node["priority"]
    return Opaque(
        value=node.get("value"),
        **_props({"priority": priority}),
        **_picked(node, tokens="tokenUsage"),
    )


def _line_break(node: Node, context: Context) -> Child:
    return "\n"


def _embedded(node: Node, context: Context) -> PromptElement:
    """A subtree that another process rendered: its tree as JSON text, and back."""
    children = _children(node, Context(context.tokenizer))
    data = to_json(children, budget=node.get("budget", 1_000_000), tokenizer=context.tokenizer)
    return from_json(json.loads(json.dumps(data)))


def _tool_result(node: Node, context: Context) -> Child:
    parts: list[Node] = node.get("parts") or [node]
    given = [
        _text(part["text"])
        if "text" in part and not part.get("children")
        else _embedded(part, context)
        for part in parts
    ]
    return Wrap(**_props(node))[given]


_BUILDERS: dict[str, Callable[[Node, Context], Child]] = {
    "fragment": _fragment,
    "system": _plain(SystemMessage, name="name"),
    "user": _plain(UserMessage, name="name"),
    "assistant": _assistant,
    "tool": _tool,
    "textchunk": _text_chunk,
    "chunk": _plain(Chunk),
    "wrap": _plain(Wrap),
    "logicalwrapper": _plain(Group),
    "legacy": _plain(LegacyPrioritization),
    "prioritizedlist": _list,
    "tokenlimit": _plain(TokenLimit, max_tokens="max"),
    "keepwith": _plain(KeepWith, group="id"),
    "ifempty": _if_empty,
    "expandable": _expandable,
    "echo": _echo,
    "fill": _childless(Fill, word="word", most="max", factor="factor", plus="plus"),
    "image": _childless(Image, url="src", detail="detail", media_type="mimeType"),
    "document": _childless(Document, data="data", media_type="mediaType"),
    "opaque": _opaque,
    "cachebreakpoint": lambda node, _: CacheBreakpoint(kind=node.get("cacheType")),
    "br": _line_break,
    "meta": lambda node, _: Metadata(value=node.get("name"), local=bool(node.get("local"))),
    "reference": lambda node, _: Reference(to=node["name"]),
    "elementjson": _embedded,
    "toolresult": _tool_result,
    "empty": _childless(Empty),
    "throws": _childless(Throws),
}
