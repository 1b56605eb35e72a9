"""Caches of renders: message items and pure components by identity, and the components that one request has run."""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs

from promptkit.elements.element import Children, PromptElement, Sizing
from promptkit.rendering.prune.plans import PlanCache
from promptkit.rendering.tree import MessageItem
from promptkit.tokens.tokenizer import Tokenizer


class ComponentRun:
    """The children that a component rendered, with the budgets and provided values that it read for them.

    It holds no Sizing, which would hold the whole tree of the render.
    """

    def __init__(self, element: PromptElement, children: Children, sizing: Sizing) -> None:
        self.element = element
        self.children = children
        self.model = sizing.model
        self.tokenizer = sizing.tokenizer
        # a function among the children may still read the budget
        self._budget_reads = sizing.budget_reads
        self._provided_reads = sizing.provided_reads

    def is_valid_for(self, budget: Callable[[], int], find: Callable[[type], object]) -> bool:
        """Return whether the budget and the provided values that the component read are unchanged."""
        return (not self._budget_reads or self._budget_reads == {budget()}) and all(
            find(kind) is value for kind, value in self._provided_reads.items()
        )


def _take_valid(
    runs: list[ComponentRun], budget: Callable[[], int], find: Callable[[type], object]
) -> ComponentRun | None:
    """Take the first run that is valid for a budget and the values that `find` returns."""
    found = next((run for run in runs if run.is_valid_for(budget, find)), None)
    if found is not None:
        runs.remove(found)
    return found


class RenderCache:
    """Caches message items and the children of pure components between renders, by the identity of their elements.

    An entry holds its element, so that no other object gets the same identity. A component that a
    render did not use is dropped at its end, so the cache never holds more than the components of
    two prompts.
    """

    def __init__(self, safe_cut: re.Pattern[str] | None = None) -> None:
        """Create an empty cache. `safe_cut` is that of the tokenizer that counts the plans."""
        self.plans = PlanCache(safe_cut)
        self.message_items: dict[int, MessageItem] = {}
        """By the identity of the element, or of the round, which they hold."""
        self._earlier_items: list[MessageItem] = []
        self._current: dict[int, list[ComponentRun]] = {}
        self._earlier: dict[int, list[ComponentRun]] = {}

    def take(
        self, element: PromptElement, budget: Callable[[], int], find: Callable[[type], object]
    ) -> ComponentRun | None:
        """Take a run of the last render that is valid for a budget and the values that `find` returns, and keep it for the next one.

        A run is for one place of a prompt, since the KeepWith groups that it made are.
        """
        run = _take_valid(self._earlier.get(id(element), []), budget, find)
        if run is not None:
            self.store(run)
        return run

    def store(self, run: ComponentRun) -> None:
        """Cache a run of a pure component for the next render."""
        self._current.setdefault(id(run.element), []).append(run)

    def start_next_render(self, message_items: list[MessageItem]) -> None:
        """Drop the components that this render did not use, and message items if there are many.

        `message_items` are those of this render.
        """
        self._earlier, self._current = self._current, {}
        if len(self.message_items) > 2 * (len(message_items) + len(self._earlier_items)) + 1_000:
            used = {*self._earlier_items, *message_items}
            known = [*self.message_items.items()]  # a render in another thread may add to them
            self.message_items = {key: item for key, item in known if item in used}
        self._earlier_items = message_items


@attrs.define(eq=False)
class RequestRuns:
    """The children that components rendered for one request, for the renders that retry it.

    Created for a request and dropped with it.

    A request whose conversation does not fit is rendered again from a shorter view, with elements
    that the prompt creates anew. An element that equals one of an earlier render of the request,
    with the same model and tokenizer, gets the children of that one: a file is read once for a
    request. Of several equal elements, each gets the children of another one.
    """

    _runs: list[ComponentRun] = attrs.field(factory=list[ComponentRun], init=False)
    _unused: dict[_Value, list[ComponentRun]] = attrs.field(
        factory=dict["_Value", list[ComponentRun]], init=False
    )
    """The runs of the earlier renders, as far as this one has not used them."""

    def start_render(self, tokenizer: Tokenizer, model: str | None) -> None:
        """Start a render with a model. Runs for another model are not used in it."""
        self._unused = {}
        for run in self._runs:
            if run.model == model and run.tokenizer == tokenizer:
                self._unused.setdefault(_Value(run.element), []).append(run)

    def take(
        self, element: PromptElement, budget: Callable[[], int], find: Callable[[type], object]
    ) -> ComponentRun | None:
        """Return an unused run of an equal component that is valid for a budget and the values that `find` returns."""
        # an element is hashed only if there is a run
        unused = self._unused.get(_Value(element), []) if self._unused else []
        return _take_valid(unused, budget, find)

    def store(self, run: ComponentRun) -> None:
        """Keep a run for the later renders of the request."""
        self._runs.append(run)


class _Value:
    """An element as the key of a dict.

    It hashes all props, unlike an element, which hashes few since it may be deep.
    """

    def __init__(self, element: PromptElement) -> None:
        self.element = element
        self._hash = hash(
            (
                type(element),
                *(
                    _hash_prop(getattr(element, field.name))
                    for field in type(element).__attrs_attrs__
                ),
            )
        )

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        try:
            return isinstance(other, _Value) and self.element == other.element
        except Exception:  # noqa: BLE001  # a caller's object may raise anything: arrays do if their `==` is used as a condition
            return False


def _hash_prop(value: object) -> int:
    try:
        return hash(value)
    except Exception:  # noqa: BLE001  # as above
        return hash(type(value))
