"""The one way to render: a tree of elements and a budget go in, messages and a receipt come out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Literal

from promptkit.element import Child, flatten
from promptkit.errors import BudgetExceededError, InvalidArgumentError
from promptkit.rendering.assemble import assemble_messages
from promptkit.rendering.counting import Overhead
from promptkit.rendering.event_loop import drive, drive_async
from promptkit.rendering.expand import AwaitedResults, Expansion, PendingAwaitables, grow_expandables
from promptkit.rendering.materialize import RenderTree, materialize, pair_calls
from promptkit.rendering.prune import CutRounding, Pruner, RemovalKey, removal_keys
from promptkit.rendering.render_cache import RenderCache
from promptkit.rendering.result import Rendered
from promptkit.rendering.sizing import Sizer
from promptkit.rendering.trace_recorder import TraceRecorder
from promptkit.tokens.budget import resolve_budget
from promptkit.tokens.models import model_name, tokenizer_for
from promptkit.tools import tool_definitions

if TYPE_CHECKING:
    from promptkit.elements.media import Reference
    from promptkit.messages import Message, ToolDefinition
    from promptkit.rendering.removal_order import Step
    from promptkit.rendering.removals import PrunedTree
    from promptkit.rendering.tree import Node
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tokens.models import NamedModel
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.tools import Tool

__all__ = ["Renderer", "render", "render_async"]

Pairing = Literal["strict", "lenient"]


class Renderer:
    """Renders prompts for one model, and remembers between turns: after one appended turn the cost is that turn's.

    `budget` is the most tokens that a prompt may have; without it the model's window decides, less what the reply needs.
    `prune_step` (tokens) rounds removals up, so that the first surviving message changes only once in many turns and a
    provider's prompt cache keeps hitting; what it dropped in one turn stays dropped. `pairing="lenient"` lets calls without
    result and results without call pass. `trace` records what happened, in `Rendered.trace`; that counts every text.
    """

    def __init__(  # noqa: PLR0913  # the arguments of a render, each with a default
        self,
        *,
        budget: int | str | ContextBudget | None = None,
        model: str | NamedModel | None = None,
        tokenizer: Tokenizer | None = None,
        reserved_output_tokens: int | None = None,
        tools: Sequence[Tool | ToolDefinition] = (),
        prune_step: int = 0,
        pairing: Pairing = "strict",
        trace: bool = False,
    ) -> None:
        if not prune_step >= 0:
            message = f"prune_step must be at least 0 tokens, not {prune_step}."
            raise InvalidArgumentError(message)
        definitions = tool_definitions(tools)
        self.model = None if model is None else model_name(model)
        self.tokenizer = tokenizer or tokenizer_for(self.model)
        self.context = resolve_budget(
            budget,
            model=self.model,
            tokenizer=self.tokenizer,
            tools=definitions,
            reserved_output_tokens=reserved_output_tokens,
            for_render=True,
        )
        self.budget = _known(self.context)
        self.prune_step = prune_step
        self._pairing = pairing
        self._trace = trace
        self._memory = RenderCache()
        self._sizer = Sizer(self.tokenizer)
        counts = (self.tokenizer.request(definitions), self.tokenizer.request(definitions, system=True))
        self._overhead = Overhead(counts[0].tokens if definitions else 0, counts[0].tokens, counts[1].tokens)
        self._tools = definitions
        self._earlier: tuple[Message, ...] = ()
        self._dropped: frozenset[RemovalKey] = frozenset()

    def render(self, prompt: Child) -> Rendered:
        """Render a prompt: an element, or a tuple of them.

        Raises TreeError for an ill-formed tree, BudgetExceededError if what is required does not fit, and whatever a component raises.
        """
        return drive(self._engine(prompt))

    async def render_async(self, prompt: Child) -> Rendered:
        """Likewise, with components that await running in the caller's event loop."""
        return await drive_async(self._engine(prompt))

    def _engine(self, prompt: Child) -> Generator[PendingAwaitables, AwaitedResults, Rendered]:
        budget = self.budget
        recorder = TraceRecorder() if self._trace else None
        expansion = Expansion(self._sizer, self._memory, model=self.model)
        if recorder:
            expansion.seconds = recorder.seconds
        root = yield from expansion.run(flatten(prompt, "render"), max(0, budget - self._overhead.without_system))
        if recorder:
            recorder.end_stage("expand")
        pruner = yield from self._limited(expansion, root, budget)
        if recorder:
            recorder.end_stage("limit")
        try:
            pruned = pruner.prune(budget, CutRounding(self.prune_step, self._dropped))
        except BudgetExceededError as error:
            if recorder:
                error.trace = recorder.build_trace(pruner, None, budget=budget, prune_step=self.prune_step, model=self.model)
            raise
        if recorder:
            recorder.end_stage("prune")
        self._memory.start_next_render(expansion.text_messages)
        rendered = self._result(pruner, pruned, recorder)
        self._earlier = rendered.messages
        if self.prune_step:
            self._dropped = frozenset[RemovalKey]().union(*map(removal_keys, pruned.scan.steps[: pruned.state]))
        return rendered

    def _limited(self, expansion: Expansion, root: Node, budget: int) -> Generator[PendingAwaitables, AwaitedResults, Pruner]:
        """The tree with its Expandables grown and its limits kept, ready to be pruned as a whole."""
        pruner = self._pruner(materialize(root), ())
        for node in reversed(pruner.tree.limits):
            if node.limit is None:
                continue
            if (yield from grow_expandables(expansion, node, node.limit)):
                pruner = self._pruner(materialize(root), pruner.limit_steps)
            pruner.prune_limit(node)
        if (yield from grow_expandables(expansion, root, budget - self._overhead.with_system - pruner.tree.reserved)):
            pruner = self._pruner(materialize(root), pruner.limit_steps)
        return pruner

    def _pruner(self, tree: RenderTree, limited: Sequence[tuple[Node, list[Step]]]) -> Pruner:
        pair_calls(tree, strict=self._pairing == "strict")
        return Pruner(tree, self._sizer, self._overhead, precise=self._precise if self._tools else None, limited=limited)

    def _precise(self, system: str) -> int:
        return self.tokenizer.request(self._tools, system=system).tokens

    def _result(self, pruner: Pruner, pruned: PrunedTree, recorder: TraceRecorder | None) -> Rendered:
        metadata, kept, omitted = pruned.tree.collect_attachments(pruned.state)
        references = _unique(kept)
        names = {reference.to for reference in references}
        messages = assemble_messages(pruned.tree.root, pruned.state)
        trace = None
        if recorder:
            recorder.end_stage("assemble")
            trace = recorder.build_trace(pruner, pruned.state, budget=pruned.budget, prune_step=self.prune_step, model=self.model)
        return Rendered(
            messages=messages,
            tokens=pruned.tokens,
            budget=pruned.budget,
            reserved=pruned.tree.reserved,
            metadata=tuple(metadata),
            references=references,
            omitted_references=tuple(reference for reference in _unique(omitted) if reference.to not in names),
            context=self.context if pruned.budget == self.budget else None,
            pruned=pruned,
            again=lambda other: self._result(pruner, pruner.prune_at(pruned.scan, other, CutRounding(self.prune_step)), recorder),
            trace=trace,
            tools=self._tools,
            earlier=self._earlier,
        )


