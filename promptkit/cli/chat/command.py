"""`promptkit chat`: a conversation with a model that may look into a folder, and that never outgrows its window."""

from __future__ import annotations

from pathlib import Path

import click

from promptkit.cli.input.model import is_keyless
from promptkit.cli.input.params import SIZE
from promptkit.cli.output.errors import usage_error

__all__ = ["chat"]

# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit chat
  promptkit chat talk.jsonl --folder src --model gpt-5-mini
  promptkit chat talk.jsonl --window 16k --write
  promptkit chat --demo -m "List the files." -m /context
  echo "What is in notes.md?" | promptkit chat --quiet
"""


@click.command(short_help="Talk with a model about the files of a folder.", epilog=EXAMPLES)
@click.argument("transcript", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=".",
    show_default="this one",
    metavar="DIR",
    help="The folder that the file tools are confined to.",
)
@click.option("--write", is_flag=True, help="Let the model write and edit files in the folder. Without it, it only reads.")
@click.option("--model", default="gpt-5-mini", show_default=True, help="The model, over OpenAI's API or that of OPENAI_BASE_URL.")
@click.option("--window", type=SIZE, help="The tokens that the model takes, input and output together; by default what is known of it.")
@click.option("--instructions", metavar="TEXT", help="The system message, in the place of the usual one.")
@click.option("-m", "--message", "messages", metavar="TEXT", multiple=True, help="Say this and leave; may be given several times.")
@click.option("--demo", is_flag=True, help="Talk with a script in the place of a model, even if there is a key.")
@click.option("--quiet", is_flag=True, help="Print the answers, and nothing about tools, window and summaries.")
def chat(  # noqa: PLR0913  # one argument for each option of the command
    *,
    transcript: Path | None,
    folder: Path,
    write: bool,
    model: str,
    window: int | None,
    instructions: str | None,
    messages: tuple[str, ...],
    demo: bool,
    quiet: bool,
) -> int:
    """Talk with a model that can list, read and search the files of a folder.

    When the conversation nears the end of the model's window, a summary is made beside it and put in the place of what is old. All of it
    stays in TRANSCRIPT, a file of JSON lines that is made if it is not there, and gone on with if it is; without one it is kept only
    until you leave. Messages come from the terminal, from -m, or from a pipe, one a line. Lines that begin with a slash are commands:
    /help lists them. Ctrl-C ends the model's turn, Ctrl-D the conversation.

    Without OPENAI_API_KEY and OPENAI_BASE_URL a script takes the model's place: it needs no network and uses the same tools.
    """
    from promptkit.cli.chat.loop import ChatOptions, run_chat
    from promptkit.cli.chat.sandbox import Folder

    if window == 0:
        usage_error("--window must be at least 1 token.")
    if not Folder.is_supported():
        usage_error("this system cannot keep the file tools inside of a folder, and so there is no chat on it.")
    if transcript and not transcript.absolute().parent.is_dir():
        usage_error(f"there is no folder {transcript.parent}: make it first.")
    if not model.strip():
        usage_error("--model must have a name.")
    keyless = is_keyless()
    return run_chat(
        ChatOptions(
            transcript=transcript,
            folder=folder.resolve(),
            write=write,
            model=None if demo or keyless else model,
            keyless=keyless and not demo,
            window=window,
            instructions=instructions,
            messages=messages,
            quiet=quiet,
        )
    )
