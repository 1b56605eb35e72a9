"""The oracle's tree: one plain mutable node per element and per leaf, built as slowly and as plainly as can be."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.elements.builtin import (
    AssistantMessage,
    CacheBreakpoint,
    Chunk,
    Group,
    Image,
    KeepWith,
    LegacyPrioritization,
    MessageElement,
    Opaque,
    PrioritizedList,
    Reserve,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    ToolMessage,
    UserMessage,
)
from promptkit.elements.element import Child, PromptElement, Sizing, flatten
from promptkit.messages import CacheBreakpointPart, ImagePart, OpaquePart, Role, ToolCall

if TYPE_CHECKING:
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["MAX", "Node", "build", "is_empty", "is_leaf", "walk"]

MAX = 2**53 - 1
ROLES: dict[type[PromptElement], Role] = {
    SystemMessage: "system",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}
NOTHING: tuple[object, ...] = ()


@attrs.define(eq=False, kw_only=True)
class Node:
    """A container, a message or a leaf."""

    key: int
    kind: Literal["container", "message", "text", "part", "breakpoint", "reserve"] = "container"
    priority: float = MAX
    children: list[Node] = attrs.field(factory=list["Node"], repr=False)
    parent: Node | None = attrs.field(default=None, repr=False)
    text: str = ""
    breaks: Literal["always", "first", "never"] = "never"
    part: ImagePart | OpaquePart | CacheBreakpointPart | None = None
    reserved: int = 0
    pass_priority: bool = False
    chunk: bool = False
    legacy: bool = False
    required: bool = False
    limit: int | None = None
    group: tuple[Hashable, ...] = ()
    born_empty: bool = False
    prioritized: bool = False
    in_fallback: bool = False
    enclosure: int | None = None  # of the texts and the children between them that leave together
    role: Role = "user"
    name: str | None = None
    calls: list[tuple[int, ToolCall]] = attrs.field(factory=list[tuple[int, ToolCall]])
    call_groups: Mapping[str, Hashable] = attrs.field(factory=dict[str, Hashable])
    answers: str | None = None
    fallback: Child = attrs.field(default=None, repr=False)


def is_leaf(node: Node) -> bool:
    """Whether it can have no children."""
    return node.kind not in {"container", "message"}


def is_empty(node: Node) -> bool:
    """Whether it says nothing: only white space, below it as well.

    Calls, results and parts are never nothing.
    """
    if node.kind == "text":
        return not node.text.strip()
    if is_leaf(node) or node.calls or (node.kind == "message" and node.role == "tool"):
        return False
    return all(map(is_empty, node.children))


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, in document order."""
    yield node
    for child in node.children:
        yield from walk(child)


def build(child: Child, parent: Node, tokenizer: Tokenizer, keys: itertools.count[int]) -> None:
    """Append what these children are to `parent`; literals have the parent's priority."""
    for item in flatten(child, "oracle"):
        if isinstance(item, str):
            breaks: Literal["first", "never"] = "never" if parent.children else "first"
            node = Node(
                key=next(keys), kind="text", priority=parent.priority, text=item, breaks=breaks
            )
        elif item is None:
            continue
        else:
            node = _element(item, tokenizer, keys)
        node.parent = parent
        parent.children.append(node)


def _element(element: PromptElement, tokenizer: Tokenizer, keys: itertools.count[int]) -> Node:
    default = 0 if element.pass_priority else MAX
    node = Node(
        key=next(keys),
        priority=default if element.priority is None else element.priority,
        pass_priority=element.pass_priority,
        prioritized=element.priority is not None and not element.pass_priority,
        required=element.required,
        fallback=element.fallback,
        chunk=isinstance(element, Chunk),
        legacy=isinstance(element, LegacyPrioritization),
        limit=int(element.max_tokens) if isinstance(element, TokenLimit) else None,
        group=(element.key,) if isinstance(element, KeepWith) else (),
    )
    if isinstance(element, Image):
        node.kind, node.part = (
            "part",
            ImagePart(url=element.url, detail=element.detail, media_type=element.media_type),
        )
    elif isinstance(element, Opaque):
        node.kind, node.part = (
            "part",
            OpaquePart(value=element.value, tokens=element.tokens, provider=element.provider),
        )
    elif isinstance(element, CacheBreakpoint):
        node.kind, node.part = "breakpoint", CacheBreakpointPart(kind=element.kind, ttl=element.ttl)
    elif isinstance(element, Reserve):
        node.kind, node.reserved = "reserve", int(element.tokens)
    elif isinstance(element, Text | TextChunk):
        text = "".join(piece for piece in element.children if isinstance(piece, str))
        leaf = Node(
            key=next(keys),
            kind="text",
            priority=MAX if element.priority is None else element.priority,
            text=text,
            breaks="always" if isinstance(element, TextChunk) else "first",
            parent=node,
        )
        node.children.append(leaf)
    else:
        if isinstance(element, MessageElement):
            _message(node, element, keys)
        literal = Node(key=-1, priority=MAX if element.priority is None else element.priority)
        build(_rendered(element, tokenizer), literal, tokenizer, keys)
        for below in literal.children:
            below.parent = node
        node.children = literal.children
    node.born_empty = is_empty(node)
    return node


def _message(node: Node, element: MessageElement, keys: itertools.count[int]) -> None:
    node.kind, node.role, node.name = "message", ROLES[type(element)], element.name
    if isinstance(element, AssistantMessage):
        node.calls = [(next(keys), call) for call in element.tool_calls]
        node.call_groups = element.keep_with
    elif isinstance(element, ToolMessage):
        node.answers = element.tool_call_id


def _rendered(element: PromptElement, tokenizer: Tokenizer) -> Child:
    if isinstance(element, PrioritizedList):
        return _prioritized(element)
    if type(element).render is PromptElement.render:
        return element.children
    rendered: Child = element.render(Sizing(_no_budget, tokenizer))  # type: ignore[assignment]  # the oracle knows plain components only  # pyright: ignore[reportAssignmentType]
    return rendered


def _no_budget() -> int:
    raise AssertionError("the oracle lays nothing out")


def _prioritized(element: PrioritizedList) -> Child:
    top = element.priority or 0
    count = len(element.children)
    ranked: list[PromptElement | None] = []
    for index, child in enumerate(element.children):
        wrapped = TextChunk()[child] if isinstance(child, str) else child
        rank = top - index if element.descending else top - count + index
        if isinstance(wrapped, SystemMessage) and wrapped.priority is None:
            ranked.append(Group(priority=rank).replace(children=(wrapped,)))
        else:
            ranked.append(wrapped and wrapped.replace(priority=rank))
    return tuple(ranked)
