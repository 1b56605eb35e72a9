"""Plans of static trees: what a tree without components removes first, known without expanding it.

A static tree consists of messages and plain containers, with nothing in it that depends on the
budget, that may be replaced, or that other elements lean on. Its removal order is the order of its
containers by priority, one inside the other, so a container is planned once, kept by its identity,
and used again in every render that shows it. A render of one more turn plans that turn.

`PlanCache.plan` returns None for any other tree. Such a tree is expanded and pruned as the modules
`expand` to `prune` do it, and what a plan says is what they would say.

`prune_plan` finds the first state that fits, from the last state backwards, and writes its
messages. The count of a message does not change while others leave, so the tokens of a state are a
sum. What is certainly removed is never looked at.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain, pairwise
from operator import is_
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from promptkit.elements.builtin import (
    ROLES,
    AssistantMessage,
    MessageElement,
    TextChunk,
    ToolMessage,
)
from promptkit.errors import TreeError
from promptkit.messages import Message
from promptkit.rendering.expand.build import build_leaf, build_message_item, is_plain, read_priority
from promptkit.rendering.expand.elements import is_plain_container
from promptkit.rendering.prune.counting import LONG
from promptkit.rendering.prune.text_joins import count_line_break, is_safe_line_start
from promptkit.rendering.subtree import build_messages
from promptkit.rendering.tree import HIGHEST_PRIORITY, MessageItem, Node

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

    from promptkit.elements.element import Children, PromptElement
    from promptkit.messages import Role, ToolCall
    from promptkit.rendering.expand.sizing import Sizer

FIXED: Final = 1 << 60
"""The rank of what is never removed."""


@attrs.define(eq=False)
class PlannedMessage(MessageItem):
    """A message with one tool call and no text, a tool result, or a message that is never removed."""

    call: ToolCall | None = None
    answers: str | None = None
    """The id of the call whose result it is."""


@attrs.define(eq=False)
class Line:
    """A TextChunk whose start is a safe cut of the tokenizer, so that its tokens do not depend on the lines around it."""

    element: TextChunk
    text: str
    ended: str
    """The text as it is before another line: with a line break at its end."""
    priority: float
    tokens: int = -1  # with a line break behind it; not counted yet


@attrs.define(eq=False)
class LinesMessage:
    """A message of lines, which are removed one by one."""

    element: MessageElement
    role: Role
    lines: list[Line]
    ranked: Sequence[int]
    """The positions of its lines, the first to be removed first."""
    priority: float

    @cached_property
    def message(self) -> Message:
        """The message with all lines."""
        return self.join(range(len(self.lines)))

    def join(self, positions: Sequence[int]) -> Message:
        """Build the message with the lines at these positions."""
        lines = self.lines
        texts = [lines[position].ended for position in positions]
        texts[-1] = lines[positions[-1]].text
        return Message(role=self.role, content=("".join(texts),), name=self.element.name)


@attrs.define(eq=False)
class ContainerPlan:
    """A container: its units in written order, and in the order in which they are removed."""

    element: PromptElement | None
    priority: float
    units: list[Unit] = attrs.field(factory=list["Unit"])
    ranked: list[Unit | Pair] = attrs.field(factory=list["Unit | Pair"])
    """A tool call and its result are one entry, because they leave together."""
    ranks: list[int] = attrs.field(factory=list[int])
    """The index in `ranked` for each unit, and FIXED for a unit that is never removed."""
    fixed: list[PlannedMessage] = attrs.field(factory=list[PlannedMessage])
    roles: set[Role] = attrs.field(factory=set["Role"])
    """The roles of its messages that may be removed; `tool` for a message with a tool call, too."""
    last_user: MessageItem | LinesMessage | None = None
    """The last user message without a priority, unless it is required."""
    is_changing: bool = False
    """Whether the lowest priority of a unit's children changes while they are removed."""


Unit: TypeAlias = MessageItem | LinesMessage | ContainerPlan
"""What is ranked in a container."""