def _known(context: ContextBudget) -> int:
    """Return the tokens that a render may have. Raises InvalidArgumentError for a budget that says nothing of them."""
    if context.render_budget is None:
        message = "budget has no limit: write ContextBudget(max_tokens=8_000), or give it a window."
        raise InvalidArgumentError(message)
    return context.render_budget


def _unique(references: list[Reference]) -> tuple[Reference, ...]:
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
    reserved_output_tokens: int | None = None,
    tools: Sequence[Tool | ToolDefinition] = (),
    prune_step: int = 0,
    pairing: Pairing = "strict",
    trace: bool = False,
) -> Rendered:
    """Render a prompt once; `Renderer` says what the arguments mean and what is raised.

    >>> render(UserMessage()["Hello"], budget=100).messages
    (Message(role='user', content=('Hello',), name=None, tool_calls=(), tool_call_id=None),)
    """
    renderer = Renderer(
        budget=budget,
        model=model,
        tokenizer=tokenizer,
        reserved_output_tokens=reserved_output_tokens,
        tools=tools,
        prune_step=prune_step,
        pairing=pairing,
        trace=trace,
    )
    return renderer.render(prompt)


async def render_async(  # noqa: PLR0913  # the arguments of a Renderer
    prompt: Child,
    *,
    budget: int | str | ContextBudget | None = None,
    model: str | NamedModel | None = None,
    tokenizer: Tokenizer | None = None,
    reserved_output_tokens: int | None = None,
    tools: Sequence[Tool | ToolDefinition] = (),
    prune_step: int = 0,
    pairing: Pairing = "strict",
    trace: bool = False,
) -> Rendered:
    """Render a prompt once, with components that await running in the caller's event loop."""
    renderer = Renderer(
        budget=budget,
        model=model,
        tokenizer=tokenizer,
        reserved_output_tokens=reserved_output_tokens,
        tools=tools,
        prune_step=prune_step,
        pairing=pairing,
        trace=trace,
    )
    return await renderer.render_async(prompt)
