"""Trees as JSON, so that they travel between processes: components are run, what they made is kept with all that pruning needs.

A tree comes back as elements, so it is sized, pruned and counted like any other, whole messages included (D8). The nodes are
a flat list that names children by index: a tree may be deeper than JSON parsers nest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.element import Child, PromptElement, flatten
from promptkit.elements import chat, layout, media, text
from promptkit.errors import TreeError
from promptkit.messages import Json, Repair, ToolCall
from promptkit.rendering.event_loop import drive, drive_async
from promptkit.rendering.expand import Expansion, AwaitedResults, PendingAwaitables
from promptkit.rendering.render_cache import RenderCache
from promptkit.rendering.sizing import Sizer
from promptkit.rendering.tree import HIGHEST_PRIORITY, TextMessage, Leaf, Node, format_path
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["VERSION", "from_json", "to_json", "to_json_async"]

VERSION = 1

_TYPES: dict[str, type[PromptElement]] = {
    kind.__name__: kind
    for kind in (
        chat.SystemMessage,
        chat.UserMessage,
        chat.AssistantMessage,
        chat.ToolMessage,
        text.Text,
        text.TextChunk,
        text.Tag,
        layout.Group,
        layout.Chunk,
        layout.LegacyPrioritization,
        layout.TokenLimit,
        layout.KeepWith,
        layout.Reserve,
        layout.Isolate,
        layout.CacheBreakpoint,
        media.Image,
        media.Document,
        media.Opaque,
        media.Reference,
        media.Metadata,
    )
}

_NAMES = {kind: name for name, kind in _TYPES.items()}

_MEDIA = (media.Image, media.Document, media.Opaque)

# What a component left of these is its text.
_SETTLED = {"children", "fallback", "break_on", "break_on_whitespace"}

_PROPS = {name: [field.name for field in kind.__attrs_attrs__ if field.name not in _SETTLED] for name, kind in _TYPES.items()}


def to_json(prompt: Child, *, budget: int | None = None, tokenizer: Tokenizer | None = None, model: str | None = None) -> dict[str, Json]:
    """A tree as JSON. Nothing is pruned; `budget` (tokens) is that of a render, without it components have all the room in the world.

    An Expandable is written once, with its share, and is plain text from then on: it does not grow. Messages are optional: what
    a tool returns is a fragment. Raises TreeError for metadata that is no JSON.
    """
    return _tree(drive(_expansion(budget, tokenizer, model, prompt)))


async def to_json_async(
    prompt: Child, *, budget: int | None = None, tokenizer: Tokenizer | None = None, model: str | None = None
) -> dict[str, Json]:
    """Likewise, with components that await running in the caller's event loop."""
    return _tree(await drive_async(_expansion(budget, tokenizer, model, prompt)))


def _expansion(budget: int | None, tokenizer: Tokenizer | None, model: str | None, prompt: Child) -> Generator[PendingAwaitables, AwaitedResults, Node]:
    sizer = Sizer(tokenizer or tokenizer_for(model))
    expansion = Expansion(sizer, RenderCache(), model=model, fragment=True)
    room = HIGHEST_PRIORITY if budget is None else max(0, budget - sizer.tokenizer.request().tokens)
    return expansion.run(flatten(prompt, "to_json"), room)


def _tree(root: Node) -> dict[str, Json]:
    writer = _Writer()
    writer.add({"type": "Group"}, root)
    for node, record in writer.waiting:  # grows while it is walked
        record["children"] = [*writer.items(node), *writer.attached(node)]
    return {"version": VERSION, "nodes": writer.nodes}


