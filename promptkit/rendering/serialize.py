"""Expanded trees as JSON, so that they can be sent to other processes.

Components are run before a tree is written. A tree that is read back consists of elements, so it is
sized, pruned and counted like any other tree, also if it contains whole messages (D8). The nodes
are a flat list in which children are named by index, because a tree may be deeper than JSON parsers
can nest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import copy
from itertools import accumulate
from typing import Any

import attrs

from promptkit.elements import builtin
from promptkit.elements.element import Child, PromptElement, flatten, has_type, prop_name
from promptkit.errors import TreeError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Repair,
    ToolCall,
)
from promptkit.rendering.expand.event_loop import drive
from promptkit.rendering.expand.expansion import Expansion
from promptkit.rendering.expand.render_cache import RenderCache, RequestRuns
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.paths import format_path
from promptkit.rendering.tree import HIGHEST_PRIORITY, Leaf, MessageItem, Node
from promptkit.tokens import NamedModel, Tokenizer, tokenizer_for
from promptkit.tokens.models import model_name

_VERSION = 1
"""The version of the format."""

_TYPES: dict[str, type[PromptElement]] = {
    kind.__name__: kind
    for kind in (
        builtin.SystemMessage,
        builtin.UserMessage,
        builtin.AssistantMessage,
        builtin.ToolMessage,
        builtin.Text,
        builtin.TextChunk,
        builtin.Tag,
        builtin.Group,
        builtin.Chunk,
        builtin.LegacyPrioritization,
        builtin.TokenLimit,
        builtin.KeepWith,
        builtin.Reserve,
        builtin.Isolate,
        builtin.CacheBreakpoint,
        builtin.Rounds,
        builtin.Image,
        builtin.Document,
        builtin.Opaque,
        builtin.Reference,
        builtin.Metadata,
    )
}

_NAMES = {kind: name for name, kind in _TYPES.items()}

_MEDIA = (builtin.Image, builtin.Document, builtin.Opaque)

# Props that are not written: the rendered children already reflect them.
_APPLIED_PROPS = {"children", "fallback", "break_on", "break_on_whitespace", "is_shown"}

_PARTS: Mapping[str, type[ImagePart | DocumentPart | OpaquePart]] = {
    "image": ImagePart,
    "document": DocumentPart,
    "opaque": OpaquePart,
}
"""The parts of recorded messages other than text, by their names in JSON."""

_PROPS = {
    name: {
        prop_name(field): field.name
        for field in kind.__attrs_attrs__
        if field.name not in _APPLIED_PROPS
    }
    for name, kind in _TYPES.items()
}
"""For each type the props that are written, with their attributes."""


def to_json(
    prompt: Child,
    *,
    budget: int | None = None,
    tokenizer: Tokenizer | None = None,
    model: str | NamedModel | None = None,
) -> dict[str, Json]:
    """Run the components of a tree and return it as JSON. Nothing is pruned.

    The tree may be a fragment without messages, such as a tool result. An Expandable is written
    once, with its share, and is plain text from then on.

    Args:
        prompt: An element, or a tuple of elements.
        budget: The budget of the render in tokens, which components may read. Default: practically
            unlimited.
        tokenizer: Counts the tokens. Default: the tokenizer of the model.
        model: The name of a model, or a model object.

    Returns:
        A JSON object for `from_json`.

    Raises:
        TreeError: The tree is ill-formed, or Metadata has a value that is not JSON.
    """
    sizer = Sizer(tokenizer or tokenizer_for(model))
    expansion = Expansion(
        sizer,
        RenderCache(),
        RequestRuns(),
        model=None if model is None else model_name(model),
        fragment=True,
    )
    room = (
        HIGHEST_PRIORITY
        if budget is None
        else max(0, budget - sizer.tokenizer.count_overhead().tokens)
    )
    writer = _Writer()
    writer.add({"type": "Group"}, drive(expansion.run(flatten(prompt, "to_json"), room)))
    for node, record in writer.waiting:  # grows while it is walked
        record["children"] = [*writer.write_items(node), *writer.write_attachments(node)]
    return {"version": _VERSION, "nodes": writer.nodes}


@attrs.define(eq=False)
class _Writer:
    """Collects the nodes of a tree."""

    nodes: list[Json] = attrs.field(factory=list["Json"], init=False)
    waiting: list[tuple[Node, dict[str, Json]]] = attrs.field(
        factory=list["tuple[Node, dict[str, Json]]"], init=False
    )
    """The nodes whose children are still to be written."""
    _groups: dict[Hashable, int] = attrs.field(factory=dict["Hashable", int], init=False)

    def add(self, record: dict[str, Json], node: Node | None = None) -> int:
        """Add a node and return its index. The children of `node` are written later."""
        self.nodes.append(record)
        if node is not None:
            self.waiting.append((node, record))
        return len(self.nodes) - 1

    def write_items(self, node: Node) -> Iterator[Json]:
        """Write the items of a node: yield texts as they are, others as indices."""
        element = node.element
        if isinstance(element, (builtin.Rounds, *_MEDIA)) or (
            isinstance(element, builtin.Tag) and not element.children
        ):
            return  # its props are its content
        # The children of a Tag are in a group between its two lines.
        content = node.nodes[0] if isinstance(element, builtin.Tag) and node.nodes else node
        for item in content.items:
            match item:
                case MessageItem(element=builtin.MessageElement() as shown):
                    yield self.add({**self.write_props(shown), "children": [item.text]})
                case Leaf(element=None):
                    yield item.text
                case Leaf(element=shown):
                    record = self.write_props(shown)
                    yield self.add(record if item.part else {**record, "children": [item.text]})
                case Node(replaces=None):
                    record = self.write_props(item.element, _find_type(item))
                    record |= self._write_groups(item)
                    yield self.add(record, item)
                    replaced = item
                    while (fallback := replaced.fallback) is not None:
                        group: dict[str, Json] = {"type": "Group"}
                        record["fallback"] = self.add(group, fallback)
                        record, replaced = group, fallback
                case _:
                    pass

    def write_attachments(self, node: Node) -> Iterator[Json]:
        """Write the references and the metadata of a node as nodes, and yield their indices."""
        for reference in node.references or ():
            yield self.add(self.write_props(reference))
        for value, local in node.metadata or ():
            plain: Json = (
                {"repair": attrs.asdict(value)}
                if isinstance(value, Repair)
                else {"json": _to_plain_json(value, node)}
            )
            yield self.add({"type": "Metadata", "value": plain, "local": local})

    def write_props(
        self, element: PromptElement | None, kind: str | None = None
    ) -> dict[str, Json]:
        """Return the type and the props of an element."""
        kind = kind or _find_element_type(element)
        special = self._write_special_props(element)
        # the other props of built-in elements are JSON
        values: dict[str, Json] = {
            name: special.get(name, getattr(element, attribute, None))
            for name, attribute in _PROPS[kind].items()
        }
        return {
            "type": kind,
            **{
                name: value
                for name, value in values.items()
                if value is not None or name in special
            },
        }

    def _write_special_props(self, element: PromptElement | None) -> dict[str, Json]:
        """Return the props of an element that are no JSON values."""
        match element:
            case builtin.AssistantMessage(tool_calls=calls):
                return {"tool_calls": list(map(attrs.asdict, calls)), "keep_with": {}}
            case builtin.Rounds(marker=marker):
                return {
                    "rounds": [
                        list(map(_write_message, messages))
                        for messages in builtin.iter_rounds(element.rounds)
                    ],
                    "order": list(element.order),
                    "priorities": list(element.priorities),
                    "marker": None if marker is None else _write_markers(element, marker),
                }
            case _:
                return {}

    def _write_groups(self, node: Node) -> dict[str, Json]:
        """Return the props of a node that name KeepWith groups, those of its component, as numbers."""
        match node.element:
            case builtin.AssistantMessage():
                groups = node.call_groups
                return {
                    "keep_with": {
                        call.id: self._number_group(groups[call.id])
                        for call in node.calls
                        if call.id in groups
                    }
                }
            case builtin.KeepWith():
                return {"group": self._number_group(node.keep_groups[0])}
            case _:
                return {}

    def _number_group(self, group: Hashable) -> int:
        return self._groups.setdefault(group, len(self._groups))


def _find_type(node: Node) -> str:
    """Return the type that a node is written as. A component is a Group."""
    element = node.element
    if isinstance(element, builtin.ToolRound):
        return "Chunk"
    if isinstance(element, builtin.Tag) and element.children and not node.nodes:
        return "Group"  # its content was empty, so the Tag was dropped with it
    return _find_element_type(element)


def _find_element_type(element: PromptElement | None) -> str:
    return next((_NAMES[base] for base in type(element).__mro__ if base in _NAMES), "Group")


def _to_plain_json(value: object, node: Node) -> Json:
    try:
        plain: Json = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TreeError(
            f"{format_path(node)}: the value of Metadata is a {type(value).__name__}, which is not JSON ({error}): use a JSON value."
        ) from None
    return plain


def _write_message(message: Message) -> dict[str, Json]:
    """Write a recorded message. Its cache breakpoints are not shown, and not written."""
    kinds = {kind: name for name, kind in _PARTS.items()}
    return {
        **attrs.asdict(message, filter=lambda field, _: field.name != "content"),
        "content": [
            part if isinstance(part, str) else {"kind": kinds[type(part)], **attrs.asdict(part)}
            for part in message.content
            if not isinstance(part, CacheBreakpointPart)
        ],
    }


def _read_message(record: Mapping[str, Any]) -> Message:  # Any: JSON, as in `_build_element`
    content = [
        part if isinstance(part, str) else _PARTS[part.pop("kind")](**part)
        for part in map(copy, record["content"])
    ]
    calls = [ToolCall(**call) for call in record["tool_calls"]]
    rest = {name: value for name, value in record.items() if name not in ("content", "tool_calls")}
    return Message(content=content, tool_calls=calls, **rest)


def _write_markers(element: builtin.Rounds, marker: Callable[[int], str]) -> dict[str, Json]:
    """Write the texts of all markers, by the number of messages that they replace."""
    sizes = [len(messages) for messages in builtin.iter_rounds(element.rounds)]
    return {
        str(count): marker(count) for count in accumulate(map(sizes.__getitem__, element.order))
    }


@attrs.frozen
class _Markers:
    """The marker of the rounds in a JSON tree."""

    texts: Mapping[str, str]

    def __call__(self, count: int) -> str:
        return self.texts[str(count)]


def from_json(data: Mapping[str, Json]) -> PromptElement:
    """Return the tree that `to_json` wrote as an element.

    Its KeepWith groups are distinct from those of other trees.

    Raises TreeError for another version and for a damaged tree.
    """
    nodes = data.get("nodes")
    if data.get("version") != _VERSION or not isinstance(nodes, list) or not nodes:
        raise TreeError(
            f"this is not a JSON tree of version {_VERSION}: write it with to_json of this version of promptkit."
        )
    scope = object()  # with a number it is a KeepWith group of this tree
    records: list[Any] = [*nodes]  # Any: JSON, as in `_build_element`
    built: dict[int, PromptElement] = {}
    for index in range(len(records) - 1, -1, -1):  # children come after their parents
        try:
            # If the record is not a mapping, one of these errors is raised.
            built[index] = _build_element(records[index], built, scope)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TreeError(f"node {index} of the JSON tree is damaged: {error!r}.") from None
    return built[0]


def _build_element(
    # Any: JSON that a program may have changed; of a wrong value, building an element fails
    record: Mapping[str, Any],
    built: Mapping[int, PromptElement],
    scope: object,
) -> PromptElement:
    kind: str = record["type"]
    # Any: as above
    props: dict[str, Any] = {name: record[name] for name in _PROPS[kind] if name in record}
    if "tool_calls" in props:
        props["tool_calls"] = tuple(ToolCall(**call) for call in record["tool_calls"])
    if "group" in props:
        props["group"] = (scope, record["group"])
    if "keep_with" in props:
        props["keep_with"] = {call: (scope, group) for call, group in record["keep_with"].items()}
    if "rounds" in props:
        props["rounds"] = [tuple(map(_read_message, messages)) for messages in record["rounds"]]
        props["marker"] = None if record.get("marker") is None else _Markers(record["marker"])
    if kind == "Metadata":
        value = record["value"]
        props["value"] = Repair(**value["repair"]) if "repair" in value else value["json"]
    if "fallback" in record:
        fallback = built[record["fallback"]]
        props["fallback"] = fallback.children if fallback.fallback is None else fallback
    for field in _TYPES[kind].__attrs_attrs__:
        # a prop whose annotation names only texts, numbers and booleans
        if field.name in props and not has_type(props[field.name], str(field.type)):
            raise TypeError(f"{field.name} must be {field.type}, not {props[field.name]!r}")
    element = _TYPES[kind](**props)
    children = record.get("children", [])
    return (
        element[[child if isinstance(child, str) else built[child] for child in children]]
        if children
        else element
    )
