"""What Chat Completions and the Responses API have in common: cache breakpoints and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import CacheBreakpointPart, DocumentPart, OpaquePart, Part, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from promptkit.emitters.parts import WireDict

__all__ = ["breakpoints", "file_fields"]

LIFE_TIMES = ("30m", "12h")
"""What `prompt_cache_breakpoint.ttl` may say; it is left out for others, and the request's own life time holds."""

FILE_NAMES: Mapping[str, str] = {"application/pdf": "document.pdf", "text/plain": "document.txt"}


def breakpoints(contents: Iterable[tuple[Role, Sequence[Part]]]) -> dict[tuple[int, int], WireDict]:
    """(message, part) → `prompt_cache_breakpoint`, for the part that each cache boundary lands on.

    That is the nearest text, image or document before it that is no output of the model: OpenAI takes breakpoints on input parts
    only. A boundary with nothing before it is left out. There is no upper number: OpenAI writes the last four of a request and
    matches the last eighty.
    """
    found: dict[tuple[int, int], WireDict] = {}
    carrier: tuple[int, int] | None = None
    for index, (role, parts) in enumerate(contents):
        for place, part in enumerate(parts):
            if isinstance(part, CacheBreakpointPart):
                if carrier is not None:
                    found[carrier] = {"mode": "explicit", **({"ttl": part.ttl} if part.ttl in LIFE_TIMES else {})}
            elif role != "assistant" and not isinstance(part, OpaquePart):
                carrier = (index, place)
    return found


def file_fields(part: DocumentPart) -> WireDict:
    """`filename` and `file_data` of a document. OpenAI asks for a name beside the data: one is made up where none is given."""
    return {
        "filename": part.name or FILE_NAMES.get(part.media_type, "document"),
        "file_data": f"data:{part.media_type};base64,{part.data}",
    }
