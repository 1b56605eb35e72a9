"""The measuring: one prompt, really rendered at every budget, as every model counts it."""

from __future__ import annotations

import platform
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.bench.budgets import require_budgets
from promptkit.bench.elements import kept_by_element, rows
from promptkit.bench.run import Point, Run, Sweep, Versions
from promptkit.bench.stopwatch import take_times
from promptkit.errors import BudgetExceededError
from promptkit.rendering.renderer import Renderer
from promptkit.rendering.sizing import Sizer
from promptkit.tokens.images import image_rule
from promptkit.tokens.models import DEFAULT_ENCODING, model_info, tokenizer_for
from promptkit.tokens.openai_tokenizer import OpenAITokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptkit.element import Child
    from promptkit.messages import Message
    from promptkit.rendering.result import Rendered
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.tracing.trace import Trace

__all__ = ["measure"]

ROOM = 10_000_000
"""Tokens: room for everything, several times the largest window there is."""


def measure(  # noqa: PLR0913  # what a bench can be asked
    prompt: Child, *, budgets: Sequence[int], models: Sequence[str] = (), repeat: int = 0, depth: int = 3, target: str = "prompt"
) -> Run:
    """Render a prompt at every budget, for every model, and say what it costs and loses.

    Without models the default tokenizer counts. `repeat` is how often times are taken (0: not at all), `depth` the steps of a path
    after which elements are summed up, `target` what the run is called. A budget that is too small is a point that says so.
    Raises BadBudgetsError for what is no list of budgets, UnknownModelError for a model that nothing is known of, and whatever a
    render raises.
    """
    require_budgets(budgets)
    for model in models:
        model_info(model)  # a misspelt name would be counted as if it were one of OpenAI's
    return Run(
        target=target,
        budgets=tuple(budgets),
        depth=depth,
        repeat=repeat,
        versions=Versions(promptkit=version("promptkit"), python=platform.python_version(), tiktoken=version("tiktoken")),
        sweeps=tuple(_sweep(prompt, model, budgets, repeat, depth) for model in models or (None,)),
    )


def _sweep(prompt: Child, model: str | None, budgets: Sequence[int], repeat: int, depth: int) -> Sweep:
    tokenizer = tokenizer_for(model)
    sizer = Sizer(tokenizer)
    whole, trace = _with_room(prompt, model)
    texts = [item.text for item in trace.items if item.text and item.kept(trace.state or 0)]
    everything = kept_by_element(trace, depth)
    points: list[Point] = []
    kept: list[Mapping[str, int] | None] = []
    for budget in budgets:
        try:
            rendered, trace = _render(prompt, model, budget)
        except BudgetExceededError as error:
            points.append(Point(budget=budget, required=error.required))
            kept.append(None)
            continue
        points.append(
            Point(
                budget=budget,
                used=rendered.tokens,
                messages=len(rendered.messages),
                removed=sum(removal.step < (trace.state or 0) for removal in trace.removals),
                stable_prefix=_stable_prefix(rendered.messages, whole.messages, sizer),
            )
        )
        kept.append(kept_by_element(trace, depth))
    floor, points = _timed(prompt, model, texts, points, repeat) if repeat else (None, points)
    return Sweep(
        model=model,
        tokenizer=tokenizer.name,
        whole=whole.tokens,
        messages=len(whole.messages),
        floor=floor,
        points=tuple(points),
        elements=rows(everything, kept),
    )


def _with_room(prompt: Child, model: str | None) -> tuple[Rendered, Trace]:
    """The prompt with room for everything."""
    rendered, trace = _render(prompt, model, ROOM)
    if not trace.state:
        return rendered, trace
    return _render(prompt, model, 2 * trace.counts[0] + rendered.reserved)


def _render(prompt: Child, model: str | None, budget: int) -> tuple[Rendered, Trace]:
    try:
        rendered = Renderer(budget=budget, model=model, trace=True).render(prompt)
    except BudgetExceededError:
        raise
    except Exception as error:
        error.add_note(f"at a budget of {budget:,} tokens")
        raise
    return rendered, cast("Trace", rendered.trace)  # it was asked for


def _stable_prefix(messages: Sequence[Message], whole: Sequence[Message], sizer: Sizer) -> int:
    tokens = 0
    for message, unchanged in zip(messages, whole, strict=False):
        if message != unchanged:
            break
        tokens += sizer.message(message)
    return tokens


def _timed(prompt: Child, model: str | None, texts: Sequence[str], points: Sequence[Point], repeat: int) -> tuple[float, list[Point]]:
    """The floor, and the points with their times."""

    def floor() -> Sequence[Callable[[], object]]:
        count = _forgetful(model).count
        return (lambda: [count(text) for text in texts],)

    def renders(budget: int) -> Sequence[Callable[[], object]]:
        renderer = Renderer(budget=budget, model=model, tokenizer=_forgetful(model))
        return (lambda: renderer.render(prompt),) * 2

    budgets = [point.budget for point in points if point.required is None]
    times = take_times(repeat=repeat, floor=floor, renders={budget: partial(renders, budget) for budget in budgets})
    return times.floor, [attrs.evolve(point, cold=times.cold.get(point.budget), warm=times.warm.get(point.budget)) for point in points]


def _forgetful(model: str | None) -> Tokenizer:
    """A tokenizer that counts as the model does, and has counted nothing yet."""
    if model is None:
        return OpenAITokenizer(DEFAULT_ENCODING, images=image_rule(""))
    info = model_info(model)
    return OpenAITokenizer(info.encoding, images=info.images, exact=info.exact and info.framing)
