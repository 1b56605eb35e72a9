"""`promptkit demo`: render a recorded conversation at a budget, and replay it in a small context window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Protocol

import click

import promptkit
from promptkit.cli.input.params import SIZE
from promptkit.cli.output.terminal import print_json, show_spinner, usage_error

WINDOW = 12_000
"""The context window of the replay in tokens."""


class Demo(Protocol):
    """What the entry points of the group `promptkit.demo` return."""

    title: str
    """A heading of one line."""
    prompt: promptkit.PromptElement
    """The prompt that contains the conversation."""
    conversation: Sequence[promptkit.Message]
    """The recorded messages, in order."""
    budgets: Sequence[int]
    """The budgets that `--all` renders at, in tokens, from large to small."""


@click.command(
    short_help="Render a recorded conversation at a budget, and replay it with summaries."
)
@click.argument("name", default="agent", metavar="[NAME]")
@click.option(
    "--budget",
    "budgets",
    type=SIZE,
    multiple=True,
    help="Only render, at this budget in tokens, such as 8k. May be given several times.",
)
@click.option(
    "--window",
    type=SIZE,
    help="Only replay, in a context window of this many tokens. By default 12k.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Render at each of the demo's budgets, and list all messages and removals. By default it is one budget, and long lists are folded.",
)
@click.option(
    "--json",
    "report",
    is_flag=True,
    help="Print the figures of the renders and of the replay as JSON.",
)
def demo(
    *, name: str, budgets: tuple[int, ...], window: int | None, everything: bool, report: bool
) -> None:
    """Render a recorded conversation at a budget, and show what is kept, what is removed, and why.

    Then replay it, turn by turn, in a context window that is too small for it, so that a session
    summarizes it on the way. Needs no API key and no network. NAME is a demo that an installed
    package registers in the entry point group promptkit.demo; the default is a conversation of a
    coding agent that works on promptkit.
    """
    from promptkit.cli.demo.replay import print_replay, replay_conversation, replay_to_json
    from promptkit.cli.output.messages import print_renders

    if window == 0:
        usage_error("--window must be at least 1 token.")
    demo_data = _load(name)()
    renders: list[promptkit.Rendered] = []
    if not budgets and window is None:
        window, every = WINDOW, tuple(demo_data.budgets)
        budgets = every if everything else (every[len(every) // 2],)
    for budget in budgets:
        with show_spinner(f"Rendering at {budget:,} tokens"):
            renders.append(promptkit.render(demo_data.prompt, budget=budget))
    replayed = None
    if window is not None:
        with show_spinner(f"Replaying in a window of {window:,} tokens"):
            replayed = replay_conversation(demo_data.conversation, window=window)
    if report:
        print_json(
            {
                "renders": [
                    {
                        "budget": each.budget,
                        "tokens": each.tokens,
                        "messages": len(each.messages),
                        "removed": len(each.removals),
                    }
                    for each in renders
                ],
                "replay": None if replayed is None else replay_to_json(replayed),
            }
        )
        return
    if renders:
        print_renders(demo_data.title, demo_data.conversation, renders, everything=everything)
    if replayed is not None:
        if renders:
            click.echo()
        print_replay(demo_data.title, replayed)


def _load(name: str) -> Callable[[], Demo]:
    known = {entry.name: entry for entry in entry_points(group="promptkit.demo")}
    if name not in known:
        usage_error(
            f"there is no demo {name!r}: use {', '.join(sorted(known))}."
            if known
            else f"there is no demo {name!r}: none is installed, so run `pip install .` again in the checkout of promptkit."
        )
    loaded: Callable[[], Demo] = known[name].load()
    return loaded
