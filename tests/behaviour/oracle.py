"""What the renderer must answer, found the slow way: remove one thing, look at everything again, count everything again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from tests.behaviour.assembly import assembled, count_messages, limited_tokens, reserved
from tests.behaviour.nodes import MAX, Node, is_empty, is_leaf, walk
from tests.behaviour.trees import LockedError, Tree, planted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptkit.elements.element import Child
    from promptkit.messages import Message
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["DoesNotFitError", "Oracle", "State", "oracle"]


class DoesNotFitError(Exception):
    """Nothing more can be removed and it is still too much."""


@attrs.frozen
class State:
    """What stands after some removals."""

    messages: tuple[Message, ...]
    tokens: int
    reserved: int


@attrs.frozen
class Oracle:
    """Every state from the whole prompt to the last removal; `fits` is False where a TokenLimit cannot be met."""

    states: tuple[State, ...]
    fits: bool = True

    @property
    def full(self) -> int:
        """The smallest budget at which nothing is removed for it."""
        return self.states[0].tokens + self.states[0].reserved

    def at(self, budget: int) -> State:
        """The first state that fits; raises DoesNotFitError."""
        for state in self.states if self.fits else ():
            if state.tokens + state.reserved <= budget:
                return state
        raise DoesNotFitError


def oracle(child: Child, tokenizer: Tokenizer, *, prompt_tsx: bool = False) -> Oracle:
    """All states of a prompt made of grammar elements."""
    tree = planted(child, tokenizer, text_encloses=not prompt_tsx)
    whole = _count_own_messages(tree)
    for limit in reversed([node for node in tree.nodes() if node.limit is not None]):
        for step in _steps(tree, limit.key, prompt_tsx=prompt_tsx):
            tree = step
            scope = tree.find(limit.key)
            if scope is None or limited_tokens(scope, tokenizer) <= (limit.limit or 0):
                break
        else:
            return Oracle((_state(tree),), fits=False)
    states = [
        (_state(step), _count_own_messages(step)) for step in _steps(tree, 0, prompt_tsx=prompt_tsx)
    ]
    if prompt_tsx:
        return Oracle(tuple(state for state, _ in states))
    wanted = 1 if whole[1] else 0  # D13: a user message, or in a prompt without them any message
    some = tuple(state for state, counts in states if counts[wanted] or not whole[wanted])
    return Oracle(some or (states[0][0],), fits=bool(some))


def _count_own_messages(tree: Tree) -> tuple[int, int]:
    """The messages, and the user messages, that are neither in a fallback nor blank from the start."""
    own = [
        node
        for node in tree.nodes()
        if node.kind == "message" and not (node.in_fallback or node.born_empty or is_empty(node))
    ]
    return len(own), sum(node.role == "user" for node in own)


def _state(tree: Tree) -> State:
    messages = assembled(tree.root)
    system = next((message.text for message in messages if message.role == "system"), False)
    around = tree.tokenizer.count_overhead(system=system).tokens if messages else 0
    return State(messages, count_messages(messages, tree.tokenizer) + around, reserved(tree.root))


def _steps(tree: Tree, scope_key: int, *, prompt_tsx: bool) -> Iterable[Tree]:
    """The tree, then the tree after each removal below `scope_key`."""
    yield tree
    skipped: set[int] = set()
    while (scope := tree.find(scope_key)) is not None:
        held = _held(tree, scope) if prompt_tsx else _held(tree, scope) | _kept(tree.root)
        locked = {
            node.key
            for node in tree.nodes()
            if node.key in held and (_says_something(node) or node.group)
        }
        unit = _pick(scope, held | skipped, text_last=not prompt_tsx)
        if unit is None:
            return
        try:
            tree = tree.without(unit.key, locked)
        except LockedError:
            skipped.add(unit.key)
        else:
            yield tree


def _says_something(node: Node) -> bool:
    return (is_leaf(node) or node.kind == "message") and not is_empty(node)


def _held(tree: Tree, scope: Node) -> set[int]:
    """The keys of what is required, of Reserves, and of all that stands before the last cache breakpoint in scope."""
    locked: set[int] = set()
    for node in tree.nodes():
        if node.required:
            locked |= {below.key for below in walk(node)}
        if node.kind == "reserve":
            locked.add(node.key)
    breakpoints = [node.key for node in walk(scope) if node.kind == "breakpoint"]
    if breakpoints:
        keys = [node.key for node in tree.nodes()]
        locked |= set(keys[: keys.index(breakpoints[-1]) + 1])
    return locked


def _kept(root: Node) -> set[int]:
    """D11, D13: the keys of SystemMessages and of the last user message that have no priority, and of what in them has none."""
    kept: set[int] = set()
    last = _last_user_message(root)
    wrapped = _wrapped_system_message(root)
    stack = [(root, False)] if wrapped is None else [(root, False), (wrapped, False)]
    while stack:
        node, inside = stack.pop()
        if node.prioritized:
            continue
        if node in (last, wrapped) or (
            node.kind == "message" and node.role == "system" and not node.born_empty
        ):
            inside = True
            kept.add(node.key)
        elif inside and (is_leaf(node) or node.chunk):
            kept.add(node.key)
        stack += [(child, inside) for child in node.children]
    return kept


def _wrapped_system_message(root: Node) -> Node | None:
    """D11: the system message that is removed last of those without a priority in containers with one, if no other stays."""
    ranks: list[tuple[list[tuple[float, int]], Node]] = []
    stack: list[tuple[Node, bool, bool, list[tuple[float, int]]]] = [(root, False, False, [])]
    while stack:
        node, inside, required, path = stack.pop()
        required = required or node.required
        if (
            node.kind == "message"
            and node.role == "system"
            and not (node.born_empty or node.in_fallback)
        ):
            if required or not (inside or node.prioritized):
                return None
            if not node.prioritized:
                ranks.append((path, node))
        stack += [
            (child, inside or node.prioritized, required, [*path, (child.priority, at)])
            for at, child in enumerate(node.children)
        ]
    return max(ranks, key=lambda rank: rank[0])[1] if ranks else None


def _last_user_message(root: Node) -> Node | None:
    last: Node | None = None
    stack = [root]
    while stack:
        node = stack.pop()
        if (
            node.kind == "message"
            and node.role == "user"
            and not (node.prioritized or node.born_empty)
        ):
            last = node
        if not node.prioritized:
            stack += reversed(node.children)
    return last


def _spread(nodes: Iterable[Node]) -> Iterable[Node]:
    for node in nodes:
        if node.pass_priority and node.children and not is_leaf(node):
            yield from _spread(node.children)
        else:
            yield node


def _is_unit(node: Node) -> bool:
    return not node.children or (node.chunk and not node.pass_priority)


def _can_leave(node: Node, held: set[int]) -> bool:
    if _is_unit(node):
        return not any(below.key in held for below in walk(node))
    if node.legacy:
        return any(not below.children and below.key not in held for below in walk(node))
    return any(_can_leave(child, held) for child in node.children)


def _pick(scope: Node, held: set[int], *, text_last: bool) -> Node | None:
    """The next unit to remove below `scope`."""
    if scope.legacy:
        leaves = [
            node
            for node in walk(scope)
            if not node.children and node is not scope and node.key not in held
        ]
        return min(leaves, key=lambda node: node.priority, default=None)
    lowest: Node | None = None
    for child in _spread(scope.children):
        if not _can_leave(child, held):
            continue
        if lowest is None or _key(child, text_last=text_last) < _key(lowest, text_last=text_last):
            lowest = child
    return (
        lowest if lowest is None or _is_unit(lowest) else _pick(lowest, held, text_last=text_last)
    )


def _key(node: Node, *, text_last: bool) -> tuple[bool, float, float]:
    """D12: text comes after all else, on both sides of others last, unless the defaults are those of prompt-tsx."""
    if text_last and node.kind == "text":
        return True, node.enclosure is not None, 0
    return False, node.priority, _lowest_child(node)


def _lowest_child(node: Node) -> float:
    if is_leaf(node):
        return -1
    return min((child.priority for child in node.children), default=MAX)
