"""Replay a recorded conversation in a session with a small context window, and print its requests, its last summary and its breadcrumb.

No model is called: the replies are the recorded ones.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from textwrap import wrap

import attrs
from rich.console import Console
from rich.text import Text

from promptkit import (
    AgentSession,
    ContextBudget,
    Message,
    Rendered,
    Tool,
    ToolDefinition,
    Transcript,
    Usage,
)
from promptkit.cli.output.terminal import clip, escape_control_chars
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
    """A request of the replay: its number, the number of its turn, its tokens, and the compaction events around it."""

    number: int
    turn: int
    tokens: int
    before: tuple[CompactionCommitted | CompactionFailed, ...] = ()
    after: tuple[CompactionStarted, ...] = ()


@attrs.frozen(kw_only=True)
class DemoReplay:
    """The result of a replay. `turns` are the user's messages; `last` is the last request."""

    budget: ContextBudget
    turns: tuple[str, ...]
    requests: tuple[DemoRequest, ...]
    summaries: tuple[Checkpoint, ...]
    last: Rendered | None
    entries: int
    full_request_tokens: int
    """The tokens of a request with all messages of the conversation."""


async def replay_conversation(conversation: Sequence[Message], *, window: int) -> DemoReplay:
    """Send the user's messages again, and answer each with the recorded replies and tool results.

    Reads no file and no clock.

    A background summary is awaited before the next request is answered, so that every run is the
    same.

    Raises:
        ContextWindowFullError: The window is too small for a request.
        ToolsFillBudgetError: The window is too small for the tool definitions.
    """
    player = _RecordingPlayer(conversation)
    numbers = count(1)
    session = AgentSession(
        model=player,
        transcript=Transcript(_NamedStore(), clock=lambda: 0.0, new_id=lambda: f"e{next(numbers)}"),
        tools=[
            Tool(definition=definition, run=player.next_result) for definition in player.definitions
        ],
        budget=ContextBudget(window=window),
        summarizer=ExtractiveSummarizer(),
        tokenizer=tokenizer_for(None),
        events=Events(player.on_event),
        rng=random.Random(0).random,  # noqa: S311  # a threshold's jitter, the same each time
    )
    player.session = session
    async with session:
        for text in player.play_turns():
            await session.run(text)
    player.assign_started()
    path = session.transcript.path()
    sizer = Sizer(tokenizer_for(None))
    return DemoReplay(
        budget=session.compaction.budget,
        turns=tuple(player.user_texts),
        requests=tuple(player.requests),
        summaries=tuple(entry.payload for entry in path if isinstance(entry.payload, Checkpoint)),
        last=session.last_rendered,
        entries=len(path),
        full_request_tokens=sizer.tokenizer.count_overhead(player.definitions).tokens
        + sum(sizer.count_message(entry.message) for entry in path if entry.message is not None),
    )


class _NamedStore(InMemoryStore):
    """A store in memory that has a file name."""

    @property
    def address(self) -> str | None:
        return TRANSCRIPT_NAME


