"""Render a tree of elements to messages that fit a token budget.

The stages are expand, materialize, prune and assemble. Each is a module of this package.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Literal, get_args

from promptkit.elements import Reference
from promptkit.elements.element import Child, Children, flatten
from promptkit.errors import BudgetExceededError, InvalidArgumentError
from promptkit.messages import Message
from promptkit.rendering.expand.event_loop import (
    AwaitedResults,
    PendingAwaitables,
    drive,
    drive_async,
)
from promptkit.rendering.expand.expansion import Expansion, grow_expandables
from promptkit.rendering.expand.materialize import materialize, pair_calls
from promptkit.rendering.expand.render_cache import RenderCache, RequestRuns
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.prune.counting import Overhead
from promptkit.rendering.prune.plans import prune_plan
from promptkit.rendering.prune.pruner import Pruner, RemovalKey, RemovalRounding, build_removal_keys
from promptkit.rendering.prune.removal_order import Step
from promptkit.rendering.prune.removals import PrunedTree
from promptkit.rendering.result.rendered import Rendered
from promptkit.rendering.result.trace_recorder import TraceRecorder
from promptkit.rendering.subtree import assemble_messages
from promptkit.rendering.tree import Node
from promptkit.reprs import describe
from promptkit.tokens import ContextBudget, NamedModel, Tokenizer, tokenizer_for
from promptkit.tokens.budget import resolve_render_budget
from promptkit.tokens.models import model_name
from promptkit.tools import AnyTool, tool_definitions

Pairing = Literal["strict", "lenient"]
"""What a render does with tool calls without result and tool results without call: raise an error,
or pass them on."""

Defaults = Literal["promptkit", "prompt-tsx"]
"""The rules for what has no priority: those of promptkit, or those of prompt-tsx."""


class Renderer:
    """Renders prompts for one model, and caches what they have in common.

    A Renderer that is kept between turns re-uses messages, elements with no component in them, and
    the children of components that are declared pure, each by the identity of the element. Every
    other component runs in every render. When a turn has been added to a prompt, rendering it again
    takes the time of that turn, of these components, and of a few passes over recorded messages.

    >>> Renderer(budget=100).render(UserMessage()["Hello"]).tokens
    8
    """

    def __init__(  # noqa: PLR0913  # the arguments of a render, each with a default
        self,
        *,
        budget: int | str | ContextBudget | None = None,
        model: str | NamedModel | None = None,
        tokenizer: Tokenizer | None = None,
        reserved_output_tokens: int | str | None = None,
        tools: Sequence[AnyTool] = (),
        prune_step: int = 0,
        pairing: Pairing = "strict",
        defaults: Defaults = "promptkit",
        trace: bool = False,
    ) -> None:
        """Create a renderer.

        Args:
            budget: The most tokens that a request may have: a number, a text such as `"8k"`, or a
                ContextBudget. Default: the model's context window less the tokens reserved for the
                reply; 128,000 tokens without a model.
            model: The name of a model such as `gpt-5`, or a model object. It decides the tokenizer
                and the default budget.
            tokenizer: Counts the tokens. Default: the tokenizer of the model.
            reserved_output_tokens: Tokens of the context window kept free for the reply. Default:
                that of the ContextBudget.
            tools: The tools of the request. Their definitions count against the budget.
            prune_step: Round removals up to multiples of this many tokens, so that the first kept
                message stays the same for many turns and a provider's prompt cache keeps matching.
                What was dropped in one turn stays dropped. Default 0: do not round.
            pairing: `strict` raises an error for tool calls without result and tool results without
                call. `lenient` accepts them.
            defaults: `prompt-tsx` removes as VS Code's prompts do: a SystemMessage and the last
                user message may be removed where they have no priority, a literal text has the
                priority of the element around it, and a budget that is too small for any message
                gives an empty prompt.
            trace: Record what happens in `Rendered.trace`. This counts every text of the prompt.

        Raises:
            InvalidArgumentError: An argument has a value that it cannot have.
        """
        if not prune_step >= 0:
            raise InvalidArgumentError(f"prune_step must be at least 0 tokens, not {prune_step}.")
        if pairing not in get_args(Pairing):
            raise InvalidArgumentError(f'pairing is {pairing!r}: write "strict" or "lenient".')
        if defaults not in get_args(Defaults):
            raise InvalidArgumentError(
                f'defaults is {defaults!r}: write "promptkit" or "prompt-tsx".'
            )
        self._tools = tool_definitions(tools)
        self.model = None if model is None else model_name(model)
        self.tokenizer = tokenizer or tokenizer_for(self.model)
        self.context = resolve_render_budget(
            budget,
            model=self.model,
            tokenizer=self.tokenizer,
            tools=self._tools,
            reserved_output_tokens=reserved_output_tokens,
        )
        self.budget = self.context.tokens
        self.prune_step = prune_step
        self._pairing = pairing
        self._prompt_tsx = defaults == "prompt-tsx"
        self._keeps_request = not self._prompt_tsx
        self._trace = trace
        self._cache = RenderCache(self.tokenizer.base.safe_cut)
        self._sizer = Sizer(self.tokenizer, prompt_tsx=self._prompt_tsx)
        counts = (
            self.tokenizer.count_overhead(self._tools),
            self.tokenizer.count_overhead(self._tools, system=True),
        )
        self._overhead = Overhead(
            counts[0].tokens if self._tools else 0, counts[0].tokens, counts[1].tokens
        )
        self._earlier: tuple[Message, ...] = ()
        self._dropped: frozenset[RemovalKey] = frozenset()

    def __repr__(self) -> str:
        return describe(self, model=self.model, budget=self.budget, tokenizer=self.tokenizer.name)

    def render(self, prompt: Child) -> Rendered:
        """Render a prompt: an element, or a tuple of elements.

        Raises:
            TreeError: The tree is ill-formed.
            BudgetExceededError: What cannot be pruned does not fit the budget: required content, a
                SystemMessage without a priority, the last user message without one.
            RunningLoopError: A component awaits while an event loop is running. Use `render_async`
                there.
            Exception: Whatever a component raises, with a note that names the element.
        """
        return drive(self._run(prompt, RequestRuns()))

    async def render_async(self, prompt: Child) -> Rendered:
        """Render a prompt like `render`, and await its components in the caller's event loop."""
        return await drive_async(self._run(prompt, RequestRuns()))

    async def render_request(self, prompt: Child, runs: RequestRuns, sizer: Sizer) -> Rendered:
        """Render a prompt like `render_async`, for a request that may have been rendered before, by this Renderer or another one.

        A component that equals one of an earlier render of the request is not run again, unless it
        has read another budget. Also with the defaults of prompt-tsx, the last user message without
        a priority stays: it is what the request asks. What `sizer` has counted is not counted again.
        """
        self._keeps_request = True
        self._sizer.share_counts(sizer)
        return await drive_async(self._run(prompt, runs))

    def _run(
        self, prompt: Child, runs: RequestRuns
    ) -> Generator[PendingAwaitables, AwaitedResults, Rendered]:
        children = flatten(prompt, "render")
        rendered = self._render_plan(children)
        if rendered is None:
            recorder = TraceRecorder() if self._trace else None
            pruner, pruned = yield from self._prune_tree(children, self._cache, runs, recorder)
            rendered = self._build_result(pruner, pruned, recorder)
            if self.prune_step:
                self._dropped = frozenset[RemovalKey]().union(
                    *map(build_removal_keys, pruned.scan.steps[: pruned.state])
                )
        else:
            self._sizer.start_next_render()
        self._earlier = rendered.messages
        return rendered

    def _render_plan(self, children: Children) -> Rendered | None:
        """Render a static prompt by its plan.

        None: the prompt is not static, or it does not fit.
        """
        is_planned = not (self._trace or self.prune_step or self._prompt_tsx)
        plan = self._cache.plans.plan(children) if is_planned else None
        if plan is None:
            return None
        system = next((message.text for message in plan.fixed if message.role == "system"), None)
        overhead = self._overhead.without_system
        if system is not None:
            overhead = self._count_overhead(system) if self._tools else self._overhead.with_system
        elif "system" in plan.roles and (self._tools or overhead != self._overhead.with_system):
            return None  # the overhead depends on what is removed

        trees: list[tuple[Pruner, PrunedTree]] = []  # once it was read

        def prune_tree() -> tuple[Pruner, PrunedTree]:
            """Expand and prune the tree, for what a plan does not tell: what was removed, and where texts come from."""
            if not trees:
                trees.append(drive(self._prune_tree(children, RenderCache(), RequestRuns(), None)))
            return trees[0]

        def prune_tree_at(budget: int) -> PrunedTree:
            pruner, pruned = prune_tree()
            return (
                pruned
                if budget == self.budget
                else pruner.prune_at(pruned.scan, budget, RemovalRounding())
            )

        def render_at(budget: int) -> Rendered | None:
            kept = prune_plan(plan, budget - overhead, self._sizer, budget=budget)
            if kept is None:
                return None
            messages, tokens = kept
            return Rendered(
                messages=messages,
                tokens=tokens + overhead,
                budget=budget,
                context=self.context if budget == self.budget else None,
                sizer=self._sizer,
                read_pruned=lambda: prune_tree_at(budget),
                prune_again=lambda other: (
                    render_at(other)
                    or self._build_result(prune_tree()[0], prune_tree_at(other), None)
                ),
                tools=self._tools,
                earlier=self._earlier,
            )

        return render_at(self.budget)

    def _prune_tree(
        self,
        children: Children,
        cache: RenderCache,
        runs: RequestRuns,
        recorder: TraceRecorder | None,
    ) -> Generator[PendingAwaitables, AwaitedResults, tuple[Pruner, PrunedTree]]:
        """Expand a prompt, and prune the expanded tree."""
        budget = self.budget
        expansion = Expansion(
            self._sizer, cache, runs, model=self.model, prune_step=self.prune_step
        )
        if recorder:
            expansion.seconds = recorder.seconds
        root = yield from expansion.run(children, max(0, budget - self._overhead.without_system))
        if recorder:
            recorder.end_stage("expand")
        pruner = yield from self._prune_limits(expansion, root, budget)
        if recorder:
            recorder.end_stage("limit")
        try:
            pruned = pruner.prune(budget, RemovalRounding(self.prune_step, self._dropped))
        except BudgetExceededError as error:
            if recorder:
                error.trace = recorder.build_trace(
                    pruner, None, budget=budget, prune_step=self.prune_step, model=self.model
                )
            raise
        finally:
            cache.start_next_render(expansion.message_items)
            self._sizer.start_next_render()
        if recorder:
            recorder.end_stage("prune")
        return pruner, pruned

    def _prune_limits(
        self, expansion: Expansion, root: Node, budget: int
    ) -> Generator[PendingAwaitables, AwaitedResults, Pruner]:
        """Grow the Expandables and prune the limits of a tree.

        Return the pruner that can prune the whole tree.
        """
        pruner = self._build_pruner(root, ())
        pruner.remove_empty_enclosures()
        for node in reversed(pruner.tree.limits):
            if node.limit is None:
                continue
            if (yield from grow_expandables(expansion, node, node.limit)):
                pruner.order.reset()  # the tree has grown
                pruner = self._build_pruner(root, pruner.limit_steps)
            pruner.prune_limit(node)
        if (
            yield from grow_expandables(
                expansion, root, budget - self._overhead.with_system - pruner.tree.reserved
            )
        ):
            pruner.order.reset()  # the tree has grown
            pruner = self._build_pruner(root, pruner.limit_steps)
        pruner.check_limits(budget)
        return pruner

    def _build_pruner(self, root: Node, limit_steps: Sequence[tuple[Node, list[Step]]]) -> Pruner:
        tree = materialize(root, prompt_tsx=self._prompt_tsx, keeps_request=self._keeps_request)
        pair_calls(tree, strict=self._pairing == "strict")
        return Pruner(
            tree,
            self._sizer,
            self._overhead,
            exact_overhead=self._count_overhead if self._tools else None,
            limit_steps=limit_steps,
        )

    def _count_overhead(self, system: str) -> int:
        return self.tokenizer.count_overhead(self._tools, system=system).tokens

    def _build_result(
        self, pruner: Pruner, pruned: PrunedTree, recorder: TraceRecorder | None
    ) -> Rendered:
        metadata, kept, omitted = pruned.tree.collect_attachments(pruned.state)
        references = _deduplicate(kept)
        names = {reference.to for reference in references}
        messages = assemble_messages(pruned.tree.root, pruned.state)
        trace = None
        if recorder:
            recorder.end_stage("assemble")
            trace = recorder.build_trace(
                pruner,
                pruned.state,
                budget=pruned.budget,
                prune_step=self.prune_step,
                model=self.model,
            )
        return Rendered(
            messages=messages,
            tokens=pruned.tokens,
            budget=pruned.budget,
            reserved=pruned.tree.reserved,
            metadata=tuple(metadata),
            references=references,
            omitted_references=tuple(
                reference for reference in _deduplicate(omitted) if reference.to not in names
            ),
            context=self.context if pruned.budget == self.budget else None,
            sizer=pruned.sizer,
            read_pruned=lambda: pruned,
            prune_again=lambda other: self._build_result(
                pruner,
                pruner.prune_at(pruned.scan, other, RemovalRounding(self.prune_step)),
                recorder,
            ),
            trace=trace,
            tools=self._tools,
            earlier=self._earlier,
        )


