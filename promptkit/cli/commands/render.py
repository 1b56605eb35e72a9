"""`promptkit render`: one component or template, rendered against a budget."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import click

from promptkit.cli.input.params import SIZE
from promptkit.cli.input.target import load_target
from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.messages import print_json, rendered_to_json
from promptkit.cli.output.terminal import show_spinner

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["render"]

Format = Literal["text", "openai", "responses", "anthropic", "json"]


# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit render prompt.py:Review --props props.json --budget 4k
  promptkit render package.prompts:Review --model gpt-5 --format openai
  promptkit render system.md.j2 --props values.json
"""


@click.command(short_help="Render a component or a template.", epilog=EXAMPLES)
@click.argument("source", metavar="FILE.py:COMPONENT|TEMPLATE.j2")
@click.option(
    "--props", type=click.Path(path_type=Path), metavar="FILE.json", help="The component's props, as a JSON object; - reads stdin."
)
@click.option("--budget", type=SIZE, help="The tokens that may be filled, such as 8k.")
@click.option("--model", help="The model whose window, encoding and framing count.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "openai", "responses", "anthropic", "json"]),
    default="text",
    show_default=True,
    help="text is for reading, json the unpruned tree, the others are request bodies.",
)
@click.option("--explain", is_flag=True, help="Say on stderr what was removed and why.")
@click.option("--json", "report", is_flag=True, help="Print tokens, budget, messages and removals as one JSON object.")
def render(*, source: str, props: Path | None, budget: int | None, model: str | None, form: Format, explain: bool, report: bool) -> None:  # noqa: PLR0913  # one argument for each option of the command
    """Render a component or a template and print what the model would see."""
    import promptkit

    element = load_target(source, _props(props))
    if form == "json" and not report:
        print_json(promptkit.to_json(element, budget=budget, model=model))
        return
    with show_spinner(f"Rendering {source}"):
        rendered = promptkit.render(element, budget=budget, model=model)
    if report:
        print_json(rendered_to_json(rendered))
    elif form == "openai":
        print_json(rendered.to_openai())
    elif form == "responses":
        print_json(rendered.to_responses())
    elif form == "anthropic":
        print_json(rendered.to_anthropic())
    else:
        from promptkit.cli.output.messages import print_messages

        print_messages(rendered)
    if explain:
        click.echo(rendered.explain(), err=True)


def _props(path: Path | None) -> Mapping[str, object]:
    if path is None:
        return {}
    try:
        text = (sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()).decode("utf-8")
    except OSError as error:
        usage_error(f"{path} cannot be read: {error.strerror}.")
    except UnicodeDecodeError:
        usage_error(f"{path} is no UTF-8 text.")
    try:
        props: object = json.loads(text)
    except json.JSONDecodeError as error:
        usage_error(f"{path}:{error.lineno}:{error.colno}: no JSON: {error.msg}.")
    except RecursionError:
        usage_error(f"{path}: nested too deeply.")
    if not isinstance(props, dict):
        usage_error(f"{path} holds a JSON {type(props).__name__}: props are an object, name to value.")
    return cast("dict[str, object]", props)  # JSON objects have string keys