class _RecordingPlayer:
    """Plays the model and the tools of a recording, and records the requests."""

    def __init__(self, conversation: Sequence[Message]) -> None:
        self.name = "recorded"
        self.session: AgentSession | None = None
        self.user_texts: list[str] = []
        self.requests: list[DemoRequest] = []
        self.definitions = [
            ToolDefinition(name=name)
            for name in dict.fromkeys(
                call.name for message in conversation for call in message.tool_calls
            )
        ]
        self._conversation = conversation
        self._answers: deque[Message] = deque()
        self._results: deque[str] = deque()
        self._ended: list[CompactionCommitted | CompactionFailed] = []
        self._started: list[CompactionStarted] = []

    def play_turns(self) -> Iterator[str]:
        """Yield the user's messages that were answered, and queue the recorded replies and tool results of each."""
        starts = [at for at, message in enumerate(self._conversation) if message.role == "user"]
        for start, end in zip(starts, [*starts[1:], len(self._conversation)], strict=True):
            turn_messages = self._conversation[start + 1 : end]
            self._answers = deque(
                message for message in turn_messages if message.role == "assistant"
            )
            results = {
                message.tool_call_id: message.text
                for message in turn_messages
                if message.role == "tool"
            }
            self._results = deque(
                results.get(call.id, END_OF_RECORDING)
                for answer in self._answers
                for call in answer.tool_calls
            )
            if self._answers:
                self.user_texts.append(self._conversation[start].text)
                yield self._conversation[start].text

    def on_event(self, event: Event) -> None:
        if isinstance(event, CompactionStarted):
            self._started.append(event)
        elif isinstance(event, CompactionCommitted | CompactionFailed):
            self._ended.append(event)

    def assign_started(self) -> None:
        """Assign the compactions that have started since the last request to that request."""
        if self.requests and self._started:
            self.requests[-1] = attrs.evolve(
                self.requests[-1], after=(*self.requests[-1].after, *self._started)
            )
            self._started.clear()

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Return the next reply of the recording."""
        _ = messages, tools
        self.assign_started()
        session = self.session
        tokens = 0
        if session is not None:
            await session.compaction.background.wait()
            tokens = session.last_rendered.tokens if session.last_rendered else 0
        self.assign_started()
        before, self._ended = tuple(self._ended), []
        self.requests.append(
            DemoRequest(
                number=len(self.requests) + 1,
                turn=len(self.user_texts),
                tokens=tokens,
                before=before,
            )
        )
        answer = (
            self._answers.popleft()
            if self._answers
            else Message(role="assistant", content=(END_OF_RECORDING,))
        )
        # An input of 0 tokens means that no provider has counted.
        return Reply(
            message=answer,
            usage=Usage(input_tokens=0),
            finish="tool_calls" if answer.tool_calls else "stop",
        )

    async def next_result(self, arguments: Mapping[str, object]) -> str:
        """Return the result of the next tool call.

        The calls of a reply are started in the order in which it contains them.
        """
        _ = arguments
        return self._results.popleft() if self._results else END_OF_RECORDING


BAR = 20
"""Columns of a bar."""

SUMMARY_LINES = 7
"""Lines of the summary that are printed."""

WIDTH = 78
"""Columns of a line at most."""


def print_replay(title: str, replay: DemoReplay) -> None:
    """Print a replay under a title."""
    console = Console(highlight=False)
    limit = replay.budget.render_budget or 0
    console.print(Text(title, style="bold"))
    console.print(
        f"{len(replay.turns):,} turns, replayed in a window of {replay.budget.window or 0:,} tokens\n"
    )
    _print(
        console,
        f"{_describe_start(replay, limit)} "
        "No model is called: the replies are the recorded ones, and the summaries are extracted from the conversation.",
    )
    _print(
        console, "\nEach request with its turn, its tokens, and how much of the budget they fill:"
    )
    console.print("\n  request  turn  tokens")
    # the first request, the last, and those at which a summary was started, applied or failed
    ends = {1, len(replay.requests)}
    for request in replay.requests:
        if request.number in ends or request.before or request.after:
            _print_request(console, request, limit)
    if replay.summaries:
        _print_summary(console, replay.summaries[-1], replay.entries)
    _print(console, f"\n{_describe_last_request(replay, limit)}")


def replay_to_json(replay: DemoReplay) -> dict[str, object]:
    """Return the figures of a replay as a JSON object. All figures are tokens or counts."""
    return {
        "window": replay.budget.window,
        "limit": replay.budget.render_budget,
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


def _describe_start(replay: DemoReplay, limit: int) -> str:
    figures = f"A request with all messages would have {replay.full_request_tokens:,} tokens, and may have {limit:,}."
    return f"{figures} {'A session summarizes the older messages.' if replay.full_request_tokens > limit else 'All messages fit.'}"


def _print_request(console: Console, request: DemoRequest, limit: int) -> None:
    full, empty = "█░" if console.encoding.startswith("utf") else "#."
    filled = min(BAR, round(BAR * request.tokens / limit)) if limit else BAR
    notes = [_describe_end(each) for each in request.before]
    notes += [f"{each.messages:,} messages: summary started" for each in request.after]
    start = f"  {request.number:>7}  {request.turn:>4}  {request.tokens:>6,}  "
    line = Text.assemble(start, (full * filled, "green"), (empty * (BAR - filled), "bright_black"))
    for note in notes:
        if line.cell_len + 2 + len(note) > console.width:
            console.print(line, soft_wrap=True)
            line = Text(" " * (len(start) - 2))
        line.append(f"  {note}", "magenta")
    console.print(line, soft_wrap=True)


def _describe_end(event: CompactionCommitted | CompactionFailed) -> str:
    if isinstance(event, CompactionFailed):
        return f"no summary ({event.reason})"
    return f"summary applied: {event.tokens_before:,} → {event.tokens_after:,}"


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
    for line in wrap(
        escape_control_chars(
            checkpoint.summary[len(strip_breadcrumb(checkpoint.summary)) :]
        ).strip(),
        _width(console) - 2,
    ):
        console.print(Text(f"  {line}", style="green"), soft_wrap=True)


def _describe_last_request(replay: DemoReplay, limit: int) -> str:
    messages = replay.last.messages if replay.last else ()
    roles = Counter[str](
        message.role for message in messages if extract_summary_text(message) is None
    )
    contents = [
        "the summary"
        if any(extract_summary_text(message) is not None for message in messages)
        else "",
        *(f"{count:,} {names[count != 1]}" for role, names in NAMES if (count := roles[role])),
    ]
    tokens = replay.last.tokens if replay.last else 0
    return f"The last request contains {', '.join(filter(None, contents))}: {tokens:,} of {limit:,} tokens."


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
