"""Replay a recorded conversation in a session with a small context window, and print its requests, its last summary and its breadcrumb.

No model is called: the replies are the recorded ones.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from textwrap import wrap

import attrs
from rich.console import Console
from rich.text import Text

from promptkit import (
    AgentSession,
    ContextBudget,
    Message,
    Tool,
    ToolDefinition,
    Transcript,
    Usage,
)
from promptkit.cli.output.terminal import clip, draw_bar, escape_control_chars
from promptkit.compaction import Event, Events, ExtractiveSummarizer
from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.planning.breadcrumb import strip_breadcrumb
from promptkit.compaction.run.events import CompactionCommitted, CompactionFailed, CompactionStarted
from promptkit.providers import Reply
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import tokenizer_for
from promptkit.transcript import Checkpoint, InMemoryStore

TRANSCRIPT_NAME = "demo.jsonl"
"""The file name of the transcript in breadcrumbs. It is kept in memory, so that the output does not
depend on a path."""

END_OF_RECORDING = "(the recording ends here)"


@attrs.frozen(kw_only=True)
class DemoRequest:
    """A request of the replay: its number, the number of its turn, its tokens, and notes about the compactions around it."""

    number: int
    turn: int
    tokens: int
    notes: list[str]


class DemoReplay:
    """A recorded conversation that is sent again in a session: the model, the tools, and the requests so far.

    Reads no file and no clock.
    """

    def __init__(self, conversation: Sequence[Message], *, window: int) -> None:
        self.name = "recorded"
        self.turns: list[str] = []
        self.requests: list[DemoRequest] = []
        self._conversation = conversation
        self._answers: Iterator[Message] = iter(())
        self._results: Iterator[str] = iter(())
        self._notes: list[str] = []
        self._definitions = [
            ToolDefinition(name=name)
            for name in dict.fromkeys(
                call.name for message in conversation for call in message.tool_calls
            )
        ]
        numbers = count(1)
        self.session = AgentSession(
            model=self,
            transcript=Transcript(
                InMemoryStore(address=TRANSCRIPT_NAME),
                clock=lambda: 0.0,
                new_id=lambda: f"e{next(numbers)}",
            ),
            tools=[Tool(definition=each, run=self._next_result) for each in self._definitions],
            budget=ContextBudget(window=window),
            summarizer=ExtractiveSummarizer(),
            tokenizer=tokenizer_for(None),
            events=Events(self._on_event),
            rng=random.Random(0).random,  # noqa: S311  # a threshold's jitter, the same each time
        )

    @property
    def summaries(self) -> list[Checkpoint]:
        """The summaries, in order."""
        return [
            entry.payload
            for entry in self.session.transcript.path()
            if isinstance(entry.payload, Checkpoint)
        ]

    @property
    def full_request_tokens(self) -> int:
        """The tokens of a request with all messages of the conversation."""
        sizer = Sizer(tokenizer_for(None))
        return sizer.tokenizer.count_overhead(self._definitions).tokens + sum(
            sizer.count_message(entry.message)
            for entry in self.session.transcript.path()
            if entry.message is not None
        )

    async def run(self) -> None:
        """Send the user's messages that were answered, and answer each with the recorded replies and tool results.

        Raises:
            ContextWindowFullError: The window is too small for a request.
            ToolsFillBudgetError: The window is too small for the tool definitions.
        """
        said = self._conversation
        starts = [at for at, message in enumerate(said) if message.role == "user"]
        async with self.session:
            for start, end in pairwise([*starts, len(said)]):
                turn = said[start + 1 : end]
                answers = [message for message in turn if message.role == "assistant"]
                results = {
                    message.tool_call_id: message.text for message in turn if message.role == "tool"
                }
                self._answers = iter(answers)
                self._results = iter(
                    [
                        results.get(call.id, END_OF_RECORDING)
                        for answer in answers
                        for call in answer.tool_calls
                    ]
                )
                if answers:
                    self.turns.append(said[start].text)
                    await self.session.run(said[start].text)

    def _on_event(self, event: Event) -> None:
        match event:
            case CompactionStarted(messages=messages) if self.requests:
                self.requests[-1].notes.append(f"{messages:,} messages: summary started")
            case CompactionCommitted(tokens_before=before, tokens_after=after):
                self._notes.append(f"summary applied: {before:,} → {after:,}")
            case CompactionFailed(reason=reason):
                self._notes.append(f"no summary ({reason})")
            case _:
                pass

    async def complete(self, *_: object, **__: object) -> Reply:
        """Return the next reply of the recording.

        A background summary is awaited before, so that every run is the same.
        """
        await self.session.compaction.background.wait()
        rendered, notes, self._notes = self.session.last_rendered, self._notes, []
        self.requests.append(
            DemoRequest(
                number=len(self.requests) + 1,
                turn=len(self.turns),
                tokens=rendered.tokens if rendered else 0,
                notes=notes,
            )
        )
        answer = next(self._answers, Message(role="assistant", content=(END_OF_RECORDING,)))
        # An input of 0 tokens means that no provider has counted.
        return Reply(
            message=answer,
            usage=Usage(input_tokens=0),
            finish="tool_calls" if answer.tool_calls else "stop",
        )

    async def _next_result(self, _: object) -> str:
        """Return the result of the next tool call.

        The calls of a reply are started in the order in which it contains them.
        """
        return next(self._results, END_OF_RECORDING)


BAR = 20
"""Columns of a bar."""

SUMMARY_LINES = 7
"""Lines of the summary that are printed."""

WIDTH = 78
"""Columns of a line at most."""


def replay_conversation(conversation: Sequence[Message], *, window: int) -> DemoReplay:
    """Replay a recorded conversation in a context window of so many tokens."""
    replay = DemoReplay(conversation, window=window)
    asyncio.run(replay.run())
    return replay


def print_replay(title: str, replay: DemoReplay) -> None:
    """Print a replay under a title."""
    console = Console(highlight=False)
    budget, full = replay.session.compaction.budget, replay.full_request_tokens
    limit = budget.render_budget or 0
    console.print(Text(title, style="bold"))
    console.print(
        f"{len(replay.turns):,} turns, replayed in a window of {budget.window or 0:,} tokens\n"
    )
    _print(
        console,
        f"A request with all messages would have {full:,} tokens, and may have {limit:,}. "
        f"{'A session summarizes the older messages.' if full > limit else 'All messages fit.'} "
        "No model is called: the replies are the recorded ones, and the summaries are extracted from the conversation.",
    )
    _print(
        console, "\nEach request with its turn, its tokens, and how much of the budget they fill:"
    )
    console.print("\n  request  turn  tokens")
    # the first request, the last, and those at which a summary was started, applied or failed
    for request in replay.requests:
        if request.notes or request.number in {1, len(replay.requests)}:
            _print_request(console, request, limit)
    if summaries := replay.summaries:
        _print_summary(console, summaries[-1], len(replay.session.transcript.path()))
    if rendered := replay.session.last_rendered:
        _print(
            console,
            f"\nThe last request contains {_list_contents(rendered.messages)}: {rendered.tokens:,} of {limit:,} tokens.",
        )


def replay_to_json(replay: DemoReplay) -> dict[str, object]:
    """Return the figures of a replay as a JSON object. All figures are tokens or counts."""
    budget = replay.session.compaction.budget
    return {
        "window": budget.window,
        "limit": budget.render_budget,
        "full_request_tokens": replay.full_request_tokens,
        "turns": len(replay.turns),
        "requests": [request.tokens for request in replay.requests],
        "summaries": [
            {
                "trigger": each.trigger,
                "tokens_before": each.tokens_before,
                "tokens_after": each.tokens_after,
            }
            for each in replay.summaries
        ],
    }


def _print_request(console: Console, request: DemoRequest, limit: int) -> None:
    start = f"  {request.number:>7}  {request.turn:>4}  {request.tokens:>6,}  "
    share = request.tokens / limit if limit else 1
    line = Text.assemble(start, draw_bar(console, share, BAR, "green"))
    for note in request.notes:
        if line.cell_len + 2 + len(note) > console.width:
            console.print(line, soft_wrap=True)
            line = Text(" " * (len(start) - 2))
        line.append(f"  {note}", "magenta")
    console.print(line, soft_wrap=True)


def _print_summary(console: Console, checkpoint: Checkpoint, entries: int) -> None:
    lines = escape_control_chars(strip_breadcrumb(checkpoint.summary)).splitlines()
    console.print(f"\nThe last summary is a message of {len(lines):,} lines:\n")
    for line in lines[:SUMMARY_LINES]:
        console.print(Text(clip(f"  {line}", _width(console)), style="green"), soft_wrap=True)
    console.print(
        f"  …  {len(lines) - SUMMARY_LINES:,} more\n" if len(lines) > SUMMARY_LINES else ""
    )
    _print(
        console,
        f"It ends with a breadcrumb. No message was lost: all {entries:,} entries are in the transcript.",
    )
    console.print()
    breadcrumb = checkpoint.summary[len(strip_breadcrumb(checkpoint.summary)) :]
    for line in wrap(escape_control_chars(breadcrumb).strip(), _width(console) - 2):
        console.print(Text(f"  {line}", style="green"), soft_wrap=True)


def _list_contents(messages: Sequence[Message]) -> str:
    counts = Counter(
        "summary" if extract_summary_text(message) is not None else message.role
        for message in messages
    )
    return ", ".join(
        ["the summary"] * (counts["summary"] > 0)
        + [f"{count:,} {names[count != 1]}" for role, names in NAMES if (count := counts[role])]
    )


NAMES = (
    ("user", ("user message", "user messages")),
    ("assistant", ("reply", "replies")),
    ("tool", ("tool result", "tool results")),
)


def _print(console: Console, text: str) -> None:
    for paragraph in text.split("\n"):
        for line in wrap(paragraph, _width(console)) or [""]:
            console.print(line, soft_wrap=True)


def _width(console: Console) -> int:
    return max(1, min(WIDTH, console.width - 2))
