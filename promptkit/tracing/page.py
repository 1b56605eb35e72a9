"""The page that a person looks at: one HTML file that holds the record, and everything that shows it.

Nothing of a prompt ever becomes markup. The record stands in the page as JSON in a block that no browser runs, and the page's script
puts it into the document as text. A Content-Security-Policy admits this very script and this very style sheet and nothing else: no
network, no images, no inline handlers, no markup from strings.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from promptkit.tracing.columns import columns

if TYPE_CHECKING:
    from promptkit.tracing.record import Trace

__all__ = ["SCRIPTS", "VIEWER", "page"]

VIEWER = Path(__file__).with_name("viewer")
"""Where the parts of the page are."""

SCRIPTS = ("record", "states", "dom", "windowed", "bars", "tree", "messages", "detail", "receipt", "sizing", "search", "controls", "app")
"""The parts of the script, in the order in which they need each other. The first two know no document."""

STYLES = ("page", "panels")


def page(trace: Trace, *, title: str = "Prompt") -> str:
    """The page as HTML text. `title` says what was rendered."""
    from jinja2 import Environment
    from markupsafe import Markup

    script = "(() => {\n'use strict';\n" + "\n".join(_part(f"{name}.js") for name in SCRIPTS) + "\n})();\n"
    style = "\n".join(_part(f"{name}.css") for name in STYLES)
    title = title.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be written to a file
    template = Environment(autoescape=True, keep_trailing_newline=True).from_string(_part("page.html.j2"))
    return template.render(
        title=title,
        data=Markup(_data(columns(trace) | {"title": title})),  # noqa: S704  # holds no `<`
        script=Markup(script),  # noqa: S704  # this package's own
        style=Markup(style),  # noqa: S704  # this package's own
        script_hash=_hash(script),
        style_hash=_hash(style),
    )


def _part(name: str) -> str:
    return (VIEWER / name).read_text(encoding="utf-8")


def _data(record: dict[str, object]) -> str:
    """JSON in ASCII without a character that HTML knows: nothing in it can end the block that it stands in."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
