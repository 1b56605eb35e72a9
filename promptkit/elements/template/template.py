"""The `Template` element: a prompt or a text written in Jinja.

Jinja is imported with the first render.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.errors import BadPropError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # noqa: TC004  # attrs never resolves the name, and the import is slow


@component
class Template(PromptElement):
    """Text, or messages with everything in them, written in Jinja.

    A template with message tags (`{% user priority=900 %}…{% enduser %}`) renders those messages. A
    template without message tags is text for the inside of a message. Values are data: a string
    stays text whatever it contains, and an element is inserted as an element.

    Jinja runs sandboxed, an undefined name is an error, and nothing is escaped, because the result
    is not HTML. A line with only a block tag is removed (`trim_blocks`, `lstrip_blocks`), and so is
    the last line break of a template. Rendering raises TemplateError, with file and line, for every
    error in a template.

    >>> Template(source="Hello {{ name }}!", values={"name": "Ada"})
    >>> Template(file=Path(__file__).with_name("agent.md.j2"), values={"history": history})
    """

    file: str | os.PathLike[str] | None = None
    """The template file (UTF-8): an absolute path, or a path relative to `root`. It is read again
    when it has changed."""

    source: str | None = None
    """The template text, instead of a `file`."""

    root: str | os.PathLike[str] | Traversable | None = None
    """The folder of included, imported and parent templates: an absolute path, or
    `importlib.resources.files(...)` of a package. Files outside of it are never read. None: the
    folder of `file`, and no folder for a `source`."""

    values: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """Name → value. The template can also use `token_budget()`, `count_tokens(text)` and
    `children`, unless a value has that name."""

    def __attrs_post_init__(self) -> None:
        if (self.file is None) == (self.source is None):
            raise BadPropError("a Template needs either a `file` or a `source`: give one of them.")
        root = Path(self.root) if isinstance(self.root, str | os.PathLike) else None
        if root is not None and not root.is_absolute():
            raise BadPropError(
                f"root={str(self.root)!r} depends on the current directory: write an absolute path, such as Path(__file__).parent."
            )
        if self.file is None:
            return
        file = PurePath(self.file)
        if not file.is_absolute() and self.root is None:
            raise BadPropError(
                f"file={str(self.file)!r} depends on the current directory: write Path(__file__).with_name({file.name!r}) "
                "or another absolute path, or give its folder as `root`."
            )
        if (
            file.is_absolute()
            and self.root is not None
            and (root is None or not file.is_relative_to(root))
        ):
            raise BadPropError(
                f"file={str(self.file)!r} is not in root={str(self.root)!r}: leave `root` out, or name a file below it."
            )

    def render(self, sizing: Sizing) -> Child:
        """Render the template with its values, to messages or to text."""
        from promptkit.elements.template import jinja  # imports Jinja, which is slow

        values = {
            "token_budget": lambda: sizing.token_budget,
            "count_tokens": sizing.count_tokens,
            "children": self.children,
            **self.values,
        }
        return jinja.render_template(*self._locate(), self.source, values)

    def _locate(self) -> tuple[Path | Traversable | None, str]:
        root = Path(self.root) if isinstance(self.root, str | os.PathLike) else self.root
        if self.file is None:
            return root, ""
        file = Path(self.file)
        if self.root is None and file.is_symlink():
            file = file.resolve()  # the user named it; what it includes is beside the file itself
        if root is None:
            return file.parent, file.name
        return root, (
            file.relative_to(cast("Path", root)) if file.is_absolute() else file
        ).as_posix()  # __attrs_post_init__ checks that it is a path
