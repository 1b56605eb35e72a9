"""What a smaller window loses: a prompt at several budgets as one Markdown file.

The largest budget is shown in full. Each smaller one is compared with the budget above it: how many messages stay, which are gone, and
in full what is new or changed. So a new wording shows once in a diff, and a new loss where it happens.

A prompt at the budgets that a snapshot shows, largest first.
"""

from __future__ import annotations

from bisect import bisect_left
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING, TypeGuard

import attrs

from promptkit.element import PromptElement
from promptkit.errors import BudgetExceededError
from promptkit.rendering.renderer import render
from promptkit.rendering.result import Rendered
from promptkit.testing.snapshots.markdown import (
    as_markdown,
    body_of,
    fenced,
    headed,
    headline,
    json_safe,
    outside_fences,
    title_of,
    tool_names,
)
from promptkit.testing.snapshots.stabilize import steady
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from promptkit.element import Child
    from promptkit.messages import Message, ToolDefinition
    from promptkit.testing.snapshots.stabilize import Stable
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Asked", "Level", "levels_of", "prompt_document"]


AROUND = 2
"""Lines of a changed text that are shown around what has changed."""

RUN = 6
"""More lines in a row than this are not listed where they are gone: the larger budget has them."""


@attrs.frozen
class _Said:
    """A message of one level. `text` is all that a reader sees of it, `paths` are the elements that wrote it."""

    title: str
    text: str
    message: Message
    paths: frozenset[str]


def prompt_document(levels: Sequence[Level]) -> str:
    """The Markdown of a prompt at these budgets, largest first, with a line break at the end."""
    if not levels[0].label:
        return f"{as_markdown(levels[0].messages)}\n"
    sections: list[str] = []
    above: Level | None = None
    for level in levels:
        sections.append(f"# {level.label}\n\n{_section(level, above)}")
        above = level if level.rendered else above
    return "{}\n".format("\n\n".join(sections))


def _section(level: Level, above: Level | None) -> str:
    rendered = level.rendered
    if rendered is None:
        return f"> {json_safe(' '.join(level.error.split()))}"
    kept = f", {rendered.reserved:,} reserved" if rendered.reserved else ""
    used = f"{rendered.tokens:,} of {level.budget:,} tokens{kept}; {_count(len(level.messages))}."
    if above is None:
        return f"{used}\n\n{as_markdown(level.messages)}"
    larger, smaller = _said(above), _said(level)
    if [said.text for said in larger] == [said.text for said in smaller]:
        return f"{used} The same as at {above.label}."
    return "\n\n".join([f"{used} Compared with {above.label}:", *_compared(larger, smaller)])


def _count(messages: int) -> str:
    return f"{messages:,} message{'' if messages == 1 else 's'}"


def _said(level: Level) -> list[_Said]:
    names = tool_names(level.messages)
    paths: list[set[str]] = [set() for _ in level.messages]
    for span in level.rendered.source_map if level.rendered else ():
        paths[span.message].add(span.path)
    titles = [title_of(message, names) for message in level.messages]
    return [
        _Said(title, headed(title, message), message, frozenset(path))
        for title, message, path in zip(titles, level.messages, paths, strict=True)
    ]


def _compared(larger: Sequence[_Said], smaller: Sequence[_Said]) -> Iterator[str]:
    lines: list[str] = []
    shown: list[str] = []
    stay = 0
    for old, new in [*_paired(larger, smaller), (None, None)]:
        if old and new and old.text == new.text:
            stay += 1
            continue
        if stay:
            lines.append(f"  {_count(stay)} stay{'s' if stay == 1 else ''}")
            stay = 0
        if old and new:
            lines.append(f"! {new.title}: {headline(new.message)}")
            shown.append(f"## {new.title}, changed\n\n{_change(old.message, new.message)}")
        elif old:
            lines.append(f"- {old.title}: {headline(old.message)}")
        elif new:
            lines.append(f"+ {new.title}: {headline(new.message)}")
            shown.append(headed(f"{new.title}, new", new.message))
    yield fenced("\n".join(lines), "diff")
    yield from shown


