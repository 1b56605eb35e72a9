"""The trace page: one HTML file that contains a trace and the viewer.

The JSON stores the items as columns: a list for each property that most items have, and an object
by item id for each other property. Paths are not stored, since labels and parents determine them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence

from promptkit.tracing.page import VIEWER, build_page, describe_part, values_by_number
from promptkit.tracing.trace import Trace, TraceItem

SCRIPTS = (
    "record",
    "states",
    "dom",
    "frame",
    "windowed",
    "calls",
    "content",
    "bars",
    "tree",
    "messages",
    "detail",
    "removals",
    "sizing",
    "search",
    "controls",
    "app",
)
"""The parts of the script, each after the parts that it uses. The first two do not use the
document."""

STYLES = ("page", "panels")
"""The style sheets, in order."""


def trace_to_html(trace: Trace, *, title: str = "Prompt") -> str:
    """Return a trace as a self-contained HTML page, which also shows every other budget.

    Args:
        trace: The trace of a render, such as `rendered.trace`.
        title: The title of the page, such as the name of the prompt.

    >>> html = trace_to_html(rendered.trace, title="Review")
    """
    return build_page(
        VIEWER / "page.html.j2",
        scripts=[VIEWER / f"{name}.js" for name in SCRIPTS],
        styles=[VIEWER / f"{name}.css" for name in STYLES],
        data=build_columns(trace),
        title=title,
    )


_KINDS = {"container": "c", "message": "m", "text": "t", "part": "p"}
_STARTS = {"never": "n", "always": "a", "first": "f"}


def build_columns(trace: Trace) -> dict[str, object]:
    """Return the trace as columns of JSON values, for `json.dumps` and the viewer's `openRecord`."""
    names = _NameTable()
    ids = {item.path: item.id for item in reversed(trace.items)}  # the first of each path
    return {
        "budget": trace.budget,
        "state": trace.state,
        "reserved": trace.reserved,
        "pruneStep": trace.prune_step,
        "model": trace.model,
        "tokenizer": trace.tokenizer,
        "counts": trace.counts,
        "costs": None if trace.costs == trace.counts else trace.costs,
        "unfit": sorted(trace.unfit),
        "notes": trace.notes,
        "timings": [[timing.stage, timing.seconds] for timing in trace.timings],
        "items": _build_item_columns(trace.items, names),
        "removals": [
            [
                removal.step,
                removal.item,
                removal.call,
                _encode_priority(removal.priority),
                removal.tokens,
                names[removal.reason],
                None if removal.partner is None else ids.get(removal.partner),
            ]
            for removal in trace.removals
        ],
        "flexGroups": [
            [
                group.container,
                group.grow,
                group.available,
                group.reserved,
                group.plain,
                group.plain_share,
                group.plain_used,
                [[share.item, share.basis, share.budget, share.used] for share in group.members],
            ]
            for group in trace.flex_groups
        ],
        "names": list(names),
    }


def _build_item_columns(items: Sequence[TraceItem], names: _NameTable) -> dict[str, object]:
    # Names with an underscore are private: readers of the page did not write them.
    labels = [item.label.removesuffix(f"[{item.position}]").lstrip("_") for item in items]
    return {
        "parent": [-1 if item.parent is None else item.parent for item in items],
        "kind": "".join(_KINDS[item.kind] for item in items),
        "label": [names[label] for label in labels],
        "placed": _ids_where(items, lambda item: item.label.endswith(f"[{item.position}]")),
        "element": [names[item.element.lstrip("_")] for item in items],
        "named": values_by_number(items, lambda item: item.element_label),
        "passesOn": _ids_where(items, lambda item: item.passes_on),
        "priority": [_encode_priority(item.priority) for item in items],
        "required": _ids_where(items, lambda item: item.required),
        "fallback": _ids_where(items, lambda item: item.fallback),
        "since": values_by_number(items, lambda item: item.since or None),
        "until": [item.until for item in items],
        "tokens": [item.tokens for item in items],
        "budget": values_by_number(items, lambda item: item.budget),
        "used": values_by_number(items, lambda item: item.used),
        "limit": values_by_number(items, lambda item: item.limit),
        "reserve": values_by_number(items, lambda item: item.reserve or None),
        "seconds": values_by_number(
            items, lambda item: None if item.seconds is None else round(item.seconds, 7)
        ),
        "role": values_by_number(items, lambda item: item.role),
        "name": values_by_number(items, lambda item: item.name),
        "callId": values_by_number(items, lambda item: item.call_id),
        "calls": values_by_number(
            items,
            lambda item: (
                [
                    [each.call.id, each.call.name, each.call.arguments, each.until]
                    for each in item.calls
                ]
                or None
            ),
        ),
        "text": [item.text for item in items],
        # Python and JavaScript define white space differently.
        "blank": _ids_where(items, lambda item: item.text is not None and item.text.isspace()),
        "part": values_by_number(
            items, lambda item: None if item.part is None else describe_part(item.part)
        ),
        "starts": "".join(_STARTS[item.starts_line] for item in items),
        "ends": _ids_where(items, lambda item: item.ends_line),
        "own": _ids_where(items, lambda item: item.is_element),
    }


class _NameTable(dict[str, int]):
    """Maps each string to a number, in the order in which they are first looked up, so that repeated ones are stored once."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


def _ids_where(items: Iterable[TraceItem], test: Callable[[TraceItem], bool]) -> list[int]:
    return [item.id for item in items if test(item)]


def _encode_priority(priority: float | None) -> float | None:
    """Return the lowest JSON number for a priority that JSON cannot express."""
    return None if priority is None else max(priority, -sys.float_info.max)