Pair: TypeAlias = tuple[PlannedMessage, PlannedMessage]
"""A message with a tool call, and the result of the call."""

_OUTSIDE: Final = Node(None, None, HIGHEST_PRIORITY)
"""Stands for the container of a message whose plan does not depend on it."""

_SLACK: Final = 1_000
"""Plans that are kept besides twice those of a prompt."""


@attrs.define(eq=False)
class PlanCache:
    """The plans of the elements of the last prompts, by identity.

    A plan holds its element, so no other object has that identity. Once there are far more than one
    prompt has, all are dropped.
    """

    _safe_cut: re.Pattern[str] | None
    _units: dict[int, Unit] = attrs.field(factory=dict[int, "Unit"], init=False)
    _lines: dict[int, Line] = attrs.field(factory=dict[int, Line], init=False)
    _last_lines: LinesMessage | None = attrs.field(default=None, init=False)
    _most: int = attrs.field(default=0, init=False)
    """The most plans that are kept."""

    def plan(self, children: Children) -> ContainerPlan | None:
        """Return the plan of a prompt, or None if it is not static or not well-formed."""
        units, lines = self._units, self._lines
        is_full = len(units) + len(lines) >= self._most
        if is_full:
            units.clear()
            lines.clear()
        root = self._plan(children)
        if is_full:
            self._most = 2 * (len(units) + len(lines)) + _SLACK
        last = None if root is None else root.last_user
        # a line without a priority is never removed from a message that is never removed
        is_kept = isinstance(last, LinesMessage) and (
            last.lines[last.ranked[-1]].priority >= HIGHEST_PRIORITY
        )
        return None if is_kept else root

    def _plan(self, children: Children) -> ContainerPlan | None:  # noqa: C901  # one pass over children, of which a prompt can have very many
        root = ContainerPlan(None, HIGHEST_PRIORITY)
        open_plans: list[tuple[ContainerPlan, Iterator[str | PromptElement | None]]] = [
            (root, iter(children))
        ]
        inside: set[int] = set()
        find = self._units.get
        while open_plans:
            plan, rest = open_plans[-1]
            add = plan.units.append
            for child in rest:
                known = find(id(child))
                if known is not None:
                    add(known)
                    continue
                if child is None or isinstance(child, str):
                    if child and not child.isspace():
                        return None
                    continue
                role = ROLES.get(type(child))
                if role is None or not isinstance(child, MessageElement):
                    inner = _open_container(child)
                    if inner is None or id(child) in inside:
                        return None
                    inside.add(id(child))
                    open_plans.append((inner, iter(child.children)))
                    break
                unit = self._plan_message(child, role)
                if unit is None:
                    return None
                self._units[id(child)] = unit
                add(unit)
            else:
                open_plans.pop()
                if not _settle(plan, is_root=not open_plans):
                    return None
                if open_plans:
                    inside.discard(id(plan.element))
                    self._units[id(plan.element)] = plan
                    open_plans[-1][0].units.append(plan)
        return root

    def _plan_message(self, element: MessageElement, role: Role) -> Unit | None:
        """Plan a message, or return None if it is not static."""
        try:
            item = None if role == "tool" else build_message_item(element, role, _OUTSIDE)
            if item is not None:
                return item
            priority = read_priority(element, _OUTSIDE)
        except TreeError:
            return None  # the path is known only where the tree is expanded
        fixed = element.required or (role == "system" and element.priority is None)
        if not is_plain(element, required=fixed) or (fixed and role == "tool"):
            return None
        children = element.children
        planned = PlannedMessage(element, role, "", priority, element.name)
        if isinstance(element, AssistantMessage) and element.tool_calls:
            planned.call = element.tool_calls[0]
            is_static = len(element.tool_calls) == 1 and not (
                children or fixed or element.keep_with
            )
        elif len(children) == 1 and type(text := children[0]) is str:
            # as in build_message_item: a message of another text is expanded
            planned.text, is_static = text, text != "" and not text.isspace()
            planned.answers = element.tool_call_id if isinstance(element, ToolMessage) else None
        elif fixed or role == "tool" or not children:
            return None
        else:
            return self._plan_lines(element, role, priority)
        return planned if is_static else None

    def _plan_lines(
        self, element: MessageElement, role: Role, priority: float
    ) -> LinesMessage | None:
        """Plan a message whose children are lines, or return None if it has others."""
        children, last = element.children, self._last_lines
        lines: list[Line] = []
        is_in_order = True
        if (
            last is not None
            and len(last.lines) <= len(children)
            and all(map(is_, last.element.children, children))
        ):
            # the message has grown
            lines, is_in_order = last.lines.copy(), isinstance(last.ranked, range)
        start = len(lines)
        for child in children[start:]:
            line = self._lines.get(id(child)) or self._plan_line(child)
            if line is None:
                return None
            lines.append(line)
        places = range(len(lines))
        priorities = [line.priority for line in lines[max(start - 1, 0) :]]
        ranked = (
            places
            if is_in_order and priorities == sorted(priorities)
            else sorted(places, key=lambda at: lines[at].priority)
        )
        self._last_lines = LinesMessage(element, role, lines, ranked, priority)
        return self._last_lines

    def _plan_line(self, child: str | PromptElement | None) -> Line | None:
        if type(child) is not TextChunk:
            return None
        try:
            leaf = build_leaf(_OUTSIDE, child)
        except TreeError:
            return None
        if (
            leaf is None
            or not leaf.text
            or leaf.text.isspace()
            or not is_safe_line_start(self._safe_cut, leaf.text)
        ):
            return None
        text = leaf.text
        ended = text if text[-1] == "\n" else f"{text}\n"
        line = self._lines[id(child)] = Line(child, text, ended, leaf.priority)
        return line


