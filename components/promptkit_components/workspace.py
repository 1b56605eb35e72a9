"""What the model should know of the place that it works in: files, changes, and what the terminal says."""

from __future__ import annotations

from collections.abc import Sequence

from promptkit import Child, PromptElement, Sizing, Tag, TextChunk, Truncate, component
from promptkit_components.file_tree import FileTree

__all__ = ["Diff", "Terminal", "Workspace"]


@component
class Diff(PromptElement):
    r"""A diff as `git diff` prints it, cut after the last line that fits its share. An empty one is nothing.

    >>> from promptkit import UserMessage, render
    >>> print(render(UserMessage()[Diff(text="-a = 1\n+a = 2")], budget=100).messages[0].text)
    <diff>
    -a = 1
    +a = 2
    </diff>
    """

    text: str
    """The diff."""

    def render(self, sizing: Sizing) -> Child:
        """A tag around the text."""
        _ = sizing
        return (
            Tag(tag="diff")[Truncate(keep="head", marker="\n[… the diff goes on …]")[self.text.strip("\n")]] if self.text.strip() else None
        )


@component
class Terminal(PromptElement):
    r"""What a terminal printed, its end kept: errors stand there. No output is nothing.

    >>> from promptkit import UserMessage, render
    >>> print(render(UserMessage()[Terminal(command="make", output="cc main.c\nerror: no such file")], budget=100).messages[0].text)
    <terminal command="make">
    cc main.c
    error: no such file
    </terminal>
    """

    output: str
    """As it was printed."""

    command: str | None = None
    """What was run."""

    def render(self, sizing: Sizing) -> Child:
        """A tag around the text."""
        _ = sizing
        if not self.output.strip():
            return None
        attributes = {"command": self.command} if self.command else {}
        return Tag(tag="terminal", attributes=attributes)[Truncate(keep="tail", marker="[… earlier output …]\n")[self.output.strip("\n")]]


@component
class Workspace(PromptElement):
    """Files, changes and terminal of a project, for the inside of a message.

    Diff and terminal are sized first; the file tree takes what they leave, and grows when budget is left at the end. The tree is
    pruned first, then the diff, then the terminal.

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
    """What the project is called."""

    paths: Sequence[str] = ()
    """Its files, relative."""

    diff: str = ""
    """What has changed, as `git diff` prints it."""

    terminal: str = ""
    """What the terminal printed last."""

    command: str | None = None
    """What was run there."""

    notes: Child = None
    """Anything more: open files, the branch, the date."""

    def render(self, sizing: Sizing) -> Child:
        """One tag around all."""
        _ = sizing
        if not (self.paths or self.diff.strip() or self.terminal.strip() or self.notes):
            return None
        return Tag(tag="workspace", attributes={"root": self.root} if self.root else {})[
            TextChunk(priority=4)[self.notes] if isinstance(self.notes, str) else self.notes,
            Tag(tag="files", priority=1, flex_grow=1)[FileTree(paths=self.paths)] if self.paths else None,
            Diff(text=self.diff, priority=2),
            Terminal(output=self.terminal, command=self.command, priority=3),
        ]
