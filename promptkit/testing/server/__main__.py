"""Run the server as a program: `python -m promptkit.testing.server --port 8123 --window 16000`.

It prints its URL and runs until interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import click

from promptkit.testing.server.journal import Script, echo, read_script
from promptkit.testing.server.server import serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server.

    The exit code is 0 after an interrupt, and 2 with a line on stderr if it cannot start.
    """
    try:
        run.main(arguments, "python -m promptkit.testing.server", standalone_mode=False)
    except click.UsageError as error:
        problem = f"{error.format_message()}; --help lists the options"
    except (OSError, ValueError, TypeError, OverflowError) as error:
        problem = str(error)
    else:
        return 0
    click.echo(f"promptkit.testing.server: {problem}", err=True)
    return 2


@click.command()
@click.option(
    "--port",
    type=int,
    default=0,
    help="The port that it listens on.  [default: a free port]",
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    help="Context window in tokens; larger requests are refused.  [default: no limit]",
)
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A JSON file with its answers.  [default: it repeats the last message]",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address that it listens on."
)
@click.option(
    "--remote",
    is_flag=True,
    help="Allow a --host that other machines can reach; the server answers every client.",
)
def run(
    *,
    port: int,
    window: int | None,
    script: Path | None,
    host: str,
    remote: bool,
) -> None:
    """Run a server that speaks OpenAI's protocol and Anthropic's, for tests."""
    answers = read_script(script) if script else Script(after=echo)
    stopped = Event()

    def stop(*_: object) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with serve(
        window=window,
        script=answers.steps,
        rules=answers.rules,
        faults=answers.faults,
        after=answers.after,
        host=host,
        port=port,
        allow_remote=remote,
    ) as server:
        click.echo(server.url)
        stopped.wait()


if __name__ == "__main__":
    sys.exit(main())
