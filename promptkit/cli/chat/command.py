"""`promptkit chat`: chat with a model that can read the files of a folder, in a context window that is kept from overflowing."""

from __future__ import annotations

from pathlib import Path

import click

from promptkit.cli.input.params import MODEL, PRESET, TranscriptFile, missing_key, window_option
from promptkit.cli.output.terminal import usage_error


@click.command(
    short_help="Chat with a model about the files of a folder.",
    epilog="""
    Examples:
      promptkit chat
      promptkit chat talk.jsonl --folder src --model gpt-5-mini
      promptkit chat talk.jsonl --window 16k --write
      promptkit chat --demo -m "List the files." -m /context
      echo "What is in notes.md?" | promptkit chat --quiet
    """,
)
@click.argument("transcript", required=False, type=TranscriptFile())
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=".",
    show_default="this one",
    metavar="DIR",
    help="The folder that the file tools are confined to.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Let the model write and edit files in the folder. Without it, it only reads.",
)
@click.option(
    "--allow",
    "allowed",
    metavar="PATH",
    multiple=True,
    help="With --write: let it also write PATH, such as .vscode, which is protected.",
)
@click.option(
    "--model",
    type=MODEL,
    default="gpt-5-mini",
    show_default=True,
    help="The model, over OpenAI's API, Anthropic's for Claude, or one like OpenAI's at OPENAI_BASE_URL.",
)
@window_option
@click.option(
    "--preset",
    type=PRESET,
    default="vscode",
    show_default=True,
    metavar="NAME",
    help="How the conversation is compacted: as a known agent does it, such as pi, codex or claude_code.",
)
@click.option(
    "--instructions", metavar="TEXT", help="The system message, instead of the default one."
)
@click.option(
    "-m",
    "--message",
    "messages",
    metavar="TEXT",
    multiple=True,
    help="Send this message, then exit. May be given several times.",
)
@click.option("--demo", is_flag=True, help="Use a scripted model, even if an API key is set.")
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Print only the replies, and nothing about tools, context window and summaries.",
)
def chat(  # noqa: PLR0913  # one argument for each option of the command
    *,
    transcript: Path | None,
    folder: Path,
    write: bool,
    allowed: tuple[str, ...],
    model: str,
    window: int | None,
    preset: str,
    instructions: str | None,
    messages: tuple[str, ...],
    demo: bool,
    quiet: bool,
) -> int:
    """Chat with a model that can list, read and search the files of a folder.

    When the conversation approaches the end of the context window, a summary is made in the
    background and replaces the older messages. All messages stay in TRANSCRIPT, a JSON Lines file
    that is created if it does not exist and continued if it does. Without it, the conversation is
    deleted when you leave. Messages come from the terminal, from -m, or from a pipe, one per line.
    Lines that begin with a slash are commands; /help lists them. Ctrl-C ends the model's turn,
    Ctrl-D ends the conversation.

    Without OPENAI_API_KEY and OPENAI_BASE_URL (for Claude ANTHROPIC_API_KEY), a scripted model
    answers: it needs no network and uses the same tools.
    """
    from promptkit.cli.chat.loop import ChatOptions, run_chat
    from promptkit.cli.chat.tools import Folder

    if window == 0:
        usage_error("--window must be at least 1 token.")
    if not Folder.is_supported():
        usage_error(
            "chat does not work on this system, because it cannot confine the file tools to a folder."
        )
    if transcript and not transcript.absolute().parent.is_dir():
        usage_error(f"there is no folder {transcript.parent}: create it first.")
    if allowed and not write:
        usage_error("--allow needs --write.")
    if not model.strip():
        usage_error("--model is empty: use the name of a model, such as gpt-5-mini.")
    key = missing_key(model)
    return run_chat(
        ChatOptions(
            transcript=transcript,
            folder=folder.resolve(),
            write=write,
            allowed=allowed,
            model=None if demo or key else model,
            missing_key=None if demo else key,
            window=window,
            preset=preset,
            instructions=instructions,
            messages=messages,
            quiet=quiet,
        )
    )
