"""`promptkit demo`: a recorded conversation, rendered at several budgets, and replayed in a window that it outgrows."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

import click

from promptkit.cli.input.params import SIZE
from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.messages import print_json
from promptkit.cli.output.terminal import show_spinner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit import Message, PromptElement
    from promptkit.cli.demo.replay import DemoReplay

__all__ = ["Demo", "demo"]

GROUP = "promptkit.demo"

WINDOW = 12_000
"""Tokens of the replay's window."""


class Demo(Protocol):
    """What an entry point of the group `promptkit.demo` returns when it is called."""

    @property
    def title(self) -> str:
        """One line."""
        ...

    @property
    def prompt(self) -> PromptElement:
        """The prompt over the conversation."""
        ...

    @property
    def conversation(self) -> Sequence[Message]:
        """What was said, in order."""
        ...

    @property
    def budgets(self) -> Sequence[int]:
        """The budgets to show, in tokens."""
        ...


@click.command(short_help="Render a recorded conversation at several budgets, and replay it with summaries.")
@click.argument("name", default="agent", metavar="[NAME]")
@click.option(
    "--budget", "budgets", type=SIZE, multiple=True, help="Only render, at a budget in tokens such as 8k; may be given several times."
)
@click.option("--window", type=SIZE, help="Only replay the conversation, in a window of so many tokens; 12k where nothing is said.")
@click.option("--all", "everything", is_flag=True, help="List all messages and removals, where long lists are folded otherwise.")
@click.option("--json", "report", is_flag=True, help="Print the figures of the renders and of the replay, as JSON.")
def demo(*, name: str, budgets: tuple[int, ...], window: int | None, everything: bool, report: bool) -> None:
    """Render a recorded conversation at several budgets: what stays, what goes, and why.

    Then replay it, turn by turn, in a window that it outgrows: a session summarizes it on the way. Needs no key and no network. NAME is a demo that an installed package registers in the entry point group
    promptkit.demo; without it the agent conversation of promptkit itself is shown.
    """
    import promptkit

    if window == 0:
        usage_error("--window must be at least 1 token.")
    shown = _load(name)()
    renders: list[promptkit.Rendered] = []
    for budget in budgets or (shown.budgets if window is None else ()):
        with show_spinner(f"Rendering at {budget:,} tokens"):
            renders.append(promptkit.render(shown.prompt, budget=budget))
    replayed = None if budgets and window is None else _replay(shown, WINDOW if window is None else window)
    if report:
        from promptkit.cli.demo.report import replay_to_json

        figures = [
            {"budget": each.budget, "tokens": each.tokens, "messages": len(each.messages), "removed": len(each.removals)}
            for each in renders
        ]
        print_json({"renders": figures, "replay": None if replayed is None else replay_to_json(replayed)})
        return
    if renders:
        from promptkit.cli.output.messages import print_renders

        print_renders(shown.title, shown.conversation, renders, promptkit.tokenizer_for(None), everything=everything)
    if replayed is not None:
        from promptkit.cli.demo.report import print_replay

        if renders:
            click.echo()
        print_replay(shown.title, replayed)


def _replay(shown: Demo, window: int) -> DemoReplay:
    import asyncio

    from promptkit.cli.demo.replay import replay_conversation

    with show_spinner(f"Replaying in a window of {window:,} tokens"):
        return asyncio.run(replay_conversation(shown.conversation, window=window))


def _load(name: str) -> Callable[[], Demo]:
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in known:
        listed = f"installed are: {', '.join(sorted(known))}" if known else "none is installed: install promptkit again"
        usage_error(f"there is no demo {name!r}; {listed}.")
    loaded: Callable[[], Demo] = known[name].load()
    return loaded
