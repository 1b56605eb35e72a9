"""`promptkit render`, `promptkit trace` and `promptkit bench`: render a component or a template within a budget, and show it as text, JSON or a page, or measure it at many budgets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

import promptkit
from promptkit import bench as benches, tracing
from promptkit.cli.input.params import (
    MODELS,
    SHARE,
    SHARE_OR_OFF,
    TARGET,
    ParsedType,
    budget_option,
    defaults_option,
    force_option,
    json_option,
    model_option,
    props_option,
)
from promptkit.cli.output.terminal import (
    check_output,
    escape_control_chars,
    print_json,
    print_note,
    show_spinner,
    usage_error,
    write_file,
)

if TYPE_CHECKING:
    from promptkit.rendering.renderer import Defaults


@click.command(
    short_help="Render a component or a template.",
    epilog="""
    Examples:
      promptkit render prompt.py:Review --props props.json --budget 4k
      promptkit render package.prompts:Review --model gpt-5 --to chat
      promptkit render system.md.j2 --props values.json
    """,
)
@click.argument("source", type=TARGET, metavar="FILE.py:COMPONENT|TEMPLATE.j2")
@props_option
@budget_option
@model_option
@click.option(
    "--to",
    type=click.Choice(["text", "chat", "responses", "anthropic", "tree"]),
    default="text",
    show_default=True,
    help="The format to print: messages to read, the body of a request, or the element tree before pruning as JSON.",
)
@defaults_option
@click.option("--explain", is_flag=True, help="Print on stderr what was removed, and why.")
@json_option
def render(  # noqa: PLR0913  # one argument for each option of the command
    *,
    source: str,
    props: Path | None,
    budget: int | None,
    model: str | None,
    to: str,
    defaults: Defaults,
    explain: bool,
    as_json: bool,
) -> None:
    """Render a component or a template, and print what the model would receive.

    --json prints tokens, budget, messages and removals as one object.
    """
    from promptkit.cli.input.target import load_target, read_props
    from promptkit.cli.output.messages import print_messages, rendered_to_json
    from promptkit.rendering import to_json

    element = load_target(source, read_props(props))
    if to == "tree" and not as_json:
        print_json(to_json(element, budget=budget, model=model))
        return
    with show_spinner(f"Rendering {source}"):
        rendered = promptkit.render(element, budget=budget, model=model, defaults=defaults)
    bodies: dict[str, Callable[[], object]] = {
        "chat": rendered.to_chat,
        "responses": rendered.to_responses,
        "anthropic": rendered.to_anthropic,
    }
    if as_json:
        print_json(rendered_to_json(rendered))
    elif to in bodies:
        print_json(bodies[to]())
    else:
        print_messages(rendered)
    if explain:
        click.echo(escape_control_chars(rendered.explain()), err=True)


@click.command(
    short_help="Write a page that shows what was kept, and why.",
    epilog="""
    Examples:
      promptkit trace prompt.py:Review --props props.json --budget 4k
      promptkit trace package.prompts:Review --model gpt-5 -o review.html
      promptkit trace system.md.j2 --budget 500 -o - > page.html
    """,
)
@click.argument("source", type=TARGET, metavar="FILE.py:COMPONENT|TEMPLATE.j2")
@props_option
@budget_option
@model_option
@defaults_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("trace.html"),
    show_default=True,
    metavar="FILE.html",
    help="Where to write the page; - writes it to stdout.",
)
@force_option
def trace(  # noqa: PLR0913  # one argument for each option of the command
    *,
    source: str,
    props: Path | None,
    budget: int | None,
    model: str | None,
    defaults: Defaults,
    output: Path,
    force: bool,
) -> None:
    """Render a component or a template, and write one page with the element tree, what was kept, what was removed, and why.

    A slider on the page shows every other budget. The page needs no network and no server. A prompt
    that does not fit its budget also gives a page, which shows what is required; the exit status is
    2 then.
    """
    from promptkit.cli.input.target import load_target, read_props

    check_output(output, force=force)
    element = load_target(source, read_props(props))
    with show_spinner(f"Rendering {source}"):
        try:
            record, failure = (
                promptkit.render(
                    element, budget=budget, model=model, defaults=defaults, trace=True
                ).trace,
                None,
            )
        except promptkit.BudgetExceededError as error:
            record, failure = error.trace, error
        if record is None:
            # a token limit inside the prompt cannot be met, so there is no complete trace
            raise failure or AssertionError
        page = tracing.trace_to_html(record, title=source)
    write_file(output, page.encode())
    if failure:
        usage_error(
            f"{failure} {'The page' if str(output) == '-' else output} shows what is required."
        )
    if record.state is not None and str(output) != "-":
        removed = sum(removal.step < record.state for removal in record.removals)
        print_note(
            f"{output}: {record.counts[record.state]:,} of {record.budget:,} tokens, {removed:,} of {len(record.removals):,} removals"
        )


def _parse_budgets(text: str) -> tuple[int, ...]:
    return benches.parse_budgets(text)


@click.command(
    short_help="Measure a prompt at many budgets.",
    epilog="""
    Examples:
      promptkit bench prompt.py:Review --props props.json
      promptkit bench prompt.py:Review --budgets 1k:32k:log12 --models gpt-5,gpt-4.1
      promptkit bench prompt.py:Review --plot review.svg
      promptkit bench prompt.py:Review --repeat 0 -o baseline.json
      promptkit bench prompt.py:Review --repeat 0 --baseline baseline.json
    """,
)
@click.argument("target", type=TARGET, metavar="FILE.py:COMPONENT|TEMPLATE.j2")
@props_option
@click.option(
    "--budgets",
    type=ParsedType("budgets", _parse_budgets),
    default="1k:128k:log16",
    show_default=True,
    metavar="LIST",
    help="Token counts such as 2k,8k, and ranges: A:B:log16 is 16 budgets in equal ratios, A:B:lin16 in equal steps, A:B:STEP in that step.",
)
@click.option(
    "--models",
    type=MODELS,
    default="",
    metavar="LIST",
    help="Measure once for each of these models, such as gpt-5,gpt-4.1.",
)
@defaults_option
@click.option(
    "--repeat",
    type=click.IntRange(0, 1_000),
    default=5,
    show_default=True,
    help="Timed renders per budget; 0 takes no times.",
)
@click.option(
    "--depth",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    help="Length of the element paths in the results; deeper elements are added to the element that contains them.",
)
@json_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the run as JSON, to be the --baseline of a later one.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the run to an .svg, .png or .html file.",
)
@force_option
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with this earlier run; exit with 1 if the run is worse.",
)
@click.option(
    "--tolerance",
    type=SHARE,
    default="5%",
    show_default=True,
    help="Largest decrease of a kept share or of the utilisation, in percentage points, that is not worse.",
)
@click.option(
    "--time-tolerance",
    type=SHARE_OR_OFF,
    default="50%",
    show_default=True,
    help="Largest increase of a render time, relative to tokenising alone, that is not worse; off compares no times.",
)
@click.pass_context
def bench(  # noqa: PLR0913  # one argument for each option of the command
    ctx: click.Context,
    *,
    target: str,
    props: Path | None,
    budgets: tuple[int, ...],
    models: str,
    defaults: Defaults,
    repeat: int,
    depth: int,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    force: bool,
    baseline: Path | None,
    tolerance: float,
    time_tolerance: float | None,
) -> None:
    """Render a prompt at many budgets, and print what it uses, what it drops and how long it takes.

    Exits with 1 if --baseline is given and the run is worse. To make a run the new baseline, write
    it to that file with --output.
    """
    from promptkit.cli.input.target import load_target, read_props
    from promptkit.cli.output.tables import print_run

    model_names = tuple(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
    earlier = benches.read_run(baseline) if baseline else None
    if earlier:
        benches.check_comparable(
            earlier, budgets=budgets, models=model_names or (None,), depth=depth
        )
    _check_files(output, plot, baseline, force=force)
    element = load_target(target, read_props(props))
    with show_spinner(f"Measuring {target} at {len(budgets):,} budgets"):
        run = benches.measure(
            element,
            budgets=budgets,
            models=model_names,
            repeat=repeat,
            depth=depth,
            target=target,
            defaults=defaults,
        )
    text = benches.run_to_json(run)
    if output:
        write_file(output, text.encode(), mode=0o666)
    if plot:
        with show_spinner(f"Drawing {plot}"):
            write_file(plot, benches.draw_run(run, plot.suffix), mode=0o666)
    if as_json:
        click.echo(text, nl=False)
    else:
        print_run(run)
    if earlier and baseline:
        comparison = benches.compare(
            run, earlier, tolerance=tolerance, time_tolerance=time_tolerance
        )
        report = benches.format_comparison(comparison)
        click.echo(report if as_json else f"\n{report}", err=as_json)
        if comparison.worse:
            click.echo(
                f"If that is intended, replace the baseline: run the same command with -o {baseline} --force and without --baseline.",
                err=as_json,
            )
            ctx.exit(1)


def _check_files(
    output: Path | None, plot: Path | None, baseline: Path | None, *, force: bool
) -> None:
    """Check, before anything is measured, that the output files can be written."""
    if output and baseline and output.resolve() == baseline.resolve():
        usage_error(
            f"--output and --baseline both name {baseline}: leave out --baseline to replace it."
        )
    if plot:
        benches.check_drawable(plot.suffix)
        if plot.resolve() in [path.resolve() for path in (output, baseline) if path]:
            usage_error(f"--plot and --output or --baseline both name {plot}: name two files.")
    check_output(output, plot, force=force)
