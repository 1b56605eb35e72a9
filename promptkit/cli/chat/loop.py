"""The session of `promptkit chat`, its loop, which reads a line, runs it as a turn or a slash command, and repeats, and its screen: the model's text as it is streamed, and notes between its lines, such as what happens to the context window."""

from __future__ import annotations

import asyncio
import io
import os
import random
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import wrap

import attrs
import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from promptkit import (
    AgentSession,
    ContextBudget,
    JsonlStore,
    Message,
    PromptKitError,
    SyncSession,
    Transcript,
    Usage,
)
from promptkit.agent import ContextUsage
from promptkit.cli.chat.demo_model import SCRIPTED, ScriptedChatModel
from promptkit.cli.chat.tools import Folder, RefusedError, file_tools, refuse
from promptkit.cli.input.params import open_model
from promptkit.cli.output.errors import explain_failure
from promptkit.cli.output.terminal import clip, count_nouns, draw_bar, escape_control_chars
from promptkit.cli.output.transcript import entry_role, first_line, short_id
from promptkit.compaction import Event, Events, ExtractiveSummarizer
from promptkit.compaction.planning.blocks import is_summary, is_user_request
from promptkit.compaction.run.background import Background
from promptkit.compaction.run.events import (
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    SummaryDiscarded,
)
from promptkit.errors import NoPendingMessageError, TranscriptError
from promptkit.rendering import Removal
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import tokenizer_for
from promptkit.transcript import Checkpoint, Edit, Entry

MAX_ROWS = 8
"""Rows of a list of messages or removals that are printed."""

MAX_DIGITS = 9
"""Digits that the number of /rewind may have."""

HELP = """\
/help              show this list
/context [all]     show what fills the context window; all adds every figure
/receipt           show what the last request left out, and all summaries
/compact [TEXT]    summarize now; TEXT adds instructions for the summary
/autocompact [on]  show whether summaries are made automatically; on or off
/pin [TEXT]        keep your last message, or a passage, in every summary
/unpin N           no longer keep what /receipt lists as pin N
/undo              revert the latest summary
/rewind [N]        go back to before your last message, or your last N messages
/branch [N]        list the branches, or continue on another one
/resume            continue a turn that was interrupted
/fork FILE         copy the conversation to another file
/handoff FILE GOAL write what serves a goal to a new conversation
/quit              leave, like Ctrl-D
To send a message that begins with a slash, put a space before it."""


