"""Run the server as a program: `python -m promptkit.testing.server --port 8123 --window 16000`.

It prints its URL and runs until interrupted.
"""

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


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, as promptkit's other commands do."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"promptkit.testing.server: {message}; --help lists the options\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the server.

    The exit code is 0 after an interrupt, and 2 with a line on stderr if it cannot start.
    """
    parser = _Parser(
        prog="python -m promptkit.testing.server",
        description="A server that speaks OpenAI's protocol and Anthropic's, for tests.",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="the port that it listens on; default: a free port"
    )
    parser.add_argument(
        "--window",
        type=int,
        help="context window in tokens; larger requests are refused; default: no limit",
    )
    parser.add_argument(
        "--script",
        type=Path,
        metavar="FILE",
        help="a JSON file with its answers; default: it repeats the last message",
    )
    parser.add_argument(
        "--model",
        action="append",
        dest="models",
        metavar="NAME",
        help="a name in its list of models; may be repeated",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address that it listens on")
    parser.add_argument(
        "--remote",
        action="store_true",
        help="allow a --host that other machines can reach; the server answers every client",
    )
    options = parser.parse_args(arguments)
    if options.window is not None and options.window < 1:
        parser.error("--window must be at least 1 token")
    try:
        script = read_script(options.script) if options.script else Script(after=echo)
        server = serve(
            window=options.window,
            script=script.steps,
            rules=script.rules,
            faults=script.faults,
            after=script.after,
            host=options.host,
            port=options.port,
            allow_remote=options.remote,
            models=options.models or ("gpt-4.1",),
        )
    except (OSError, ValueError, TypeError, OverflowError) as error:
        sys.stderr.write(f"promptkit.testing.server: {error}\n")
        return 2
    stopped = Event()

    def stop(*_: object) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
