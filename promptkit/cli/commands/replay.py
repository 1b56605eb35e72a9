"""`promptkit replay`: play recorded conversations again under other policies, and compare price and retention."""

from __future__ import annotations

import json
import math
import os
import re
from concurrent.futures import Executor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs
import click
from click.core import ParameterSource

from promptkit import bench, tokens
from promptkit.cli.corpus_run import (
    check_inputs,
    engine_options,
    expand_inputs,
    print_problem,
    report_failures,
    run_on_files,
    show_bar,
)
from promptkit.cli.input.params import (
    MODEL,
    POLICIES,
    SHARE,
    SIZE,
    force_option,
    json_option,
    read_address,
)
from promptkit.cli.output.terminal import (
    check_output,
    usage_error,
    write_file,
)
from promptkit.lab import corpus, replay as replays

if TYPE_CHECKING:
    from promptkit.messages import Json

DEFAULT_WINDOW = 128_000
"""The context window in tokens, if none is named."""

MIN_WINDOW = 1_000
"""Smallest context window in tokens."""


def _list_policies(ctx: click.Context, _parameter: click.Parameter, wanted: object) -> None:
    """Print the policies and end the command, before its arguments are looked at."""
    if wanted:
        click.echo(replays.describe_policies())
        ctx.exit()


def _check_ttl(
    _ctx: click.Context, _parameter: click.Parameter, seconds: float | None
) -> float | None:
    """Refuse what is not a number, which click's range accepts."""
    if seconds is not None and math.isnan(seconds):
        usage_error("--ttl must be a number of seconds, not nan.")
    return seconds


@attrs.frozen(kw_only=True)
class Assumed:
    """Assumptions about figures that recordings do not have. Their names are those of ReplayRules."""

    fixed_tokens: int | None = None
    cache_misses: float | None = None
    summary_tokens: int = 0


def _read_assumptions(
    ctx: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]
) -> Assumed:
    """Read `name=value` pairs."""
    assumed = Assumed()
    for pair in pairs:
        name, _, value = pair.partition("=")
        match name:
            case "fixed_tokens":
                assumed = attrs.evolve(assumed, fixed_tokens=SIZE.convert(value, parameter, ctx))
            case "cache_misses":
                assumed = attrs.evolve(assumed, cache_misses=SHARE.convert(value, parameter, ctx))
            case "summary_tokens":
                assumed = attrs.evolve(assumed, summary_tokens=SIZE.convert(value, parameter, ctx))
            case _:
                usage_error(
                    f"--assume {pair!r} names nothing that can be assumed: write fixed_tokens=…, cache_misses=…, summary_tokens=…."
                )
    if (assumed.cache_misses or 0.0) > 1:
        usage_error("--assume cache_misses is a share of the requests: write 0.02 or 2%.")
    return assumed


