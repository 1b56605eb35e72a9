"""Measure a prompt: render it at every budget for every model, count the tokens that each element keeps, and take times.

Times are taken in turns, several times, together with the time of tokenising alone (the floor), so
that they can be compared.
"""

from __future__ import annotations

import gc
import platform
import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import NoReturn, cast

import attrs

from promptkit.bench.results import Element, Point, Run, Sweep, Versions
from promptkit.elements.element import Child
from promptkit.errors import BudgetExceededError, InvalidArgumentError, PromptKitError
from promptkit.messages import is_instance
from promptkit.rendering import Rendered, Renderer
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.renderer import Defaults
from promptkit.rendering.result.rendered import count_equal_prefix
from promptkit.sizes import read_tokens
from promptkit.tokens import (
    CalibratedTokenizer,
    OpenAITokenizer,
    Tokenizer,
    model_info,
    parse_tokens,
    tokenizer_for,
)
from promptkit.tokens.images import find_image_rule
from promptkit.tokens.models import DEFAULT_ENCODING
from promptkit.tracing import Trace

MAX_BUDGETS = 1_000
"""Budgets of one bench. Each is rendered, so a larger number is most likely a mistake."""


MIN_SPACED = 2
"""Sizes of a range in equal ratios or steps, at least: its two ends."""


class InvalidBudgetsError(PromptKitError):
    """Budgets that cannot be parsed, or are too many."""


def parse_budgets(text: str) -> tuple[int, ...]:
    """Parse a list of budgets and ranges.

    Return the budgets in tokens, sorted and without duplicates.

    Items are separated by commas. An item is a size (`8000`, `8_000`, `8k`, `1.5k`, `1m`) or a
    range: `A:B:logN` is N sizes from A to B in equal ratios, `A:B:linN` is N sizes in equal steps,
    both with A and B included and rounded to whole tokens; `A:B:STEP` is A, A + STEP and so on up
    to B. Raises InvalidBudgetsError.

    >>> parse_budgets("1k:8k:log4")
    (1000, 2000, 4000, 8000)
    >>> parse_budgets("500,1k:3k:1k")
    (500, 1000, 2000, 3000)
    """
    found: set[int] = set()
    for item in text.split(","):
        found.update(_range(item) if ":" in item else (_size(item, item),))
        if len(found) > MAX_BUDGETS:
            _refuse_so_many(text, len(found))
    return tuple(sorted(found))


def _range(text: str) -> Iterable[int]:
    try:
        start, end, how = (piece.strip() for piece in text.split(":"))
    except ValueError:
        _refuse(text, "a range must be A:B:log16, A:B:lin16 or A:B:STEP")
    first, last = _size(start, text), _size(end, text)
    if first > last:
        _refuse(text, "the first size of a range must not be larger than the second")
    if (spaced := re.fullmatch(r"(log|lin)(\d+)", how.lower(), re.ASCII)) is None:
        sizes = range(first, last + 1, _size(how, text))
        if len(sizes) > MAX_BUDGETS:
            _refuse_so_many(text, len(sizes))
        return sizes
    if len(spaced[2]) > len(str(MAX_BUDGETS)) or int(spaced[2]) > MAX_BUDGETS:
        _refuse(text, f"these are more than {MAX_BUDGETS:,} budgets")
    number = int(spaced[2])
    if number < MIN_SPACED:
        _refuse(text, f"{spaced[1]} needs at least 2 sizes, because both ends are included")
    return (
        round(
            first + Fraction((last - first) * index, number - 1)
            if spaced[1] == "lin"
            else first * (last / first) ** (index / (number - 1))
        )
        for index in range(number)
    )


def _size(text: str, within: str) -> int:
    """Parse one size of at least 1 token."""
    try:
        size = parse_tokens(text)
    except InvalidArgumentError as error:
        _refuse(within, str(error).rstrip("."))
    if not size:
        _refuse(within, "a size must be at least 1 token")
    return size


def _refuse(text: str, why: str) -> NoReturn:
    raise InvalidBudgetsError(f"invalid budgets {text.strip()!r}: {why}.")


def _refuse_so_many(text: str, number: int) -> NoReturn:
    _refuse(text, f"these are {number:,} budgets, and at most {MAX_BUDGETS:,} are allowed")


PATH_SEPARATOR = " > "
"""Separates the steps of an element path."""

