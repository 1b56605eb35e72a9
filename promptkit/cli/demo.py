"""`promptkit demo`: a recorded conversation, rendered at several budgets."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

import click

from promptkit.cli.failure import refuse
from promptkit.cli.progress import working
from promptkit.cli.receipt import write_json
from promptkit.cli.size import SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit import Message, PromptElement

__all__ = ["Demo", "demo"]

GROUP = "promptkit.demo"


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


@click.command(short_help="Render a recorded conversation at several budgets.")
@click.argument("name", default="agent", metavar="[NAME]")
@click.option("--budget", "budgets", type=SIZE, multiple=True, help="A budget in tokens, such as 8k; may be given several times.")
@click.option("--all", "everything", is_flag=True, help="List all messages and removals, where long lists are folded otherwise.")
@click.option("--json", "report", is_flag=True, help="Print budget, tokens, messages and removed for each render, as JSON.")
def demo(*, name: str, budgets: tuple[int, ...], everything: bool, report: bool) -> None:
    """Render a recorded conversation at several budgets: what stays, what goes, and why.

    Needs no key and no network. NAME is a demo that an installed package registers in the entry point group
    promptkit.demo; without it the agent conversation of promptkit itself is shown.
    """
    import promptkit

    shown = _load(name)()
    renders: list[promptkit.Rendered] = []
    for budget in budgets or shown.budgets:
        with working(f"Rendering at {budget:,} tokens"):
            renders.append(promptkit.render(shown.prompt, budget=budget))
    if report:
        write_json(
            {
                "renders": [
                    {"budget": each.budget, "tokens": each.tokens, "messages": len(each.messages), "removed": len(each.removals)}
                    for each in renders
                ]
            }
        )
        return
    from promptkit.cli.picture import print_demo

    print_demo(shown.title, shown.conversation, renders, promptkit.tokenizer_for(None), everything=everything)


def _load(name: str) -> Callable[[], Demo]:
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in known:
        listed = f"installed are: {', '.join(sorted(known))}" if known else "none is installed: install promptkit again"
        refuse(f"there is no demo {name!r}; {listed}.")
    loaded: Callable[[], Demo] = known[name].load()
    return loaded
