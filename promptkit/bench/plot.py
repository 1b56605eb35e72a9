"""A run as a picture: a heat map of what each element keeps, and curves of what is used and what it takes."""

# matplotlib's own stubs leave keyword arguments without a type.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING

from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from promptkit.bench.run import Run

__all__ = ["PICTURES", "PlotError", "draw", "require_plots"]

PICTURES = (".svg", ".png", ".html")
"""The forms of a picture."""

DOTS = 160
"""To an inch."""


class PlotError(PromptKitError):
    """A picture that cannot be drawn: its form is not known, or matplotlib is not installed."""


def require_plots(form: str) -> None:
    """Raise PlotError unless a picture of this form (`.svg`, `.png`, `.html`) can be drawn."""
    if form not in PICTURES:
        message = f"a picture is one of {', '.join(PICTURES)}, not {form!r}."
        raise PlotError(message)
    if find_spec("matplotlib") is None:
        message = "drawing needs matplotlib: install promptkit with its extra `plot`."
        raise PlotError(message)


def draw(run: Run, form: str) -> bytes:
    """The picture as a file of this form. The same run gives the same bytes, as long as matplotlib is the same.

    Raises PlotError.
    """
    require_plots(form)
    import matplotlib as mpl

    from promptkit.bench.figure import figure_of

    same = mpl.rc_context({"svg.hashsalt": "promptkit", "svg.fonttype": "path", "font.size": 9})
    with same, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may have letters that the font lacks: they are drawn as boxes
        figure = figure_of(run)
        if form == ".html":
            from promptkit.bench.page import page

            return page(run, _svg(figure)).encode("ascii", "xmlcharrefreplace")
        return _svg(figure).encode() if form == ".svg" else _png(figure)


def _svg(figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return file.getvalue().decode()


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DOTS, bbox_inches="tight")
    return file.getvalue()