class SlashCommands:
    """Runs slash commands and prints their results.

    `resume` is called to continue an interrupted turn.
    """

    def __init__(self, talk: SyncSession, screen: Screen, *, resume: Callable[[], object]) -> None:
        self._talk = talk
        self._screen = screen
        self._commands: Mapping[str, Callable[[str], object]] = {
            "help": lambda _: self._lines(HELP.splitlines()),
            "context": self._show_context,
            "receipt": lambda _: self._lines(
                talk.call(lambda session: _receipt(session, screen.console.width))
            ),
            "compact": self._compact,
            "autocompact": self._autocompact,
            "pin": self._pin,
            "unpin": self._unpin,
            "undo": lambda _: self._undo(),
            "rewind": self._rewind,
            "branch": self._branch,
            "resume": lambda _: resume(),
            "fork": self._fork,
            "handoff": self._handoff,
        }

    def run(self, line: str) -> bool:
        """Run the command of a line. Return False to leave. Raises what the session raises."""
        name, _, rest = line[1:].partition(" ")
        if name in {"quit", "exit", "q"}:
            return False
        command = self._commands.get("help" if name in {"?", ""} else name)
        try:
            if command is None:
                refuse(f"there is no command /{name}; /help lists them.")
            command(rest.strip())
        except RefusedError as error:
            self._screen.print_line(str(error), "red")
        return True

    def _show_context(self, wanted: str) -> None:
        if wanted not in {"", "all"}:
            refuse("/context needs all, or nothing.")
        usage = self._talk.context_usage()
        base, facts = self._talk.call(
            lambda session: (session.compaction.budget.base, _context(session, usage))
        )
        shown = usage if wanted else attrs.evolve(usage, window=None, limit=base, threshold=None)
        console = self._screen.console
        colours = (
            console.is_terminal and not console.no_color and console.encoding.startswith("utf")
        )
        self._lines(
            [
                *draw_context(shown, width=console.width, colours=colours),
                "",
                *self._wrapped(facts if wanted else [fact for fact in facts if fact[0] == "used"]),
            ]
        )

    def _lines(self, lines: Sequence[str | Text]) -> None:
        for line in lines:
            self._screen.print_line(line)

    def _wrapped(self, facts: Sequence[tuple[str, str]]) -> list[str]:
        """Format names and values as lines of the screen's width, with a hanging indent."""
        width = max(self._screen.console.width, 40)
        return [
            line
            for name, fact in facts
            for line in wrap(
                f"{name:<11} {fact}", width, subsequent_indent=" " * 12, break_on_hyphens=False
            )
        ]

    def _compact(self, instructions: str) -> None:
        before = self._talk.call(_list_shown)
        made = self._talk.compact(instructions or None)
        replaced = before - self._talk.call(_list_shown)
        self._screen.print_line(
            "there is nothing to summarize: all messages are recent."
            if made is None
            else f"a summary replaces {count_nouns(len(replaced), 'message')}."
        )

    def _pin(self, text: str) -> None:
        pin = self._talk.call(lambda session: session.pin(text=text or None))
        self._screen.print_line(clip(f"pinned: {_one_line(pin.text)}", self._screen.console.width))

    def _unpin(self, number: str) -> None:
        pins = self._talk.call(lambda session: session.pins)
        if not number.isdecimal() or not 0 < int(number[:MAX_DIGITS]) <= len(pins):
            refuse("/unpin needs the number of a pin; /receipt lists them.")
        self._talk.call(lambda session: session.unpin(pins[int(number) - 1]))
        self._screen.print_line(f"pin {number} is no longer kept.")

    def _autocompact(self, wanted: str) -> None:
        if wanted not in {"", "on", "off"}:
            refuse("/autocompact needs on or off, or nothing.")
        self._screen.print_line(
            "summaries are made automatically."
            if self._talk.call(lambda session: _set_enabled(session, wanted))
            else "no summary is made automatically: a request that is too large leaves messages out."
        )

    def _branch(self, wanted: str) -> None:
        leaves, current = self._talk.call(
            lambda session: (session.transcript.leaves(), session.transcript.leaf)
        )
        numbers = {str(number): leaf for number, leaf in enumerate(leaves, 1)}
        if not wanted:
            self._lines(
                [
                    f"{'*' if leaf.id == current else ' '} {number:>3}  {shorten_entry(leaf, self._screen.console.width - 9)}"
                    for number, leaf in numbers.items()
                ]
                or ["there is no branch yet."]
            )
        elif (chosen := numbers.get(wanted)) is None:
            refuse("/branch needs a number of its list, such as /branch 2.")
        elif chosen.id == current:
            self._screen.print_line("this is the branch that the conversation is on.")
        else:
            self._talk.switch_branch(chosen.id)
            self._screen.print_line(
                f"continued after: {shorten_entry(chosen, self._screen.console.width - 17)}"
            )

    def _undo(self) -> None:
        self._screen.print_line(
            "there is no summary to revert."
            if self._talk.undo_compaction() is None
            else f"Summary reverted: {self._talk.call(format_usage)}"
        )

    def _rewind(self, count: str) -> None:
        wanted = (
            int(count)
            if count.isascii() and count.isdecimal() and len(count) <= MAX_DIGITS
            else 0
            if count
            else 1
        )
        if not wanted:
            refuse("/rewind needs a number of your messages, such as /rewind 2.")
        asked = [
            entry
            for entry in self._talk.call(lambda session: session.transcript.path())
            if entry.message is not None and entry.message.role == "user"
        ]
        if wanted > len(asked):
            refuse(f"you have sent only {len(asked):,}: use a smaller number.")
        first = asked[-wanted]
        parent = self._talk.call(lambda session: session.transcript.parent(first.id))
        self._talk.rewind(None if parent is None else parent.id)
        self._screen.print_line(
            f"back to before: {shorten_entry(first, self._screen.console.width - 17)}"
        )

    def _fork(self, name: str) -> None:
        path = _find_new_file("/fork", name)
        copied = self._talk.call(lambda session: len(session.transcript.fork(JsonlStore(path))))
        self._screen.print_line(
            f"{copied:,} entries written to {path}. To continue there: promptkit chat {path}"
        )

    def _handoff(self, wanted: str) -> None:
        name, _, goal = wanted.partition(" ")
        path = _find_new_file("/handoff", name)
        if not goal.strip():
            refuse("/handoff needs a goal behind the file: what the new conversation is for.")
        if self._talk.call(lambda session: isinstance(session.model, ScriptedChatModel)):
            refuse("/handoff needs a model that writes the document; the scripted one cannot.")
        with self._talk.handoff(goal.strip(), JsonlStore(path)):
            self._screen.print_line(
                f"what serves the goal was written to {path}. To continue there: promptkit chat {path}"
            )


