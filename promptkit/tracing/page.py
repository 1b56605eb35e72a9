"""Self-contained HTML pages, one file with the data, the script and the style sheet, and the trace page.

No content becomes markup. A page contains its data as JSON in a block that browsers do not run, and
its script inserts texts into the document as text. A Content-Security-Policy allows exactly the
page's own script and style sheet: no network, no images, no inline handlers, no markup from
strings.

The JSON of a trace stores the items as columns: a list for each property that most items have, and
an object by item id for each other property. Paths are not stored, since labels and parents
determine them.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import unquote_to_bytes

from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    OpaquePart,
    as_mapping,
    as_sequence,
)
from promptkit.tokens.images import read_dimensions
from promptkit.tracing.trace import Trace, TraceItem

VIEWER = Path(__file__).with_name("viewer")
"""The folder with the scripts, the style sheets and the template of the trace page, some of which
other pages share."""

T = TypeVar("T")

Facts: TypeAlias = "dict[str, str | int]"
"""The properties of a part that a page shows."""

_SHOWN_CHARACTERS = 4_000  # longer opaque parts, such as audio in base64, are shown as a hash

_THINKING_TYPES = {"thinking", "redacted_thinking", "reasoning", "thought"}
"""The types of what providers call thinking."""

_TEXT_FIELDS = ("thinking", "text", "refusal", "description", "summary", "content")
"""Where a provider's own part has its text."""


def build_page(
    template: Path,
    *,
    scripts: Sequence[Path],
    styles: Sequence[Path],
    data: Mapping[str, object],
    title: str,
) -> str:
    """Build a page.

    Args:
        template: The Jinja template with places for `title`, for `data`, `script` and `style`,
            which it inserts as they are, and for the hashes of the last two.
        scripts: The parts of the script, each after the parts that it uses.
        styles: The style sheets, in order.
        data: The data as JSON values. The page gets the title with them.
        title: The title of the page.
    """
    from jinja2 import Environment

    script = (
        "(() => {\n'use strict';\n"
        + "\n".join(path.read_text(encoding="utf-8") for path in scripts)
        + "\n})();\n"
    )
    style = "\n".join(path.read_text(encoding="utf-8") for path in styles)
    # a lone surrogate cannot be written to a file
    title = title.encode("utf-8", "replace").decode()
    page = Environment(autoescape=True, keep_trailing_newline=True).from_string(
        template.read_text(encoding="utf-8")
    )
    return page.render(
        title=title,
        data=_dump_json({**data, "title": title}),
        script=script,
        style=style,
        script_hash=_hash_for_csp(script),
        style_hash=_hash_for_csp(style),
    )


def values_by_number(items: Sequence[T], fact: Callable[[T], object]) -> dict[int, object]:
    """Return a column of a page that most items have no value in: the values by the items' numbers."""
    return {number: value for number, item in enumerate(items) if (value := fact(item)) is not None}


def _dump_json(data: Mapping[str, object]) -> str:
    """Return JSON in ASCII without special characters of HTML, so that it cannot end the block around it."""
    return (
        json.dumps(data, separators=(",", ":"), allow_nan=False)
        .replace("&", "\\u0026")
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    )


def _hash_for_csp(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def describe_part(part: ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart) -> Facts:
    """Describe a part other than text: its `kind`, and its type, size and hash instead of its bytes."""
    facts: dict[str, str | int | None]
    match part:
        case CacheBreakpointPart(kind=kind, ttl=ttl):
            facts = {"kind": "cache breakpoint", "type": kind, "ttl": ttl}
        case ImagePart(url=url):
            size = (part.width, part.height) if part.width and part.height else read_dimensions(url)
            facts = {
                "kind": "image",
                "type": part.media_type,
                "detail": part.detail,
                "size": "\N{MULTIPLICATION SIGN}".join(map(str, size)) if size else None,
            }
            facts |= _describe_data_url(url) if url[:5].lower() == "data:" else {"url": url}
        case DocumentPart():
            facts = {
                "kind": "document",
                "name": part.name,
                "type": part.media_type,
                **_hash_content(_decode_base64(part.data)),
            }
        case OpaquePart():
            facts = {**_describe_opaque(part)}
    return {name: fact for name, fact in facts.items() if fact is not None}


def _describe_opaque(part: OpaquePart) -> Facts:
    """Describe a provider's own part by its type and its text, or else by its value. A signature is left out."""
    value = as_mapping(part.value)
    if value.get("is_error") is True:
        return {"kind": "error"}
    match value:
        case {"role": str(role), **others} if not others:
            return {"kind": role}
        case {"type": str(kind)}:
            kind = "thinking" if kind in _THINKING_TYPES else kind.replace("_", " ")
        case _:
            kind = "other content"
    if text := next(filter(None, (_read_text(value.get(name)) for name in _TEXT_FIELDS)), None):
        return {"kind": kind, "text": text}
    written = json.dumps(part.value, ensure_ascii=False, default=str)
    return {
        "kind": kind,
        **({"provider": part.provider} if part.provider else {}),
        **(
            {"value": written}
            if len(written) <= _SHOWN_CHARACTERS
            else _hash_content(_encode(written))
        ),
    }


def _read_text(value: object) -> str:
    """Return a text, or the texts of a list of blocks, such as a summary of reasoning."""
    texts = (as_mapping(block).get("text") for block in as_sequence(value))
    return (
        value
        if isinstance(value, str)
        else "\n".join(text for text in texts if isinstance(text, str))
    )


def _describe_data_url(url: str) -> Facts:
    head, _, data = url[5:].partition(",")
    kind, *parameters = head.split(";")
    content = (
        _decode_base64(data)
        if "base64" in (each.strip().lower() for each in parameters)
        else unquote_to_bytes(_encode(data))
    )
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
