"""`promptkit render`: render a component or a template within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from promptkit.cli.input.params import SIZE
from promptkit.cli.output.terminal import escape_control_chars, print_json, show_spinner

if TYPE_CHECKING:
    from promptkit.rendering.renderer import Defaults

Format = Literal["text", "openai", "responses", "anthropic", "json"]


# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit render prompt.py:Review --props props.json --budget 4k
  promptkit render package.prompts:Review --model gpt-5 --format openai
  promptkit render system.md.j2 --props values.json
"""


@click.command(short_help="Render a component or a template.", epilog=EXAMPLES)
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
    "--format",
    "output_format",
    type=click.Choice(["text", "openai", "responses", "anthropic", "json"]),
    default="text",
    show_default=True,
    help="text prints messages to read; openai, responses and anthropic print request bodies; json prints the element tree before pruning.",
)
@click.option(
    "--defaults",
    type=click.Choice(["promptkit", "prompt-tsx"]),
    default="promptkit",
    show_default=True,
    help="What is removed where nothing has a priority: prompt-tsx removes as VS Code's prompts do.",
)
@click.option("--explain", is_flag=True, help="Print on stderr what was removed, and why.")
@click.option(
    "--json",
    "report",
    is_flag=True,
    help="Print tokens, budget, messages and removals as one JSON object.",
)
def render(  # noqa: PLR0913  # one argument for each option of the command
    *,
    source: str,
    props: Path | None,
    budget: int | None,
    model: str | None,
    output_format: Format,
    defaults: Defaults,
    explain: bool,
    report: bool,
) -> None:
    """Render a component or a template, and print what the model would receive."""
    import promptkit
    from promptkit.cli.input.props import read_props
    from promptkit.cli.input.target import load_target
    from promptkit.cli.output.messages import print_messages, rendered_to_json
    from promptkit.rendering import to_json

    element = load_target(source, read_props(props))
    if output_format == "json" and not report:
        print_json(to_json(element, budget=budget, model=model))
        return
    with show_spinner(f"Rendering {source}"):
        rendered = promptkit.render(element, budget=budget, model=model, defaults=defaults)
    if report:
        print_json(rendered_to_json(rendered))
    elif output_format == "openai":
        print_json(rendered.to_openai())
    elif output_format == "responses":
        print_json(rendered.to_responses())
    elif output_format == "anthropic":
        print_json(rendered.to_anthropic())
    else:
        print_messages(rendered)
    if explain:
        click.echo(escape_control_chars(rendered.explain()), err=True)