@click.command(
    short_help="Play recordings again under other compaction policies.",
    epilog="""
    Examples:
      promptkit replay session.jsonl
      promptkit replay session.jsonl --policy all --window 32k
      promptkit replay logs/*.jsonl --policy vscode,langchain --window 64k -o replay.json
      promptkit replay session.jsonl --model claude-sonnet-4-5 --cache anthropic-1h
      promptkit replay session.jsonl --policy vscode,prompt_poet --plot replay.svg
      promptkit replay logs/*.jsonl --policy vscode,break_even:beta=1 --oracle --lookups 1
      promptkit replay logs/*.jsonl --advise --window 64k --window 128k
      promptkit replay logs/*.jsonl --assume fixed_tokens=30k --assume cache_misses=0.02 --assume summary_tokens=2600
      promptkit replay "s3://bucket/logs/**/*.jsonl" --engine dask://scheduler:8786 -o replay.parquet
    """,
)
@click.argument("files", nargs=-1, required=True, type=read_address, metavar="FILE...")
@click.option(
    "--policy",
    "policies",
    type=POLICIES,
    default="vscode,naive",
    show_default=True,
    metavar="LIST",
    help="Names of policies, or the groups all, presets, naive.",
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_policies,
    help="List the policies, with the systems and versions that they follow, and exit.",
)
@click.option(
    "--window",
    "windows",
    type=SIZE,
    multiple=True,
    help="The context window in tokens, input and output together. Several with --advise.  [default: 128k]",
)
@click.option(
    "--model",
    type=MODEL,
    default="gpt-5",
    show_default=True,
    help="The model whose tokenizer, prices and prompt cache are simulated.",
)
@click.option(
    "--summaries",
    type=click.Choice(["extractive", "model"]),
    default="extractive",
    show_default=True,
    help="Extract the summaries from the conversation, or let the model write them.",
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A price table to use instead of the packaged one: .json or .toml.",
)
@click.option(
    "--cache",
    type=click.Choice(["auto", "openai", "anthropic", "anthropic-1h", "off"]),
    default="auto",
    show_default=True,
    help="The rules of the prompt cache to simulate; auto uses those of the model's provider.",
)
@click.option(
    "--ttl",
    type=click.FloatRange(min=0),
    callback=_check_ttl,
    metavar="SECONDS",
    help="How long the cache keeps an entry that is not used.",
)
@click.option(
    "--assume",
    "assumed",
    multiple=True,
    callback=_read_assumptions,
    metavar="NAME=VALUE",
    help="What recordings do not say: fixed_tokens of each request beside them, the share of cache_misses, the least summary_tokens. The first two are otherwise what the provider's bills say.",
)
@json_option
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw a timeline to an .svg, .png or .html file.",
)
@click.option(
    "--views",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write the page of `promptkit transcript view` for each file and policy into a folder, and link to them from the .html file of --plot.",
)
@click.option(
    "--oracle",
    is_flag=True,
    help="Print a lower bound of the price, and compare prices with the planned optimum.",
)
@click.option(
    "--lookups",
    type=click.IntRange(0, 100),
    default=0,
    metavar="N",
    help="Add the price of N look-ups for each answer that lacks a line.",
)
@click.option(
    "--advise",
    "give_advice",
    is_flag=True,
    help="Recommend a preset for these recordings, for each --window.",
)
@click.option("--each", is_flag=True, help="Also print a table for each file.")
@click.option(
    "-o",
    "--output",
    type=read_address,
    metavar="OUT",
    help="Write all results to a .json file, or a row for each conversation and policy to a .jsonl or .parquet file or URL, for any number of files.",
)
@force_option
@engine_options
@click.pass_context
def replay(  # noqa: PLR0913  # one argument for each option of the command
    ctx: click.Context,
    *,
    files: tuple[Path | str, ...],
    policies: str,
    windows: tuple[int, ...],
    model: str,
    summaries: str,
    prices: Path | None,
    cache: str,
    ttl: float | None,
    assumed: Assumed,
    as_json: bool,
    plot: Path | None,
    views: Path | None,
    oracle: bool,
    lookups: int,
    give_advice: bool,
    each: bool,
    output: Path | str | None,
    force: bool,
    engine: str,
    workers: int | None,
    state: Path | None,
) -> None:
    """Play recorded conversations request by request, as if each policy had managed their context window.

    FILES are recordings: paths, globs in quotes, and URLs such as s3://bucket/logs/*.jsonl, gs://…,
    https://… or hf://datasets/….

    Replies and tool results come from the recording. A summary is extracted from the conversation,
    and billed as if the model had written it; with --summaries model, the model writes it. Exits
    with 1 if a file could not be played.
    """
    from promptkit.cli.output.tables import print_replay
    from promptkit.lab.engines import open_engine

    results_file = output if isinstance(output, Path) and output.suffix == ".json" else None
    rows = None if results_file else output
    _check_combination(ctx, rows)
    windows = windows or (DEFAULT_WINDOW,)
    if not (policy_names := replays.parse_policy_names(policies)):
        usage_error("--policy is empty: use names of policies, or all, presets or naive.")
    if summaries == "model" and not os.environ.get("OPENAI_API_KEY"):
        usage_error("--summaries model needs an API key in OPENAI_API_KEY.")
    check_inputs(files)
    table = tokens.read_prices(prices)
    options = replays.ReplayOptions(
        policies=policy_names,
        rules=replays.ReplayRules(
            model=model,
            window=windows[0],
            cache=replays.cache_rule_for(model) if cache == "auto" else cache,
            cache_lifetime=ttl,
            # A real model is sent the messages, and no part that only stands for tokens.
            fixed_tokens=0 if summaries == "model" else assumed.fixed_tokens,
            cache_misses=assumed.cache_misses,
            summary_tokens=assumed.summary_tokens,
        ),
        price=table.for_model(model),
        prices=table,
        timeline=plot is not None,
        oracle=oracle,
        lookups=lookups,
        summarize_with_model=summaries == "model",
    )
    if rows is not None:
        summary = _write_rows(
            files, options, rows, engine=engine, workers=workers, state=state, force=force
        )
        ctx.exit(1 if summary.failures else 0)
    found = expand_inputs(files)
    _check_outputs(found, results_file, plot, views=views, force=force)
    with open_engine(
        engine,
        workers=min(workers or os.cpu_count() or 1, len(found)) if engine == "local" else workers,
    ) as executor:
        if give_advice:
            _show_advice(
                [_advise(found, options, window, executor) for window in windows],
                model,
                as_json=as_json,
                output=results_file,
            )
            return
        all_results = _play(found, options, executor, "Replaying")
    results = [result for result in all_results if not isinstance(result, replays.FailedFile)]
    failures = [result for result in all_results if isinstance(result, replays.FailedFile)]
    if not results:
        usage_error(failures[0].describe())
    total = replays.sum_results(
        results, options, file=results[0].file if len(results) == 1 else f"{len(results):,} files"
    )
    text = replays.results_to_json(all_results, total)
    if results_file:
        write_file(results_file, text.encode(), mode=0o666)
    if plot:
        pages = _write_views(views, results, policy_names, table, force=force) if views else {}
        links = {
            key: quote(Path(os.path.relpath(page, plot.parent)).as_posix())
            for key, page in pages.items()
        }
        write_file(plot, replays.draw_timeline(results, plot.suffix, links), mode=0o666)
    if as_json:
        click.echo(text, nl=False)
    else:
        print_replay(results, total, options, each=each)
    for failure in failures:
        print_problem(failure.describe())
    ctx.exit(1 if failures else 0)


