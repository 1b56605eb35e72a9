"""Assertions about rendered prompts, whose messages show the receipt and what came near.

What became of each element of a prompt: what assertions about elements look at.
Messages as a few short lines: what the messages of failed tests show.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, Never, TypeAlias

import attrs

from promptkit.errors import BudgetExceededError
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, OpaquePart
from promptkit.rendering.assemble import assemble_messages
from promptkit.rendering.renderer import Renderer
from promptkit.rendering.result import Rendered
from promptkit.rendering.sizing import Sizer
from promptkit.rendering.tree import PATH_SEPARATOR, Item, Leaf, Node, TextMessage, format_label, format_path, is_item_alive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.element import Child
    from promptkit.messages import Message, Part, ToolDefinition
    from promptkit.rendering.removals import PrunedTree, Removal
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tokens.models import NamedModel
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.tools import Tool

__all__ = [
    "Piece",
    "assert_dropped",
    "assert_fits",
    "assert_kept",
    "assert_stable_prefix",
    "labels",
    "line_of",
    "outline",
    "pieces",
    "pieces_with",
    "pruned_of",
    "removed_by",
    "shorten",
    "whole_messages",
]


WHOLE = -1
"""The state before anything was removed, by limits either."""


Fate: TypeAlias = Literal["kept", "dropped", "empty"]


@attrs.frozen
class Piece:
    """An element, or a string in one. `kept`: something of it was sent; `dropped`: nothing of it is left; `empty`: it never said anything."""

    path: str
    fate: Fate


def pruned_of(rendered: Rendered) -> PrunedTree:
    """The tree behind a render, and the state that it is in."""
    return rendered._pruned  # noqa: SLF001  # the tree is no part of what users are promised  # pyright: ignore[reportPrivateUsage]


def whole_messages(rendered: Rendered) -> tuple[Message, ...]:
    """The messages before anything was removed."""
    return assemble_messages(pruned_of(rendered).tree.root, WHOLE)


def pieces(rendered: Rendered, pattern: str) -> list[Piece]:
    """The elements whose paths end as `pattern` says, in written order.

    A step of the pattern is a type, a name, or both as paths show them (`Group(history)`), with or without its index; `*` in it
    stands for any characters.
    """
    steps = [re.compile(re.escape(step).replace(r"\*", ".*"), re.DOTALL) for step in reversed(pattern.split(PATH_SEPARATOR))]
    return [Piece(format_path(node, position), fate) for node, position, fate in _fates(rendered) if _ends_so(node, position, steps)]


def pieces_with(rendered: Rendered, text: str) -> list[Piece]:
    """The pieces in which a text was written."""
    found: list[Piece] = []
    for parent, position, fate in _fates(rendered):
        item = parent.items[position]
        if isinstance(item, TextMessage | Leaf) and text in item.text:
            found.append(Piece(format_path(parent, position), fate))
    return found


def labels(rendered: Rendered) -> list[str]:
    """The last steps of all paths, without indices, each once."""
    return list(dict.fromkeys(_bare(format_label(parent, position)) for parent, position, _ in _fates(rendered)))


def removed_by(rendered: Rendered, path: str) -> str:
    """A dropped piece with the removal that took it: its own, that of something around it, or that of the last thing in it."""
    inside: Removal | None = None
    for removal in rendered.removals:
        why = f"{removal.reason}: {removal.partner}" if removal.partner else removal.reason
        if removal.path == path:
            return f"{path}: removal {removal.order}, {why}"
        if path.startswith(f"{removal.path}{PATH_SEPARATOR}"):
            return f"{path}: removal {removal.order}, {why}, of {removal.path}"
        if removal.path.startswith(f"{path}{PATH_SEPARATOR}"):
            inside = removal
    return f"{path}: removal {inside.order}, the last of it, {inside.path}" if inside else path


def _fates(rendered: Rendered) -> Iterator[tuple[Node, int, Fate]]:
    """Each item of the tree that took part in the render, and what became of it."""
    pruned = pruned_of(rendered)
    nodes = pruned.tree.nodes
    before, after = _State(nodes, WHOLE), _State(nodes, pruned.state)
    for node in nodes:
        for position, item in enumerate(node.items):
            if isinstance(item, Leaf) and item.is_frame:
                continue  # written by the element around it
            if after.has(node, position) and after.says(item):
                yield node, position, "kept"
            elif before.has(node, position):
                yield node, position, "dropped" if before.says(item) else "empty"


class _State:
    """A tree at state k: which of its nodes are there, with all above them, and which of those say something."""

    def __init__(self, nodes: list[Node], k: int) -> None:
        self._k = k
        self._there: set[Node] = set()
        self._says: set[Node] = set()
        for node in nodes:  # parents stand before their children
            parent = node.parent
            if parent is None or (parent in self._there and is_item_alive(node, parent.removed_at[node.position], k)):
                self._there.add(node)
        for node in reversed(nodes):
            own = node.role == "tool" or node.reserve > 0 or (node.calls and any(gone >= k for gone in node.calls_removed_at))
            if own or any(self.has(node, position) and self.says(item) for position, item in enumerate(node.items)):
                self._says.add(node)

    def has(self, node: Node, position: int) -> bool:
        """Whether an item is there."""
        return node in self._there and is_item_alive(node.items[position], node.removed_at[position], self._k)

    def says(self, item: Item) -> bool:
        """Whether an item says anything: only white space says nothing."""
        if isinstance(item, Node):
            return item in self._says
        return isinstance(item, TextMessage) or item.part is not None or (not item.is_frame and bool(item.text.strip()))


def _ends_so(parent: Node, position: int, steps: list[re.Pattern[str]]) -> bool:
    """Whether the last steps of an item's path are these, given last first."""
    at: tuple[Node, int] | None = (parent, position)
    for step in steps:
        if at is None:
            return False
        node, position = at
        if not any(step.fullmatch(form) for form in _forms(format_label(node, position))):
            return False
        at = (node.parent, node.position) if node.parent is not None else None
    return True


