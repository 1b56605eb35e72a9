"""The trace page: one HTML file that contains a trace and the viewer.

No content of a prompt becomes markup. The page contains the trace as JSON in a block that browsers do not run, and the viewer's
script inserts it into the document as text. A Content-Security-Policy allows exactly the viewer's script and style sheet: no network,
no images, no inline handlers, no markup from strings.

The JSON stores the items as columns: a list for each property that most items have, and an object by item id for each other
property. Paths are not stored, since labels and parents determine them.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote_to_bytes

from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, OpaquePart
from promptkit.tokens.images import read_dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from promptkit.messages import Json
    from promptkit.tracing.trace import Trace, TraceFlexGroup, TraceItem, TraceRemoval

__all__ = ["SCRIPTS", "VIEWER", "build_columns", "describe_part", "trace_to_html"]

VIEWER = Path(__file__).with_name("viewer")
"""The folder with the scripts, the style sheets and the template of the page."""

SCRIPTS = ("record", "states", "dom", "windowed", "bars", "tree", "messages", "detail", "removals", "sizing", "search", "controls", "app")
"""The parts of the script, each after the parts that it uses. The first two do not use the document."""

STYLES = ("page", "panels")
"""The style sheets, in order."""


def trace_to_html(trace: Trace, *, title: str = "Prompt") -> str:
    """Return a trace as a self-contained HTML page, which also shows every other budget.

    Args:
        trace: The trace of a render, such as `rendered.trace`.
        title: The title of the page, such as the name of the prompt.

    >>> html = trace_to_html(rendered.trace, title="Review")
    """
    from jinja2 import Environment
    from markupsafe import Markup

    script = "(() => {\n'use strict';\n" + "\n".join(_read_viewer_file(f"{name}.js") for name in SCRIPTS) + "\n})();\n"
    style = "\n".join(_read_viewer_file(f"{name}.css") for name in STYLES)
    title = title.encode("utf-8", "replace").decode()  # a lone surrogate cannot be written to a file
    template = Environment(autoescape=True, keep_trailing_newline=True).from_string(_read_viewer_file("page.html.j2"))
    return template.render(
        title=title,
        data=Markup(_dump_json(build_columns(trace) | {"title": title})),  # noqa: S704  # _dump_json escapes `<`
        script=Markup(script),  # noqa: S704  # a file of this package
        style=Markup(style),  # noqa: S704  # a file of this package
        script_hash=_hash_for_csp(script),
        style_hash=_hash_for_csp(style),
    )


def _read_viewer_file(name: str) -> str:
    return (VIEWER / name).read_text(encoding="utf-8")


def _dump_json(columns: dict[str, object]) -> str:
    """Return JSON in ASCII without special characters of HTML, so that it cannot end the block around it."""
    text = json.dumps(columns, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash_for_csp(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


Facts: TypeAlias = "dict[str, str | int]"
"""The properties of a part that the viewer shows."""

_SHOWN_CHARACTERS = 4_000  # longer opaque parts, such as audio in base64, are shown as a hash
_KINDS = {"container": "c", "message": "m", "text": "t", "part": "p"}
_STARTS = {"never": "n", "always": "a", "first": "f"}


def build_columns(trace: Trace) -> dict[str, object]:
    """Return the trace as columns of JSON values, for `json.dumps` and the viewer's `openRecord`."""
    names = _NameTable()
    ids: dict[str, int] = {}
    for item in trace.items:
        ids.setdefault(item.path, item.id)
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
        "timings": [[timing.stage, timing.seconds] for timing in trace.timings],
        "items": _build_item_columns(trace.items, names),
        "removals": [_build_removal_row(removal, ids, names) for removal in trace.removals],
        "flexGroups": [_build_flex_group_row(group) for group in trace.flex_groups],
        "names": names.names,
    }


