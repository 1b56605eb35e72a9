"""`promptkit compact`: append a checkpoint with a summary of the older messages to a transcript."""

from __future__ import annotations

from pathlib import Path

import click

from promptkit.cli.input.params import (
    MODEL,
    TranscriptFile,
    json_option,
    missing_key,
    window_option,
)
from promptkit.cli.output.terminal import usage_error


@click.command(
    short_help="Summarize the older part of a transcript.",
    epilog="""
    Examples:
      promptkit compact talk.jsonl --dry-run
      promptkit compact talk.jsonl --extractive --window 32k
      promptkit compact talk.jsonl --model gpt-5-mini --instructions "Keep the error texts."
    """,
)
@click.argument("file", type=TranscriptFile(), metavar="FILE")
@click.option(
    "--instructions", metavar="TEXT", help="Additional instructions for the summary. Needs --model."
)
@click.option(
    "--model",
    type=MODEL,
    help="The model that writes the summary, over OpenAI's API or a compatible one at OPENAI_BASE_URL.",
)
@click.option(
    "--extractive", is_flag=True, help="Use no model: extract the summary from the transcript."
)
@window_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what would be dropped, and the summary. The file is not changed.",
)
@json_option
def compact(  # noqa: PLR0913  # one argument for each option of the command
    *,
    file: Path,
    instructions: str | None,
    model: str | None,
    extractive: bool,
    window: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Append a checkpoint to a transcript: from then on, a model receives a summary instead of the older messages.

    No message is lost: all of them stay in the file, and the summary says where to find them.
    Without --model, or without OPENAI_API_KEY and OPENAI_BASE_URL (for Claude ANTHROPIC_API_KEY),
    no model is used. If no summary can be made, the file is not changed.
    """
    if model and extractive:
        usage_error("--extractive uses no model: leave out either --extractive or --model.")
    if window == 0:
        usage_error("--window must be at least 1 token.")
    if not file.exists():
        usage_error(f"there is no file {file}.")
    note = None
    if model and (key := missing_key(model)):
        model = None
        note = f"{key} is not set: the summary is extracted from the transcript, without a model."
    elif not model and not extractive:
        note = (
            "No --model was given: the summary is extracted from the transcript, without a model."
        )
    if instructions and not model:
        note = f"{note or 'No model is used.'} --instructions has no effect."
    from promptkit.cli.commands.compact_file import CompactOptions, compact_file

    compact_file(
        CompactOptions(
            file=file,
            instructions=instructions,
            model=model,
            note=note,
            window=window,
            dry_run=dry_run,
            as_json=as_json,
        )
    )
