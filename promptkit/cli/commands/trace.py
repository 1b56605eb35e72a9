"""`promptkit trace`: write an HTML page that shows what a render kept, and what any other budget would keep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptkit.cli.input.params import SIZE
from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.terminal import show_spinner

if TYPE_CHECKING:
    from promptkit.rendering.renderer import Defaults

# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit trace prompt.py:Review --props props.json --budget 4k
  promptkit trace package.prompts:Review --model gpt-5 -o review.html
  promptkit trace system.md.j2 --budget 500 -o - > page.html
"""


@click.command(short_help="Write a page that shows what was kept, and why.", epilog=EXAMPLES)
@click.argument("source", type=click.Path(), metavar="FILE.py:COMPONENT|TEMPLATE.j2")
@click.option(
    "--props",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="The component's props as a JSON object; - reads stdin.",
)
@click.option(
    "--budget",
    type=SIZE,
    help="Tokens that the prompt may have, such as 8k. By default the model's window decides.",
)
@click.option(
    "--model", help="The model whose context window, tokenizer and message framing are used."
)
@click.option(
    "--defaults",
    type=click.Choice(["promptkit", "prompt-tsx"]),
    default="promptkit",
    show_default=True,
    help="What is removed where nothing has a priority: prompt-tsx removes as VS Code's prompts do.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("trace.html"),
    show_default=True,
    metavar="FILE.html",
    help="Where to write the page; - writes it to stdout.",
)
def trace(  # noqa: PLR0913  # one argument for each option of the command
    *,
    source: str,
    props: Path | None,
    budget: int | None,
    model: str | None,
    defaults: Defaults,
    output: Path,
) -> None:
    """Render a component or a template, and write one page with the element tree, what was kept, what was removed, and why.

    A slider on the page shows every other budget. The page needs no network and no server. A prompt
    that does not fit its budget also gives a page, which shows what is required; the exit status is
    2 then.
    """
    import promptkit
    from promptkit.cli.input.props import read_props
    from promptkit.cli.input.target import load_target
    from promptkit.errors import BudgetExceededError
    from promptkit.tracing import trace_to_html
    from promptkit.tracing.trace import Trace

    if str(output) != "-" and not output.resolve().parent.is_dir():
        usage_error(f"cannot write {output}: there is no folder {output.parent}.")
    element = load_target(source, read_props(props))
    with show_spinner(f"Rendering {source}"):
        try:
            record, failure = (
                promptkit.render(
                    element, budget=budget, model=model, defaults=defaults, trace=True
                ).trace,
                None,
            )
        except BudgetExceededError as error:
            record, failure = error.trace if isinstance(error.trace, Trace) else None, error
        if record is None:
            # a token limit inside the prompt cannot be met, so there is no complete trace
            raise failure or AssertionError
        page = trace_to_html(record, title=source)
    _write(page, output)
    if failure:
        usage_error(
            f"{failure} {'The page' if str(output) == '-' else output} shows what is required."
        )
    if record.state is not None and str(output) != "-":
        removed = sum(removal.step < record.state for removal in record.removals)
        click.echo(
            f"{output}: {record.counts[record.state]:,} of {record.budget:,} tokens, {removed:,} of {len(record.removals):,} removals"
        )


def _write(page: str, output: Path) -> None:
    from promptkit.files import write_output

    if str(output) == "-":
        sys.stdout.buffer.write(page.encode())
        return
    try:
        write_output(output, lambda file: file.write(page.encode()))
    except OSError as error:
        usage_error(f"cannot write {output}: {error.strerror}.")