def _build_item_columns(items: Sequence[TraceItem], names: _NameTable) -> dict[str, object]:
    labels = [item.label.removesuffix(f"[{item.position}]") for item in items]
    return {
        "parent": [-1 if item.parent is None else item.parent for item in items],
        "kind": "".join(_KINDS[item.kind] for item in items),
        "label": [names[label] for label in labels],
        "placed": _ids_where(items, lambda item: item.label.endswith(f"[{item.position}]")),
        "element": [names[item.element] for item in items],
        "named": _values_by_id(items, lambda item: item.element_label),
        "passesOn": _ids_where(items, lambda item: item.passes_on),
        "priority": [_encode_priority(item.priority) for item in items],
        "required": _ids_where(items, lambda item: item.required),
        "fallback": _ids_where(items, lambda item: item.fallback),
        "since": _values_by_id(items, lambda item: item.since or None),
        "until": [item.until for item in items],
        "tokens": [item.tokens for item in items],
        "budget": _values_by_id(items, lambda item: item.budget),
        "used": _values_by_id(items, lambda item: item.used),
        "limit": _values_by_id(items, lambda item: item.limit),
        "reserve": _values_by_id(items, lambda item: item.reserve or None),
        "seconds": _values_by_id(items, lambda item: None if item.seconds is None else round(item.seconds, 7)),
        "role": _values_by_id(items, lambda item: item.role),
        "name": _values_by_id(items, lambda item: item.name),
        "callId": _values_by_id(items, lambda item: item.call_id),
        "calls": _values_by_id(items, lambda item: [[*_build_call_row(item, at)] for at in range(len(item.calls))] or None),
        "text": [item.text for item in items],
        # Python and JavaScript define white space differently.
        "blank": _ids_where(items, lambda item: item.text is not None and item.text.isspace()),
        "part": _values_by_id(items, lambda item: None if item.part is None else describe_part(item.part)),
        "starts": "".join(_STARTS[item.starts_line] for item in items),
        "ends": _ids_where(items, lambda item: item.ends_line),
        "own": _ids_where(items, lambda item: item.is_element),
    }


def _build_call_row(item: TraceItem, at: int) -> tuple[object, ...]:
    call = item.calls[at]
    return call.call.id, call.call.name, call.call.arguments, call.until


class _NameTable:
    """Stores repeated strings once and maps each to a number."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._indices: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        index = self._indices.setdefault(name, len(self.names))
        if index == len(self.names):
            self.names.append(name)
        return index


def describe_part(part: ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart) -> Facts:
    """Describe a part other than text: its `kind`, and its type, size and hash instead of its bytes."""
    facts: dict[str, str | int | None]
    match part:
        case CacheBreakpointPart(kind=kind, ttl=ttl):
            facts = {"kind": "cache breakpoint", "type": kind, "ttl": ttl}
        case ImagePart(url=url):
            size = (part.width, part.height) if part.width and part.height else read_dimensions(url)
            facts = {"kind": "image", "type": part.media_type, "detail": part.detail, "size": f"{size[0]}×{size[1]}" if size else None}  # noqa: RUF001  # the sign between two sizes
            facts |= _describe_data_url(url) if url[:5].lower() == "data:" else {"url": url}
        case DocumentPart():
            facts = {"kind": "document", "name": part.name, "type": part.media_type, **_hash_content(_decode_base64(part.data))}
        case OpaquePart():
            facts = {"kind": "opaque", "provider": part.provider, **_describe_json(part.value)}
    return {name: fact for name, fact in facts.items() if fact is not None}


def _describe_json(value: Json) -> Facts:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return {"value": text} if len(text) <= _SHOWN_CHARACTERS else _hash_content(_encode(text))


def _describe_data_url(url: str) -> Facts:
    head, _, data = url[5:].partition(",")
    kind, *parameters = head.split(";")
    content = _decode_base64(data) if "base64" in (each.strip().lower() for each in parameters) else unquote_to_bytes(_encode(data))
    return {**({"type": kind} if kind else {}), **_hash_content(content)}


def _decode_base64(data: str) -> bytes:
    try:
        return b64decode(_encode(data) + b"=" * (-len(data) % 4))
    except ValueError:
        return _encode(data)  # not base64: take the text itself


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hash_content(content: bytes) -> Facts:
    return {"bytes": len(content), "sha256": sha256(content).hexdigest()[:12]}


def _ids_where(items: Iterable[TraceItem], test: Callable[[TraceItem], bool]) -> list[int]:
    return [item.id for item in items if test(item)]


def _values_by_id(items: Iterable[TraceItem], fact: Callable[[TraceItem], object]) -> dict[int, object]:
    return {item.id: value for item in items if (value := fact(item)) is not None}


def _encode_priority(priority: float | None) -> float | None:
    """Return the lowest JSON number for a priority that JSON cannot express."""
    return None if priority is None else max(priority, -sys.float_info.max)


def _build_removal_row(removal: TraceRemoval, ids: Mapping[str, int], names: _NameTable) -> list[object]:
    partner = None if removal.partner is None else ids.get(removal.partner)
    return [removal.step, removal.item, removal.call, _encode_priority(removal.priority), removal.tokens, names[removal.reason], partner]


def _build_flex_group_row(group: TraceFlexGroup) -> list[object]:
    members = [[share.item, share.basis, share.budget, share.used] for share in group.members]
    return [group.container, group.grow, group.available, group.reserved, group.plain, group.plain_share, group.plain_used, members]