def _open_container(element: PromptElement) -> ContainerPlan | None:
    """Return the plan of a container before its children are planned, or None if it is not static."""
    try:
        return (
            ContainerPlan(element, read_priority(element, _OUTSIDE))
            if is_plain_container(type(element)) and is_plain(element)
            else None
        )
    except TreeError:
        return None


def _settle(plan: ContainerPlan, *, is_root: bool) -> bool:
    """Rank the units of a container. Return False if only its pruned tree tells their order."""
    keys = _list_keys(plan)
    if keys is None or (plan.fixed and not is_root):
        return False
    keys.sort()
    if plan.is_changing and any(
        low == _CHANGING and priority == other
        for (priority, low, *_), (other, *_) in pairwise(keys)
    ):
        return False
    ranked, ranks = plan.ranked, [FIXED] * len(plan.units)
    for _, _, position, other, entry in keys:
        ranks[position] = ranks[other] = len(ranked)
        ranked.append(entry)
    plan.ranks = ranks
    return True


_Key: TypeAlias = "tuple[float, float, int, int, Unit | Pair]"
"""A unit or a pair, with the numbers that it is ranked by: priority, lowest priority of a direct
child, position, position of the other message of a pair (of a unit: its own again), unit or pair.
No two keys have the same position, so units are never compared."""


