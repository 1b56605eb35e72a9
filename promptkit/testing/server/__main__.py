"""The server by itself: `python -m promptkit.testing.server --port 8123 --window 16000` prints its URL and runs until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from threading import Event
from typing import NoReturn

from promptkit.testing.server.replies import echo
from promptkit.testing.server.script_file import Script, read_script
from promptkit.testing.server.server import serve

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """One whose mistakes are told in a line, as those of promptkit's other commands."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"promptkit.testing.server: {message}; --help lists the options\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the server. The exit code: 0 when it was interrupted, 2 with a line on stderr when it could not start."""
    parser = _Parser(prog="python -m promptkit.testing.server", description="A server that speaks OpenAI's protocol, for tests.")
    parser.add_argument("--port", type=int, default=0, help="where it listens; by default a port that is free")
    parser.add_argument("--window", type=int, help="the most tokens that a request may have; by default any number")
    parser.add_argument(
        "--script", type=Path, metavar="FILE", help="what it answers, as JSON; without a script it repeats the last message"
    )
    parser.add_argument("--model", action="append", dest="models", metavar="NAME", help="a name for its list of models; may be repeated")
    parser.add_argument("--host", default="127.0.0.1", help="the address that it listens on")
    parser.add_argument("--remote", action="store_true", help="let --host be an address that other machines reach: it answers anybody")
    given = parser.parse_args(arguments)
    if given.window is not None and given.window < 1:
        parser.error("--window must be at least 1 token")
    try:
        script = read_script(given.script) if given.script else Script(after=echo)
        server = serve(
            window=given.window,
            script=script.steps,
            rules=script.rules,
            faults=script.faults,
            after=script.after,
            host=given.host,
            port=given.port,
            remote=given.remote,
            models=given.models or ("gpt-4.1",),
        )
    except (OSError, ValueError, TypeError, OverflowError) as error:
        print(f"promptkit.testing.server: {error}", file=sys.stderr)  # noqa: T201  # a command line speaks
        return 2
    stopped = Event()

    def stop(number: int, frame: object) -> None:
        _ = number, frame
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with server:
        print(server.url, flush=True)  # noqa: T201  # likewise
        stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
