"""Assertions about rendered prompts, and about what a compaction keeps.

An assertion that fails shows what it looked for, what came near, which removal dropped it, and the
receipt of the render.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Literal, Never, TypeAlias

from promptkit import (
    BudgetExceededError,
    Child,
    ContextBudget,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    Rendered,
    Renderer,
)
from promptkit.compaction.summarizers.losses import FactKind, Losses, is_shown
from promptkit.messages import CacheBreakpointPart
from promptkit.rendering import Removal
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.paths import PATH_SEPARATOR, Paths, format_label, format_path
from promptkit.rendering.prune.removals import PrunedTree
from promptkit.rendering.subtree import assemble_messages
from promptkit.rendering.tree import Item, Leaf, MessageItem, Node, is_item_alive
from promptkit.testing.snapshots.markdown import count_shared
from promptkit.tokens import NamedModel, Tokenizer
from promptkit.tools import AnyTool
from promptkit.transcript import Checkpoint, MessageEntry, Transcript

if TYPE_CHECKING:
    from promptkit.agent import AgentSession, ContextWindow, SyncSession  # loads asyncio


def assert_fits(  # noqa: PLR0913  # the arguments of a render
    prompt: Child | Rendered,
    *,
    budget: int | str | ContextBudget | None = None,
    model: str | NamedModel | None = None,
    tokenizer: Tokenizer | None = None,
    reserved_output_tokens: int | str | None = None,
    tools: Sequence[AnyTool] = (),
    nothing_removed: bool = False,
) -> Rendered:
    """Assert that a prompt fits a budget, and return it as rendered.

    Args:
        prompt: An element or a tuple of elements, which is rendered with the other arguments and
            fits if its required parts fit. A Rendered is not rendered again: its tokens, with those
            that it reserves, are compared with the budget.
        budget: Tokens, text such as `"8k"`, or a ContextBudget. For a Rendered the default is its
            own budget.
        model: A model whose context window is the budget, as a name or an object.
        tokenizer: Counts the tokens. Default: the model's tokenizer.
        reserved_output_tokens: Tokens to keep free for the reply.
        tools: Tools whose definitions take room beside the messages.
        nothing_removed: Whether it is also a failure if anything was pruned.

    Returns:
        The rendered prompt.

    Raises:
        AssertionError: The prompt does not fit. The message names the largest parts that have to
            stay.
        TypeError: An element was passed without `budget` and without `model`.
    """
    __tracebackhide__ = True
    has_budget = budget is not None or model is not None
    if not has_budget and not isinstance(prompt, Rendered):
        raise TypeError(
            "assert_fits needs a budget, or a model that has one: assert_fits(prompt, budget=4_000)."
        )
    renderer = Renderer(
        budget=budget,
        model=model,
        tokenizer=tokenizer,
        reserved_output_tokens=reserved_output_tokens,
        tools=tools,
    )
    try:
        rendered = prompt if isinstance(prompt, Rendered) else renderer.render(prompt)
    except BudgetExceededError as error:
        raise AssertionError(_describe_exceeded(error)) from None
    room = renderer.budget if has_budget else rendered.budget
    needed = rendered.tokens + rendered.reserved
    if needed > room:
        reserved = f" ({rendered.reserved:,} of them reserved)" if rendered.reserved else ""
        _fail(
            f"{needed:,} tokens{reserved} do not fit {room:,} (over by {needed - room:,}).",
            "The largest:",
            _list_largest(rendered),
            rendered,
        )
    if nothing_removed and rendered.removals:
        _fail(
            f"The prompt does not fit {room:,} tokens as a whole: {len(rendered.removals):,} removed.",
            "",
            (),
            rendered,
        )
    return rendered


def assert_kept(rendered: Rendered, *texts: str, path: str | None = None) -> None:
    """Assert that texts and elements are part of the messages as sent.

    Args:
        rendered: The rendered prompt.
        texts: Each must occur in the text of a message as sent.
        path: The end of an element's path as receipts show it, such as `History` or
            `History > UserMessage[2]`. A step is an element's type, its label or both
            (`Group(notes)`), with or without its index; `*` in it matches any characters. Something
            of every element that matches must have been sent, and at least one element must match.

    Raises:
        AssertionError: Something was dropped or was never in the prompt. The message names the
            removal that dropped it.
        TypeError: Neither a text nor a path was passed, or an empty one.
    """
    __tracebackhide__ = True
    _check_arguments("assert_kept", rendered, texts, path)
    for text in texts:
        if any(text in message.text for message in rendered.messages):
            continue
        if any(text in message.text for message in _assemble_unpruned(rendered)):
            _fail(
                f"{_quote(text)} was dropped.",
                "",
                _describe_removals(_find_paths_with_text(rendered, text, "dropped"), rendered),
                rendered,
            )
        _fail(
            f"{_quote(text)} is nowhere in the prompt, and was not before anything was removed.",
            "Near:",
            _find_near_lines(text, rendered),
            rendered,
        )
    if path is not None:
        _check_outcomes(rendered, path, wrong="dropped", empty="rendered nothing to begin with")


def assert_dropped(rendered: Rendered, *texts: str, path: str | None = None) -> None:
    """Assert that texts and elements were in the prompt, and that pruning removed them.

    A text that was never in the prompt fails the assertion too, so a misspelt text is found.

    Args:
        rendered: The rendered prompt.
        texts: Each must occur in the prompt before pruning, and in no message as sent.
        path: The end of an element's path, as for `assert_kept`. Every element that matches must
            have rendered something, and nothing of it may be left.

    Raises:
        AssertionError: Something was kept, or was never in the prompt. The message shows where it
            is.
        TypeError: Neither a text nor a path was passed, or an empty one.
    """
    __tracebackhide__ = True
    _check_arguments("assert_dropped", rendered, texts, path)
    for text in texts:
        places = [
            f"{index}  {_format_message(message)}"
            for index, message in enumerate(rendered.messages)
            if text in message.text
        ]
        if places:
            _fail(
                f"{_quote(text)} was kept.",
                "In message" if len(places) == 1 else "In messages",
                [*places[:MAX_NEAR], *_find_paths_with_text(rendered, text, "kept")[:MAX_NEAR]],
                rendered,
            )
        if not any(text in message.text for message in _assemble_unpruned(rendered)):
            _fail(
                f"{_quote(text)} was never in the prompt, so nothing dropped it.",
                "Near:",
                _find_near_lines(text, rendered),
                rendered,
            )
    if path is not None:
        _check_outcomes(
            rendered, path, wrong="kept", empty="rendered nothing, so nothing dropped it"
        )


def assert_stable_prefix(earlier: Rendered, later: Rendered, *, min_tokens: int) -> None:
    """Assert how much of a request the provider's prompt cache can reuse for the next one.

    The requests must begin with the same messages, byte for byte. Tools are sent before all
    messages, so where the tools differ nothing can be reused.

    Args:
        earlier: The request that filled the cache.
        later: The request that follows.
        min_tokens: Tokens that the shared leading messages must have.

    Raises:
        AssertionError: Fewer tokens are shared. The message shows the first message that differs.
    """
    __tracebackhide__ = True
    same = count_shared(earlier.messages, later.messages)
    tools = [
        rendered._tools  # noqa: SLF001  # a Rendered has no public attribute for them  # pyright: ignore[reportPrivateUsage]
        for rendered in (earlier, later)
    ]
    count = Sizer(_get_pruned_tree(later).sizer.tokenizer).count_message
    tokens = sum(map(count, later.messages[:same])) if tools[0] == tools[1] else 0
    if tokens >= min_tokens:
        return
    heading, lines = (
        (
            f"Message {same} is the first to differ:",
            _show_first_difference(earlier.messages, later.messages, same),
        )
        if tools[0] == tools[1]
        else (
            "The tools differ, in their names or elsewhere:",
            [", ".join(tool.name for tool in some) or "(none)" for some in tools],
        )
    )
    _fail(
        f"The first {tokens:,} tokens are stable, but at least {min_tokens:,} must be.",
        heading,
        [f"earlier  {lines[0]}", f"later    {lines[1]}"],
        later,
    )


def assert_cache_stable(
    conversation: AgentSession | SyncSession | ContextWindow | Transcript,
    *,
    allow: Collection[str] = ("compaction", "pruning"),
) -> None:
    """Assert that each request of a conversation began with all of the request before it, tools included.

    What the provider reports does not matter, so that a model without a prompt cache will do.

    Args:
        conversation: A session, a window or their transcript, on the branch where it continues.
        allow: Causes of a difference that are expected, as `CacheMissed.cause` names them.

    Raises:
        AssertionError: A request does not. The message names the first block that differs, the element
            that wrote it, and what changed it.
    """
    __tracebackhide__ = True
    transcript = conversation if isinstance(conversation, Transcript) else conversation.transcript
    replies = [
        entry.payload
        for entry in transcript.path()
        if isinstance(entry.payload, MessageEntry) and entry.payload.message.role == "assistant"
    ]
    lines = [
        f"  request {at}: {missed.describe()}; {missed.common:,} of {missed.expected:,} tokens are the same"
        for at, reply in enumerate(replies)
        if (missed := reply.cache_miss) is not None
        and missed.reason in {"changed", "model"}
        and missed.cause.partition(";")[0] not in allow
    ]
    if lines:
        raise AssertionError(
            "\n".join(
                [
                    f"{len(lines)} of {len(replies):,} requests do not begin with the request before:",
                    *_omit_middle(lines, MAX_PLACES),
                ]
            )
        )


def assert_summary_keeps(
    session: AgentSession | ContextWindow,
    *,
    paths: Sequence[str] = (),
    figures: Sequence[str] = (),
    share: float | None = None,
) -> None:
    """Assert what the next request still shows of a conversation that was compacted.

    Args:
        session: The session or the window.
        paths: Each must be spelled in a message, as a whole or from one of its folders on.
        figures: Each must be in a message, such as `180 ms`: its numbers, in whatever words.
        share: The least share of the facts which the latest compaction found in what it dropped (paths,
            commands, figures, error texts, requests) that the messages after it show.

    Raises:
        AssertionError: Something is missing, or nothing was compacted. The message names what is
            missing.
    """
    __tracebackhide__ = True
    from promptkit import ContextWindow

    window = session if isinstance(session, ContextWindow) else session.window
    view = window.view
    entry = None if view.checkpoint_id is None else window.transcript.get(view.checkpoint_id)
    if entry is None or not isinstance(entry.payload, Checkpoint):
        raise AssertionError(
            "Nothing was compacted, so there is no summary: compact before the assertion."
        )
    wanted: tuple[tuple[FactKind, Sequence[str]], ...] = (("paths", paths), ("figures", figures))
    for kind, texts in wanted:
        missing = [text for text in texts if not is_shown(kind, text, view.messages)]
        if missing:
            raise AssertionError(
                f"The next request does not show these {kind}: {', '.join(missing)}."
            )
    losses = Losses.from_json(entry.payload.losses)
    if share is not None and losses.share < share:
        raise AssertionError(
            "\n  ".join(
                [
                    f"The summary shows {losses.share:.0%} of the facts, and must show {share:.0%}. The newest that it leaves out:",
                    *map(_quote, losses.missing),
                ]
            )
        )


MAX_NEAR = 3
"""Near matches that a failure shows."""

MAX_PLACES = 10
"""Matching places that a failure shows before it omits the middle."""

MAX_RECEIPT_LINES = 60
"""Lines of a receipt that a failure shows before it omits the middle."""

CHARACTERS_BEFORE = 30
"""Characters that are shown before the first one that differs."""


def _fail(headline: str, heading: str, lines: Sequence[str], rendered: Rendered) -> Never:
    __tracebackhide__ = True
    shown = [f"  {line}" for line in _omit_middle(lines, MAX_PLACES)]
    raise AssertionError(
        "\n".join(
            [
                headline,
                *([heading] if heading and shown else []),
                *shown,
                "The receipt:",
                *(
                    f"  {line}"
                    for line in _omit_middle(rendered.explain().splitlines(), MAX_RECEIPT_LINES)
                ),
            ]
        )
    )


def _omit_middle(lines: Sequence[str], limit: int) -> list[str]:
    half = limit // 2
    return (
        [*lines[:half], f"… {len(lines) - limit:,} more …", *lines[-half:]]
        if len(lines) > limit
        else list(lines)
    )


def _check_arguments(
    function: str, rendered: object, texts: Sequence[str], path: str | None
) -> None:
    if not isinstance(rendered, Rendered):
        raise TypeError(
            f"{function} takes what render(prompt, budget=…) returns, not a {type(rendered).__name__}."
        )
    if path is None and not texts:
        raise TypeError(
            f"{function} needs a text or a path: {function}(rendered, 'some words') or {function}(rendered, path='History')."
        )
    if not all(texts) or path == "":
        raise TypeError(
            f"{function} was passed an empty text or path, which matches anything: pass the words or the path to look for."
        )


def _check_outcomes(rendered: Rendered, path: str, *, wrong: Outcome, empty: str) -> None:
    """Fail if an element at a path has the wrong outcome, or rendered nothing."""
    __tracebackhide__ = True
    found = _find_elements_or_fail(rendered, path)
    for outcome in (wrong, "empty"):
        paths = [each for each, found_outcome in found if found_outcome == outcome]
        said = empty if outcome == "empty" else f"{'was' if len(paths) == 1 else 'were'} {wrong}"
        lines = _describe_removals(paths, rendered) if outcome == "dropped" else paths
        if paths:
            _fail(f"Of {path!r}, {len(paths):,} of {len(found):,} {said}:", "", lines, rendered)


def _describe_exceeded(error: BudgetExceededError) -> str:
    where = f" at {error.where}" if error.where else ""
    rest = (
        f"The next to be removed would be the last message, {error.last_message}"
        if error.last_message
        else "Nothing else may be removed"
    )
    pinned = (
        f"; {error.pinned:,} tokens stay only because they stand before the cache breakpoint {error.cache_breakpoint}"
        if error.cache_breakpoint
        else ""
    )
    return "\n".join(
        [
            f"{error.required:,} tokens have to stay, and do not fit {error.budget:,}{where} (over by {error.over:,}). The largest:",
            *(f"  {tokens:>9,}  {path}" for path, tokens in error.largest.items()),
            f"{rest}{pinned}; removed already: {len(error.removed):,}.",
        ]
    )


def _list_largest(rendered: Rendered) -> list[str]:
    sizes = map(Sizer(_get_pruned_tree(rendered).sizer.tokenizer).count_message, rendered.messages)
    return [
        f"{tokens:>9,}  {index}  {_format_message(rendered.messages[index])}"
        for index, tokens in nlargest(MAX_NEAR, enumerate(sizes), key=lambda pair: pair[1])
    ]


def _describe_removals(paths: Sequence[str], rendered: Rendered) -> list[str]:
    """Name the removal of each dropped element that is shown; the search for one goes through all removals."""
    return [
        _describe_removal(rendered, line) if line in paths else line
        for line in _omit_middle(paths, MAX_PLACES)
    ]


def _describe_removal(rendered: Rendered, path: str) -> str:
    """Name the removal that took an element: its own, that of an element around it, or the last removal inside it."""
    inside: Removal | None = None
    for removal in rendered.removals:
        reason = f"{removal.reason}: {removal.partner}" if removal.partner else removal.reason
        if removal.path == path:
            return f"{path}: removal {removal.order}, {reason}"
        if path.startswith(f"{removal.path}{PATH_SEPARATOR}"):
            return f"{path}: removal {removal.order}, {reason}, of {removal.path}"
        if removal.path.startswith(f"{path}{PATH_SEPARATOR}"):
            inside = removal
    return f"{path}: removal {inside.order}, the last of it, {inside.path}" if inside else path


def _find_near_lines(text: str, rendered: Rendered) -> list[str]:
    """Find the lines that share most words with a text, in the messages before pruning."""
    words = set(text.casefold().split())
    lines = [
        (len(words & set(line.casefold().split())), f"{index}  {message.role}: {shorten(line)}")
        for index, message in enumerate(_assemble_unpruned(rendered))
        for line in message.text.splitlines()
    ]
    return [line for shared, line in nlargest(MAX_NEAR, lines, key=lambda pair: pair[0]) if shared]


def _show_first_difference(
    earlier: Sequence[Message], later: Sequence[Message], index: int
) -> list[str]:
    """Show the two messages at an index, from shortly before the first character that differs."""
    both = [messages[index] if index < len(messages) else None for messages in (earlier, later)]
    lines = [
        f"{message.role}: {message.text}" if message else "(no more messages)" for message in both
    ]
    if lines[0] == lines[1]:
        lines = list(map(repr, both))  # their texts are the same, so the difference is elsewhere
    start = max(0, count_shared(*lines) - CHARACTERS_BEFORE)
    return [shorten(f"{'…' if start else ''}{line[start:]}") for line in lines]


def _quote(text: str) -> str:
    return shorten(repr(text))


def _get_pruned_tree(rendered: Rendered) -> PrunedTree:
    return rendered._pruned  # noqa: SLF001  # the tree is not public  # pyright: ignore[reportPrivateUsage]


UNPRUNED = -1
"""The state of the tree before anything was removed, by token limits either."""


def _assemble_unpruned(rendered: Rendered) -> tuple[Message, ...]:
    """Assemble the messages as they were before anything was removed."""
    return assemble_messages(_get_pruned_tree(rendered).tree.root, UNPRUNED)


Outcome: TypeAlias = Literal["kept", "dropped", "empty"]
"""`kept`: something of an element was sent; `dropped`: nothing of it is left; `empty`: it never
rendered anything."""


def _find_elements_or_fail(rendered: Rendered, path: str) -> list[tuple[str, Outcome]]:
    __tracebackhide__ = True
    found = _find_elements(rendered, path)
    if not found:
        # the last steps of all paths without indices, each once
        labels = dict.fromkeys(
            re.sub(r"\[\d+\]$", "", format_label(parent, position))
            for parent, position, _ in _iter_outcomes(rendered)
        )
        near = difflib.get_close_matches(
            path.rpartition(PATH_SEPARATOR)[2], labels, n=MAX_NEAR, cutoff=0.5
        )
        paths = [place for label in near for place, _ in _find_elements(rendered, label)[:MAX_NEAR]]
        _fail(f"No element is at {path!r}.", "Near:", paths, rendered)
    return found


def _find_elements(rendered: Rendered, pattern: str) -> list[tuple[str, Outcome]]:
    """Find the elements whose paths end as a pattern says, in written order.

    `assert_kept` describes the pattern.
    """
    steps = [
        re.compile(re.escape(step).replace(r"\*", ".*"), re.DOTALL)
        for step in reversed(pattern.split(PATH_SEPARATOR))
    ]
    paths = Paths()
    return [
        (paths.format(node, position), outcome)
        for node, position, outcome in _iter_outcomes(rendered)
        if _path_ends_with(node, position, steps)
        or f"{PATH_SEPARATOR}{paths.shorten(node, position)}".endswith(f"{PATH_SEPARATOR}{pattern}")
    ]


def _find_paths_with_text(rendered: Rendered, text: str, outcome: Outcome) -> list[str]:
    """Find the strings with an outcome that contain a text."""
    return [
        format_path(parent, position)
        for parent, position, found in _iter_outcomes(rendered)
        if found == outcome and any(text in each for each in _list_texts(parent.items[position]))
    ]


def _list_texts(item: Item) -> Iterable[str]:
    return (
        item.list_texts()
        if isinstance(item, MessageItem)
        else [item.text]
        if isinstance(item, Leaf)
        else []
    )


def _path_ends_with(parent: Node, position: int, steps: list[re.Pattern[str]]) -> bool:
    """Return whether the last steps of an item's path match these patterns, the last step first."""
    node: Node | None = parent
    for step in steps:
        if node is None or not any(
            map(step.fullmatch, _list_spellings(format_label(node, position)))
        ):
            return False
        position, node = node.position, node.parent
    return True