POSITION = re.compile(r"\[\d+\]$")
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
"""Characters of a name that break a line, move the cursor or cannot be written to a file."""


def count_kept_tokens(trace: Trace, depth: int) -> dict[str, int]:
    """Return the kept tokens by element path of at most `depth` steps, in the order of the prompt.

    A removed element has 0.

    Plain text belongs to the element around it. Replacements of removed elements, such as
    fallbacks, are not counted.
    """
    state = trace.state or 0
    found: dict[str, int] = {}
    names: list[str] = []
    steps: list[int] = []
    for item in trace.items:
        # An item comes after the item that contains it, so one pass is enough. Paths are cut at the
        # depth, so their length is bounded.
        above, level = ("", 0) if item.parent is None else (names[item.parent], steps[item.parent])
        inside = (
            item.parent is not None
            and level < depth
            and (item.kind not in ("text", "part") or item.is_element)
        )
        label = UNPRINTABLE.sub(" ", POSITION.sub("", item.label))
        names.append((f"{above}{PATH_SEPARATOR}{label}" if above else label) if inside else above)
        steps.append(level + inside)
        if item.tokens and not item.since:
            found[names[-1]] = found.get(names[-1], 0) + (item.tokens if item.kept(state) else 0)
    return found


def build_elements(
    whole: Mapping[str, int], kept: Sequence[Mapping[str, int] | None]
) -> tuple[Element, ...]:
    """Return an Element for each path, with its tokens without a budget and those kept at each budget.

    Elements that exist only within a budget come last; their size is the most at any budget.
    Elements that a TokenLimit removes at every budget are left out.

    Args:
        whole: Path → tokens without a budget.
        kept: Path → tokens, for each budget. None: there is no render.

    Returns:
        The elements, in the order of the prompt.
    """
    renders = [found for found in kept if found is not None]
    sizes = {
        path: whole.get(path) or max((found.get(path, 0) for found in renders), default=0)
        for path in dict.fromkeys(path for found in (whole, *renders) for path in found)
    }
    return tuple(
        Element(
            path=path,
            whole=size,
            kept=tuple(None if found is None else found.get(path, 0) for found in kept),
        )
        for path, size in sizes.items()
        if size
    )


UNLIMITED = 10_000_000
"""A budget in tokens that no prompt exceeds: several times the largest context window."""


def measure(  # noqa: PLR0913  # what a bench can be asked
    prompt: Child,
    *,
    budgets: Sequence[int | str],
    models: Sequence[str] = (),
    repeat: int = 0,
    depth: int = 3,
    target: str = "prompt",
    defaults: Defaults = "promptkit",
) -> Run:
    """Render a prompt at every budget, for every model, and measure what it uses, what it drops and how long it takes.

    Args:
        prompt: The prompt.
        budgets: Budgets in tokens. One that is too small gives a point with `required`.
        models: Names of models. By default the default tokenizer counts.
        repeat: How often each time is measured. 0: no times.
        depth: The length of the element paths. Deeper elements are added to the element that
            contains them.
        target: The name of the prompt in the results.
        defaults: What is removed where nothing has a priority, as in `render`.

    Returns:
        The measurements.

    Raises:
        InvalidBudgetsError: The budgets are empty, or not whole numbers of at least 1.
        UnknownModelError: Nothing is known of a model.
        PromptKitError: A render failed, for a reason other than its budget.

    Example:
        >>> from promptkit import UserMessage
        >>> run = measure(UserMessage()["Hello!"], budgets=[100])
        >>> run.sweeps[0].points[0].used == run.sweeps[0].whole
        True
    """
    sizes = [read_tokens(budget) for budget in budgets]
    if not sizes or any(not is_instance(size, int) or size < 1 for size in sizes):
        raise InvalidBudgetsError(
            f"invalid budgets {sizes!r}: use one or more whole numbers of tokens, each at least 1."
        )
    for model in models:
        # raises for a misspelt name, which would otherwise be counted with the default tokenizer
        model_info(model)
    return Run(
        target=target,
        budgets=tuple(sizes),
        depth=depth,
        repeat=repeat,
        versions=Versions(
            promptkit=version("promptkit"),
            python=platform.python_version(),
            tiktoken=version("tiktoken"),
        ),
        sweeps=tuple(
            _sweep(_Subject(prompt, model, defaults), sizes, repeat=repeat, depth=depth)
            for model in models or (None,)
        ),
    )


