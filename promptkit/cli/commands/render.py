"""`promptkit render` and `promptkit trace`: render a component or a template within a budget, and show it as text, JSON or a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

import promptkit
from promptkit import tracing
from promptkit.cli.input.params import (
    TARGET,
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