class _Writer:
    """The nodes written so far, and those whose children are still to be written."""

    def __init__(self) -> None:
        self.nodes: list[Json] = []
        self.waiting: list[tuple[Node, dict[str, Json]]] = []
        self._groups: dict[Hashable, int] = {}

    def add(self, record: dict[str, Json], node: Node | None = None) -> int:
        self.nodes.append(record)
        if node is not None:
            self.waiting.append((node, record))
        return len(self.nodes) - 1

    def items(self, node: Node) -> list[Json]:
        element = node.element
        if isinstance(element, _MEDIA) or (isinstance(element, text.Tag) and not element.children):
            return []  # it is its own content
        # A Tag keeps its children in a group between its own two lines.
        inside = node.nodes[0] if isinstance(element, text.Tag) and node.nodes else node
        written: list[Json] = []
        for item in inside.items:
            if type(item) is TextMessage:
                written.append(self.add({**self.props(item.element), "children": [item.text]}))
            elif type(item) is Leaf and item.element is None:
                written.append(item.text)
            elif type(item) is Leaf and item.element is not None:
                record = self.props(item.element)
                written.append(self.add(record if item.part else {**record, "children": [item.text]}))
            elif type(item) is Node and item.replaces is None:
                record = self.props(item.element, _kind(item))
                written.append(self.add(record, item))
                if item.fallback is not None:
                    record["fallback"] = self.add({"type": "Group"}, item.fallback)
        return written

    def attached(self, node: Node) -> list[Json]:
        written: list[Json] = [self.add(self.props(reference)) for reference in node.references or ()]
        for value, local in node.metadata or ():
            plain: Json = {"repair": attrs.asdict(value)} if isinstance(value, Repair) else {"json": _json(value, node)}
            written.append(self.add({"type": "Metadata", "value": plain, "local": local}))
        return written

    def props(self, element: PromptElement | None, kind: str | None = None) -> dict[str, Json]:
        kind = kind or _name(element)
        record: dict[str, Json] = {"type": kind}
        for name in _PROPS[kind]:
            value: object = getattr(element, name, None)
            if name == "tool_calls":
                record[name] = [attrs.asdict(call) for call in cast("Sequence[ToolCall]", value)]  # by the prop's name
            elif name == "group":
                record[name] = self._group(value)
            elif name == "keep_with":
                record[name] = {call: self._group(group) for call, group in cast("Mapping[str, Hashable]", value).items()}  # likewise
            elif value is not None:
                record[name] = cast("Json", value)  # the grammar's other props are JSON
        return record

    def _group(self, group: Hashable) -> int:
        return self._groups.setdefault(group, len(self._groups))


def _kind(node: Node) -> str:
    """The grammar element that a node is written as: what components made is a Group."""
    element = node.element
    if isinstance(element, chat.ToolRound):
        return "Chunk"
    if isinstance(element, text.Tag) and element.children and not node.nodes:
        return "Group"  # its content rendered nothing, and it went with it
    return _name(element)


def _name(element: PromptElement | None) -> str:
    return next((_NAMES[base] for base in type(element).__mro__ if base in _NAMES), "Group")


def _json(value: object, node: Node) -> Json:
    try:
        plain: Json = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        message = f"{format_path(node)}: Metadata holds {type(value).__name__}, which is no JSON ({error}): give it a value that is."
        raise TreeError(message) from None
    return plain


def from_json(data: Mapping[str, Json]) -> PromptElement:
    """A tree as an element, from what `to_json` made. KeepWith groups are its own, however often it is used.

    Raises TreeError for another version, or a damaged tree.
    """
    nodes = data.get("nodes")
    if data.get("version") != VERSION or not isinstance(nodes, list) or not nodes:
        message = f"this is no JSON tree of version {VERSION}: make it with to_json of this version."
        raise TreeError(message)
    scope = object()
    made: dict[int, PromptElement] = {}
    for index in range(len(nodes) - 1, -1, -1):  # children stand behind their parents
        record = nodes[index]
        try:
            made[index] = _element(cast("Mapping[str, Json]", record), made, scope)  # if not, that is one of the errors
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"node {index} of the JSON tree is damaged: {error!r}."
            raise TreeError(message) from None
    return made[0]


@attrs.frozen
class _OwnGroup:
    """A KeepWith group of one tree."""

    scope: object
    number: int


def _element(record: Mapping[str, Json], made: Mapping[int, PromptElement], scope: object) -> PromptElement:
    kind = cast("str", record["type"])  # if not, the look-up fails
    props: dict[str, object] = {name: record[name] for name in _PROPS[kind] if name in record}
    if "tool_calls" in props:
        props["tool_calls"] = tuple(ToolCall(**call) for call in cast("list[dict[str, str]]", props["tool_calls"]))  # if not, this fails
    if "group" in props:
        props["group"] = _OwnGroup(scope, cast("int", props["group"]))  # any number will do
    if "keep_with" in props:
        props["keep_with"] = {
            call: _OwnGroup(scope, group) for call, group in cast("dict[str, int]", props["keep_with"]).items()
        }  # likewise
    if kind == "Metadata":
        value = cast("dict[str, Json]", record["value"])  # if not, this fails
        props["value"] = Repair(**cast("dict[str, str]", value["repair"])) if "repair" in value else value["json"]  # likewise
    if "fallback" in record:
        props["fallback"] = made[cast("int", record["fallback"])].children  # if not, the look-up fails
    make = cast("Callable[..., PromptElement]", _TYPES[kind])  # the props are those of this type
    element = make(**props)
    children = cast("list[str | int]", record.get("children", []))  # if not, the look-up fails
    return element[[child if isinstance(child, str) else made[child] for child in children]] if children else element
