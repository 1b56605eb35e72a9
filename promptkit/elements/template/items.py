"""The items of a template's output, and the step that turns them into children."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, cast

import attrs

from promptkit.elements import builtin
from promptkit.elements.element import Children, PromptElement
from promptkit.errors import PromptKitError, TemplateError
from promptkit.messages import Json
from promptkit.reprs import clip


class TemplateText(NamedTuple):
    """A text in the output of a template, with its place in the template."""

    text: str
    literal: bool
    """Whether the text is part of the template itself. Only such text is trimmed, the text of a
    value never."""
    file: str
    line: int
    in_message_template: bool
    """Whether the file contains message tags."""


TagKind: TypeAlias = Literal["message", "call", "layout", "items", "content", "mark"]
"""The place and content of a tag: `items` contain elements but no text, `content` is valid in a
message, a `mark` anywhere."""


@attrs.frozen(kw_only=True)
class ToolCallTag:
    """The attributes of `{% tool_call %}`, which becomes a tool call instead of an element."""

    id: str
    name: str
    arguments: Json = "{}"
    keep_with: Hashable = None


@attrs.frozen(eq=False, kw_only=True)
class TagDraft:
    """A rendered tag. It becomes an element once it is known whether it is inside a message."""

    tag: str
    kind: TagKind
    cls: type[PromptElement | ToolCallTag]
    props: Mapping[str, object]
    body: tuple[TemplateItem, ...]
    file: str
    line: int
    has_messages: bool
    """Whether the tag is a message or contains one."""

    def fail(self, message: str) -> NoReturn:
        """Raise TemplateError for this tag."""
        raise TemplateError(message, file=self.file, line=self.line)


TemplateItem: TypeAlias = TemplateText | TagDraft | PromptElement
"""An item of a template's output."""


@attrs.frozen(eq=False, repr=False)
class TemplateFragment:
    """The output of a macro, a set block or a `caller()`, if it contains elements."""

    items: tuple[TemplateItem, ...]

    def __str__(self) -> str:
        raise TypeError(
            "this contains elements, and only text can be filtered or joined with text: insert it on its own with {{ … }}"
        )

    __repr__ = __str__


def holds_messages(items: Iterable[TemplateItem]) -> bool:
    """Return whether the items are or contain messages.

    A component counts as no message, since its content is unknown.
    """
    return any(
        item.has_messages if isinstance(item, TagDraft) else isinstance(item, _MESSAGES)
        for item in items
        if not isinstance(item, TemplateText)
    )


_MESSAGES = (
    builtin.SystemMessage,
    builtin.UserMessage,
    builtin.AssistantMessage,
    builtin.ToolMessage,
    builtin.ToolRound,
)


def is_blank(items: Iterable[TemplateItem]) -> bool:
    """Return whether the items are nothing but white space of the template itself."""
    return all(
        isinstance(item, TemplateText) and item.literal and not item.text.strip() for item in items
    )


def trim_last_break(items: tuple[TemplateItem, ...]) -> tuple[TemplateItem, ...]:
    """Remove the line break before an end tag, also if it is at the end of an inner tag."""
    if is_blank(items):
        return ()
    path: list[tuple[tuple[TemplateItem, ...], TagDraft]] = []
    while (
        items
        and isinstance(last := items[-1], TagDraft)
        and (last.kind in {"layout", "items"} or last.tag in {"text", "truncate"})
    ):
        path.append((items, last))
        items = last.body
    if items and isinstance(end := items[-1], TemplateText) and end.literal:
        items = (*items[:-1], end._replace(text=_LAST_BREAK.sub("", end.text)))
    for outer, draft in reversed(path):
        items = (*outer[:-1], attrs.evolve(draft, body=items))
    return items


_LAST_BREAK = re.compile(r"\n[ \t]*\Z")


@attrs.define
class _OpenTag:
    """A tag whose children are being built; `draft` is None for the template itself."""

    draft: TagDraft | None
    items: Iterator[TemplateItem]
    in_message: bool
    children: list[str | PromptElement]


def build_children(items: tuple[TemplateItem, ...]) -> Children:
    """Turn a template's output into children: messages, or the text and elements for the inside of a message.

    Raises:
        TemplateError: There is text outside a message although the template contains messages, or a
            tag is at an invalid place.
    """
    makes_messages = holds_messages(items) or any(
        isinstance(item, TemplateText) and item.in_message_template for item in items
    )
    stack = [_OpenTag(None, iter(items), not makes_messages, [])]
    while True:
        top = stack[-1]
        for item in top.items:
            match item:
                case TagDraft():
                    _check_place(item, in_message=top.in_message)
                    in_message = top.in_message or item.kind == "message"
                    stack.append(_OpenTag(item, iter(item.body), in_message, []))
                    break
                case PromptElement():
                    top.children.append(item)
                case TemplateText() if top.draft is not None and top.draft.kind == "items":
                    _reject_text(
                        item,
                        f"text directly in {{% {top.draft.tag} %}}",
                        "Put each item into {% text %} or {% group %}.",
                    )
                case TemplateText() if top.in_message:
                    top.children.append(item.text)
                case TemplateText():
                    _reject_text(
                        item,
                        "text outside a message",
                        "Put it into {% user %} or another message, or remove it.",
                    )
        else:
            stack.pop()
            children = tuple(_join_text(top.children))
            if top.draft is None:
                return children
            stack[-1].children.append(_build_element(top.draft, children))


def _check_place(draft: TagDraft, *, in_message: bool) -> None:
    if draft.kind == "call":
        draft.fail("{% tool_call %} must be directly in {% assistant %}: move it there.")
    if draft.kind == "message" and in_message:
        draft.fail(f"{{% {draft.tag} %}} is inside another message: close that message first.")
    if draft.kind == "content" and not in_message:
        draft.fail(
            f"{{% {draft.tag} %}} is outside a message: put it into {{% user %}} or another message."
        )


def _reject_text(piece: TemplateText, what: str, remedy: str) -> None:
    text = piece.text.lstrip()
    if not text:
        return
    blank = piece.text[: len(piece.text) - len(text)] if piece.literal else ""
    raise TemplateError(
        f"{what}: {clip(text.rstrip(), _QUOTED_CHARACTERS)!r}. {remedy}",
        file=piece.file,
        line=piece.line + blank.count("\n"),
    )


_QUOTED_CHARACTERS = 40
"""The length of the quotation of a text in an error."""


def _join_text(children: Iterable[str | PromptElement]) -> Iterator[str | PromptElement]:
    for is_text, run in groupby(children, key=lambda child: isinstance(child, str)):
        if not is_text:
            yield from run
        elif text := "".join(map(str, run)):
            yield text


def _build_element(draft: TagDraft, children: Children) -> PromptElement:
    props = {
        name: build_children(value.items) if isinstance(value, TemplateFragment) else value
        for name, value in draft.props.items()
    }
    cls = cast("type[PromptElement]", draft.cls)  # tool calls were removed by _draft_tag
    try:
        # Any stands for names and types were checked against the fields of the class
        element = cls(**cast("dict[str, Any]", props))
        return element[children] if children else element
    except PromptKitError as error:
        draft.fail(f"{{% {draft.tag} %}}: {error}")