def _find_new_file(command: str, name: str) -> Path:
    """Return the file of a new conversation. Raises RefusedError if there is one of this name."""
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # the home folder of that user is unknown
        path = Path(name)
    if not name or (path.exists() and path.stat().st_size):
        refuse(
            f"{f'{path} already exists: ' if name else ''}{command} needs the name of a file that does not exist yet."
        )
    return path


def _list_shown(session: AgentSession) -> frozenset[str]:
    """Return the ids of the messages that the next request shows as they are."""
    return frozenset(
        item.entry_id for item in session.compaction.view.items if item.kind.endswith("message")
    )


def _set_enabled(session: AgentSession, wanted: str) -> bool:
    """Switch automatic summaries on or off, and return whether they are on."""
    if wanted:
        session.compaction.enabled = wanted == "on"
    return session.compaction.enabled


def format_usage(session: AgentSession) -> str:
    """Return how full the context window is, in words."""
    tokens, base = session.compaction.usage().tokens, session.compaction.budget.base
    return (
        f"{tokens:,} tokens, window unknown"
        if base is None
        else f"{tokens:,} of {base:,} tokens ({tokens / base:.0%})"
    )


def shorten_entry(entry: Entry, width: int) -> str:
    """Return the first line of an entry, cut to at most `width` columns."""
    return clip(first_line(entry), max(width, 20))


def _context(session: AgentSession, usage: ContextUsage) -> list[tuple[str, str]]:
    view = session.compaction.view
    answers, results = (
        sum(item.message.role == role for item in view.items) for role in ("assistant", "tool")
    )
    return [
        ("model", session.model.name),
        ("window", session.compaction.budget.explain()),
        (
            "used",
            format_usage(session)
            + ("" if usage.reading.provider is None else ", as counted by the provider")
            + (
                f"; {usage.cached_share:.0%} of the last request were cached"
                if usage.cached_share
                else ""
            ),
        ),
        (
            "contents",
            f"{count_nouns(sum(map(is_user_request, view.items)), 'user message')}, {count_nouns(answers, 'assistant message')}, {count_nouns(results, 'tool result')}{', after a summary' if view.checkpoint_id else ''}",
        ),
        ("summary", _summary(session, usage.threshold)),
        (
            "transcript",
            f"{len(session.transcript):,} entries in {session.transcript.store.address}",
        ),
    ]


def _summary(session: AgentSession, threshold: int | None) -> str:
    return {"running": "in progress", "ready": "ready, will be used in the next request"}.get(
        session.compaction.background.state
    ) or (
        "made with /compact, or when the model rejects a request as too large"
        if threshold is None
        else f"started at about {threshold:,} tokens"
    )


def _receipt(session: AgentSession, width: int) -> list[str]:
    path = session.transcript.path()
    undone = {
        entry.payload.target
        for entry in path
        if isinstance(entry.payload, Edit) and entry.payload.content is None
    }
    summaries = [
        _checkpoint_row(entry, entry.payload, undone=entry.id in undone)
        for entry in path
        if isinstance(entry.payload, Checkpoint)
    ]
    return [
        *_last_request(session, width),
        f"summaries: {len(summaries):,}" if summaries else "summaries: none yet",
        *summaries,
        *(
            clip(f"pin {number:>5}  {pin.by}: {_one_line(pin.text)}", width)
            for number, pin in enumerate(session.pins, 1)
        ),
    ]


def _last_request(session: AgentSession, width: int) -> list[str]:
    rendered, before = session.last_rendered, session.last_omitted
    if rendered is None:
        return ["no request has been sent yet."]
    gone = rendered.removals
    sizes = list(map(Sizer(session.tokenizer).count_message, before))
    return [
        f"last request: {rendered.tokens:,} of {rendered.budget:,} tokens, {len(rendered.messages):,} messages"
        + ("" if gone or before else ", nothing left out."),
        *_limit_rows(
            f"removed or shortened before rendering, in this order: {count_nouns(len(before), 'message')}, {sum(sizes):,} tokens",
            [
                _omitted_row(message, size, width)
                for message, size in zip(before, sizes, strict=True)
            ],
        ),
        *_limit_rows(
            f"removed, in this order: {count_nouns(len(gone), 'element')}, {sum(each.tokens for each in gone):,} tokens",
            [_removal_row(each, width) for each in gone],
        ),
    ]


