"""What the emitters for Chat Completions and the Responses API share: cache breakpoints and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import CacheBreakpointPart, DocumentPart, OpaquePart, Part, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from promptkit.wire.parts import WireDict

CACHE_TTLS = ("30m", "12h")
"""The valid values of `prompt_cache_breakpoint.ttl`. Other values are not sent, and the time to
live of the request applies."""

DEFAULT_FILE_NAMES: Mapping[str, str] = {
    "application/pdf": "document.pdf",
    "text/plain": "document.txt",
}
"""Media type → the name of a document without one."""


def place_breakpoints(
    contents: Iterable[tuple[Role, Sequence[Part]]],
) -> dict[tuple[int, int], WireDict]:
    """Map (message index, part index) to the value of `prompt_cache_breakpoint` for that part.

    A cache breakpoint is placed on the nearest text, image or document before it that is not output
    of the model: OpenAI accepts breakpoints on input parts only. A cache breakpoint with nothing
    before it is dropped. Their number is not limited: OpenAI writes the last four of a request and
    matches the last eighty.
    """
    marks: dict[tuple[int, int], WireDict] = {}
    target: tuple[int, int] | None = None
    for index, (role, parts) in enumerate(contents):
        for place, part in enumerate(parts):
            if isinstance(part, CacheBreakpointPart):
                if target is not None:
                    marks[target] = {
                        "mode": "explicit",
                        **({"ttl": part.ttl} if part.ttl in CACHE_TTLS else {}),
                    }
            elif role != "assistant" and not isinstance(part, OpaquePart):
                target = (index, place)
    return marks


def to_file_fields(part: DocumentPart) -> WireDict:
    """Return `filename` and `file_data` of a document.

    OpenAI requires a name, so a document without one gets a default name.
    """
    return {
        "filename": part.name or DEFAULT_FILE_NAMES.get(part.media_type, "document"),
        "file_data": f"data:{part.media_type};base64,{part.data}",
    }