def _list_keys(  # noqa: C901, PLR0912  # one pass over units, of which a prompt can have very many
    plan: ContainerPlan,
) -> list[_Key] | None:
    """List what the units of a container are ranked by, and note what they have.

    A tool call and its result have the key of the one that is removed first.

    None if a call or a result has no partner in this container, or one beyond an inner container
    with calls.
    """
    keys: list[_Key] = []
    calls: dict[str, tuple[float, int, PlannedMessage]] = {}  # without a result yet
    has_tools = False
    for position, unit in enumerate(plan.units):
        priority = low = unit.priority
        if type(unit) is PlannedMessage:
            if unit.call is not None:
                if unit.call.id in calls:
                    return None
                has_tools = True
                calls[unit.call.id] = priority, position, unit
                continue
            if unit.answers is not None:
                found = calls.pop(unit.answers, None)
                if found is None:
                    return None
                earlier, at, call = found
                is_call_first = earlier < priority or earlier == priority >= HIGHEST_PRIORITY
                keys.append(
                    (earlier, HIGHEST_PRIORITY, at, position, (call, unit))
                    if is_call_first
                    else (priority, priority, position, at, (call, unit))
                )
                continue
        if unit.element is not None and unit.element.priority is None:
            if isinstance(unit, ContainerPlan):
                plan.last_user = unit.last_user or plan.last_user
            elif unit.role == "user":
                plan.last_user = None if isinstance(unit, PlannedMessage) else unit
        if isinstance(unit, PlannedMessage):
            plan.fixed.append(unit)
            continue
        if isinstance(unit, MessageItem):
            plan.roles.add(unit.role)
        else:
            low, plan.is_changing = _CHANGING, True
            if isinstance(unit, LinesMessage):
                plan.roles.add(unit.role)
            elif calls and "tool" in unit.roles:
                return None
            else:
                plan.roles |= unit.roles
        keys.append((priority, low, position, position, unit))
    if has_tools:
        plan.roles.add("tool")
    return None if calls else keys


_CHANGING: Final = float("-inf")
"""Replaces the lowest priority of a direct child where that changes while children are removed. It
sorts before all others."""

_NONE: Final = -1
"""The rank of a unit that is kept in part, where there is none."""


def _build_messages(
    path: Sequence[tuple[ContainerPlan, int]],
    container: ContainerPlan,
    first: int,
    lines: tuple[LinesMessage, int] | None,
) -> tuple[Message, ...]:
    """Build the messages that are kept of a static tree, in written order.

    Args:
        path: The containers around `container` that are kept in part, the root first, each with the
            rank of the next one.
        container: The innermost container that is kept in part.
        first: The rank from which on its units are kept.
        lines: The unit before that rank, if it is a message of which some lines are kept, and the
            index of the first of these in its `ranked`.
    """
    messages: list[Message] = []
    add = messages.append
    levels = chain(((plan, rank, rank + 1) for plan, rank in path), [(container, first - 1, first)])
    plan, partial, low = next(levels)
    stack = [(zip(plan.units, plan.ranks, strict=True), partial, low)]
    while stack:
        rest, partial, low = stack[-1]
        for unit, rank in rest:
            if rank >= low:
                if isinstance(unit, MessageItem):  # as most are
                    add((unit.messages or build_messages(unit, 0))[0])
                elif isinstance(unit, LinesMessage):
                    add(unit.message)
                else:
                    stack.append((zip(unit.units, unit.ranks, strict=True), _NONE, 0))
                    break
            elif rank == partial:
                if (level := next(levels, None)) is not None:
                    plan, partial, low = level
                    stack.append((zip(plan.units, plan.ranks, strict=True), partial, low))
                    break
                if lines is not None:
                    message, start = lines
                    kept = message.ranked[start:]
                    add(message.join(kept if isinstance(kept, range) else sorted(kept)))
        else:
            stack.pop()
    return tuple(messages)