def _one_line(text: str) -> str:
    return escape_control_chars(" ".join(text.split()))


def _limit_rows(heading: str, rows: Sequence[str]) -> list[str]:
    """Return a list under its heading, of a long one the beginning; nothing for an empty one."""
    more = [f"{'…':>8}  {len(rows) - MAX_ROWS:,} more"] if len(rows) > MAX_ROWS else []
    return [heading, *rows[:MAX_ROWS], *more] if rows else []


def _omitted_row(message: Message, size: int, width: int) -> str:
    calls = " ".join(f"→ {call.name} {call.arguments[:width]}" for call in message.tool_calls)
    said = _one_line(f"{message.text[: 4 * width]} {calls}")
    return clip(f"{size:>8,} tokens  {message.role:<9}  {said}", width)


def _removal_row(removal: Removal, width: int) -> str:
    label = " > ".join(removal.label.split(" > ")[-2:])
    return clip(
        escape_control_chars(
            f"{removal.order:>7}. {removal.tokens:>7,} tokens  {removal.reason}  {label}"
        ),
        width,
    )


def _checkpoint_row(entry: Entry, checkpoint: Checkpoint, *, undone: bool) -> str:
    writer = f"by {checkpoint.model}" if checkpoint.model else "without a model"
    return f"{short_id(entry.id):>10}  {checkpoint.trigger}, {writer}: {checkpoint.tokens_before or 0:,} → {checkpoint.tokens_after or 0:,} tokens{'  (reverted)' if undone else ''}"


MIN_WIDTH, MAX_WIDTH = 20, 72
"""Columns of the bar, on narrow and on wide terminals."""

MUTED = "bright_black"


@attrs.frozen
class _Part:
    """A part of the window."""

    name: str
    tokens: int
    letter: str
    """Fills the bar where there are no colours."""
    style: str
    block: str = "█"


