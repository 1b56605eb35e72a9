"""`promptkit compact`: put a summary in the place of what a transcript's model would be shown, in the file itself."""

from __future__ import annotations

from pathlib import Path

import click

from promptkit.cli.connection import is_keyless
from promptkit.cli.failure import refuse
from promptkit.cli.size import SIZE

__all__ = ["compact"]

# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit compact talk.jsonl --dry-run
  promptkit compact talk.jsonl --extractive --window 32k
  promptkit compact talk.jsonl --model gpt-5-mini --instructions "Keep the error texts."
"""

NO_MODEL = "No --model is given, so no model is asked: the summary is made of the transcript's own words."
NO_KEY = "OPENAI_API_KEY is not set, so no model is asked: the summary is made of the transcript's own words."


@click.command(short_help="Summarize the older part of a transcript.", epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--instructions", metavar="TEXT", help="What the summary is to heed. Needs a model.")
@click.option("--model", help="The model that writes the summary, over OpenAI's API or that of OPENAI_BASE_URL.")
@click.option("--extractive", is_flag=True, help="Ask no model: lay out the transcript's own words and facts.")
@click.option("--window", type=SIZE, help="The tokens that the model takes, input and output together; by default what is known of it.")
@click.option("--dry-run", is_flag=True, help="Say what would be left out, and show the summary. The file stays as it is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def compact(  # noqa: PLR0913  # one argument for each option of the command
    *, file: Path, instructions: str | None, model: str | None, extractive: bool, window: int | None, dry_run: bool, as_json: bool
) -> None:
    """Append a checkpoint to a transcript: from then on, a model is shown a summary in the place of the older messages.

    Nothing that was said is lost: it stays in the file, and the summary says where. Without --model, or without OPENAI_API_KEY and
    OPENAI_BASE_URL, no model is asked. If no summary is to be had, the file stays as it is.
    """
    from promptkit.cli.compact_run import Order, run

    if model and extractive:
        refuse("--extractive asks no model: leave it out, or --model.")
    if window == 0:
        refuse("--window must be at least 1 token.")
    if not file.exists():
        refuse(f"there is no file {file}.")
    note = None
    if model and is_keyless():
        model, note = None, NO_KEY
    elif not model and not extractive:
        note = NO_MODEL
    if instructions and not model:
        note = f"{note or 'No model is asked.'} The instructions are not heeded."
    run(Order(file=file, instructions=instructions, model=model, note=note, window=window, dry_run=dry_run, as_json=as_json))