_LABEL = re.compile(r"(?P<kind>[^(\[]*)(?:\((?P<name>.*)\))?(?P<index>\[\d+\])?", re.DOTALL)


def _forms(label: str) -> set[str]:
    """The ways to write the last step of a path."""
    match = _LABEL.fullmatch(label)
    if match is None:
        return {label}
    kind, name, index = match["kind"], match["name"], match["index"] or ""
    names = {kind} if name is None else {kind, name, f"{kind}({name})"}
    return names | {f"{each}{index}" for each in names}


def _bare(label: str) -> str:
    return re.sub(r"\[\d+\]$", "", label)


WIDTH = 160
"""Characters."""

MOST = 12
"""Messages that are shown before the middle is left out."""


def outline(messages: Sequence[Message]) -> list[str]:
    """One line for each message, numbered from 0; of very many, the first and the last few."""
    lines = [f"{index}  {line_of(message)}" for index, message in enumerate(messages[: MOST // 2])]
    rest = messages[MOST // 2 :]
    hidden = max(0, len(rest) - MOST // 2)
    if hidden:
        lines.append(f"…  {hidden:,} more")
    start = len(messages) - len(rest) + hidden
    return lines + [f"{start + index}  {line_of(message)}" for index, message in enumerate(rest[hidden:])]


def line_of(message: Message) -> str:
    """A message as one line: its role, its text, its calls."""
    name = message.name or message.tool_call_id
    said = [_part(part) for part in message.content] + [f"→ {call.name} {call.arguments}" for call in message.tool_calls]
    return f"{message.role}{f' ({name})' if name else ''}: {shorten(' '.join(filter(None, said)) or '(empty)')}"


def shorten(text: str) -> str:
    """A text on one line, cut where it is long."""
    line = " ".join(text[: 2 * WIDTH].split())
    return line if len(line) <= WIDTH and len(text) <= 2 * WIDTH else line[: WIDTH - 1] + "…"


def _part(part: Part) -> str:
    match part:
        case str(text):
            return shorten(text)
        case ImagePart(url=url):
            return f"[image {url[:60]}]"
        case DocumentPart(name=name, media_type=kind):
            return f"[document {name or kind}]"
        case OpaquePart(value=value):
            return f"[{shorten(repr(value))}]"
        case CacheBreakpointPart():
            return "[cache boundary]"


NEAR = 3
"""Places that are shown of those that come near."""

PLACES = 10
"""Places that are shown of those that are meant, before the middle is left out."""

BEFORE = 30
"""Characters that are shown before the first that differs."""

LINES = 60
"""Lines of a receipt that are shown before its middle is left out."""


def assert_fits(  # noqa: PLR0913  # the arguments of a render
    prompt: Child | Rendered,
    *,
    budget: int | str | ContextBudget | None = None,
    model: str | NamedModel | None = None,
    tokenizer: Tokenizer | None = None,
    reserved_output_tokens: int | None = None,
    tools: Sequence[Tool | ToolDefinition] = (),
    whole: bool = False,
) -> Rendered:
    """The prompt as rendered, if it fits; with `whole`, if moreover nothing of it was removed.

    An element, or a tuple of them, is rendered with these arguments, and fits if what is required does. A Rendered is not
    rendered again: its tokens, with those that it reserves, are compared with the budget that the arguments give, or with its own.

    Raises AssertionError, with the largest of what has to stay; TypeError if an element is given neither `budget` nor `model`.
    """
    __tracebackhide__ = True
    given = budget is not None or model is not None
    if not given and not isinstance(prompt, Rendered):
        problem = "assert_fits needs a budget, or a model that has one: assert_fits(prompt, budget=4_000)."
        raise TypeError(problem)
    renderer = Renderer(budget=budget, model=model, tokenizer=tokenizer, reserved_output_tokens=reserved_output_tokens, tools=tools)
    try:
        rendered = prompt if isinstance(prompt, Rendered) else renderer.render(prompt)
    except BudgetExceededError as error:
        raise AssertionError(_exceeded(error)) from None
    room = renderer.budget if given else rendered.budget
    needed = rendered.tokens + rendered.reserved
    if needed > room:
        reserved = f" ({rendered.reserved:,} of them reserved)" if rendered.reserved else ""
        _fail(f"{needed:,} tokens{reserved} do not fit {room:,} (over by {needed - room:,}).", "The largest:", _largest(rendered), rendered)
    if whole and rendered.removals:
        _fail(f"The prompt does not fit {room:,} tokens as a whole: {len(rendered.removals):,} removed.", "", (), rendered)
    return rendered


def assert_kept(rendered: Rendered, *texts: str, path: str | None = None) -> None:
    """Every text stands in the text of a message as sent; of every element at `path` something was sent.

    `path` is the end of an element path, such as receipts show: `History`, `History > UserMessage[2]`. A step is an element's
    type, its name or both (`Group(notes)`), with or without its index; `*` in it stands for any characters. That nothing has such
    a path is a failure.

    Raises AssertionError, with the removal that took it; TypeError if there is nothing to look for.
    """
    __tracebackhide__ = True
    _asked_for("assert_kept", texts, path)
    for text in texts:
        if any(text in message.text for message in rendered.messages):
            continue
        if any(text in message.text for message in whole_messages(rendered)):
            took = [piece.path for piece in pieces_with(rendered, text) if piece.fate == "dropped"]
            _fail(f"{_quoted(text)} was dropped.", "", _removed(took, rendered), rendered)
        _fail(
            f"{_quoted(text)} is nowhere in the prompt, and was not before anything was removed.", "Near:", _near(text, rendered), rendered
        )
    if path is not None:
        found = _found(rendered, path)
        lost = [piece.path for piece in found if piece.fate == "dropped"]
        if lost:
            _fail(f"Of {path!r}, {len(lost):,} of {len(found):,} {_was(len(lost))} dropped:", "", _removed(lost, rendered), rendered)
        blank = [piece.path for piece in found if piece.fate == "empty"]
        if blank:
            _fail(f"Of {path!r}, {len(blank):,} of {len(found):,} rendered nothing to begin with:", "", blank, rendered)


def assert_dropped(rendered: Rendered, *texts: str, path: str | None = None) -> None:
    """Every text stood in the prompt and stands in no message as sent; every element at `path` said something, and nothing of it is left.

    `path` is that of `assert_kept`. What was never in the prompt was not dropped either, so a misspelt text is a failure.

    Raises AssertionError, with where it is; TypeError if there is nothing to look for.
    """
    __tracebackhide__ = True
    _asked_for("assert_dropped", texts, path)
    for text in texts:
        at = [f"{index}  {line_of(message)}" for index, message in enumerate(rendered.messages) if text in message.text]
        if at:
            by = [piece.path for piece in pieces_with(rendered, text) if piece.fate == "kept"]
            _fail(f"{_quoted(text)} was kept.", "In message" if len(at) == 1 else "In messages", [*at[:NEAR], *by[:NEAR]], rendered)
        if not any(text in message.text for message in whole_messages(rendered)):
            _fail(f"{_quoted(text)} was never in the prompt, so nothing dropped it.", "Near:", _near(text, rendered), rendered)
    if path is not None:
        found = _found(rendered, path)
        left = [piece.path for piece in found if piece.fate == "kept"]
        if left:
            _fail(f"Of {path!r}, {len(left):,} of {len(found):,} {_was(len(left))} kept:", "", left, rendered)
        blank = [piece.path for piece in found if piece.fate == "empty"]
        if blank:
            _fail(f"Of {path!r}, {len(blank):,} of {len(found):,} rendered nothing, so nothing dropped it:", "", blank, rendered)


def assert_stable_prefix(earlier: Rendered, later: Rendered, *, at_least: int) -> None:
    """The later request begins with messages of the earlier one, byte for byte, that have at least so many tokens.

    That is what a provider's prompt cache can use again. Tools stand before all messages there: with other tools, nothing is stable.

    Raises AssertionError, with the first message that differs.
    """
    __tracebackhide__ = True
    same = _equal(earlier.messages, later.messages)
    tools = [_tools_of(rendered) for rendered in (earlier, later)]
    sizer = Sizer(pruned_of(later).sizer.tokenizer)
    tokens = sum(map(sizer.count_message, later.messages[:same])) if tools[0] == tools[1] else 0
    if tokens >= at_least:
        return
    headline = f"The first {tokens:,} tokens are stable, and at least {at_least:,} were to be."
    if tools[0] != tools[1]:
        shown = [", ".join(tool.name for tool in some) or "(none)" for some in tools]
        _fail(headline, "The tools differ, in their names or elsewhere:", [f"earlier  {shown[0]}", f"later    {shown[1]}"], later)
    shown = _first_difference(earlier.messages, later.messages, same)
    _fail(headline, f"Message {same} is the first to differ:", [f"earlier  {shown[0]}", f"later    {shown[1]}"], later)


def _fail(headline: str, heading: str, lines: Sequence[str], rendered: Rendered) -> Never:
    __tracebackhide__ = True
    shown = [f"  {line}" for line in _folded(lines, PLACES)]
    receipt = _folded(rendered.explain().splitlines(), LINES)
    raise AssertionError(
        "\n".join([headline, *([heading] if heading and shown else []), *shown, "The receipt:", *(f"  {line}" for line in receipt)])
    )


def _folded(lines: Sequence[str], most: int) -> list[str]:
    """The first and the last of many lines."""
    half = most // 2
    return [*lines[:half], f"… {len(lines) - most:,} more …", *lines[-half:]] if len(lines) > most else list(lines)


def _removed(paths: Sequence[str], rendered: Rendered) -> list[str]:
    """The first and the last of many dropped pieces, each with its removal: looking for one goes through all removals."""
    return [removed_by(rendered, line) if line in paths else line for line in _folded(paths, PLACES)]


def _exceeded(error: BudgetExceededError) -> str:
    where = f" at {error.where}" if error.where else ""
    lines = [f"{error.required:,} tokens have to stay, and do not fit {error.budget:,}{where} (over by {error.over:,}). The largest:"]
    lines += [f"  {tokens:>9,}  {path}" for path, tokens in error.largest.items()]
    return "\n".join([*lines, f"Nothing else may be removed; removed already: {len(error.removed):,}."])


def _largest(rendered: Rendered) -> list[str]:
    sizer = Sizer(pruned_of(rendered).sizer.tokenizer)
    sizes = [(sizer.count_message(message), index) for index, message in enumerate(rendered.messages)]
    largest = sorted(sizes, key=lambda pair: (-pair[0], pair[1]))[:NEAR]
    return [f"{tokens:>9,}  {index}  {line_of(rendered.messages[index])}" for tokens, index in largest]


def _asked_for(what: str, texts: Sequence[str], path: str | None) -> None:
    if path is None and not texts:
        problem = f"{what} needs a text, or a path: {what}(rendered, 'some words') or {what}(rendered, path='History')."
        raise TypeError(problem)
    if not all(texts) or path == "":
        problem = f"{what} was given an empty text or path, which says nothing."
        raise TypeError(problem)


def _found(rendered: Rendered, path: str) -> list[Piece]:
    __tracebackhide__ = True
    found = pieces(rendered, path)
    if not found:
        last = path.rpartition(PATH_SEPARATOR)[2]
        near = difflib.get_close_matches(last, labels(rendered), n=NEAR, cutoff=0.5)
        _fail(f"No element is at {path!r}.", "Near:", [piece.path for label in near for piece in pieces(rendered, label)[:NEAR]], rendered)
    return found


def _near(text: str, rendered: Rendered) -> list[str]:
    """The lines that share most words with a text, of the messages as they were before anything was removed."""
    words = set(text.casefold().split())
    lines = [
        (len(words & set(line.casefold().split())), f"{index}  {message.role}: {shorten(line)}")
        for index, message in enumerate(whole_messages(rendered))
        for line in message.text.splitlines()
    ]
    return [line for shared, line in sorted(lines, key=lambda pair: -pair[0])[:NEAR] if shared]


def _first_difference(earlier: Sequence[Message], later: Sequence[Message], index: int) -> list[str]:
    """The messages at a place where they differ, from shortly before the first character that does."""
    both = [messages[index] if index < len(messages) else None for messages in (earlier, later)]
    lines = [f"{message.role}: {message.text}" if message else "(no more messages)" for message in both]
    if lines[0] == lines[1]:
        lines = list(map(repr, both))  # they differ in what is no text
    start = max(0, _equal(*lines) - BEFORE)
    return [shorten(f"{'…' if start else ''}{line[start:]}") for line in lines]


def _equal(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items two sequences begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1] or pair[0] == pair[1], zip(one, other, strict=False)))


def _quoted(text: str) -> str:
    return shorten(repr(text))


def _tools_of(rendered: Rendered) -> tuple[ToolDefinition, ...]:
    return rendered._tools  # noqa: SLF001  # a render is not asked for its tools otherwise  # pyright: ignore[reportPrivateUsage]


def _was(count: int) -> str:
    return "was" if count == 1 else "were"