def _deduplicate(references: list[Reference]) -> tuple[Reference, ...]:
    """Return the first reference to each source."""
    first: dict[str, Reference] = {}
    for reference in references:
        first.setdefault(reference.to, reference)
    return tuple(first.values())


def render(  # noqa: PLR0913  # the arguments of a Renderer
    prompt: Child,
    *,
    budget: int | str | ContextBudget | None = None,
    model: str | NamedModel | None = None,
    tokenizer: Tokenizer | None = None,
    reserved_output_tokens: int | str | None = None,
    tools: Sequence[AnyTool] = (),
    prune_step: int = 0,
    pairing: Pairing = "strict",
    defaults: Defaults = "promptkit",
    trace: bool = False,
) -> Rendered:
    """Render a prompt once.

    The arguments are those of `Renderer`, and the errors those of `Renderer.render`.

    >>> render(UserMessage()["Hello"], budget=100).messages
    (Message(role='user', content=('Hello',), name=None, tool_calls=(), tool_call_id=None),)
    """
    return Renderer(
        budget=budget,
        model=model,
        tokenizer=tokenizer,
        reserved_output_tokens=reserved_output_tokens,
        tools=tools,
        prune_step=prune_step,
        pairing=pairing,
        defaults=defaults,
        trace=trace,
    ).render(prompt)


async def render_async(  # noqa: PLR0913  # the arguments of a Renderer
    prompt: Child,
    *,
    budget: int | str | ContextBudget | None = None,
    model: str | NamedModel | None = None,
    tokenizer: Tokenizer | None = None,
    reserved_output_tokens: int | str | None = None,
    tools: Sequence[AnyTool] = (),
    prune_step: int = 0,
    pairing: Pairing = "strict",
    defaults: Defaults = "promptkit",
    trace: bool = False,
) -> Rendered:
    """Render a prompt once, and await its components in the caller's event loop.

    The arguments are those of `Renderer`, and the errors those of `Renderer.render`.
    """
    return await Renderer(
        budget=budget,
        model=model,
        tokenizer=tokenizer,
        reserved_output_tokens=reserved_output_tokens,
        tools=tools,
        prune_step=prune_step,
        pairing=pairing,
        defaults=defaults,
        trace=trace,
    ).render_async(prompt)
