"""A record as columns of plain JSON values: what the page carries.

A list for each fact that most items have, by the id of the item; what few items have stands in an object, by id. Paths are left
out: labels and parents say them.

The page that a person looks at: one HTML file that holds the record, and everything that shows it.

Nothing of a prompt ever becomes markup. The record stands in the page as JSON in a block that no browser runs, and the page's script
puts it into the document as text. A Content-Security-Policy admits this very script and this very style sheet and nothing else: no
network, no images, no inline handlers, no markup from strings.
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
from promptkit.tokens.images import dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from promptkit.messages import Json
    from promptkit.tracing.trace import Epoch, Trace, TraceItem, TraceRemoval

__all__ = ["SCRIPTS", "VIEWER", "columns", "page", "part_facts"]


Facts: TypeAlias = "dict[str, str | int]"

HIGHEST = 2**53 - 1
"""The priority of what has none."""

_SHOWN = 4_000  # characters of a provider's own part; audio in base64 is for no reader
_KINDS = {"container": "c", "message": "m", "text": "t", "part": "p"}
_STARTS = {"never": "n", "always": "a", "first": "f"}


def columns(trace: Trace) -> dict[str, object]:
    """The record, ready for `json.dumps` and for the page's `openRecord`."""
    names = _Names()
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
        "items": _items(trace.items, names),
        "removals": [_removal(removal, ids, names) for removal in trace.removals],
        "epochs": [_epoch(epoch) for epoch in trace.epochs],
        "names": names.known,
    }


def part_facts(part: ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart) -> Facts:
    """What is shown of a part that is no text: `kind`, and its type, size and hash in place of the bytes themselves."""
    facts: dict[str, str | int | None]
    match part:
        case CacheBreakpointPart(kind=kind, ttl=ttl):
            facts = {"kind": "cache boundary", "type": kind, "ttl": ttl}
        case ImagePart(url=url):
            size = (part.width, part.height) if part.width and part.height else dimensions(url)
            facts = {"kind": "image", "type": part.media_type, "detail": part.detail, "size": f"{size[0]}×{size[1]}" if size else None}  # noqa: RUF001  # the sign between two sizes
            facts |= _data_url(url) if url[:5].lower() == "data:" else {"url": url}
        case DocumentPart():
            facts = {"kind": "document", "name": part.name, "type": part.media_type, **_digest(_decoded(part.data))}
        case OpaquePart():
            facts = {"kind": "opaque", "provider": part.provider, **_of_json(part.value)}
    return {name: fact for name, fact in facts.items() if fact is not None}


def _of_json(value: Json) -> Facts:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return {"value": "nested too deeply to show"}
    return {"value": text} if len(text) <= _SHOWN else _digest(_bytes(text))


def _data_url(url: str) -> Facts:
    head, _, data = url[5:].partition(",")
    kind, *parameters = head.split(";")
    content = _decoded(data) if "base64" in (each.strip().lower() for each in parameters) else unquote_to_bytes(_bytes(data))
    return {**({"type": kind} if kind else {}), **_digest(content)}


def _decoded(data: str) -> bytes:
    try:
        return b64decode(_bytes(data) + b"=" * (-len(data) % 4))
    except ValueError:
        return _bytes(data)  # no base64: what there is


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(content: bytes) -> Facts:
    return {"bytes": len(content), "sha256": sha256(content).hexdigest()[:12]}


class _Names:
    """Words that occur again and again, each once; a number stands for each."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self._places: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        place = self._places.setdefault(name, len(self.known))
        if place == len(self.known):
            self.known.append(name)
        return place


def _items(items: Sequence[TraceItem], names: _Names) -> dict[str, object]:
    labels = [item.label.removesuffix(f"[{item.position}]") for item in items]
    return {
        "parent": [-1 if item.parent is None else item.parent for item in items],
        "kind": "".join(_KINDS[item.kind] for item in items),
        "label": [names[label] for label in labels],
        "placed": _where(items, lambda item: item.label.endswith(f"[{item.position}]")),
        "element": [names[item.element] for item in items],
        "priority": [_priority(item.priority) for item in items],
        "required": _where(items, lambda item: item.required),
        "since": _some(items, lambda item: item.since or None),
        "until": [item.until for item in items],
        "tokens": [item.tokens for item in items],
        "budget": _some(items, lambda item: item.budget),
        "used": _some(items, lambda item: item.used),
        "limit": _some(items, lambda item: item.limit),
        "reserve": _some(items, lambda item: item.reserve or None),
        "seconds": _some(items, lambda item: None if item.seconds is None else round(item.seconds, 7)),
        "role": _some(items, lambda item: item.role),
        "name": _some(items, lambda item: item.name),
        "callId": _some(items, lambda item: item.call_id),
        "calls": _some(items, lambda item: [[*_call_facts(item, at)] for at in range(len(item.calls))] or None),
        "text": [item.text for item in items],
        # Python and JavaScript do not agree on what is blank.
        "blank": _where(items, lambda item: item.text is not None and item.text.isspace()),
        "part": _some(items, lambda item: None if item.part is None else part_facts(item.part)),
        "starts": "".join(_STARTS[item.starts_line] for item in items),
        "ends": _where(items, lambda item: item.ends_line),
        "own": _where(items, lambda item: item.own),
    }


def _call_facts(item: TraceItem, at: int) -> tuple[object, ...]:
    call = item.calls[at]
    return call.call.id, call.call.name, call.call.arguments, call.until


def _where(items: Iterable[TraceItem], test: Callable[[TraceItem], bool]) -> list[int]:
    return [item.id for item in items if test(item)]


def _some(items: Iterable[TraceItem], fact: Callable[[TraceItem], object]) -> dict[int, object]:
    return {item.id: value for item in items if (value := fact(item)) is not None}


def _priority(priority: float) -> float | None:
    """None for what has none, or one as high; what JSON cannot write as the lowest number that it can."""
    return None if priority >= HIGHEST else max(priority, -sys.float_info.max)


def _removal(removal: TraceRemoval, ids: Mapping[str, int], names: _Names) -> list[object]:
    partner = None if removal.partner is None else ids.get(removal.partner)
    return [removal.step, removal.item, removal.call, _priority(removal.priority), removal.tokens, names[removal.reason], partner]


def _epoch(epoch: Epoch) -> list[object]:
    members = [[share.item, share.basis, share.budget, share.used] for share in epoch.members]
    return [epoch.container, epoch.grow, epoch.available, epoch.reserved, epoch.plain, epoch.plain_share, epoch.plain_used, members]


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