def prune_plan(  # noqa: C901  # one pass over units, of which a prompt can have very many
    root: ContainerPlan, room: int, sizer: Sizer, *, budget: int
) -> tuple[tuple[Message, ...], int] | None:
    """Find the first state of the removal order that fits.

    The last user message without a priority is never removed. Without any, neither is the last of
    the user messages or of the messages.

    Args:
        root: The plan of the prompt.
        room: The tokens that its messages may take.
        sizer: Counts them.
        budget: The tokens of the whole request. A text that is surely longer is not counted.

    Returns:
        Its messages and their tokens, or None if not even the last state fits, or if only the tree
        tells what fits.
    """
    counts = _Counts(sizer, budget)
    total = sum(map(counts.count, root.fixed))
    if total > room:
        return None
    waits_for_user = "user" in root.roles and not any(
        message.role == "user" for message in root.fixed
    )
    # for the message that is never removed
    waits = waits_for_user or not ("user" in root.roles or root.fixed)
    last_user = root.last_user  # until it is kept
    path: list[tuple[ContainerPlan, int]] = []
    lines: tuple[LinesMessage, int] | None = None
    container, ranked, rank = root, root.ranked, len(root.ranked)
    while True:
        if rank == 0:
            if not path:
                break
            container, rank = path.pop()  # all of the inner one is kept
            ranked = container.ranked
            continue
        entry = ranked[rank - 1]
        if isinstance(entry, (MessageItem, tuple)):
            text = None if isinstance(entry, tuple) else entry
            tokens = -1 if text is None else text.tokens
            if tokens < 0:
                tokens = counts.count(entry)
            if total + tokens > room:
                break
            total += tokens
            last_user = None if entry is last_user else last_user
            if waits:
                waits = waits_for_user and not (text is not None and text.role == "user")
        elif isinstance(entry, LinesMessage):
            first, tokens = counts.prune_lines(entry, room - total)
            if first == len(entry.lines):
                break
            total += tokens
            last_user = None if entry is last_user else last_user
            waits = waits and waits_for_user and entry.role != "user"
            if first:
                lines = entry, first
                break
        else:
            path.append((container, rank - 1))
            container, ranked, rank = entry, entry.ranked, len(entry.ranked)
            continue
        rank -= 1
    return (
        None
        if waits or last_user is not None
        else (_build_messages(path, container, rank, lines), total)
    )


class _Counts:
    """Counts the units of a plan, each once for all renders that share the plan."""

    def __init__(self, sizer: Sizer, budget: int) -> None:
        self._sizer = sizer
        self._base = sizer.tokenizer.base
        self._scale = None if self._base is sizer.tokenizer else sizer.tokenizer.scale
        self._budget = budget
        self._shortest = max(LONG, budget)

    def count(self, unit: MessageItem | Pair) -> int:
        """Count the tokens of a message, or of a call and its result.

        A text that surely exceeds the budget is not counted.
        """
        if not isinstance(unit, MessageItem):
            call, result = unit
            known = call.tokens >= 0 <= result.tokens
            return call.tokens + result.tokens if known else self.count(call) + self.count(result)
        if unit.tokens < 0 and (excess := self._find_excess(unit.text)):
            return excess
        if unit.tokens < 0 and isinstance(unit, PlannedMessage):
            message = Message(
                role=unit.role,
                content=(unit.text,) if unit.text else (),
                name=unit.name,
                tool_calls=() if unit.call is None else (unit.call,),
                tool_call_id=unit.answers,
            )
            unit.messages, unit.tokens = (message,), self._sizer.count_message(message)
        return self._sizer.count_item(unit)

    def prune_lines(self, message: LinesMessage, room: int) -> tuple[int, int]:
        """Find the first state of a message that fits: the index in `ranked` of its first line, and its tokens.

        A line is counted with its line break, which the last one has not. So an earlier state may
        have less tokens, but never less than the end of its last line.
        """
        base, scale = self._base, self._scale
        frame = self._sizer.count_frame(message.role, message.element.name)
        room -= frame
        lines, ranked = message.lines, message.ranked
        kept = kept_tokens = content = line_break = loose = 0
        last = -1
        for number, position in enumerate(reversed(ranked), 1):
            line = lines[position]
            tokens = line.tokens
            if tokens < 0:
                if self._find_excess(line.text):
                    break
                tokens = line.tokens = base.count(line.ended)
            if position > last:
                last = position
                content += line_break
                line_break, loose = count_line_break(line.text, base)
                content -= line_break
            content += tokens
            tokens = content if scale is None else scale(content)
            if tokens <= room:
                kept, kept_tokens = number, tokens
            elif tokens - (loose if scale is None else scale(loose)) > room:
                break
        return len(ranked) - kept, frame + kept_tokens

    def _find_excess(self, text: str) -> int:
        """Return the fewest tokens that a long text can have if they exceed the budget, else 0."""
        if len(text) <= self._shortest:
            return 0
        fewest = self._sizer.tokenizer.lower_bound(text)
        return fewest if fewest > self._budget else 0
