"""`promptkit replay`: play recorded conversations again under other policies, and compare price and retention."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptkit.cli.input.params import SIZE
from promptkit.cli.output.errors import usage_error

if TYPE_CHECKING:
    from promptkit.replay.results import Failed, FileResult
    from promptkit.replay.runner import ReplayOptions

__all__ = ["replay"]


# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit replay session.jsonl
  promptkit replay session.jsonl --policy all --window 32k
  promptkit replay logs/*.jsonl --policy vscode,langchain --window 64k --json replay.json
  promptkit replay session.jsonl --model claude-sonnet-4-5 --cache anthropic-1h
  promptkit replay session.jsonl --policy vscode,prompt_poet --plot replay.svg
"""

MIN_WINDOW = 1_000
"""Tokens of the smallest window."""


@click.command(short_help="Play recordings again under other policies.", epilog=EXAMPLES)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--policy", "policies", default="vscode,naive", show_default=True, metavar="LIST", help="Names of policies, or all, presets, naive."
)
@click.option("--window", type=SIZE, default="128k", show_default=True, help="The model's window, input and output together.")
@click.option("--model", default="gpt-5", show_default=True, help="The model whose tokens, prices and cache are meant.")
@click.option(
    "--summaries", type=click.Choice(["extractive", "model"]), default="extractive", show_default=True, help="Who writes the summaries."
)
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE", help="Another table of prices: .json or .toml.")
@click.option(
    "--cache",
    type=click.Choice(["auto", "openai", "anthropic", "anthropic-1h", "off"]),
    default="auto",
    show_default=True,
    help="The rules of the provider's prompt cache; auto: those of the model's provider.",
)
@click.option("--ttl", type=click.FloatRange(min=0), metavar="SECONDS", help="How long the cache remembers what is not used.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write all figures as JSON; - is stdout.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw a timeline: .svg, .png or .html.")
@click.option("--each", is_flag=True, help="Show a table for each file, too.")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that play files; by default one for each processor.")
@click.pass_context
def replay(  # noqa: PLR0913  # one argument for each option of the command
    ctx: click.Context,
    *,
    files: tuple[Path, ...],
    policies: str,
    window: int,
    model: str,
    summaries: str,
    prices: Path | None,
    cache: str,
    ttl: float | None,
    json_file: Path | None,
    plot: Path | None,
    each: bool,
    workers: int | None,
) -> None:
    """Play recorded conversations request by request, as if each policy had kept their window.

    What the model and its tools said comes from the recording. A summary is made of the conversation's own words, and billed as if the
    model had written it; with --summaries model, the model does write it. Exits with 1 if a file could not be played.
    """
    from promptkit.replay.policies.registry import names
    from promptkit.replay.prices import read_prices
    from promptkit.replay.prompt_cache import rule_for
    from promptkit.replay.results import Failed
    from promptkit.replay.runner import ReplayOptions
    from promptkit.replay.simulate import ReplayRules

    if window < MIN_WINDOW:
        usage_error(f"--window must be at least {MIN_WINDOW:,} tokens.")
    wanted = names(policies)
    if not wanted:
        usage_error("--policy names none.")
    if summaries == "model" and not os.environ.get("OPENAI_API_KEY"):
        usage_error("--summaries model needs a key in OPENAI_API_KEY.")
    for file in files:
        if not file.is_file():
            usage_error(f"there is no file {file}.")
    _check_outputs(files, json_file, plot)
    price = read_prices(prices).of(model)
    rules = ReplayRules(model=model, window=window, cache=rule_for(model) if cache == "auto" else cache, life=ttl)
    order = ReplayOptions(policies=wanted, rules=rules, price=price, timeline=plot is not None, model=summaries == "model")
    found = _played(files, order, workers or os.cpu_count() or 1)
    results = [result for result in found if not isinstance(result, Failed)]
    failures = [result for result in found if isinstance(result, Failed)]
    if not results:
        usage_error(f"{failures[0].file}: {failures[0].why}")
    _show(found, results, order, each=each, json_file=json_file)
    if plot:
        from promptkit.replay.plot import draw_timeline

        _write(plot, draw_timeline(results, plot.suffix))
    for failure in failures:
        click.echo(f"promptkit: {failure.file}: {' '.join(failure.why.split())}", err=True)
    if failures:
        ctx.exit(1)


def _played(files: tuple[Path, ...], order: ReplayOptions, workers: int) -> list[FileResult | Failed]:
    """The results, with a bar on stderr while a person waits."""
    from promptkit.replay.runner import replay as play

    if not sys.stderr.isatty():
        return play(files, order, workers=workers)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(files))
        return play(files, order, workers=workers, done=lambda _: progress.advance(task))


def _show(found: list[FileResult | Failed], results: list[FileResult], order: ReplayOptions, *, each: bool, json_file: Path | None) -> None:
    from promptkit.replay.results import as_json

    text = as_json(found)
    if str(json_file) == "-":
        click.echo(text, nl=False)
        return
    from promptkit.cli.output.replay_table import print_replay

    print_replay(results, order, each=each)
    if json_file:
        _write(json_file, text.encode())


def _check_outputs(files: tuple[Path, ...], json_file: Path | None, plot: Path | None) -> None:
    """Refuse, before anything is played, what could not be written in the end."""
    if plot:
        from promptkit.bench.plot import check_drawable
        from promptkit.replay.plot import MOST

        check_drawable(plot.suffix)
        if len(files) > MOST:
            usage_error(f"a picture shows at most {MOST} files, and {len(files)} are named.")
    recordings = {file.resolve() for file in files}
    for path in (json_file, plot):
        if path is None or str(path) == "-":
            continue
        if path.resolve() in recordings or (path is plot and json_file and path.resolve() == json_file.resolve()):
            usage_error(f"{path} would be written over: name another file.")
        if path.is_dir() or not path.resolve().parent.is_dir():
            usage_error(f"{path} cannot be written: it is a folder, or is in none.")


def _write(path: Path, content: bytes) -> None:
    from promptkit.bench.results import write_atomically

    try:
        write_atomically(path, content)
    except OSError as error:
        usage_error(f"{path} cannot be written: {error.strerror}.")
