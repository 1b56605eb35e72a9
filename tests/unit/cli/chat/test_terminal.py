"""`promptkit chat` at a terminal: a prompt, Ctrl-C that ends a turn, Ctrl-D that ends the conversation."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import pytest

from promptkit.testing.server import Hang, serve
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.unit.cli.chat.chatting import NAMES, SCRIPT, environment, fill

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

if not hasattr(os, "login_tty"):
    pytest.skip("this system has no os.login_tty", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("interruptible")

LIMIT = 20.0
"""Seconds until something that does not come has failed."""

TAKE_TERMINAL = "import os, sys; os.login_tty(os.dup(0)); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes the terminal that of the process, so that its Ctrl-C reaches this one and no other."""

CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """A process on a terminal of its own, 80 columns wide."""

    def __init__(self, folder: Path, *arguments: str, **more: str) -> None:
        self.shown = ""
        self._here, there = os.openpty()
        set_up = environment(TERM="xterm", LINES="24", **more)
        command = [sys.executable, "-c", TAKE_TERMINAL, SCRIPT, "chat", *arguments]
        self.process = subprocess.Popen(
            command, stdin=there, stdout=there, stderr=there, cwd=folder, env=set_up
        )
        os.close(there)

    def press(self, text: str) -> None:
        os.write(self._here, text.encode())

    def press_until(self, key: str, pattern: str, *, after: int = 0) -> int:
        """Press a key until a pattern is found: Python's own prompt heeds an interrupt late that comes while it handles another key."""
        for _ in range(int(LIMIT)):
            self.press(key)
            place = self._found(pattern, after, seconds=1.0)
            if place is not None:
                return place
        pytest.fail(f"{pattern!r} did not come. Shown: {self.shown[after:]!r}")

    def until(self, pattern: str, *, after: int = 0) -> int:
        """Wait for what a pattern finds behind a place; the place behind it."""
        place = self._found(pattern, after, seconds=LIMIT)
        if place is None:
            pytest.fail(f"{pattern!r} did not come. Shown: {self.shown[after:]!r}")
        return place

    def _found(self, pattern: str, after: int, *, seconds: float) -> int | None:
        end = time.monotonic() + seconds
        while not (found := re.compile(pattern).search(self.shown, after)):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._here], [], [], left)[0]:
                return None
            try:
                data = os.read(self._here, 65_536)
            except OSError:  # how Linux says that the other end was closed
                data = b""
            if not data:
                pytest.fail(
                    f"{pattern!r} did not come before the end. Shown: {self.shown[after:]!r}"
                )
            self.shown += data.decode(errors="replace")
        return found.end()

    def end(self) -> int:
        """Read until the process has ended; its status."""
        with suppress(OSError):  # how Linux says that the other end was closed
            while select.select([self._here], [], [], LIMIT)[0] and (
                data := os.read(self._here, 65_536)
            ):
                self.shown += data.decode(errors="replace")
        return self.process.wait(LIMIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._here)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path / "docs")
    return tmp_path


def lines(shown: str) -> list[str]:
    """What stands on the screen, without colours."""
    return [
        re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", line) for line in shown.replace("\r", "").split("\n")
    ]


class TestPrompt:
    @pytest.mark.long
    def test_a_person_talks_sees_the_meter_and_leaves(self, folder: Path) -> None:
        with Terminal(folder, "--folder", "docs") as terminal:
            place = terminal.until(r"Ctrl-D leaves\.(.*\n)+> ")
            terminal.press("read alpha.md\n")
            place = terminal.until(r"960 of 4,500 tokens, \d+% cached(.*\n)+> ", after=place)
            terminal.press(CTRL_D)

            assert terminal.end() == 0
        shown = lines(terminal.shown)
        assert "    alpha 1: nothing but a line of alpha, one after the other." in shown
        assert any(line.startswith("context ████░░░░") for line in shown)
        assert max(map(len, shown)) <= 80

    @pytest.mark.slow
    def test_that_a_summary_is_ready_is_said_while_nobody_types(self, folder: Path) -> None:
        with Terminal(folder, "--folder", "docs") as terminal:
            place = terminal.until("> ")
            for name in NAMES:
                terminal.press(f"read {name}.md\n")
                place = terminal.until(r"of 4,500 tokens, \d+% cached", after=place)
            begun = terminal.until("summarizing 19 messages, in the background")
            terminal.until("the summary is ready and will be used in the next request", after=begun)
            terminal.press("hello\n")
            terminal.until(r"summary applied \(extractive\): 3,464 → \d+ tokens", after=place)
            terminal.press("/quit\n")

            assert terminal.end() == 0

    @pytest.mark.slow
    def test_ctrl_c_at_the_prompt_drops_what_was_typed_and_no_more(self, folder: Path) -> None:
        with Terminal(folder) as terminal:
            place = terminal.until("> ")
            terminal.press("never said")
            place = terminal.until("never said", after=place)
            place = terminal.press_until(CTRL_C, r"Ctrl-D leaves\.(.*\n)+> ", after=place)
            terminal.press("hello\n")
            place = terminal.until(r"received\s+2\s+messages", after=place)
            terminal.press("/quit\n")

            assert terminal.end() == 0


class TestTurn:
    @pytest.mark.long
    def test_ctrl_c_ends_the_turn_and_not_the_program(self, folder: Path) -> None:
        with (
            serve(script=[Hang(), "I am here."]) as server,
            Terminal(
                folder, "talk.jsonl", "--model", "gpt-4.1", OPENAI_BASE_URL=server.url
            ) as terminal,
        ):
            place = terminal.until("> ")
            terminal.press("are you there?\n")
            terminal.until("are you there")
            for _ in range(2_000):
                if server.requests:
                    break
                time.sleep(0.01)
            terminal.press(CTRL_C)
            place = terminal.until(
                r"Turn stopped\. Its messages are kept; /resume continues it\.(.*\n)+> ",
                after=place,
            )
            terminal.press("/resume\n")
            terminal.until(r"I am here\.(.*\n)+> ", after=place)
            terminal.press(CTRL_D)

            assert terminal.end() == 0
        path = Transcript(JsonlStore(folder / "talk.jsonl")).path()
        assert [entry.message.text for entry in path if entry.message] == [
            "are you there?",
            "I am here.",
        ]

    @pytest.mark.slow
    def test_text_is_wrapped_between_words(self, folder: Path) -> None:
        with (
            serve(script=["wonderful " * 30]) as server,
            Terminal(folder, "--model", "gpt-4.1", OPENAI_BASE_URL=server.url) as terminal,
        ):
            terminal.until("> ")
            terminal.press("hello\n")
            terminal.until("context (.*\n)+> ")
            terminal.press(CTRL_D)

            assert terminal.end() == 0
        said = [line.strip() for line in lines(terminal.shown) if "wonderful" in line]
        assert {word for line in said for word in line.split()} == {"wonderful"}
        assert len(said) == 4
