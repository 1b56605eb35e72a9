"""The measuring: one prompt, really rendered at every budget, as every model counts it.

What renders cost in time: everything measured in turns, several times, beside the cost of tokenising alone.
Which element keeps how many of its tokens: the items of a trace, summed up by their path without positions.
"""

from __future__ import annotations

import gc
import platform
import re
import time
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs

from promptkit.bench.budget_ranges import check_budgets
from promptkit.bench.results import Element, Point, Run, Sweep, Versions
from promptkit.errors import BudgetExceededError
from promptkit.rendering.renderer import Renderer
from promptkit.rendering.sizing import Sizer
from promptkit.tokens.images import image_rule
from promptkit.tokens.models import DEFAULT_ENCODING, model_info, tokenizer_for
from promptkit.tokens.openai_tokenizer import OpenAITokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from promptkit.element import Child
    from promptkit.messages import Message
    from promptkit.rendering.result import Rendered
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.tracing.trace import Trace

__all__ = ["PATH_SEPARATOR", "Times", "count_kept_tokens", "measure", "build_elements", "measure_times"]


Stages: TypeAlias = "Callable[[], Sequence[Callable[[], object]]]"
"""Prepares something, untimed, and returns what is timed, one after the other."""


@attrs.frozen(kw_only=True)
class Times:
    """Medians in processor seconds: waiting, for a busy machine or for what a component loads, is not counted."""

    floor: float
    """Every text tokenised once, by a tokenizer that remembers nothing."""
    cold: Mapping[int, float]
    """Budget → the first render of a new Renderer, with a tokenizer that remembers nothing."""
    warm: Mapping[int, float]
    """Budget → the same prompt once more, with the Renderer kept."""


def measure_times(*, repeat: int, floor: Stages, renders: Mapping[int, Stages]) -> Times:
    """Time the floor (one stage) and the renders by their budget (two stages, cold and warm), each `repeat` times.

    Each round takes everything once, so that a machine that slows down slows all of it; every other round goes backwards.
    """
    floors: list[float] = []
    cold: dict[int, list[float]] = {budget: [] for budget in renders}
    warm: dict[int, list[float]] = {budget: [] for budget in renders}
    with _quiet():
        for number in range(repeat):
            floors += _seconds(floor)
            for budget in sorted(renders, reverse=bool(number % 2)):
                first, again = _seconds(renders[budget])
                cold[budget].append(first)
                warm[budget].append(again)
    return Times(floor=_median(floors), cold=_medians(cold), warm=_medians(warm))


@contextmanager
def _quiet() -> Generator[None]:
    """The garbage collector rests while something is timed, and does not look through what was there before."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def _seconds(stages: Stages) -> list[float]:
    seconds: list[float] = []
    for stage in stages():
        start = time.process_time()
        result = stage()
        seconds.append(time.process_time() - start)
        del result  # freeing a large tree takes time of its own: here, and not in the next stage
    gc.collect()
    return seconds


def _medians(times: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {budget: _median(seconds) for budget, seconds in times.items()}


def _median(seconds: Sequence[float]) -> float:
    return round(median(seconds), 7)  # no clock knows more digits


PATH_SEPARATOR = " > "
"""Between the steps of a path."""

POSITION = re.compile(r"\[\d+\]$")
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
"""In a name: what breaks a line or moves a cursor, and what no file can hold."""


def count_kept_tokens(trace: Trace, depth: int) -> dict[str, int]:
    """Path of at most `depth` steps → the tokens of all that stands there and is kept, in written order; 0 for what is gone.

    Plain text belongs to the element around it. What stands in for something removed, such as a fallback, is not counted: the
    tokens are those of the prompt as it was written.
    """
    state = trace.state or 0
    found: dict[str, int] = {}
    names: list[str] = []
    steps: list[int] = []
    for item in trace.items:
        # An item comes after what it stands in, so one pass knows every path. Paths are cut at the depth: their length is bounded.
        above, level = ("", 0) if item.parent is None else (names[item.parent], steps[item.parent])
        inside = item.parent is not None and level < depth and (item.kind not in ("text", "part") or item.is_chunk)
        label = UNPRINTABLE.sub(" ", POSITION.sub("", item.label))
        names.append((f"{above}{PATH_SEPARATOR}{label}" if above else label) if inside else above)
        steps.append(level + inside)
        if item.tokens and not item.since:
            found[names[-1]] = found.get(names[-1], 0) + (item.tokens if item.kept(state) else 0)
    return found


def build_elements(whole: Mapping[str, int], kept: Sequence[Mapping[str, int] | None]) -> tuple[Element, ...]:
    """An element for each path: what it has with room for everything, and what is kept at each budget (None: there is no render).

    An element that is there only when room is short comes last, and is measured by the most that it has at any budget. What a
    limit removes at every budget is no row.
    """
    renders = [found for found in kept if found is not None]
    paths = dict.fromkeys(path for found in (whole, *renders) for path in found)
    sizes = {path: whole.get(path) or max((found.get(path, 0) for found in renders), default=0) for path in paths}
    return tuple(
        Element(path=path, whole=size, kept=tuple(None if found is None else found.get(path, 0) for found in kept))
        for path, size in sizes.items()
        if size
    )


UNLIMITED = 10_000_000
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
    check_budgets(budgets)
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
    everything = count_kept_tokens(trace, depth)
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
        kept.append(count_kept_tokens(trace, depth))
    floor, points = _timed(prompt, model, texts, points, repeat) if repeat else (None, points)
    return Sweep(
        model=model,
        tokenizer=tokenizer.name,
        whole=whole.tokens,
        messages=len(whole.messages),
        floor=floor,
        points=tuple(points),
        elements=build_elements(everything, kept),
    )


def _with_room(prompt: Child, model: str | None) -> tuple[Rendered, Trace]:
    """The prompt with room for everything."""
    rendered, trace = _render(prompt, model, UNLIMITED)
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
        tokens += sizer.count_message(message)
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
    times = measure_times(repeat=repeat, floor=floor, renders={budget: partial(renders, budget) for budget in budgets})
    return times.floor, [attrs.evolve(point, cold=times.cold.get(point.budget), warm=times.warm.get(point.budget)) for point in points]


def _forgetful(model: str | None) -> Tokenizer:
    """A tokenizer that counts as the model does, and has counted nothing yet."""
    if model is None:
        return OpenAITokenizer(DEFAULT_ENCODING, images=image_rule(""))
    info = model_info(model)
    return OpenAITokenizer(info.encoding, images=info.images, exact=info.exact and info.framing)
