"""A prompt of the size of a real agent's: 45 nested components, 100 turns with tool calls, a cache breakpoint at the last tool result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from statistics import median
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import attrs

from benchmarks.history import outcome
from benchmarks.recorded import TURN, budgets, floor, fresh_messages, record
from benchmarks.timing import Case, medians
from benchmarks.tokenizing import fresh_tokenizer
from benchmarks.workload import LONG, SHORT, fresh, texts
from promptkit import (
    CacheBreakpoint,
    Child,
    History,
    Message,
    PromptElement,
    Renderer,
    Sizing,
    SystemMessage,
    TokenLimit,
    ToolCall,
    ToolRound,
    Truncate,
    UserMessage,
    component,
)
from promptkit.messages import CacheBreakpointPart

if TYPE_CHECKING:
    from promptkit import Rendered

__all__ = ["AIM", "COMPONENTS", "OWN", "AgentFigures", "Parts", "Stopwatch", "measure_agent"]

AIM: Final = 2.0
"""The first render over the floor, without the components' own `render`, that is aimed at. It is no
bar."""

COMPONENTS: Final = 45
TURNS: Final = 100
UNLIMITED: Final = 10_000_000
LEAST_KEPT: Final = 0.9
"""The least share of the budget that a render has to use."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@attrs.define
class Stopwatch:
    """Counts calls, and adds up their processor time in seconds."""

    seconds: float = 0.0
    calls: int = 0

    def measure(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Return the function, with its calls measured."""

        @wraps(function)
        def measured(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start
                self.calls += 1

        return measured

    def reset(self) -> None:
        """Set time and calls to zero."""
        self.seconds, self.calls = 0.0, 0


OWN: Final = Stopwatch()
"""Measures the `render` methods of the components below: a program's own work, which no engine
makes faster."""


@attrs.frozen
class Parts:
    """The content of the prompt."""

    history: tuple[Message, ...]
    query: str
    paragraphs: tuple[str, ...]
    """Texts of some 100 tokens."""
    files: tuple[str, ...]
    """Texts of some 500 tokens in 30 lines: five attached files, the folder tree, and the results
    of three tool calls."""

    @classmethod
    def make(cls) -> Parts:
        """Create the parts. They are the same every time."""
        recorded = record(TURN * TURNS)
        lines = [
            f"{number:04} {' '.join(line.split())}"
            for number, line in enumerate(texts(270, SHORT, seed=3))
        ]
        files = tuple("\n".join(lines[start : start + 30]) for start in range(0, len(lines), 30))
        return cls(recorded.turns, recorded.query, texts(22, LONG, seed=4), files)

    def fresh(self) -> Parts:
        """Return equal parts of new objects."""
        (query,) = fresh([self.query])
        return Parts(fresh_messages(self.history), query, fresh(self.paragraphs), fresh(self.files))

    def prompt(self) -> PromptElement:
        """Create the prompt. This is the caller's work, and is never timed."""
        return CodingAgent(parts=self)


@component
class CodingAgent(PromptElement):
    """The whole prompt.

    Nothing before the last cache breakpoint is pruned, so what is to be pruned there has a
    `TokenLimit`.
    """

    parts: Parts

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        budget, paragraphs, files = sizing.token_budget, self.parts.paragraphs, self.parts.files
        return (
            SystemMessage(priority=1000)[Instructions(paragraphs=paragraphs[:9])],
            UserMessage(priority=800, flex_grow=2)[
                TokenLimit(max_tokens=budget // 8)[
                    WorkspaceInfo(paragraphs=paragraphs[9:14], tree=files[0])
                ]
            ],
            Conversation(turns=self.parts.history, priority=700, flex_grow=1),
            UserMessage(priority=900)[
                UserRequest(
                    query=self.parts.query,
                    limit=budget // 5,
                    files=files[1:6],
                    problems=paragraphs[14:16],
                )
            ],
            CurrentSteps(
                limit=budget // 10,
                results=files[6:],
                thoughts=paragraphs[16:19],
                priority=899,
                flex_grow=3,
            ),
            UserMessage(priority=950)[Reminders(paragraphs=paragraphs[19:])],
        )


@component
class Instructions(PromptElement):
    paragraphs: Sequence[str]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        identity, *conduct = self.paragraphs[:4]
        *rules, output = self.paragraphs[4:]
        return (
            Paragraph(title="Identity", text=identity),
            Conduct(paragraphs=conduct),
            ToolRules(rules=rules),
            Paragraph(title="Output", text=output),
        )


@component
class Paragraph(PromptElement):
    title: str
    text: str

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return f"# {self.title}\n\n{self.text}"


@component
class Conduct(PromptElement):
    paragraphs: Sequence[str]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        titles = ("Before a change", "After a change", "When in doubt")
        return [
            Paragraph(title=title, text=text)
            for title, text in zip(titles, self.paragraphs, strict=True)
        ]


@component
class ToolRules(PromptElement):
    rules: Sequence[str]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        names = ("read_file", "write_file", "search", "run_tests")
        return "# Tools", [
            ToolRule(name=name, text=text) for name, text in zip(names, self.rules, strict=True)
        ]


@component
class ToolRule(PromptElement):
    name: str
    text: str

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return f"- `{self.name}`: {self.text}"


@component
class WorkspaceInfo(PromptElement):
    paragraphs: Sequence[str]
    tree: str

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        environment, repository, *editors = self.paragraphs
        return (
            Paragraph(title="Environment", text=environment, priority=3),
            Paragraph(title="Repository", text=repository, priority=2),
            FolderTree(text=self.tree, priority=4, flex_grow=1),
            OpenEditors(texts=editors, priority=1),
        )


@component
class FolderTree(PromptElement):
    text: str

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return "# Files\n", Truncate()[self.text]


@component
class OpenEditors(PromptElement):
    texts: Sequence[str]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return [
            OpenEditor(number=number, text=text, priority=-number)
            for number, text in enumerate(self.texts)
        ]


@component
class OpenEditor(PromptElement):
    number: int
    text: str

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return f"Editor {self.number} shows:\n{self.text}"


@component
class Conversation(PromptElement):
    """The history, which the last cache breakpoint would keep whole without a limit of its own."""

    turns: Sequence[Message]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        return TokenLimit(max_tokens=sizing.token_budget)[History(turns=self.turns)]


@component
class UserRequest(PromptElement):
    query: str
    limit: int
    files: Sequence[str]
    problems: Sequence[str]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return TokenLimit(max_tokens=self.limit)[
            Attachments(files=self.files, flex_grow=1), Diagnostics(problems=self.problems)
        ], self.query


@component
class Attachments(PromptElement):
    files: Sequence[str]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return [
            FileContext(path=f"src/part_{number}.py", text=text, priority=-number)
            for number, text in enumerate(self.files)
        ]


@component
class FileContext(PromptElement):
    path: str
    text: str

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return FileHeader(path=self.path), f"{self.text}\n```"


@component
class FileHeader(PromptElement):
    path: str

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return f"{self.path}:\n```python"


@component
class Diagnostics(PromptElement):
    problems: Sequence[str]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return [
            Diagnostic(line=10 * number, text=text, priority=-10 - number)
            for number, text in enumerate(self.problems)
        ]


@component
class Diagnostic(PromptElement):
    line: int
    text: str

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return f"line {self.line}: {self.text}"


@component
class CurrentSteps(PromptElement):
    limit: int
    results: Sequence[str]
    thoughts: Sequence[str]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        last = len(self.results) - 1
        return [
            ToolStep(
                number=number,
                thought=thought,
                result=result,
                limit=self.limit,
                is_last=number == last,
            )
            for number, (thought, result) in enumerate(
                zip(self.thoughts, self.results, strict=True)
            )
        ]


@component
class ToolStep(PromptElement):
    number: int
    thought: str
    result: str
    limit: int
    is_last: bool

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        call = ToolCall(
            id=f"step_{self.number}",
            name="read_file",
            arguments=f'{{"path": "src/step_{self.number}.py"}}',
        )
        result = Truncate(keep="middle", max_tokens=self.limit)[self.result]
        return ToolRound(
            calls=[call],
            results={call.id: (result, CacheBreakpoint() if self.is_last else None)},
            text=self.thought,
        )


@component
class Reminders(PromptElement):
    paragraphs: Sequence[str]

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        todo, *reminders = self.paragraphs
        return TodoList(text=todo, priority=2), [
            Paragraph(title="Reminder", text=text, priority=1) for text in reminders
        ]


@component
class TodoList(PromptElement):
    text: str

    @OWN.measure
    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return f"# To do\n{self.text}"


@attrs.frozen
class AgentFigures:
    """The figures of the prompt at one budget.

    Times are over the floor: every text and every call's arguments tokenised once.
    """

    first: float
    """A render with nothing cached except the vocabulary, without the time in the components' own
    `render`."""
    own: float
    """The time in the components' own `render`."""
    kept_share: float
    """The tokens of the render, over the budget or, if they are fewer, the tokens of the whole
    prompt."""


def measure_agent(rounds: int, seconds: dict[str, float]) -> dict[str, AgentFigures]:
    """Return the figures at each budget.

    Adds the times to `seconds`. The collector is on, as for the history.
    """
    parts = Parts.make()
    whole = outcome(_renderer(UNLIMITED), (parts.prompt(),))
    figures: dict[str, AgentFigures] = {}
    for name, budget in budgets(whole.tokens).items():
        tokens = check_agent(parts, whole, budget)
        own: list[float] = []
        spent = medians(
            {"floor": floor(whole.messages), "first": _first(parts, budget, own)},
            rounds,
            collector=True,
        )
        seconds |= {f"agent_{name}_{key}": value for key, value in spent.items()}
        of_program = median(own[1:])  # the first round is the warm-up
        figures[name] = AgentFigures(
            first=(spent["first"] - of_program) / spent["floor"],
            own=of_program / spent["floor"],
            kept_share=tokens / min(budget, whole.tokens),
        )
    return figures


def _first(parts: Parts, budget: int, own: list[float]) -> Case:
    """Return a case for a first render.

    The time in the components' own `render` is added to `own`.
    """

    def case() -> Callable[[], Rendered]:
        renderer, prompt = _renderer(budget), parts.fresh().prompt()

        def run() -> Rendered:
            OWN.reset()
            rendered = outcome(renderer, (prompt,))
            own.append(OWN.seconds)
            return rendered

        return run

    return case


def check_agent(parts: Parts, whole: Rendered, budget: int) -> int:
    """Return the tokens of a first render.

    Raise RuntimeError if it is a bad one: figures of a broken renderer are worthless.
    """
    OWN.reset()
    rendered = outcome(_renderer(budget), (parts.prompt(),))
    problems = {
        f"{rendered.tokens:,} tokens are no full render": not LEAST_KEPT * min(budget, whole.tokens)
        < rendered.tokens
        <= budget,
        f"{OWN.calls} components were rendered": OWN.calls != COMPONENTS,
        "instructions or request are missing": not {parts.paragraphs[0], parts.query}
        <= {*_find_shown(rendered, parts)},
        "no cache breakpoint is at the last tool result": not _ends_with_breakpoint(rendered),
    }
    if found := [problem for problem, holds in problems.items() if holds]:
        raise RuntimeError(f"agent, budget {budget:,}: {'; '.join(found)}.")
    return rendered.tokens


def _find_shown(rendered: Rendered, parts: Parts) -> Iterator[str]:
    """Yield the texts of the prompt that some message shows whole."""
    shown = "\0".join(message.text for message in rendered.messages)
    return (text for text in (*parts.paragraphs, parts.query) if text in shown)


def _ends_with_breakpoint(rendered: Rendered) -> bool:
    """Return whether the last tool result, and no other message, ends with a cache breakpoint."""
    last = max(at for at, message in enumerate(rendered.messages) if message.role == "tool")
    marked = [
        at
        for at, message in enumerate(rendered.messages)
        if any(isinstance(part, CacheBreakpointPart) for part in message.content)
    ]
    return marked == [last]


def _renderer(budget: int) -> Renderer:
    return Renderer(budget=budget, tokenizer=fresh_tokenizer())
