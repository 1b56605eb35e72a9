"""`promptkit completion`: print the script that lets a shell complete `promptkit`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit completion bash > ~/.promptkit-complete.bash
  promptkit completion zsh > ~/.promptkit-complete.zsh
  promptkit completion fish > ~/.config/fish/completions/promptkit.fish
"""

_WHOLE_TARGETS = 'COMP_WORDBREAKS="${COMP_WORDBREAKS//:}"\n'
"""Keeps bash from splitting `FILE.py:NAME` at the colon before the script sees it."""


@click.command(short_help="Print the script that completes promptkit in a shell.", epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, *, shell: str) -> None:
    """Print the script with which a shell completes commands, options, files and names.

    Names are those of models, policies and presets, and of what a Python file defines.
    """
    script = get_completion_class(shell)
    if script is None:  # SHELL is one of those that click has
        raise click.BadParameter(shell)
    program = ctx.find_root().command
    text = script(program, {}, "promptkit", "_PROMPTKIT_COMPLETE").source()
    click.echo(f"{_WHOLE_TARGETS if shell == 'bash' else ''}{text}")
