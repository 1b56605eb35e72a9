"""What each tag of a template stands for: an element, whose props are the tag's attributes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.elements import chat, layout, media, text
from promptkit.elements.template_items import Call, Draft, Item, Kind, holds_messages, is_blank, trimmed
from promptkit.errors import TemplateError
from promptkit.messages import ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptkit.element import PromptElement

__all__ = ["SELF_CLOSING", "TAGS", "TagSpec", "draft"]


@attrs.frozen(kw_only=True)
class TagSpec:
    """What a tag stands for: its attributes are the fields of `cls`."""

    cls: type[PromptElement | Call]
    kind: Kind
    first: str = ""
    """The attribute that may be given without its name."""
    hidden: tuple[str, ...] = ("children",)
    """Fields that are no attributes."""

    def fields(self) -> dict[str, attrs.Attribute[object]]:
        """Attribute → field."""
        fields = cast("Iterable[attrs.Attribute[object]]", attrs.fields(self.cls))  # a tuple class of its own in attrs
        return {field.name.removeprefix("tool_"): field for field in fields if field.name not in self.hidden}


TAGS: Mapping[str, TagSpec] = {
    "system": TagSpec(cls=chat.SystemMessage, kind="message"),
    "user": TagSpec(cls=chat.UserMessage, kind="message"),
    "assistant": TagSpec(cls=chat.AssistantMessage, kind="message", hidden=("children", "tool_calls", "keep_with")),
    "tool": TagSpec(cls=chat.ToolMessage, kind="message"),
    "tool_call": TagSpec(cls=Call, kind="call"),
    "group": TagSpec(cls=layout.Group, kind="layout"),
    "chunk": TagSpec(cls=layout.Chunk, kind="layout"),
    "limit": TagSpec(cls=layout.TokenLimit, kind="layout", first="max_tokens"),
    "keep_with": TagSpec(cls=layout.KeepWith, kind="layout", first="group"),
    "isolate": TagSpec(cls=layout.Isolate, kind="layout", first="tokens"),
    "if_empty": TagSpec(cls=layout.IfEmpty, kind="layout"),
    "list": TagSpec(cls=layout.PrioritizedList, kind="items"),
    "first": TagSpec(cls=layout.First, kind="items"),
    "text": TagSpec(cls=text.TextChunk, kind="content"),
    "truncate": TagSpec(cls=text.Truncate, kind="content"),
    "tag": TagSpec(cls=text.Tag, kind="content", first="tag", hidden=("children", "name")),
    "image": TagSpec(cls=media.Image, kind="content", first="src"),
    "document": TagSpec(cls=media.Document, kind="content"),
    "cache_boundary": TagSpec(cls=layout.CacheBoundary, kind="content"),
    "reserve": TagSpec(cls=layout.Reserve, kind="mark", first="tokens"),
    "reference": TagSpec(cls=media.Reference, kind="mark", first="to"),
    "metadata": TagSpec(cls=media.Metadata, kind="mark", first="value"),
}
SELF_CLOSING = {"tool_call", "image", "document", "cache_boundary", "reserve", "reference", "metadata"}
TRIMMED = {"system", "user", "assistant", "tool", "tag"}
TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {  # a field's type as it is written → in words, as classes
    "bool": ("true or false", (bool,)),
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("a text", (str,)),
    "None": ("none", (type(None),)),
}
CHOICES: Mapping[str, tuple[str, ...]] = {"keep": ("head", "tail", "middle")}


def draft(name: str, given: Mapping[str, object], items: tuple[Item, ...], *, file: str, line: int) -> Draft:
    """A tag with its attributes and its body. Raises TemplateError for an attribute's value that it cannot have."""
    tag = TAGS[name]
    fields = tag.fields()
    props: dict[str, object] = {}
    free: dict[str, str] = {}
    for attribute, value in given.items():
        if attribute in fields:
            wanted = _wanted(attribute, fields[attribute], value)
            if wanted:
                message = f"{{% {name} %}} has {attribute}={value!r}: it must be {wanted}."
                raise TemplateError(message, file=file, line=line)
            props[fields[attribute].name] = value
        elif value is not None:
            free[attribute] = str(value).lower() if isinstance(value, bool) else str(value)
    if tag.cls is text.Tag:
        props["attributes"] = {**cast("Mapping[str, str]", props.get("attributes", {})), **free}  # a mapping: str() makes the rest
    if name == "assistant":
        calls = [item.props for item in items if isinstance(item, Draft) and item.kind == "call"]
        items = tuple(item for item in items if not isinstance(item, Draft) or item.kind != "call")
        props["tool_calls"] = tuple(_tool_call(call) for call in calls)
        props["keep_with"] = {call["id"]: call["keep_with"] for call in calls if call.get("keep_with") is not None}
    body = trimmed(items) if name in TRIMMED else () if is_blank(items) else items
    messages = tag.kind == "message" or holds_messages(body)
    return Draft(tag=name, kind=tag.kind, cls=tag.cls, props=props, body=body, file=file, line=line, messages=messages)


def _tool_call(given: Mapping[str, object]) -> ToolCall:
    arguments = given.get("arguments", "{}")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=str(given["id"]), name=str(given["name"]), arguments=written)


def _wanted(attribute: str, field: attrs.Attribute[object], value: object) -> str:
    """What the attribute has to be instead; nothing if the value is right, or if there is no telling."""
    choices = CHOICES.get(attribute, ())
    if choices:
        return "" if value in choices else f"one of {', '.join(choices)}"
    names = str(field.type).split(" | ")
    if not set(names) <= set(TYPES):
        return ""
    kinds = tuple(kind for name in names for kind in TYPES[name][1])
    if isinstance(value, kinds) and (not isinstance(value, bool) or "bool" in names):
        return ""
    return " or ".join(TYPES[name][0] for name in names)
