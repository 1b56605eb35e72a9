"""Prune a static tree by its plan: find the first state that fits, from the last state backwards, and write its messages.

The count of a message does not change while others leave, so the tokens of a state are a sum. What
is certainly removed is never looked at.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from promptkit.messages import Message
from promptkit.rendering.prune.counting import LONG
from promptkit.rendering.prune.plans import ContainerPlan, Line, LinesMessage, Pair, PlannedMessage
from promptkit.rendering.prune.text_joins import find_last_cut
from promptkit.rendering.subtree import build_messages
from promptkit.rendering.tree import MessageItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.rendering.expand.sizing import Sizer


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
                if isinstance(unit, ContainerPlan):
                    stack.append((zip(unit.units, unit.ranks, strict=True), _NONE, 0))
                    break
                add(
                    unit.message
                    if isinstance(unit, LinesMessage)
                    else (unit.messages or build_messages(unit, 0))[0]
                )
            elif rank == partial:
                if (level := next(levels, None)) is not None:
                    plan, partial, low = level
                    stack.append((zip(plan.units, plan.ranks, strict=True), partial, low))
                    break
                if lines is not None:
                    message, start = lines
                    add(message.join(sorted(message.ranked[start:])))
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
        if isinstance(entry, ContainerPlan):
            path.append((container, rank - 1))
            container, ranked, rank = entry, entry.ranked, len(entry.ranked)
            continue
        if isinstance(entry, LinesMessage):
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
            text = entry if isinstance(entry, MessageItem) else None
            tokens = text.tokens if text is not None else -1
            if tokens < 0:
                tokens = counts.count(entry)
            if total + tokens > room:
                break
            total += tokens
            last_user = None if entry is last_user else last_user
            if waits:
                waits = waits_for_user and not (text is not None and text.role == "user")
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
            return self.count(call) + self.count(result)
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
        count, scale = self._base.count, self._scale
        frame = self._sizer.count_frame(message.role, message.element.name)
        room -= frame
        lines, ranked = message.lines, message.ranked
        index = best = len(ranked)
        best_tokens = content = line_break = loose = 0
        last = -1
        for position in reversed(ranked):
            line = lines[position]
            tokens = line.tokens
            if tokens < 0:
                if self._find_excess(line.text):
                    break
                tokens = line.tokens = count(line.ended)
            content += tokens
            index -= 1
            if position > last:
                last = position
                line_break, loose = self._count_end(line)
            tokens = content - line_break
            if scale is not None:
                tokens = scale(tokens)
            if tokens <= room:
                best, best_tokens = index, tokens
            elif tokens - (loose if scale is None else scale(loose)) > room:
                break
        return best, frame + best_tokens if best < len(ranked) else 0

    def _count_end(self, line: Line) -> tuple[int, int]:
        """Count what the line break adds to a line, and the end of the line, which the break may change."""
        end = line.text[find_last_cut(self._base.safe_cut, line.text) :]
        tokens = self._base.count(end)
        return (0 if end[-1] == "\n" else self._base.count(f"{end}\n") - tokens), tokens

    def _find_excess(self, text: str) -> int:
        """Return the fewest tokens that a long text can have if they exceed the budget, else 0."""
        if len(text) <= self._shortest:
            return 0
        fewest = self._sizer.tokenizer.lower_bound(text)
        return fewest if fewest > self._budget else 0