def _check_combination(ctx: click.Context, rows: Path | str | None) -> None:
    """End the command with a sentence if its options do not go together."""
    given = ctx.params
    if len(given["windows"]) > 1 and not given["give_advice"]:
        usage_error("several windows are compared with --advise only: give one --window.")
    if min(given["windows"], default=MIN_WINDOW) < MIN_WINDOW:
        usage_error(f"--window must be at least {MIN_WINDOW:,} tokens.")
    if rows is None and given["state"] is not None:
        usage_error("--state needs --output OUT, the file of the rows.")
    if rows is not None and (given["as_json"] or given["plot"] or given["each"]):
        usage_error(
            "--json, --plot and --each hold all results in memory: leave them out, or --output."
        )
    if not given["give_advice"]:
        return
    if ctx.get_parameter_source("policies") is ParameterSource.COMMANDLINE:
        usage_error("--advise compares presets of its own: leave out --policy.")
    if rows or given["plot"] or given["each"] or given["oracle"]:
        usage_error(
            "--advise prints recommendations only: leave out --plot, --each, --oracle and an OUT of rows."
        )


def _advise(
    files: list[Path | str], options: replays.ReplayOptions, window: int, executor: Executor
) -> replays.Advice:
    """Return a recommendation for a window."""
    chosen = attrs.evolve(
        options, policies=replays.CANDIDATES, rules=attrs.evolve(options.rules, window=window)
    )
    results: list[replays.FileResult] = []
    for result in _play(files, chosen, executor, f"Replaying at {window:,}"):
        if isinstance(result, replays.FailedFile):
            usage_error(result.describe())
        results.append(result)
    return replays.advise(results, chosen)


