"""The built-in elements: one handler for each, looked up by the element's class.

A handler has up to three functions, which stand side by side below. `prepare` sets what pruning
needs to know, when the node is created. `open` returns the children before they are rendered.
`close` settles what depends on the rendered children.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import cache, partial
from itertools import chain, takewhile
from typing import Any, NoReturn, TypeAlias

import attrs

from promptkit.elements import builtin
from promptkit.elements.element import Children, PromptElement
from promptkit.errors import BadChildError, BadPropError, TreeError
from promptkit.rendering.expand.build import add_text, build_part, clear_node, wrap_in_group
from promptkit.rendering.expand.sizing import Sizer, surely_fits_by_itself
from promptkit.rendering.paths import format_path
from promptkit.rendering.subtree import is_empty, measure, read_text
from promptkit.rendering.tree import (
    NEVER_REMOVED,
    STARTS_LINE_ALWAYS,
    STARTS_LINE_FIRST,
    STARTS_LINE_NEVER,
    Leaf,
    Node,
    Run,
    is_literal,
    iter_upwards,
)
from promptkit.tokens.tokenizer import Tokenizer
from promptkit.tokens.truncation import list_shorter_texts

# Any: each function takes the class of element that the table below lists it for.
Prepare: TypeAlias = "Callable[[Node, Any], None]"
Open: TypeAlias = "Callable[[Sizer, Node, Any], Children]"
Close: TypeAlias = "Callable[[Sizer, Node, Any], Children | None]"


def prepare_node(node: Node, element: PromptElement) -> None:
    """Set the fields of a new node that pruning reads.

    Raises BadPropError for a prop that is not valid.
    """
    prepare = _resolve(type(element)).prepare
    if prepare is not None:
        prepare(node, element)


def open_node(sizer: Sizer, node: Node, element: PromptElement) -> Children:
    """Return the children of an element, before a component, an Expandable or Rounds write theirs.

    Raises BadPropError for an element that does not call the `render` of its class.
    """
    return _resolve(type(element)).open(sizer, node, element)


def close_node(sizer: Sizer, node: Node) -> Children | None:
    """Settle what depends on a node's rendered subtree.

    Returns children if the node must be filled again (First).
    """
    element = node.element
    if element is None:
        return None
    close = _resolve(type(element)).close
    children = close(sizer, node, element) if close is not None else None
    if node.is_cut and not node.items:
        _mark_cut_away(node)
    return children


def _mark_cut_away(node: Node) -> None:
    """Mark a node whose share holds nothing of its content, and the nodes around it."""
    for above in takewhile(lambda above: not above.is_cut_away, iter_upwards(node)):
        above.is_cut_away = True


# Group, and every element without a handler of its own: its children.


def _open_group(_sizer: Sizer, _node: Node, element: PromptElement) -> Children:
    return element.children


@attrs.frozen
class ElementHandler:
    """The functions of one built-in element."""

    prepare: Prepare | None = None
    open: Open = _open_group
    close: Close | None = None


_RESOLVED: dict[type[PromptElement], ElementHandler] = {}
"""The handlers of all classes of elements that were rendered so far."""


def _resolve(cls: type[PromptElement]) -> ElementHandler:
    """Find the handler of a class: for each phase, the function of the nearest base class in the MRO that defines it."""
    if cls in _RESOLVED:
        return _RESOLVED[cls]
    handlers = [_HANDLERS[base] for base in cls.__mro__ if base in _HANDLERS]
    opening = next((each.open for each in handlers if each.open is not _open_group), _open_group)
    is_component = cls.render is not PromptElement.render
    handler = _RESOLVED[cls] = ElementHandler(
        prepare=next((each.prepare for each in handlers if each.prepare is not None), None),
        open=_refuse_render
        if is_component and opening not in (_open_group, _open_message)
        else opening,
        close=next((each.close for each in handlers if each.close is not None), None),
    )
    return handler


def is_plain_container(cls: type[PromptElement]) -> bool:
    """Return whether elements of a class only group their children, as Group does."""
    return (
        cls.render is PromptElement.render
        and not issubclass(cls, ATTACHED)
        and _resolve(cls) == _PLAIN
    )


_PLAIN = ElementHandler()
ATTACHED = (builtin.Metadata, builtin.Reference, builtin.CacheBreakpoint)
"""The elements that become no nodes."""


def _refuse_render(_sizer: Sizer, node: Node, element: PromptElement) -> NoReturn:
    cls = type(element)
    base = next(
        base
        for base in cls.__mro__
        if base in _HANDLERS and _HANDLERS[base].open is not _open_group
    )
    raise BadPropError(
        f"{cls.__name__} defines render, and {base.__name__}, which it extends, does not call it: extend PromptElement instead.",
        path=format_path(node),
    )


# SystemMessage, UserMessage, AssistantMessage, ToolMessage


def _open_message(_sizer: Sizer, node: Node, element: builtin.MessageElement) -> Children:
    if node.message is not None:
        raise TreeError(
            f"{type(element).__name__} is inside another message ({format_path(node.message)}): messages cannot be nested.",
            path=format_path(node),
        )
    node.message = node
    node.name = element.name
    node.role = next(role for cls, role in builtin.ROLES.items() if isinstance(element, cls))
    if isinstance(element, builtin.ToolMessage):
        node.call_id = element.tool_call_id
    elif isinstance(element, builtin.AssistantMessage):
        node.calls = tuple(element.tool_calls)
        node.calls_removed_at = [NEVER_REMOVED] * len(node.calls)
        for call in node.calls if element.keep_with else ():
            _require_hashable("keep_with", element.keep_with.get(call.id), node)
    return element.children


# ToolRound: becomes an AssistantMessage and its ToolMessages.


def _open_tool_round(_sizer: Sizer, node: Node, element: builtin.ToolRound) -> Children:
    if not element.calls:
        raise BadPropError(
            "a ToolRound needs at least one call: use an AssistantMessage for text alone.",
            path=format_path(node),
        )
    call_ids = [call.id for call in element.calls]
    known_ids = set(call_ids)
    order = [
        *(key for key in call_ids if key in element.results),
        # results without a call: pairing reports them
        *(key for key in element.results if key not in known_ids),
    ]
    return (
        builtin.AssistantMessage(tool_calls=tuple(element.calls))[element.text],
        *(builtin.ToolMessage(tool_call_id=key)[element.results[key]] for key in order),
    )


# Chunk, and ToolRound: removed as a whole.


def _prepare_chunk(node: Node, _element: PromptElement) -> None:
    node.atomic = not node.passes_priority


# Text, TextChunk


def _open_text(_sizer: Sizer, node: Node, element: builtin.Text) -> Children:
    content, attached = _split_text(node, element)
    add_text(node, content, STARTS_LINE_FIRST)
    return attached


def _open_text_chunk(sizer: Sizer, node: Node, element: builtin.TextChunk) -> Children:
    content, attached = _split_text(node, element)
    if element.break_on is not None or element.break_on_whitespace:
        pattern = _WHITESPACE if element.break_on is None else element.break_on
        whole = content
        content = _cut_to_budget(whole, pattern, sizer.budget_of(node), sizer.tokenizer)
        node.is_cut = content != whole
        if not content:
            return attached
    add_text(node, content, STARTS_LINE_ALWAYS)
    return attached


def _split_text(node: Node, element: PromptElement) -> tuple[str, Children]:
    """Return the text of an element that takes only text, and the References and Metadata attached to it."""
    attached = tuple(child for child in element.children if isinstance(child, PromptElement))
    for child in attached:
        if not isinstance(child, builtin.Reference | builtin.Metadata):
            raise BadChildError(
                f"{type(element).__name__} cannot have {type(child).__name__} as a child: "
                "it takes strings, References and Metadata. Use a Group or a Chunk around elements.",
                path=format_path(node),
            )
    return "".join(child for child in element.children if isinstance(child, str)), attached


_WHITESPACE = re.compile(r"\s+")


def _cut_to_budget(
    content: str, separator: str | re.Pattern[str], budget: int, tokenizer: Tokenizer
) -> str:
    """Return the longest run of leading pieces that fits `budget` tokens.

    The first piece that does not fit ends it.

    A separator stays at the start of the piece after it, as in prompt-tsx. Each count starts at the
    last safe cut, so that a long text is counted only once.
    """
    # counted_end is a safe cut: the text before it has `counted_tokens`
    fitting_end = counted_tokens = counted_end = 0
    base = tokenizer.base
    safe_cut = base.safe_cut
    pattern = re.escape(separator) if isinstance(separator, str) else separator
    starts = (match.start() for match in re.finditer(pattern, content) if match.start() > 0)
    for end in chain(starts, [len(content)]):
        tokens = base.count(content[counted_end:end])
        if tokenizer.scale(counted_tokens + tokens) > budget:
            break
        fitting_end = end
        cuts = safe_cut.finditer(content, counted_end + 1, end) if safe_cut is not None else ()
        cut = max((match.start() for match in cuts if match.start() < end), default=None)
        if cut is not None:
            counted_tokens += tokens - base.count(content[cut:end])
            counted_end = cut
    return content[:fitting_end]


# Tag: writes its two lines, and drops them if its content is empty.


def _open_tag(_sizer: Sizer, node: Node, element: builtin.Tag) -> Children:
    attributes = "".join(
        f' {key}="{escape_attribute(_require_text(value, key, node))}"'
        for key, value in element.attributes.items()
    )
    if not element.children:
        add_text(node, f"<{element.tag}{attributes} />", STARTS_LINE_ALWAYS).ends_line = True
        return ()
    add_text(node, f"<{element.tag}{attributes}>\n", STARTS_LINE_ALWAYS).is_frame = True
    return (builtin.Group().replace(children=element.children),)


def _close_tag(_sizer: Sizer, node: Node, element: builtin.Tag) -> Children | None:
    if element.children:
        end = add_text(node, f"</{element.tag}>", STARTS_LINE_ALWAYS)
        end.is_frame = end.ends_line = True
        node.removed_at.append(NEVER_REMOVED)
        node.nodes[0].label = "content"
        if is_empty(node.nodes[0]):
            _keep_attachments(node, node.nodes, shown=False)
            clear_node(node)
    return None


def _require_text(value: object, attribute: str, node: Node) -> str:
    if isinstance(value, str):
        return value
    raise BadPropError(
        f"the attribute {attribute} must be a text, not {value!r}: write str(…) for a value, and .layout({attribute}=…) for a layout prop.",
        path=format_path(node),
    )


def escape_attribute(value: str) -> str:
    """Escape an attribute value as XML.

    The standard library's function would import its HTTP client.
    """
    return value.translate(_ESCAPES)


_ESCAPES = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "\n": "&#10;",
        "\r": "&#13;",
        "\t": "&#9;",
    }
)


# Truncate: renders its children, then cuts their text to its share. Ever shorter texts, down to the
# marker, are fallbacks of one another, so that pruning shortens it before it removes it.


def _open_truncate(_sizer: Sizer, node: Node, element: builtin.Truncate) -> Children:
    if not 0 <= element.ratio <= 1:
        raise BadPropError(
            f"ratio must be from 0 to 1, not {element.ratio}.", path=format_path(node)
        )
    if element.keep not in _KEEP_VALUES:
        raise BadPropError(
            f"keep must be one of {', '.join(_KEEP_VALUES)}, not {element.keep!r}.",
            path=format_path(node),
        )
    if element.max_tokens is not None:
        _check_tokens("max_tokens", element.max_tokens, node)
    return element.children


_KEEP_VALUES = ("head", "tail", "middle")


def _close_truncate(sizer: Sizer, node: Node, element: builtin.Truncate) -> Children | None:
    if node.alternatives is not None:
        return None  # it consists of its texts
    content = read_text(node)
    if content is None:
        raise BadChildError(
            "Truncate takes only text: move images, documents and other parts out of it.",
            path=format_path(node),
        )
    tokens = (
        sizer.budget_of(node)
        if element.max_tokens is None
        else _check_tokens("max_tokens", element.max_tokens, node)
    )
    head, marker = {"head": 1.0, "tail": 0.0}.get(element.keep, element.ratio), element.marker
    cut = sizer.truncate(content, tokens, head=head, marker=marker)
    shorter = list_shorter_texts(
        content,
        len(cut) - len(marker) if cut and cut != content else len(content),
        head=head,
        marker=marker,
    )
    node.is_cut = cut != content and element.max_tokens is None
    if (
        not cut
        and content.strip()
        and element.max_tokens is None
        and _has_literal_text_beside(node)
    ):
        # its share is too small, but the text beside it must not stand alone because of that
        cut, shorter = [content, *shorter][-1], []
    _keep_attachments(node, node.nodes, shown=True)
    clear_node(node)
    if not cut:
        return None
    node.alternatives = []
    shown: builtin.Group | None = None
    for each in reversed([] if element.required or cut.isspace() else shorter):
        shown = builtin.Group(fallback=shown)[each]
    return (builtin.Group(priority=element.priority, fallback=shown)[cut],)


def _has_literal_text_beside(node: Node) -> bool:
    """Return whether literal text stands beside a node, or beside a container around it in the message.

    A Tag around it leaves by itself when nothing is in it.
    """
    around = takewhile(
        lambda above: above.message is node.message and not isinstance(above.element, builtin.Tag),
        iter_upwards(node.parent),
    )
    return any(is_literal(item) and not item.is_empty for above in around for item in above.items)


# Expandable, and Rounds below: the expansion writes them.


def _open_expandable(_sizer: Sizer, _node: Node, _element: builtin.Expandable) -> Children:
    return ()


def write_expandable(node: Node, value: object) -> None:
    """Set the text of an Expandable. Raises BadChildError for anything but a string."""
    if not isinstance(value, str):
        raise BadChildError(
            f"the value of an Expandable must be a string, not {type(value).__name__}.",
            path=format_path(node),
        )
    clear_node(node)
    add_text(node, value, STARTS_LINE_FIRST)
    node.removed_at = [NEVER_REMOVED]


# IfEmpty: renders both alternatives, then keeps one.


def _open_if_empty(_sizer: Sizer, node: Node, element: builtin.IfEmpty) -> Children:
    return (
        wrap_in_group(element.alt, node),
        builtin.Group(flex_grow=1).replace(children=element.children),
    )


def _close_if_empty(_sizer: Sizer, node: Node, _element: builtin.IfEmpty) -> Children | None:
    alt, children = node.nodes
    alt.label, children.label = "alt", "children"
    kept, dropped = (alt, children) if is_empty(children) else (children, alt)
    kept.position = 0
    _keep_attachments(node, [dropped], shown=False)
    node.items, node.nodes, node.removed_at = [kept], [kept], [NEVER_REMOVED]
    return None


# First: renders one child after the other, until one fits.


def _open_first(_sizer: Sizer, node: Node, element: builtin.First) -> Children:
    node.alternatives = [(child,) for child in reversed(element.children)]
    return node.alternatives.pop() if node.alternatives else ()


def _close_first(sizer: Sizer, node: Node, _element: builtin.First) -> Children | None:
    if not node.alternatives:
        return None
    if surely_fits_by_itself(node, sizer) or measure(node, sizer) <= sizer.budget_of(node):
        node.alternatives = []
        return None
    _keep_attachments(node, node.nodes, shown=False)
    clear_node(node)
    child = node.alternatives.pop()
    if child == (None,):
        _mark_cut_away(node)
    return child


# PrioritizedList: gives its children priorities by position.


def _open_prioritized_list(sizer: Sizer, _node: Node, element: builtin.PrioritizedList) -> Children:
    top = element.priority or 0
    count = len(element.children)
    ranked: list[str | PromptElement | None] = []
    for index, child in enumerate(element.children):
        priority = top - index if element.descending else top - count + index
        if isinstance(child, str):
            ranked.append(builtin.TextChunk(priority=priority)[child])
        elif (
            isinstance(child, builtin.SystemMessage)
            and child.priority is None
            and not (child.pass_priority or sizer.prompt_tsx)
        ):
            # it has no priority of its own, and the last such system message stays
            around = builtin.Group(
                priority=priority,
                flex_grow=child.flex_grow,
                flex_basis=child.flex_basis,
                flex_reserve=child.flex_reserve,
            )
            alone = child.replace(flex_grow=None, flex_basis=1, flex_reserve=None)
            ranked.append(around.replace(children=(alone,)))
        elif child is not None:
            ranked.append(child.replace(priority=priority))
    return tuple(ranked)


# Rounds: become message items, which the render removes in the order that is given.


def _open_rounds(_sizer: Sizer, node: Node, element: builtin.Rounds) -> Children:
    node.run = Run(
        node,
        element.order,
        element.priorities,
        marker=element.marker,
        find_labels=cache(partial(builtin.describe_rounds, element.rounds)),
    )
    node.run.dropped, node.run.unspent = element.dropped, element.unspent
    return ()


# TokenLimit, Isolate, Reserve, KeepWith, LegacyPrioritization: groups that pruning treats
# differently.


def _prepare_token_limit(node: Node, element: builtin.TokenLimit) -> None:
    node.limit = _check_tokens("max_tokens", element.max_tokens, node)


def _prepare_isolate(node: Node, element: builtin.Isolate) -> None:
    node.limit = node.budget = _check_tokens("tokens", element.tokens, node)
    node.atomic = True


def _prepare_reserve(node: Node, element: builtin.Reserve) -> None:
    tokens = _check_tokens("tokens", element.tokens, node)
    if node.in_fallback:
        raise BadPropError(
            "a Reserve cannot be in a fallback, because its tokens are kept free from the start: move it out of the fallback.",
            path=format_path(node),
        )
    node.reserve = tokens
    node.required = True


def _prepare_keep_with(node: Node, element: builtin.KeepWith) -> None:
    _require_hashable("group", element.key, node)
    node.keep_groups = (element.key,)


def _prepare_legacy(node: Node, _element: builtin.LegacyPrioritization) -> None:
    node.legacy = True


def _require_hashable(prop: str, group: Hashable, node: Node) -> None:
    try:
        hash(group)
    except TypeError:
        raise BadPropError(
            f"a group in {prop} must be hashable, not a {type(group).__name__}: use a text, a number or `object()`.",
            path=format_path(node),
        ) from None


def _check_tokens(prop: str, tokens: int | str, node: Node) -> int:
    """Return a number of tokens, which an element has read from text when it was made."""
    if not isinstance(tokens, int | float) or not tokens >= 0:
        raise BadPropError(
            f"{prop} must be a number of at least 0 tokens, not {tokens!r}.", path=format_path(node)
        )
    return tokens


# Image, Document, Opaque


def _open_media(_sizer: Sizer, node: Node, element: PromptElement) -> Children:
    if node.message is None and not node.fragment:
        raise TreeError(
            f"{type(element).__name__} is outside a message: put it into a message.",
            path=format_path(node),
        )
    node.items.append(
        Leaf(
            node, "", node.text_priority, STARTS_LINE_NEVER, part=build_part(element), element=None
        )
    )
    return ()


def _keep_attachments(node: Node, dropped: list[Node], *, shown: bool) -> None:
    """Move the metadata and references of subtrees that are about to be dropped to `node`.

    If their content is still `shown` in another form, all are kept. Otherwise only metadata that is
    not local is kept.
    """
    nodes = list(dropped)
    for each in nodes:  # grows while it is walked
        nodes.extend(each.nodes)
    metadata = [value for each in nodes for value in each.metadata or () if shown or not value[1]]
    references = [reference for each in nodes for reference in each.references or () if shown]
    if metadata:
        node.metadata = [*(node.metadata or ()), *metadata]
    if references:
        node.references = [*(node.references or ()), *references]


_MESSAGE = ElementHandler(open=_open_message)
_MEDIA = ElementHandler(open=_open_media)

_HANDLERS: dict[type[PromptElement], ElementHandler] = {
    PromptElement: ElementHandler(),
    builtin.SystemMessage: _MESSAGE,
    builtin.UserMessage: _MESSAGE,
    builtin.AssistantMessage: _MESSAGE,
    builtin.ToolMessage: _MESSAGE,
    builtin.ToolRound: ElementHandler(prepare=_prepare_chunk, open=_open_tool_round),
    builtin.Text: ElementHandler(open=_open_text),
    builtin.TextChunk: ElementHandler(open=_open_text_chunk),
    builtin.Tag: ElementHandler(open=_open_tag, close=_close_tag),
    builtin.Truncate: ElementHandler(open=_open_truncate, close=_close_truncate),
    builtin.Expandable: ElementHandler(open=_open_expandable),
    builtin.Chunk: ElementHandler(prepare=_prepare_chunk),
    builtin.First: ElementHandler(open=_open_first, close=_close_first),
    builtin.IfEmpty: ElementHandler(open=_open_if_empty, close=_close_if_empty),
    builtin.Isolate: ElementHandler(prepare=_prepare_isolate),
    builtin.KeepWith: ElementHandler(prepare=_prepare_keep_with),
    builtin.LegacyPrioritization: ElementHandler(prepare=_prepare_legacy),
    builtin.PrioritizedList: ElementHandler(open=_open_prioritized_list),
    builtin.Reserve: ElementHandler(prepare=_prepare_reserve),
    builtin.TokenLimit: ElementHandler(prepare=_prepare_token_limit),
    builtin.Rounds: ElementHandler(open=_open_rounds),
    builtin.Image: _MEDIA,
    builtin.Document: _MEDIA,
    builtin.Opaque: _MEDIA,
}
