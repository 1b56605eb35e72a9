"""The work of `promptkit chat`: lines come in, turns and commands are carried out, one after the other."""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, TypeVar

import attrs
import click

from promptkit.cli.chat.notices import CompactionNotices
from promptkit.cli.chat.screen import PROMPT, Screen
from promptkit.cli.chat.session import WINDOW, open_session
from promptkit.cli.chat.slash_commands import SlashCommands, shorten_entry
from promptkit.cli.output.errors import explain_failure
from promptkit.cli.output.terminal import escape_control_chars
from promptkit.compaction.events import Events
from promptkit.compaction.planning.blocks import is_summary
from promptkit.errors import NoPendingMessageError, PromptKitError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.agent.session import AgentSession
    from promptkit.cli.chat.session import ChatSession
    from promptkit.messages import Usage

__all__ = ["ChatOptions", "run_chat"]

T = TypeVar("T")

KEYLESS = (
    "OPENAI_API_KEY is not set, so a script answers in the place of a model: it lists, reads and searches files when you name them, and "
    "needs no network. Its window is small ({window:,} tokens), and its summaries are made of the conversation's own words. Set the key to "
    "talk with a model."
)

LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")
"""Half surrogate pairs, which is what bytes that are no UTF-8 become in an argument. No provider takes them, now or ever after."""

SHOWN_MESSAGES = 4
"""Messages that are shown of a conversation that is gone on with."""


@attrs.frozen(kw_only=True)
class ChatOptions:
    """What was asked for. `model` None is the script; `keyless`: because there is no key. `folder` is from the root."""

    transcript: Path | None
    folder: Path
    write: bool
    model: str | None
    keyless: bool
    window: int | None
    instructions: str | None
    messages: tuple[str, ...]
    quiet: bool


def run_chat(options: ChatOptions) -> int:
    """Hold a conversation until its lines are at an end. The exit status: 1 if a line from a pipe or an option came to nothing, else 0."""
    if options.transcript is not None:
        return _run_in_file(options, options.transcript)
    with tempfile.TemporaryDirectory(prefix="promptkit-chat-") as kept:
        return _run_in_file(options, Path(kept) / "talk.jsonl")


def _run_in_file(order: ChatOptions, file: Path) -> int:
    screen = Screen(quiet=order.quiet)
    notes = CompactionNotices(screen)
    place = os.path.realpath(file)  # which gives a loop of links as it is: the store refuses it

    def told(call: str, outcome: str) -> None:
        screen.end_text()  # what the model said before the call
        screen.print_note(f"  · {call.replace(place, 'in the transcript')} → {outcome}")

    talk = open_session(
        file,
        folder=order.folder,
        write=order.write,
        model=order.model,
        window=order.window,
        instructions=order.instructions and LONE_SURROGATES.sub("\ufffd", order.instructions),
        events=Events(notes),
        on_tool_call=told,
    )
    notes.watch_background(talk.session.keeper.background)
    with talk:
        return _ChatLoop(order, talk, screen, notes).hold()


class _ChatLoop:
    """One conversation at the keyboard, from a pipe or from options."""

    def __init__(self, order: ChatOptions, talk: ChatSession, screen: Screen, notes: CompactionNotices) -> None:
        self._order = order
        self._talk = talk
        self._screen = screen
        self._notes = notes
        self._asks = not order.messages and screen.is_interactive
        self._commands = SlashCommands(talk, screen, resume=lambda: self._turn(None))
        self._failed = False

    def hold(self) -> int:
        self._greet()
        given = sys.stdin
        if isinstance(given, io.TextIOWrapper):
            given.reconfigure(errors="replace")  # a stray byte ends no conversation
        for line in self._lines():
            if line.strip() and not self._one(line):
                break
        return int(self._failed and not self._asks)

    def _greet(self) -> None:
        order, screen = self._order, self._screen
        if order.keyless:
            for line in wrap(KEYLESS.format(window=order.window or WINDOW), max(40, screen.console.width - 1)):
                screen.print_note(line, "")
        elif order.model is None:
            screen.print_note("A script answers in the place of a model.", "")
        if order.transcript is None:
            screen.print_note("It is kept until you leave: name a file to keep it for good, or use /fork FILE.", "")
        if self._asks:
            tools = "may write in" if order.write else "may read"
            screen.print_note(f"{self._talk.session.model.name} {tools} {order.folder}. /help lists commands, Ctrl-D leaves.")
        if self._talk.session.keeper.budget.base is None:
            screen.print_note(
                f"No window is known of {order.model}: nothing is summarized until it refuses a request. --window SIZE sets one.", ""
            )
        path = self._talk.session.transcript.path()
        said = [entry for entry in path if entry.message is not None]
        if said:
            screen.print_note(f"{order.transcript} has {len(said):,} messages and goes on:")
            for entry in said[-SHOWN_MESSAGES:]:
                role = entry.message.role if entry.message else ""
                screen.print_note(f"  {role:<9}  {shorten_entry(entry, screen.console.width - 13)}")
            if self._talk.inspect(_is_cut_short):
                screen.print_note("The last turn was cut short: /resume goes on with it, or say something else.", "yellow")
            self._meter()

    def _lines(self) -> Iterator[str]:
        """What is said. From a pipe and from options it is shown, since nobody has typed it."""
        if self._asks:
            yield from self._typed()
            return
        for line in self._order.messages or sys.stdin or ():  # there is no stdin where it was closed
            text = LONE_SURROGATES.sub("\ufffd", line.rstrip("\n"))
            if text.strip():
                self._screen.print_note(f"{PROMPT}{text}", "bold")
            yield text

    def _typed(self) -> Iterator[str]:
        try:
            import readline  # gives input() its editing keys and its history

            readline.set_auto_history(True)
        except ImportError:  # not on every system
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

    def _one(self, line: str) -> bool:
        """A line. False: leave. What goes wrong is said in a line, and the conversation can be gone on with."""
        self._notes.announce_ready()
        try:
            if line.startswith("/"):
                return self._commands.run(line)
            self._turn(line)
        except NoPendingMessageError:
            self._say_failure("there is no turn to go on with: the model has had the last word.")
        except (PromptKitError, OSError) as error:
            self._say_failure(explain_failure(error))
        except KeyboardInterrupt:
            if not self._asks:
                raise click.Abort from None
            self._screen.end_text()
            self._screen.print_note("stopped. What was said is kept; /resume goes on with it.", "yellow")
        return True

    def _say_failure(self, why: str) -> None:
        self._failed = True
        self._screen.end_text()
        self._screen.print_line(f"error: {escape_control_chars(why)}", "red")

    def _turn(self, content: str | None) -> None:
        turn = self._talk.run_turn(content, self._screen.write_text)
        self._screen.end_text()
        if not self._asks and self._order.model is None:
            self._talk.wait_for_summary()  # so that the same lines give the same conversation
            self._notes.announce_ready()
        self._meter(turn.usage[-1])

    def _meter(self, usage: Usage | None = None) -> None:
        tokens, base = self._talk.inspect(lambda session: (session.keeper.reading().tokens, session.keeper.budget.base))
        cached = f", {usage.cached_tokens / usage.input_tokens:.0%} cached" if usage and usage.input_tokens and usage.cached_tokens else ""
        self._screen.print_meter(tokens, base, cached)


def _is_cut_short(session: AgentSession) -> bool:
    items = session.keeper.view.items
    return bool(items) and items[-1].message.role in {"user", "tool"} and not is_summary(items[-1])
