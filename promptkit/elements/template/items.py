"""What the output of a template consists of, and how it becomes children."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeAlias, cast

import attrs

from promptkit.element import Children, PromptElement
from promptkit.elements import chat
from promptkit.errors import PromptKitError, TemplateError

if TYPE_CHECKING:
    from promptkit.messages import Json

__all__ = ["Call", "Fragment", "Item", "Kind", "TemplateDraft", "TemplatePiece", "build", "holds_messages", "is_blank", "trimmed"]


class TemplatePiece(NamedTuple):
    """Text in the output of a template, and where it comes from. A value's text is never trimmed; the template's own may be."""

    text: str
    own: bool
    file: str
    line: int
    tagged: bool


Kind: TypeAlias = Literal["message", "call", "layout", "items", "content", "mark"]
"""`items` hold elements and no text, `content` stands in a message, a `mark` anywhere."""


@attrs.frozen(kw_only=True)
class Call:
    """The attributes of `{% tool_call %}`."""

    id: str
    name: str
    arguments: Json = "{}"
    keep_with: Hashable = None


@attrs.frozen(eq=False, kw_only=True)
class TemplateDraft:
    """A tag that has been rendered. It becomes an element when it is known whether it stands in a message."""

    tag: str
    kind: Kind
    cls: type[PromptElement | Call]
    props: Mapping[str, object]
    body: tuple[Item, ...]
    file: str
    line: int
    messages: bool

    def fail(self, message: str) -> NoReturn:
        """Raise TemplateError for this tag."""
        raise TemplateError(message, file=self.file, line=self.line)


Item: TypeAlias = TemplatePiece | TemplateDraft | PromptElement
"""What the output of a template consists of."""


class Fragment:
    """What a macro, a set block or a caller made, if there are elements in it."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = tuple(items)

    def __str__(self) -> str:
        message = "this holds elements, and only text can go through a filter or into another text: insert it on its own with {{ … }}"
        raise TypeError(message)

    __repr__ = __str__


def holds_messages(items: Iterable[Item]) -> bool:
    """Whether there is a message among these or in them; a component of unknown content counts as none."""
    return any(
        item.messages if isinstance(item, TemplateDraft) else isinstance(item, _MESSAGES)
        for item in items
        if not isinstance(item, TemplatePiece)
    )


_MESSAGES = (chat.SystemMessage, chat.UserMessage, chat.AssistantMessage, chat.ToolMessage, chat.ToolRound)


def is_blank(items: Iterable[Item]) -> bool:
    """Whether there is nothing but the template's own white space."""
    return all(isinstance(item, TemplatePiece) and item.own and not item.text.strip() for item in items)


def trimmed(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """These without the line break before an end tag, be it at the end of a tag within."""
    if is_blank(items):
        return ()
    path: list[tuple[tuple[Item, ...], TemplateDraft]] = []
    while items and isinstance(last := items[-1], TemplateDraft) and (last.kind in {"layout", "items"} or last.tag in {"text", "truncate"}):
        path.append((items, last))
        items = last.body
    if items and isinstance(end := items[-1], TemplatePiece) and end.own:
        items = (*items[:-1], end._replace(text=_LAST_BREAK.sub("", end.text)))
    for outer, draft in reversed(path):
        items = (*outer[:-1], attrs.evolve(draft, body=items))
    return items


_LAST_BREAK = re.compile(r"\n[ \t]*\Z")


@attrs.define
class _Open:
    """A tag whose children are being built."""

    draft: TemplateDraft | None
    items: Iterator[Item]
    inside: bool
    children: list[str | PromptElement | None]


def build(items: tuple[Item, ...]) -> Children:
    """The children that a template's output is: messages, or text and elements for inside a message.

    Raises TemplateError for text outside a message where there are messages, and for a tag where it cannot stand.
    """
    tagged = any(isinstance(item, TemplatePiece) and item.tagged for item in items)
    stack = [_Open(None, iter(items), not (tagged or holds_messages(items)), [])]
    while True:
        top = stack[-1]
        for item in top.items:
            if isinstance(item, TemplateDraft):
                _check_place(item, top.inside)
                stack.append(_Open(item, iter(item.body), top.inside or item.kind == "message", []))
                break
            if not isinstance(item, TemplatePiece):
                top.children.append(item)
            elif top.draft is not None and top.draft.kind == "items":
                _refuse_text(item, f"text directly in {{% {top.draft.tag} %}}", "Put each item into {% text %} or {% group %}.")
            elif top.inside:
                top.children.append(item.text)
            else:
                _refuse_text(item, "text outside a message", "Put it into {% user %} or another message, or remove it.")
        else:
            stack.pop()
            children = _joined(top.children)
            if top.draft is None:
                return children
            stack[-1].children.append(_element(top.draft, children))


def _check_place(draft: TemplateDraft, inside: bool) -> None:  # noqa: FBT001  # a fact of the place, not an option
    if draft.kind == "call":
        draft.fail("{% tool_call %} stands directly in {% assistant %}: move it there.")
    if draft.kind == "message" and inside:
        draft.fail(f"{{% {draft.tag} %}} stands in another message: close that one first.")
    if draft.kind == "content" and not inside:
        draft.fail(f"{{% {draft.tag} %}} stands outside a message: put it into {{% user %}} or another message.")


def _refuse_text(piece: TemplatePiece, what: str, remedy: str) -> None:
    text = piece.text.lstrip()
    if not text:
        return
    blank = piece.text[: len(piece.text) - len(text)] if piece.own else ""
    shown = text.rstrip()
    shown = repr(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…")
    message = f"{what}: {shown}. {remedy}"
    raise TemplateError(message, file=piece.file, line=piece.line + blank.count("\n"))


_SHOWN = 40  # characters of a text that an error quotes


def _joined(children: Iterable[str | PromptElement | None]) -> Children:
    joined: list[str | PromptElement | None] = []
    run: list[str] = []
    for child in children:
        if isinstance(child, str):
            run.append(child)
            continue
        if text := "".join(run):
            joined.append(text)
        run.clear()
        joined.append(child)
    if text := "".join(run):
        joined.append(text)
    return tuple(joined)


def _element(draft: TemplateDraft, children: Children) -> PromptElement:
    props = {name: build(value.items) if isinstance(value, Fragment) else value for name, value in draft.props.items()}
    cls = cast("type[PromptElement]", draft.cls)  # a call never comes here
    try:
        element = cls(**cast("dict[str, Any]", props))  # Any: names and types were checked against the class's own fields
        return element[children] if children else element
    except TemplateError:
        raise
    except PromptKitError as error:
        draft.fail(f"{{% {draft.tag} %}}: {error}")