def _show_advice(
    found: list[replays.Advice], model: str, *, as_json: bool, output: Path | None
) -> None:
    """Write recommendations as JSON, and print them."""
    text = json.dumps({"model": model, "windows": [each.to_json() for each in found]}, indent=1)
    if output:
        write_file(output, f"{text}\n".encode(), mode=0o666)
    click.echo(text if as_json else "\n".join(f"{each.describe()}\n" for each in found))


def _write_rows(  # noqa: PLR0913  # keywords
    files: tuple[Path | str, ...],
    options: replays.ReplayOptions,
    output: Path | str,
    *,
    engine: str,
    workers: int | None,
    state: Path | None,
    force: bool,
) -> corpus.CorpusSummary:
    """Write the rows, and print the table of all files together."""
    from promptkit.cli.output.tables import print_replay

    total: replays.FileResult | None = None
    numbers = count(1)

    def add(totals: Json) -> None:
        nonlocal total
        number = next(numbers)
        result = corpus.ReplayJob.read_totals(totals)
        total = replays.sum_results(
            [result] if total is None else [total, result],
            options,
            file=result.file if number == 1 else f"{number:,} files",
        )

    summary = run_on_files(
        corpus.ReplayJob(options=options),
        files,
        output,
        title="Replaying",
        engine=engine,
        workers=workers,
        state=state,
        force=force,
        on_totals=add,
    )
    if total is not None:
        print_replay([total], total, options, each=False)
    report_failures(summary)
    return summary


def _play(
    files: list[Path | str], options: replays.ReplayOptions, executor: Executor, title: str
) -> list[replays.FileResult | replays.FailedFile]:
    """Play the files, with a progress bar if stderr is a terminal."""
    with show_bar(title) as update:
        done = count(1)
        update(0, len(files))
        return replays.replay(
            files,
            options,
            executor=executor,
            on_file_done=lambda _: update(next(done), len(files)),
        )


def _write_views(
    folder: Path,
    results: list[replays.FileResult],
    policies: tuple[str, ...],
    prices: tokens.Prices,
    *,
    force: bool,
) -> dict[tuple[str, str], Path]:
    """Write the page of each file and policy into a folder, and return their paths."""
    from promptkit.transcript.stores.addresses import is_url

    pages: dict[tuple[str, str], Path] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for number, result in enumerate(results, 1):
        title = Path(result.file).name
        for policy in policies:
            name = re.sub(r"[^\w.-]+", "-", f"{number}-{title}-{policy}.html")
            path = pages[result.file, policy] = folder / name
            check_output(path, force=force)
            log = replays.log_conversation(
                result.file if is_url(result.file) else Path(result.file),
                replays.LogOptions(
                    prices=prices,
                    sources=(policy,),
                    model=result.model,
                    window=result.window,
                ),
            )
            write_file(path, replays.conversation_to_html(log, title=title).encode())
    return pages


def _check_outputs(
    files: list[Path | str],
    output: Path | None,
    plot: Path | None,
    *,
    views: Path | None,
    force: bool,
) -> None:
    """Check, before anything is played, that the output files can be written."""
    from promptkit.transcript.stores.addresses import is_url

    if views and (plot is None or plot.suffix != ".html"):
        usage_error("--views needs --plot with an .html file, which links to the pages.")
    if plot:
        bench.check_drawable(plot.suffix)
        if len(files) > replays.MAX_FILES:
            usage_error(
                f"a picture shows at most {replays.MAX_FILES} files, and {len(files)} are named."
            )
    recordings = {
        Path(file).resolve() for file in files if isinstance(file, Path) or not is_url(file)
    }
    for path in (output, plot):
        if path is None or str(path) == "-":
            continue
        if path.resolve() in recordings:
            usage_error(f"{path} is also an input: name another file.")
        check_output(path, force=force)
