"""What the lines of Claude Code's files say, one by one, without regard to the tree that they stand in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import Usage
from promptkit.transcript.codecs.values import number_of, object_of, rest, text_of, values_of
from promptkit.transcript.entries import Checkpoint, Custom

if TYPE_CHECKING:
    from promptkit.messages import Json
    from promptkit.transcript.codecs.values import Record

__all__ = [
    "FINISHES",
    "NAME",
    "checkpoint_of",
    "fields_of",
    "finish_of",
    "inner_line",
    "kind_of",
    "preserved",
    "session_of",
    "usage_of_answer",
]

NAME = "claude_code"

SESSION = ("cwd", "entrypoint", "gitBranch", "sessionId", "slug", "userType", "version")
"""What lines say about their session: kept as a setting, which is written when it changes."""

PLACED = {"uuid", "parentUuid", "logicalParentUuid", "isSidechain", "timestamp", "type", "message", *SESSION}
OF_MESSAGE = {"role", "content", "model", "stop_reason", "type"}

FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


def kind_of(record: Record) -> str:
    """The name under which a line is kept that is no message."""
    kind = text_of(record.get("type")) or "unknown"
    subtype = text_of(record.get("subtype")) or text_of(object_of(record.get("data")).get("type"))
    return f"{NAME}.{kind}.{subtype}" if subtype else f"{NAME}.{kind}"


def session_of(record: Record) -> dict[str, Json]:
    """What a line says about its session."""
    return {name: record[name] for name in SESSION if record.get(name) is not None}


def fields_of(record: Record, message: Record) -> Custom | None:
    """What a line says beside its message, such as the raw result of a tool."""
    data = rest(record, PLACED)
    if left := rest(message, OF_MESSAGE):
        data["message"] = left
    return Custom(name=f"{NAME}.fields", data=data) if data else None


def finish_of(record: Record, message: Record) -> str | None:
    """Why the model ended."""
    if record.get("isApiErrorMessage") is True:
        return "error"
    reason = text_of(message.get("stop_reason"))
    return FINISHES.get(reason or "", reason)


def usage_of_answer(value: Json) -> Usage | None:
    """What Anthropic's interface says about a request's tokens; there, what is read from the cache and written to it is not part of the input."""
    data = object_of(value)
    fresh = number_of(data.get("input_tokens"))
    if fresh is None:
        return None
    cached = number_of(data.get("cache_read_input_tokens")) or 0
    made = number_of(data.get("cache_creation_input_tokens")) or 0
    return Usage(input_tokens=fresh + cached + made, output_tokens=number_of(data.get("output_tokens")) or 0, cached_tokens=cached)


def checkpoint_of(record: Record, first_kept: str | None) -> Checkpoint:
    """The checkpoint that a boundary line begins, without its summary."""
    meta = object_of(record.get("compactMetadata"))
    return Checkpoint(
        summary="",
        first_kept=first_kept,
        trigger=text_of(meta.get("trigger")) or "unknown",
        tokens_before=number_of(meta.get("preTokens")),
        tokens_after=number_of(meta.get("postTokens")),
    )


def preserved(record: Record) -> tuple[str, str] | None:
    """The uuids of the first and the last line that a compaction kept as they were."""
    meta = object_of(record.get("compactMetadata"))
    kept = object_of(meta.get("preservedSegment"))
    first, last = text_of(kept.get("headUuid")), text_of(kept.get("tailUuid"))
    if first and last:
        return first, last
    uuids = [uuid for uuid in values_of(object_of(meta.get("preservedMessages")).get("uuids")) if isinstance(uuid, str)]
    return (uuids[0], uuids[-1]) if uuids else None


def inner_line(record: Record, above: str | None, *, begins: bool) -> tuple[str, Record]:
    """The line of a subagent inside a progress line, and the name of the subagent; `above` is the line before it."""
    data = object_of(record.get("data"))
    inner = object_of(data.get("message"))
    agent = text_of(data.get("agentId")) or text_of(record.get("parentToolUseID")) or "unknown"
    about = {"parentToolUseID": record.get("parentToolUseID"), **rest(data, {"message", "type"})} if begins else {}
    line = {**about, **session_of(record), "timestamp": record.get("timestamp"), **inner}
    return agent, {**line, "agentId": agent, "isSidechain": True, "parentUuid": above}
