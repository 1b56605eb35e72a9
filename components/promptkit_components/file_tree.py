"""`FileTree`: the files of a project as an indented tree that fits the budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import attrs

from promptkit import Child, Expandable, PromptElement, Sizing, component

__all__ = ["FileTree"]


@component
class FileTree(PromptElement):
    """The paths of a project as a tree that fills its share of the budget, level by level.

    If budget is left over at the end, the tree grows. Files that do not fit are counted in a line
    such as `… 12 more`. The paths are not read from disk, so the caller decides which files are
    ignored (for example with `git ls-files`).

    >>> from promptkit import UserMessage, render
    >>> tree = FileTree(paths=["README.md", "src/parser.py", "src/lexer.py", "tests/test_parser.py"])
    >>> print(render(UserMessage()[tree], budget=200).messages[0].text)
    README.md
    src/
      lexer.py
      parser.py
    tests/
      test_parser.py
    """

    paths: Sequence[str]
    """The relative paths of the files, with `/` between folders."""

    def render(self, sizing: Sizing) -> Child:
        """Return one Expandable."""
        _ = sizing
        return Expandable(value=_TreeText(paths=tuple(self.paths)))


Folder: TypeAlias = "dict[str, Folder]"
"""The names in a folder → their contents. A file is an empty folder."""


@attrs.frozen(kw_only=True)
class _TreeText:
    """Writes the tree as text within a budget.

    A value with equality, so that equal trees are equal elements.
    """

    paths: tuple[str, ...]

    def __call__(self, sizing: Sizing) -> str:
        root = _build_folders(self.paths)
        lines = _lines_breadth_first(root)
        room = sizing.token_budget
        shown = 0
        # Count each line separately, with its line break and a possible count of hidden files. The
        # sum is an upper bound except in rare cases, which the loop below handles.
        for line in lines:
            room -= sizing.count_tokens(f"{line.text}{_describe_hidden(line.files)}\n")
            if room < 0:
                break
            shown += 1
        while shown:
            text = _draw(root, {line.path for line in lines[:shown]})
            if sizing.count_tokens(text) <= sizing.token_budget:
                return text
            shown = shown * 9 // 10
        return ""


@attrs.frozen
class _Line:
    path: str
    text: str
    files: int


def _build_folders(paths: Sequence[str]) -> Folder:
    root: Folder = {}
    for path in sorted(set(paths)):
        here = root
        for name in path.strip("/").split("/"):
            here = here.setdefault(name, {})
    return root


def _lines_breadth_first(root: Folder) -> list[_Line]:
    lines: list[_Line] = []
    queue: deque[tuple[str, int, Folder]] = deque([("", 0, root)])
    while queue:
        prefix, depth, folder = queue.popleft()
        for name, inside in folder.items():
            path = f"{prefix}{name}"
            lines.append(_Line(path, f"{'  ' * depth}{name}{'/' if inside else ''}", len(folder)))
            if inside:
                queue.append((f"{path}/", depth + 1, inside))
    return lines


def _draw(root: Folder, shown: set[str]) -> str:
    lines: list[str] = []
    stack: list[tuple[Iterator[tuple[str, Folder]], str, int, list[int]]] = [
        (iter(root.items()), "", 0, [0])
    ]
    while stack:
        names, prefix, depth, hidden = stack[-1]
        for name, inside in names:
            path = f"{prefix}{name}"
            if path not in shown:
                hidden[0] += 1
                continue
            lines.append(f"{'  ' * depth}{name}{'/' if inside else ''}")
            if inside:
                stack.append((iter(inside.items()), f"{path}/", depth + 1, [0]))
                break
        else:
            stack.pop()
            if hidden[0]:
                lines.append(f"{'  ' * depth}{_describe_hidden(hidden[0])}")
    return "\n".join(lines)


def _describe_hidden(count: int) -> str:
    return f"… {count:,} more"