def draw_context(usage: ContextUsage, *, width: int, colours: bool) -> list[Text]:
    """Draw a bar with a cell for each share of the window, a mark where the preset compacts next, and a legend.

    Args:
        usage: What fills the window.
        width: Columns of the terminal.
        colours: Draw coloured blocks. Otherwise each part has a letter.

    Returns:
        The lines, with the sizes in tokens.
    """
    parts = _list_parts(usage)
    whole = sum(part.tokens for part in parts)
    cells = max(MIN_WIDTH, min(MAX_WIDTH, width - 1))
    lines = [
        Text("tokens of the next request:"),
        Text.assemble(
            *(
                _draw_cells(part, count, colours=colours)
                for part, count in zip(
                    parts, split_cells([part.tokens for part in parts], cells), strict=True
                )
            )
        ),
    ]
    if usage.threshold is not None and usage.threshold <= whole:
        lines += _draw_mark(
            f"compacts at {usage.threshold:,}",
            min(cells - 1, usage.threshold * cells // whole),
            cells,
            mark="▲" if colours else "^",
        )
    names, digits = (
        max(len(part.name) for part in parts),
        max(len(f"{part.tokens:,}") for part in parts),
    )
    return lines + [
        Text.assemble(
            _draw_cells(part, 1, colours=colours),
            f" {part.name:<{names}}  {part.tokens:>{digits},}  ",
            (f"{part.tokens / whole:>6.1%}" if whole else "", MUTED),
        )
        for part in parts
    ]


def split_cells(tokens: Sequence[int], cells: int) -> list[int]:
    """Split the cells of a bar in proportion to tokens.

    A part with tokens has at least one cell, as far as there are cells.

    The cells that rounding leaves go to the parts with the largest remainders, and those of small
    parts come from the largest part.
    """
    if not (whole := sum(tokens)):
        return [0] * len(tokens)
    counts = [each * cells // whole for each in tokens]
    remainders = sorted(range(len(tokens)), key=lambda at: -(tokens[at] * cells % whole))
    for at in remainders[: cells - sum(counts)]:
        counts[at] += 1
    for at, each in enumerate(tokens):
        largest = max(range(len(tokens)), key=counts.__getitem__)
        if each and not counts[at] and counts[largest] > 1:
            counts[at], counts[largest] = 1, counts[largest] - 1
    return counts


def _list_parts(usage: ContextUsage) -> list[_Part]:
    """Return the parts of the window. Where it is unknown, only those of the request."""
    sizes = usage.parts
    parts = [
        _Part("instructions", sizes.system, "i", "cyan"),
        _Part("tools", sizes.tools, "t", "blue"),
        _Part("summary", sizes.summary, "s", "magenta"),
        _Part("messages", sizes.messages, "m", "green"),
        _Part("tool results", sizes.results, "r", "yellow"),
    ]
    if usage.limit is not None:
        parts.append(_Part("free", max(0, usage.limit - sizes.total), ".", MUTED, "░"))
        if usage.window is not None and usage.window > usage.limit:
            parts.append(
                _Part(
                    "kept for the reply",
                    usage.window - max(usage.limit, min(sizes.total, usage.window)),
                    "-",
                    MUTED,
                    "▒",
                )
            )
    return parts


def _draw_cells(part: _Part, count: int, *, colours: bool) -> tuple[str, str]:
    return (part.block * count, part.style) if colours else (part.letter * count, "")


def _draw_mark(words: str, cell: int, cells: int, *, mark: str) -> list[Text]:
    """Draw a mark below a cell of the bar, with words where they have room: before it, behind it, or in a line of their own."""
    return [
        Text(line, style=MUTED)
        for line in (
            [f"{words:>{cell - 1}} {mark}"]
            if cell > len(words)
            else [f"{' ' * cell}{mark} {words}"]
            if cell + 2 + len(words) <= cells
            else [f"{' ' * cell}{mark}", words]
        )
    ]


WINDOW = 6_000
"""The context window of the scripted model in tokens: small, so that a summary is made soon."""

RESULT_DIVISOR = 2
"""A tool result has at most one character for so many tokens of the window: about an eighth of the
window."""

MIN_RESULT_CHARACTERS, MAX_RESULT_CHARACTERS = 1_000, 40_000
"""Bounds of the characters of a tool result, for very small and very large windows."""

INSTRUCTIONS = (
    "You answer questions about the files of one folder. Look into them with your tools before you answer, and say which file and which "
    "line an answer comes from. Paths are relative to the folder."
)


KEYLESS = (
    "{key} is not set, so a scripted model answers: it lists, reads and searches files when you name them, and needs no network. "
    "Its context window is small ({window:,} tokens), and its summaries are extracted from the conversation. Set the key to chat with a "
    "model."
)

LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")
"""Lone surrogates: what bytes that are not UTF-8 become in an argument. No provider accepts them in
a message."""

SHOWN_MESSAGES = 4
"""Messages that are printed of a conversation that is continued."""


@attrs.frozen(kw_only=True)
class ChatOptions:
    """Arguments of `promptkit chat`."""

    transcript: Path | None
    """The transcript file. None: a temporary one."""
    folder: Path
    """The folder of the file tools, as an absolute path."""
    write: bool
    """Whether the model may write and edit files."""
    allowed: tuple[str, ...]
    """Protected paths that it may write, too."""
    model: str | None
    """None: the scripted model."""
    missing_key: str | None
    """The variable of the API key that is not set, so that the scripted model answers. None: it is
    set, or not needed."""
    window: int | None
    """The context window in tokens. None: that of the model."""
    preset: str
    """The name of the preset."""
    instructions: str | None
    messages: tuple[str, ...]
    quiet: bool


def run_chat(options: ChatOptions) -> int:
    """Chat until the input ends.

    Return the exit status: 1 if a message from a pipe or an option failed, else 0.
    """
    if options.transcript is not None:
        return _run_in_file(options, options.transcript)
    try:
        folder = tempfile.TemporaryDirectory(prefix="promptkit-chat-")
    except OSError as error:
        raise TranscriptError(
            f"this conversation cannot be kept in a temporary file: {error.strerror}. Is the disk full? Free some space, set TMPDIR, or name a file for the transcript."
        ) from error
    with folder as kept:
        return _run_in_file(options, Path(kept) / "talk.jsonl")


def _run_in_file(options: ChatOptions, file: Path) -> int:
    screen = Screen(quiet=options.quiet)
    notices = CompactionNotices(screen)
    place = os.path.realpath(file)  # returns a loop of links unchanged; the store refuses it

    def on_tool_call(call: str, outcome: str) -> None:
        screen.end_text()  # the text before the call
        screen.print_note(f"  · {call.replace(place, 'in the transcript')} → {outcome}")

    chat, close_model = _open_session(options, file, Events(notices), on_tool_call)
    notices.background = chat.session.compaction.background
    with chat:
        try:
            return _ChatLoop(options, chat, screen, notices).run()
        finally:
            if close_model is not None:
                chat.loop.wait(close_model)


def _open_session(
    options: ChatOptions, file: Path, events: Events, on_tool_call: Callable[[str, str], object]
) -> tuple[SyncSession, Callable[[], Coroutine[object, object, None]] | None]:
    """Open or continue the conversation in a transcript file, which is created if it does not exist.

    Args:
        options: The options of the chat.
        file: The transcript file.
        events: Subscribers to the session's events.
        on_tool_call: Called after each tool call with a description of the call and of its outcome.

    Returns:
        The session, and what closes the connections of its model; None for the scripted one.

    Raises:
        TranscriptError: The file cannot be read as a transcript.
        InvalidArgumentError: There is no preset of this name.
        ToolsFillBudgetError: The window is too small.
    """
    store = JsonlStore(file)
    transcript = Transcript(store)
    model, tokenizer = options.model, tokenizer_for(options.model)
    window = options.window or (WINDOW if model is None else None)
    known = ContextBudget.for_model(model or SCRIPTED, tokenizer=tokenizer, window=window)
    tools = file_tools(
        Folder(options.folder, transcript=store.path, allowed=options.allowed),
        characters=MAX_RESULT_CHARACTERS
        if known.limit is None
        else min(MAX_RESULT_CHARACTERS, max(MIN_RESULT_CHARACTERS, known.limit // RESULT_DIVISOR)),
        write=options.write,
        on_tool_call=on_tool_call,
    )
    chosen, close = (
        (ScriptedChatModel(tokenizer_for(None)), None) if model is None else open_model(model)
    )
    session = AgentSession(
        model=chosen,
        transcript=transcript,
        instructions=LONE_SURROGATES.sub("\ufffd", options.instructions or INSTRUCTIONS),
        tools=tools,
        budget=ContextBudget.for_model(
            model or SCRIPTED,
            tokenizer=tokenizer,
            tools=[tool.definition for tool in tools],
            window=window,
        ),
        preset=options.preset,
        summarizer=ExtractiveSummarizer(tokenizer=tokenizer) if model is None else None,
        tokenizer=tokenizer,
        events=events,
        rng=random.Random(0).random if model is None else random.random,  # noqa: S311  # thresholds, and no secrets
    )
    return SyncSession(session), close


class _ChatLoop:
    """One conversation, with messages from the terminal, a pipe or options."""

    def __init__(
        self, options: ChatOptions, chat: SyncSession, screen: Screen, notices: CompactionNotices
    ) -> None:
        self._options = options
        self._chat = chat
        self._screen = screen
        self._notices = notices
        self._interactive = not options.messages and screen.is_interactive
        self._commands = SlashCommands(chat, screen, resume=lambda: self._turn(None))
        self._failed = False

    def run(self) -> int:
        self._greet()
        stdin = sys.stdin
        if isinstance(stdin, io.TextIOWrapper):
            stdin.reconfigure(errors="replace")  # invalid UTF-8 does not end the conversation
        for line in self._read_lines():
            if line.strip() and not self._run_line(line):
                break
        return int(self._failed and not self._interactive)

    def _greet(self) -> None:
        options, screen = self._options, self._screen
        if options.missing_key:
            for line in wrap(
                KEYLESS.format(key=options.missing_key, window=options.window or WINDOW),
                max(40, screen.console.width - 1),
            ):
                screen.print_note(line, "")
        elif options.model is None:
            screen.print_note("A scripted model answers.", "")
        if options.transcript is None:
            screen.print_note(
                "This conversation is not kept: name a file to keep it, or use /fork FILE.", ""
            )
        if self._interactive:
            screen.print_note(
                f"{self._chat.session.model.name} may {'write in' if options.write else 'read'} {options.folder}. /help lists commands, Ctrl-D leaves."
            )
        if self._chat.session.compaction.budget.base is None:
            screen.print_note(
                f"The context window of {options.model} is unknown: no summary is made until it rejects a request. Set it with --window.",
                "",
            )
        if messages := [
            entry for entry in self._chat.session.transcript.path() if entry.message is not None
        ]:
            screen.print_note(
                f"Continuing {options.transcript} with {len(messages):,} messages. The last of them:"
            )
            for entry in messages[-SHOWN_MESSAGES:]:
                screen.print_note(
                    f"  {entry_role(entry):<9}  {shorten_entry(entry, screen.console.width - 13)}"
                )
            if self._chat.call(_is_interrupted):
                screen.print_note(
                    "The last turn was interrupted: /resume continues it, or send another message.",
                    "yellow",
                )
            self._meter()

    def _read_lines(self) -> Iterator[str]:
        """Yield the input lines.

        Lines from a pipe or from options are printed too, because they were not typed.
        """
        if self._interactive:
            yield from self._read_terminal()
            return
        # there is no stdin where it was closed
        for line in self._options.messages or sys.stdin or ():
            text = LONE_SURROGATES.sub("\ufffd", line.rstrip("\n"))
            if text.strip():
                self._screen.print_note(f"{PROMPT}{text}", "bold")
            yield text

    def _read_terminal(self) -> Iterator[str]:
        with suppress(ImportError):  # not available on every system
            import readline  # gives input() editing keys and a history

            readline.set_auto_history(True)
        while True:
            self._screen.print_note("")
            try:
                with self._screen.typing():
                    line = input(PROMPT)
            except EOFError:
                self._screen.console.print()
                return
            except KeyboardInterrupt:
                self._screen.console.print()
                self._screen.print_note("Ctrl-D leaves.")
                continue
            yield LONE_SURROGATES.sub("\ufffd", line)

    def _run_line(self, line: str) -> bool:
        """Run one line.

        Return False to leave. An error is printed in one line, and the conversation can continue.
        """
        self._notices.announce_ready()
        try:
            if line.startswith("/"):
                return self._commands.run(line)
            self._turn(line)
        except NoPendingMessageError as error:
            self._print_failure(
                str(error)
                if error.empty
                else "there is no turn to resume: the last message is the model's reply."
            )
        except (PromptKitError, OSError) as error:
            self._print_failure(explain_failure(error))
        except KeyboardInterrupt:
            if not self._interactive:
                raise click.Abort from None
            self._screen.end_text()
            self._screen.print_note(
                "Turn stopped. Its messages are kept; /resume continues it.", "yellow"
            )
        return True

    def _print_failure(self, why: str) -> None:
        self._failed = True
        self._screen.end_text()
        self._screen.print_line(f"error: {escape_control_chars(why)}", "red")

    def _turn(self, content: str | None) -> None:
        """Run a turn; None resumes one that was interrupted.

        KeyboardInterrupt is raised after the turn has ended.
        """
        show = self._screen.write_text
        turn = (
            self._chat.resume(on_text=show)
            if content is None
            else self._chat.run(content, on_text=show)
        )
        self._screen.end_text()
        if not self._interactive and self._options.model is None:
            # so that the same lines give the same conversation
            self._chat.loop.wait(self._chat.session.window.wait_idle)
            self._notices.announce_ready()
        self._meter(turn.usages[-1])

    def _meter(self, usage: Usage | None = None) -> None:
        tokens, base = self._chat.call(
            lambda session: (session.compaction.usage().tokens, session.compaction.budget.base)
        )
        self._screen.print_meter(
            tokens,
            base,
            f", {usage.cached_tokens / usage.input_tokens:.0%} cached"
            if usage and usage.input_tokens and usage.cached_tokens
            else "",
        )


def _is_interrupted(session: AgentSession) -> bool:
    items = session.compaction.view.items
    return bool(items) and items[-1].message.role in {"user", "tool"} and not is_summary(items[-1])


PROMPT = "> "

STARTED, NEEDED = 0.65, 0.9
"""Shares of the context window at about which a summary is started, and is needed."""

BAR = 20
"""Columns of the bar that shows how full the context window is."""


class Screen:
    """Writes to stdout, from any thread. Control characters are escaped.

    On a terminal, text is wrapped between words. While the user types at the prompt (`typing`),
    notes are written above the prompt, or after the line if the user has started one.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(highlight=False)
        self._quiet = quiet
        self._lock = threading.RLock()
        self._waiting: list[Text] = []
        self._typing = False
        self._word = ""
        self._column = 0

    @property
    def is_interactive(self) -> bool:
        """True if stdin and stdout are both terminals."""
        return sys.stdin is not None and sys.stdin.isatty() and self.console.is_terminal

    @contextmanager
    def typing(self) -> Generator[None]:
        """Tell the screen that a prompt is shown while the block runs."""
        self._typing = True
        try:
            yield
        finally:
            with self._lock:
                self._typing = False
                self._flush()

    def write_text(self, piece: str) -> None:
        """Write a part of the model's text."""
        with self._lock:
            for part in re.findall(r"\n|[^\S\n]+|\S+", escape_control_chars(piece)):
                self._take(part)
            self.console.file.flush()

    def end_text(self) -> None:
        """End the model's text, and write the notes that were waiting."""
        with self._lock:
            self._put_word()
            if self._column:
                self._newline()
            self._flush()

    def print_line(self, text: str | Text, style: str = "") -> None:
        """Print a line that is not the model's, as it is if it has colours already.

        Waits until the current line of the model ends.
        """
        with self._lock:
            self._waiting.append(
                text if isinstance(text, Text) else Text(escape_control_chars(text), style=style)
            )
            if not self._column and not self._word:
                self._flush()

    def print_note(self, text: str, style: str = "bright_black") -> None:
        """Print a note about what happens. Prints nothing with `quiet`."""
        if not self._quiet:
            self.print_line(text, style)

    def print_meter(self, tokens: int, base: int | None, rest: str) -> None:
        """Print how full the context window is.

        Args:
            tokens: Tokens of the conversation.
            base: Tokens that it may have. None: unknown.
            rest: Text to add at the end of the line.
        """
        if self._quiet or base is None:
            self.print_note(f"context {tokens:,} tokens, window unknown{rest}")
            return
        share = tokens / base
        style = "green" if share < STARTED else "yellow" if share < NEEDED else "red"
        self.print_line(
            Text.assemble(
                ("context ", "bright_black"),
                draw_bar(self.console, share, BAR, style),
                (f" {tokens:,} of {base:,} tokens{rest}", "bright_black"),
            )
        )

    def _take(self, part: str) -> None:
        if part == "\n":
            self._put_word()
            self._newline()
            self._flush()
        elif part.isspace():
            self._put_word()
            self._write(part.expandtabs(4))
        elif self.console.is_terminal:
            self._word += part
        else:
            self._write(part)

    def _put_word(self) -> None:
        word, self._word = self._word, ""
        if word and self._column and self._column + cell_len(word) >= self.console.width:
            self._newline()
        self._write(word)

    def _write(self, text: str) -> None:
        self.console.file.write(text)
        self._column += cell_len(text)

    def _newline(self) -> None:
        self.console.file.write("\n")
        self._column = 0

    def _flush(self) -> None:
        if not self._waiting or (self._typing and _line_begun()):
            return
        if self._typing:
            self.console.file.write("\r\x1b[K")
        for line in self._waiting:
            self.console.print(line, soft_wrap=not self.console.is_terminal)
        self._waiting.clear()
        if self._typing:
            self.console.file.write(PROMPT)
        self.console.file.flush()


def _line_begun() -> bool:
    """Return True if the user has started a line, which a note above the prompt would split."""
    readline = sys.modules.get("readline")
    return readline is None or bool(readline.get_line_buffer())


TRIGGERS = {
    "background": "in the background",
    "manual": "as you asked",
    "foreground": "now, because the request does not fit",
    "branch": "before they are left",
    "handoff": "for a new conversation",
}


class CompactionNotices:
    """An event subscriber that prints a line for each step of a compaction.

    Set `background` to that of the session before the first turn, so that a summary is announced
    when it is ready.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.background: Background | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = True

    def announce_ready(self) -> None:
        """Announce a background summary that is ready, once."""
        if not self._ready and self.background is not None and self.background.state == "ready":
            self._ready = True
            self._note("the summary is ready and will be used in the next request")

    def __call__(self, event: Event) -> None:
        """Print an event."""
        match event:
            case CompactionStarted(trigger=trigger, messages=messages):
                self._note(
                    f"summarizing {count_nouns(messages, 'message')}, {TRIGGERS.get(trigger, f'now ({trigger})')}"
                )
                if trigger == "background":
                    self._ready = False
                    # the event loop keeps only weak references to tasks
                    self._task = asyncio.get_running_loop().create_task(self._tell_later())
            case CompactionCommitted(trigger="branch" | "handoff", mode=mode):
                self._note(f"summary written ({mode})")
            case CompactionCommitted(tokens_before=before, tokens_after=after, mode=mode):
                self._ready = True
                self._note(
                    f"summary applied ({mode}): {before:,} → {after:,} tokens; /undo reverts it"
                )
            case CompactionFailed(trigger="manual" | "branch"):
                pass  # the command reports the error
            case CompactionFailed(detail=detail):
                self._note(f"no summary was made: {detail.removeprefix('no summary: ')}")
            case CompactionCancelled():
                self._note("the summary was cancelled")
            case SummaryDiscarded(reason=reason):
                self._note(f"the summary was discarded: {reason}")
            case DecisionMade(decision="RenderPruned", reason=reason):
                self._note(
                    f"the oldest messages were removed from this request (/receipt lists them): {reason}"
                )
            case _:
                pass

    async def _tell_later(self) -> None:
        if self.background is not None:
            await self.background.wait()
            self.announce_ready()

    def _note(self, text: str) -> None:
        self._screen.print_note(f"  ~ {text}", "magenta")
