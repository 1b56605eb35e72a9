"""All targets by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz import pages, recordings, rendering, transcripts, wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fuzz.target import Target

__all__ = ["TARGETS"]

TARGETS: Mapping[str, Target] = {
    "laws": rendering.LAWS,
    "layout": rendering.LAYOUT,
    "templates": rendering.TEMPLATES,
    "json_trees": rendering.JSON_TREES,
    "codecs_by_bytes": recordings.CODECS_BY_BYTES,
    "codecs_by_structure": recordings.CODECS_BY_STRUCTURE,
    "transcript_damage": transcripts.TRANSCRIPT_DAMAGE,
    "transcript_bytes": transcripts.TRANSCRIPT_BYTES,
    "stores": transcripts.STORES,
    "redaction": transcripts.REDACTION,
    "wire_messages": wire.WIRE_MESSAGES,
    "wire_replies": wire.WIRE_REPLIES,
    "pages": pages.PAGES,
    "settings": pages.SETTINGS,
}
