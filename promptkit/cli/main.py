"""The console script: the options and commands of `promptkit`, and its exit status.

Command modules import only click and the parameter types at the top. Everything else (rich, jinja2,
openai, matplotlib and most of promptkit) is imported when a command runs, so that `--help` and
`--version` answer at once.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from promptkit.cli.chat.command import chat
from promptkit.cli.commands.compact import compact
from promptkit.cli.commands.mcp import mcp
from promptkit.cli.commands.recordings import export, fit, import_
from promptkit.cli.commands.render import bench, render, trace
from promptkit.cli.commands.replay import replay
from promptkit.cli.commands.transcript import transcript
from promptkit.cli.demo.command import demo
from promptkit.cli.output.terminal import QUIET


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `promptkit` with the given arguments, by default those of the process, and return the exit status.

    Exit statuses: 0, success; 1, worse than the baseline, or the reader of the output closed the
    pipe; 2, an error, reported in one line on stderr; 130, interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A prompt may contain text that the terminal's encoding cannot write, such as a lone
            # surrogate.
            stream.reconfigure(errors="backslashreplace")
    try:
        status: object = program.main(arguments, prog_name="promptkit", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        click.echo(f"promptkit: {' '.join(error.format_message().split())}", err=True)
        return 2
    except click.Abort:
        click.echo("promptkit: interrupted", err=True)
        return 130
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it exits, and would report the closed pipe
        # again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        from promptkit.cli.output.errors import explain_failure, is_full_disk

        if not is_full_disk(error):
            raise
        with suppress(OSError):
            click.echo(f"promptkit: {explain_failure(error)}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # as above
        return 2
    return status if isinstance(status, int) else 0


class _Formatter(click.HelpFormatter):
    """The help text.

    An example that is wider than the terminal goes on in the next line, so that it can still be
    copied.
    """

    def write_text(self, text: str) -> None:
        if not text.startswith("Examples:\n"):
            super().write_text(text)
            return
        for example in text.split("\n"):
            line = " " * self.current_indent + example[: len(example) - len(example.lstrip())]
            indent = f"{line}    "
            start = ""
            for word in re.findall(r'(?:"[^"]*"|\S)+', example):
                if start and len(f"{line}{start}{word} \\") > self.width:
                    self.write(f"{line} \\\n")
                    line, start = indent, ""
                line, start = f"{line}{start}{word}", " "
            self.write(f"{line}\n")


class _Context(click.Context):
    formatter_class = _Formatter


class _Program(click.Group):
    """A command group that reports failures in one line, or with a traceback if `--traceback` is given."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params["traceback"]:
                raise
            from promptkit.cli.output.errors import explain_failure

            raise click.UsageError(explain_failure(error)) from error


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(version("promptkit"), prog_name="promptkit", message="%(prog)s %(version)s")
@click.option(
    "--traceback",
    is_flag=True,
    envvar="PROMPTKIT_TRACEBACK",
    help="Show the full traceback of a failure.",
)
@click.pass_context
def program(ctx: click.Context, *, traceback: bool) -> None:
    """Fit prompts into a token budget, and see what was kept.

    Sizes are in tokens and may be written as 8k, 1.5k or 1m: k is 1,000 and m is 1,000,000.
    """
    _ = traceback
    if os.environ.get("NO_COLOR"):
        ctx.color = False  # click does not read it; rich, which writes the tables, does
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


_WHOLE_TARGETS = 'COMP_WORDBREAKS="${COMP_WORDBREAKS//:}"\n'
"""Keeps bash from splitting `FILE.py:NAME` at the colon before the script sees it."""


SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(
    short_help="Print the script that completes promptkit in a shell.",
    epilog="""
    Examples:
      promptkit completion bash > ~/.promptkit-complete.bash
      promptkit completion zsh > ~/.promptkit-complete.zsh
      promptkit completion fish > ~/.config/fish/completions/promptkit.fish
    """,
)
@click.argument("shell", type=click.Choice([*SHELLS]))
@click.pass_context
def completion(ctx: click.Context, *, shell: str) -> None:
    """Print the script with which a shell completes commands, options, files and names.

    Names are those of models, policies and presets, and of what a Python file defines.
    """
    text = SHELLS[shell](ctx.find_root().command, {}, "promptkit", "_PROMPTKIT_COMPLETE").source()
    click.echo(f"{_WHOLE_TARGETS if shell == 'bash' else ''}{text}")


_COMMANDS: tuple[click.Command, ...] = (
    bench,
    chat,
    compact,
    completion,
    demo,
    export,
    fit,
    import_,
    mcp,
    render,
    replay,
    trace,
    transcript,
)


def _set_quiet(ctx: click.Context, _parameter: click.Parameter, wanted: object) -> None:
    if wanted:
        ctx.meta[QUIET] = True


def _set_color(ctx: click.Context, _parameter: click.Parameter, wanted: str | None) -> None:
    if wanted != "auto":
        ctx.color = wanted == "always"
        # rich reads these variables; they are set for the time of the command
        before = {name: os.environ.pop(name, None) for name in ("FORCE_COLOR", "NO_COLOR")}
        os.environ["FORCE_COLOR" if ctx.color else "NO_COLOR"] = "1"
        ctx.call_on_close(partial(_restore_variables, before))


def _restore_variables(before: Mapping[str, str | None]) -> None:
    for name in before:
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in before.items() if value is not None})


_SHARED = (
    click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        callback=_set_quiet,
        help="Print results and errors only: no progress, and no notes about a result.",
    ),
    click.Option(
        ["--color"],
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        expose_value=False,
        callback=_set_color,
        help="Colour the output; auto does so on a terminal, unless NO_COLOR is set.",
    ),
)
"""The options of every command. A command that has one of them keeps its own."""

for _command in (*_COMMANDS, *transcript.commands.values()):
    _command.context_class = _Context
    if not isinstance(_command, click.Group):
        _own = {name for each in _command.params for name in each.opts}
        _command.params += [each for each in _SHARED if not _own & set(each.opts)]
for _command in _COMMANDS:
    program.add_command(_command)