_STEP = re.compile(r"(?P<kind>[^(\[]*)(?:\((?P<label>.*)\))?(?P<index>\[\d+\])?", re.DOTALL)


def _list_spellings(step: str) -> set[str]:
    """List the ways to write one step of a path: type, label or both, with and without the index."""
    match = _STEP.fullmatch(step)
    if match is None:
        return {step}
    kind, label, index = match["kind"], match["label"], match["index"] or ""
    spellings = {kind} if label is None else {kind, label, f"{kind}({label})"}
    return spellings | {f"{each}{index}" for each in spellings}


def _iter_outcomes(rendered: Rendered) -> Iterator[tuple[Node, int, Outcome]]:
    """Yield each item of the tree that took part in the render, with its outcome."""
    pruned = _get_pruned_tree(rendered)
    nodes = pruned.tree.nodes
    before, after = _map_content(nodes, UNPRUNED), _map_content(nodes, pruned.state)
    for node in nodes:
        for position, item in enumerate(node.items):
            if isinstance(item, Leaf) and item.is_frame:
                continue  # written by the element around it
            if after.get((node, position)):
                yield node, position, "kept"
            elif (node, position) in before:
                yield node, position, "dropped" if before[node, position] else "empty"


def _map_content(nodes: Sequence[Node], state: int) -> Mapping[tuple[Node, int], bool]:
    """Map the place of each item that a tree has in a state to whether the item shows anything but white space."""
    content: dict[tuple[Node, int], bool] = {}
    for node in nodes:  # parents come before their children
        if node.parent is None or (node.parent, node.position) in content:
            content |= {
                (node, position): False
                for position, item in enumerate(node.items)
                if is_item_alive(item, node.removed_at[position], state)
            }
    filled: set[Node] = set()
    for node in reversed(nodes):
        living = [place for at in range(len(node.items)) if (place := (node, at)) in content]
        content |= {place: _shows(node.items[place[1]], filled) for place in living}
        if (
            node.role == "tool"
            or node.reserve > 0
            or (node.calls and any(removed_at >= state for removed_at in node.calls_removed_at))
            or any(content[place] for place in living)
        ):
            filled.add(node)
    return content


