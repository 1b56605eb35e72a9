"""The session of `promptkit chat` and its loop: read a line, run it as a turn or a slash command, and repeat."""

from __future__ import annotations

import io
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from textwrap import wrap

import attrs
import click

from promptkit import (
    AgentSession,
    ContextBudget,
    JsonlStore,
    PromptKitError,
    SyncSession,
    Transcript,
    TurnResult,
    Usage,
)
from promptkit.cli.chat.demo_model import SCRIPTED, ScriptedChatModel
from promptkit.cli.chat.sandbox import Folder
from promptkit.cli.chat.screen import PROMPT, CompactionNotices, Screen
from promptkit.cli.chat.slash_commands import SlashCommands, shorten_entry
from promptkit.cli.chat.tools import file_tools
from promptkit.cli.input.model import open_model
from promptkit.cli.output.errors import explain_failure
from promptkit.cli.output.terminal import escape_control_chars
from promptkit.compaction import Events, ExtractiveSummarizer
from promptkit.compaction.planning.blocks import is_summary
from promptkit.errors import NoPendingMessageError, TranscriptError
from promptkit.tokens import tokenizer_for

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


def open_session(  # noqa: PLR0913  # what a conversation is made of
    file: Path,
    *,
    folder: Folder,
    write: bool,
    model: str | None,
    window: int | None,
    preset: str,
    instructions: str | None,
    events: Events,
    on_tool_call: Callable[[str, str], object],
) -> ChatSession:
    """Open or continue the conversation in a transcript file.

    Args:
        file: The transcript file. It is created if it does not exist.
        folder: The folder that the file tools are confined to.
        write: Whether the tools may write and edit files.
        model: The model's name. None: the scripted model.
        window: The context window in tokens. None: that of the model.
        preset: The name of the preset.
        instructions: The system message. None: the default one.
        events: Subscribers to the session's events.
        on_tool_call: Called after each tool call with a description of the call and of its outcome.

    Raises:
        TranscriptError: The file cannot be read as a transcript.
        InvalidArgumentError: There is no preset of this name.
        ToolsFillBudgetError: The window is too small.
    """
    store = JsonlStore(file)
    transcript = Transcript(store)
    tokenizer = tokenizer_for(model)
    if model is None:
        window = window or WINDOW
    known = ContextBudget.for_model(model or SCRIPTED, tokenizer=tokenizer, window=window)
    tools = file_tools(
        attrs.evolve(folder, transcript=store.path),
        characters=MAX_RESULT_CHARACTERS
        if known.limit is None
        else min(MAX_RESULT_CHARACTERS, max(MIN_RESULT_CHARACTERS, known.limit // RESULT_DIVISOR)),
        write=write,
        on_tool_call=on_tool_call,
    )
    budget = ContextBudget.for_model(
        model or SCRIPTED,
        tokenizer=tokenizer,
        tools=[tool.definition for tool in tools],
        window=window,
    )
    chosen, close = (
        (ScriptedChatModel(tokenizer_for(None)), None) if model is None else open_model(model)
    )
    session = AgentSession(
        model=chosen,
        transcript=transcript,
        instructions=instructions or INSTRUCTIONS,
        tools=tools,
        budget=budget,
        preset=preset,
        summarizer=ExtractiveSummarizer(tokenizer=tokenizer) if model is None else None,
        tokenizer=tokenizer,
        events=events,
        rng=random.Random(0).random if model is None else random.random,  # noqa: S311  # thresholds, and no secrets
    )
    return ChatSession(session, close)


class ChatSession(SyncSession):
    """A session with turns that Ctrl-C can stop, and the connections of its model."""

    def __init__(
        self, session: AgentSession, release: Callable[[], Coroutine[object, object, None]] | None
    ) -> None:
        super().__init__(session)
        self._release = release

    def run_turn(self, content: str | None, on_text: Callable[[str], object]) -> TurnResult:
        """Run a turn; None resumes one that was interrupted.

        KeyboardInterrupt is raised after the turn has ended.
        """
        return (
            self.resume(on_text=on_text) if content is None else self.run(content, on_text=on_text)
        )

    def wait_for_summary(self) -> None:
        """Wait until the background summary is ready or has failed."""
        self.loop.wait(self.session.window.wait_idle)

    def close(self) -> None:
        """Close the session and the model's connections."""
        if self._release is not None:
            self.loop.wait(self._release)
            self._release = None
        super().close()


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

    chat = open_session(
        file,
        folder=Folder(options.folder, allowed=options.allowed),
        write=options.write,
        model=options.model,
        window=options.window,
        preset=options.preset,
        instructions=options.instructions and LONE_SURROGATES.sub("\ufffd", options.instructions),
        events=Events(notices),
        on_tool_call=on_tool_call,
    )
    notices.watch_background(chat.session.compaction.background)
    with chat:
        return _ChatLoop(options, chat, screen, notices).run()


class _ChatLoop:
    """One conversation, with messages from the terminal, a pipe or options."""

    def __init__(
        self, options: ChatOptions, chat: ChatSession, screen: Screen, notices: CompactionNotices
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
            tools = "may write in" if options.write else "may read"
            screen.print_note(
                f"{self._chat.session.model.name} {tools} {options.folder}. /help lists commands, Ctrl-D leaves."
            )
        if self._chat.session.compaction.budget.base is None:
            screen.print_note(
                f"The context window of {options.model} is unknown: no summary is made until it rejects a request. Set it with --window.",
                "",
            )
        path = self._chat.session.transcript.path()
        messages = [entry for entry in path if entry.message is not None]
        if messages:
            screen.print_note(
                f"Continuing {options.transcript} with {len(messages):,} messages. The last of them:"
            )
            for entry in messages[-SHOWN_MESSAGES:]:
                role = entry.message.role if entry.message else ""
                screen.print_note(f"  {role:<9}  {shorten_entry(entry, screen.console.width - 13)}")
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
        try:
            import readline  # gives input() editing keys and a history

            readline.set_auto_history(True)
        except ImportError:  # not available on every system
            pass
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
        turn = self._chat.run_turn(content, self._screen.write_text)
        self._screen.end_text()
        if not self._interactive and self._options.model is None:
            self._chat.wait_for_summary()  # so that the same lines give the same conversation
            self._notices.announce_ready()
        self._meter(turn.usages[-1])

    def _meter(self, usage: Usage | None = None) -> None:
        tokens, base = self._chat.call(
            lambda session: (session.compaction.usage().tokens, session.compaction.budget.base)
        )
        cached = (
            f", {usage.cached_tokens / usage.input_tokens:.0%} cached"
            if usage and usage.input_tokens and usage.cached_tokens
            else ""
        )
        self._screen.print_meter(tokens, base, cached)


def _is_interrupted(session: AgentSession) -> bool:
    items = session.compaction.view.items
    return bool(items) and items[-1].message.role in {"user", "tool"} and not is_summary(items[-1])
