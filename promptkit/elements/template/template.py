"""Prompts written as Jinja templates, for people who write no Python. Jinja itself is imported with the first render."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.element import Child, PromptElement, Sizing, component
from promptkit.errors import BadPropError

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.resources.abc import Traversable  # noqa: TC004  # attrs never resolves it, and it is slow to import

__all__ = ["Template", "read_template"]


@component
class Template(PromptElement):
    """Text, or messages with everything in them, written in Jinja.

    A template with message tags (`{% user priority=900 %}…{% enduser %}`) renders those messages; one without is text for
    inside a message. Values are data: whatever is in a string stays text, and an element is inserted as an element.

    Jinja runs sandboxed, an undefined name is an error, and nothing is escaped, because the result is no HTML. The line of a
    block tag leaves no trace (`trim_blocks`, `lstrip_blocks`); the last line break of a template is dropped.
    Rendering raises TemplateError, with file and line, for whatever goes wrong in a template.

    >>> Template(source="Hello {{ name }}!", values={"name": "Ada"})
    >>> Template(file=Path(__file__).with_name("agent.md.j2"), values={"history": history})
    """

    file: str | os.PathLike[str] | None = None
    """An absolute path, or a path relative to `root`. UTF-8. Read again when it has changed, but by a Renderer that remembers."""

    source: str | None = None
    """The template itself, instead of a `file`."""

    root: str | os.PathLike[str] | Traversable | None = None
    """The folder that includes, imports and parents come from, and nothing outside of it: an absolute path, or a package's
    `importlib.resources.files(...)`. None: the folder of `file`; for a `source` there is none then."""

    values: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """Name → value. `token_budget()`, `count_tokens(text)` and `children` are there too, unless a value has that name."""

    def __attrs_post_init__(self) -> None:
        if (self.file is None) == (self.source is None):
            message = "a Template has either a `file` or a `source`: give one of them."
            raise BadPropError(message)
        root = None if self.root is None or not isinstance(self.root, str | os.PathLike) else Path(self.root)
        if root is not None and not root.is_absolute():
            message = f"root={str(self.root)!r} depends on the current directory: write an absolute one, such as Path(__file__).parent."
            raise BadPropError(message)
        if self.file is None:
            return
        file = PurePath(self.file)
        if not file.is_absolute() and self.root is None:
            message = (
                f"file={str(self.file)!r} depends on the current directory: write Path(__file__).with_name({file.name!r}) "
                "or another absolute path, or give its folder as `root`."
            )
            raise BadPropError(message)
        if file.is_absolute() and self.root is not None and (root is None or not file.is_relative_to(root)):
            message = f"file={str(self.file)!r} is not in root={str(self.root)!r}: leave `root` out, or name a file below it."
            raise BadPropError(message)

    def render(self, sizing: Sizing) -> Child:
        """The messages, or the text, that the template makes of its values."""
        from promptkit.elements.template import jinja  # imports Jinja

        offered = {"token_budget": lambda: sizing.token_budget, "count_tokens": sizing.count_tokens, "children": self.children}
        root, name = self._place()
        return jinja.render_template(root, name, self.source, {**offered, **self.values})

    def _place(self) -> tuple[Path | Traversable | None, str]:
        root = Path(self.root) if isinstance(self.root, str | os.PathLike) else self.root
        if self.file is None:
            return root, ""
        file = Path(self.file)
        if root is None:
            return file.parent, file.name
        return root, (file.relative_to(cast("Path", root)) if file.is_absolute() else file).as_posix()  # checked when made


def read_template(root: Path | Traversable | None, name: str) -> tuple[str, str, Callable[[], bool]] | None:
    """A template's text, its path, and whether that is still how it is; None where there is no file of this name in `root`.

    `name` is a relative path with `/`. Whatever leads out of `root` by its name is not there; a symbolic link in it is followed.
    """
    parts = name.split("/")
    if root is None or {"", ".."} & set(parts) or "\\" in name:
        return None
    found = root.joinpath(*parts)
    if isinstance(found, Path) and not found.is_relative_to(cast("Path", root)):  # by a drive letter, on Windows
        return None
    if not found.is_file():
        return None
    version = _version(found)
    # utf-8-sig: an editor's byte order mark is no part of a prompt.
    return found.read_text(encoding="utf-8-sig"), str(found), lambda: _version(found) == version


def _version(file: Path | Traversable) -> tuple[int, int]:
    if not isinstance(file, Path):
        return (0, 0)  # a package does not change while it runs
    try:
        stat = file.stat()
    except OSError:
        return (-1, -1)  # it has gone: Jinja looks again, and says so
    return (stat.st_mtime_ns, stat.st_size)
