"""`Workspace`, `Diff`, `Terminal`: the files, changes and terminal output of a project."""

from __future__ import annotations

from collections.abc import Sequence

from promptkit import Child, PromptElement, Sizing, Tag, TextChunk, Truncate, component
from promptkit_components.file_tree import FileTree

__all__ = ["Diff", "Terminal", "Workspace"]


@component(pure=True)
class Diff(PromptElement):
    r"""The output of `git diff`, truncated after the last line that fits its share.

    An empty diff renders nothing.

    >>> from promptkit import UserMessage, render
    >>> print(render(UserMessage()[Diff(text="-a = 1\n+a = 2")], budget=100).messages[0].text)
    <diff>
    -a = 1
    +a = 2
    </diff>
    """

    text: str
    """The diff, as `git diff` prints it."""

    def render(self, sizing: Sizing) -> Child:
        """Return a tag around the text."""
        _ = sizing
        return (
            Tag(tag="diff")[
                Truncate(keep="head", marker="\n[… the diff goes on …]")[self.text.strip("\n")]
            ]
            if self.text.strip()
            else None
        )


@component(pure=True)
class Terminal(PromptElement):
    r"""The output of a terminal.

    Its end is kept, since errors are there. Empty output renders nothing.

    >>> from promptkit import UserMessage, render
    >>> print(render(UserMessage()[Terminal(command="make", output="cc main.c\nerror: no such file")], budget=100).messages[0].text)
    <terminal command="make">
    cc main.c
    error: no such file
    </terminal>
    """

    output: str
    """The output, as it was printed."""

    command: str | None = None
    """The command that printed the output."""

    def render(self, sizing: Sizing) -> Child:
        """Return a tag around the text."""
        _ = sizing
        if not self.output.strip():
            return None
        attributes = {"command": self.command} if self.command else {}
        return Tag(tag="terminal", attributes=attributes)[
            Truncate(keep="tail", marker="[… earlier output …]\n")[self.output.strip("\n")]
        ]


@component
class Workspace(PromptElement):
    """Files, changes and terminal output of a project, for the inside of a message.

    Diff and terminal are sized first. The file tree gets the rest, and grows if budget is left over
    at the end. The tree is pruned first, then the diff, then the terminal.

    >>> from promptkit import UserMessage, render
    >>> print(render(UserMessage()[Workspace(root="shop", paths=["cart.py"], diff="+total = 0")], budget=100).messages[0].text)
    <workspace root="shop">
    <files>
    cart.py
    </files>
    <diff>
    +total = 0
    </diff>
    </workspace>
    """

    root: str | None = None
    """The name of the project."""

    paths: Sequence[str] = ()
    """The relative paths of its files."""

    diff: str = ""
    """The changes, as `git diff` prints them."""

    terminal: str = ""
    """The last output of the terminal."""

    command: str | None = None
    """The command that printed the output."""

    notes: Child = None
    """Further information: open files, the branch, the date."""

    def render(self, sizing: Sizing) -> Child:
        """Return one tag around all parts."""
        _ = sizing
        if not (self.paths or self.diff.strip() or self.terminal.strip() or self.notes):
            return None
        return Tag(tag="workspace", attributes={"root": self.root} if self.root else {})[
            TextChunk(priority=4)[self.notes] if isinstance(self.notes, str) else self.notes,
            Tag(tag="files", priority=1, flex_grow=1)[FileTree(paths=self.paths)]
            if self.paths
            else None,
            Diff(text=self.diff, priority=2),
            Terminal(output=self.terminal, command=self.command, priority=3),
        ]