def _shows(item: Item, filled: Collection[Node]) -> bool:
    """Return whether an item shows anything but white space; of nodes, those that are filled do."""
    if isinstance(item, Node):
        return item in filled
    if isinstance(item, MessageItem):
        return item.messages != ()
    return item.part is not None or (not item.is_frame and bool(item.text.strip()))


MAX_WIDTH = 160
"""Characters of a message that are shown on its line."""

MAX_MESSAGES = 12
"""Messages that are shown before the middle is omitted."""


def format_messages(messages: Sequence[Message]) -> list[str]:
    """Format messages as one line each, numbered from 0.

    Of more than 12 messages only the first and last six are shown.
    """
    half, hidden = MAX_MESSAGES // 2, len(messages) - MAX_MESSAGES
    shown = [
        f"{index}  {_format_message(message)}"
        for index, message in enumerate(messages)
        if hidden <= 0 or not half <= index < half + hidden
    ]
    return shown if hidden <= 0 else [*shown[:half], f"…  {hidden:,} more", *shown[half:]]


def _format_message(message: Message) -> str:
    """Format a message as one line: its role, its text, its calls."""
    name = message.name or message.tool_call_id
    content = [_format_part(part) for part in message.content] + [
        f"→ {call.name} {call.arguments}" for call in message.tool_calls
    ]
    return f"{message.role}{f' ({name})' if name else ''}: {shorten(' '.join(filter(None, content)) or '(empty)')}"


def shorten(text: str) -> str:
    """Put a text on one line and cut it to 160 characters."""
    line = " ".join(text[: 2 * MAX_WIDTH].split())
    return (
        line
        if len(line) <= MAX_WIDTH and len(text) <= 2 * MAX_WIDTH
        else line[: MAX_WIDTH - 1] + "…"
    )


def _format_part(part: Part) -> str:
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
            return "[cache breakpoint]"