@attrs.frozen
class _Subject:
    """A prompt and how it is rendered."""

    prompt: Child
    model: str | None
    defaults: Defaults

    def render(self, budget: int) -> tuple[Rendered, Trace]:
        """Render the prompt with a trace."""
        renderer = Renderer(budget=budget, model=self.model, defaults=self.defaults, trace=True)
        try:
            rendered = renderer.render(self.prompt)
        except BudgetExceededError:
            raise
        except Exception as error:
            error.add_note(f"at a budget of {budget:,} tokens")
            raise
        return rendered, cast("Trace", rendered.trace)  # trace=True

    def render_unlimited(self) -> tuple[Rendered, Trace]:
        """Render the prompt without a budget."""
        rendered, trace = self.render(UNLIMITED)
        return (
            self.render(2 * trace.counts[0] + rendered.reserved)
            if trace.state
            else (rendered, trace)
        )


def _sweep(subject: _Subject, budgets: Sequence[int], *, repeat: int, depth: int) -> Sweep:
    tokenizer = tokenizer_for(subject.model)
    sizer = Sizer(tokenizer)
    whole, trace = subject.render_unlimited()
    texts = [item.text for item in trace.items if item.text and item.kept(trace.state or 0)]
    everything = count_kept_tokens(trace, depth)
    points: list[Point] = []
    kept: list[Mapping[str, int] | None] = []
    for budget in budgets:
        try:
            rendered, trace = subject.render(budget)
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
                stable_prefix=count_equal_prefix(rendered.messages, whole.messages, sizer),
            )
        )
        kept.append(count_kept_tokens(trace, depth))
    floor, points = _timed(subject, texts, points, repeat=repeat) if repeat else (None, points)
    return Sweep(
        model=subject.model,
        tokenizer=tokenizer.name,
        whole=whole.tokens,
        messages=len(whole.messages),
        floor=floor,
        points=tuple(points),
        elements=build_elements(everything, kept),
    )


def _timed(
    subject: _Subject, texts: Sequence[str], points: Sequence[Point], *, repeat: int
) -> tuple[float, list[Point]]:
    """Return the floor, and the points with their times: medians in seconds of processor time.

    Waiting for a busy machine, or for data that a component loads, is not counted. Each round times
    everything once, so that a machine that slows down affects all cases alike. Every other round
    runs backwards.
    """
    floors: list[float] = []
    rounds: dict[int, list[tuple[float, float]]] = {
        point.budget: [] for point in points if point.required is None
    }
    with _pause_gc():
        for number in range(repeat):
            floors.append(_time(partial(sum, map(_create_tokenizer(subject.model).count, texts))))
            gc.collect()
            for budget in sorted(rounds, reverse=bool(number % 2)):
                renderer = Renderer(
                    budget=budget,
                    model=subject.model,
                    tokenizer=_create_tokenizer(subject.model),
                    defaults=subject.defaults,
                )
                render = partial(renderer.render, subject.prompt)
                rounds[budget].append((_time(render), _time(render)))
                gc.collect()
    times = {
        budget: [_median(seconds) for seconds in zip(*found, strict=True)]
        for budget, found in rounds.items()
    }
    return _median(floors), [
        point
        if point.required is not None
        else attrs.evolve(point, cold=times[point.budget][0], warm=times[point.budget][1])
        for point in points
    ]


@contextmanager
def _pause_gc() -> Generator[None]:
    """Turn off the garbage collector, and exclude existing objects from later collections."""
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


def _time(stage: Callable[[], object]) -> float:
    start = time.process_time()
    result = stage()
    seconds = time.process_time() - start
    del result  # freeing a large tree takes time, which must not be part of the next stage
    return seconds


def _median(seconds: Sequence[float]) -> float:
    return round(median(seconds), 7)  # the clock is not more precise


def _create_tokenizer(model: str | None) -> Tokenizer:
    """Return a tokenizer for the model with an empty cache."""
    if model is None:
        return OpenAITokenizer(DEFAULT_ENCODING, images=find_image_rule(""))
    info = model_info(model)
    base = OpenAITokenizer(info.encoding, images=info.images, exact=info.exact and info.framing)
    return base if info.margin == 1 else CalibratedTokenizer(base, info.margin)