def _paired(larger: Sequence[_Said], smaller: Sequence[_Said]) -> Iterator[tuple[_Said | None, _Said | None]]:
    """Both in order: what stays with itself, what has changed with what it was, what is gone or new alone."""
    at = start = 0
    for place, index in [*_same(larger, smaller), (len(larger), len(smaller))]:
        yield from _gap(larger[at:place], smaller[start:index])
        if place < len(larger):
            yield larger[place], smaller[index]
        at, start = place + 1, index + 1


def _same(larger: Sequence[_Said], smaller: Sequence[_Said]) -> list[tuple[int, int]]:
    """The places of messages that are in both, in order: the longest increasing row of them.

    Equal messages are told apart by their number, counted from the end: what is old leaves first.
    """
    places = {key: len(larger) - 1 - index for index, key in enumerate(_numbered(larger))}
    met = [
        (places[key], index)
        for index, key in sorted((len(smaller) - 1 - back, key) for back, key in enumerate(_numbered(smaller)))
        if key in places
    ]
    ends: list[int] = []  # for each length, the smallest place that a row of it ends at
    rows: list[int] = []  # likewise, as an index of `met`
    before: list[int] = []
    for at, (place, _) in enumerate(met):
        length = bisect_left(ends, place)
        before.append(rows[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        rows[length : length + 1] = [at]
    row: list[tuple[int, int]] = []
    at = rows[-1] if rows else -1
    while at >= 0:
        row.append(met[at])
        at = before[at]
    return row[::-1]


def _numbered(messages: Sequence[_Said]) -> Iterator[tuple[str, int]]:
    seen: dict[str, int] = {}
    for said in reversed(messages):
        seen[said.text] = seen.get(said.text, 0) + 1
        yield said.text, seen[said.text]


def _gap(gone: Sequence[_Said], new: Sequence[_Said]) -> Iterator[tuple[_Said | None, _Said | None]]:
    """Between two messages that stay: what an element wrote before and after belongs together."""
    written: dict[tuple[str, str], list[int]] = {}
    for index, said in enumerate(gone):
        for key in _keys(said):
            written.setdefault(key, []).append(index)
    at = 0
    waiting: list[_Said] = []
    for said in new:
        rows = [row for key in _keys(said) if (row := written.get(key))]
        places = [row[place] for row in rows if (place := bisect_left(row, at)) < len(row)]
        if not places:
            waiting.append(said)
            continue
        yield from _alone(gone[at : min(places)], waiting)
        yield gone[min(places)], said
        at, waiting = min(places) + 1, []
    yield from _alone(gone[at:], waiting)


def _alone(gone: Sequence[_Said], new: Sequence[_Said]) -> Iterator[tuple[_Said | None, _Said | None]]:
    yield from ((said, None) for said in gone)
    yield from ((None, said) for said in new)


def _keys(said: _Said) -> Iterator[tuple[str, str]]:
    for path in sorted(said.paths):
        yield said.message.role, path
    for call in said.message.tool_calls:
        yield "call", call.id
    if said.message.tool_call_id:
        yield "result", said.message.tool_call_id


def _change(old: Message, new: Message) -> str:
    """A changed message, line by line."""
    only = [message.content[0] for message in (old, new) if len(message.content) == 1 and not message.tool_calls]
    texts = [part.split("\n") for part in only if isinstance(part, str)]
    outside: dict[int, str] = {}
    if len(texts) < 2:  # noqa: PLR2004  # two that are nothing but a text need no fences of their own in here
        texts = ["\n\n".join(body_of(message)).split("\n") for message in (old, new)]
        outside = dict(outside_fences(texts[0]))
    return fenced("\n".join(_line_by_line(texts[0], texts[1], outside)), "diff")


def _line_by_line(old: list[str], new: list[str], always: Mapping[int, str]) -> Iterator[str]:
    """The lines that are gone and new, with those around them. Of a long run that is gone, lines at the ends and those of `always`."""
    shown = 0
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(AROUND):
        if group[0][1] > shown:
            yield "…"
        for kind, start, end, first, last in group:
            if kind == "equal":
                yield from _marked(" ", old[start:end])
                continue
            cuts = [start, *(cut for index in range(start, end) if always.get(index) for cut in (index, index + 1)), end]
            for begin, stop in pairwise(cuts):
                yield from _gone(old[begin:stop])
            yield from _marked("+", new[first:last])
        shown = group[-1][2]
    if shown < len(old):
        yield "…"


def _gone(lines: Sequence[str]) -> Iterator[str]:
    if len(lines) <= RUN:
        yield from _marked("-", lines)
        return
    yield from _marked("-", lines[:1])
    yield f"-… {len(lines) - 2:,} more lines"
    yield from _marked("-", lines[-1:])


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    return (f"{mark} {line}" if line else mark.strip() for line in lines)


@attrs.frozen(kw_only=True)
class Asked:
    """How a prompt is to be rendered for a snapshot."""

    budgets: tuple[int | str, ...] | None = None
    """Tokens, or the names of models whose windows are the budgets; None renders once, with the default budget."""

    tokenizer: Tokenizer | None = None
    """What counts; None: the model's, or the default."""

    tools: tuple[ToolDefinition, ...] = ()
    """The definitions that take room beside the messages."""

    @property
    def given(self) -> bool:
        """Whether anything was asked for."""
        return self.budgets is not None or self.tokenizer is not None or bool(self.tools)


@attrs.frozen(kw_only=True)
class Level:
    """A prompt at one budget. `messages` are the rendered ones with what varies replaced."""

    label: str
    """`8,000 tokens` or a model's name; empty where no budget was asked for."""

    budget: int
    """Tokens."""

    rendered: Rendered | None = None
    """None where what is required does not fit."""

    messages: tuple[Message, ...] = ()

    error: str = ""
    """Why it does not fit, in a sentence."""


def levels_of(prompt: object, asked: Asked, stable: Stable) -> list[Level]:
    """The prompt at each budget, largest first, each budget once.

    Raises TypeError for what is no prompt, and whatever a render raises; but a budget that is too small is a level of its own.
    """
    if isinstance(prompt, Rendered):
        if asked.given:
            message = "A Rendered has its budget already: compare the element itself with a snapshot at other budgets."
            raise TypeError(message)
        return [_level("", prompt, stable)]
    if not _is_prompt(prompt):
        message = f"A prompt is compared: an element, a tuple of elements or a Rendered, not a {type(prompt).__name__}."
        raise TypeError(message)
    if asked.budgets is None:
        return [_level("", _rendered(prompt, None, asked, stable), stable)]
    found: list[tuple[str, Rendered | BudgetExceededError]] = []
    for budget in dict.fromkeys(asked.budgets):
        label = budget if isinstance(budget, str) else f"{budget:,} tokens"
        try:
            found.append((label, _rendered(prompt, budget, asked, stable)))
        except BudgetExceededError as error:
            found.append((label, error))
    found.sort(key=lambda item: -item[1].budget)
    return [_level(label, result, stable) for label, result in found]


def _is_prompt(value: object) -> TypeGuard[PromptElement | Sequence[Child]]:
    return isinstance(value, PromptElement | tuple | list)


def _rendered(prompt: Child, budget: int | str | None, asked: Asked, stable: Stable) -> Rendered:
    tokens, model = (None, budget) if isinstance(budget, str) else (budget, None)
    tokenizer = steady(asked.tokenizer or tokenizer_for(model), stable.stabilizer)
    return render(prompt, budget=tokens, model=model, tokenizer=tokenizer, tools=asked.tools)


def _level(label: str, result: Rendered | BudgetExceededError, stable: Stable) -> Level:
    if isinstance(result, BudgetExceededError):
        return Level(label=label, budget=result.budget, error=stable.text(str(result)))
    return Level(label=label, budget=result.budget, rendered=result, messages=stable.messages(result.messages))
