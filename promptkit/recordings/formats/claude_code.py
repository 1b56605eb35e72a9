"""Claude Code's project files: one JSON object a line, each naming the line before it.

A line is a message or a piece of one, a mark (a compaction, a file snapshot, the progress of a tool), or something that a later version
added. What is no message stays in the tree as a custom entry: later lines hang on it. Subagents stand in the same file, as lines of a side
chain or inside the progress of the call that runs them, and become branches of their own.

What the lines of Claude Code's files say, one by one, without regard to the tree that they stand in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import Message, Usage
from promptkit.recordings.formats.claude_code_tree import PendingCheckpoint, HeldAnswer, SessionTree, ConversationIndex
from promptkit.recordings.reading.codec import Batch
from promptkit.recordings.reading.json_values import keep_bad_line, as_count, as_object, parse_object, omit_fields, parse_time, as_text, as_list
from promptkit.recordings.reading.messages import read_anthropic_content
from promptkit.transcript.entries import Checkpoint, CustomEntry, Label, MessageEntry, Setting
from promptkit.transcript.store import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.formats.claude_code_tree import LinePlace, Conversation
    from promptkit.recordings.reading.codec import FileHead
    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import EntryPayload

__all__ = [
    "FINISH_REASONS",
    "NAME",
    "ClaudeCodeFormat",
    "checkpoint_of",
    "fields_of",
    "finish_of",
    "inner_line",
    "kind_of",
    "preserved",
    "session_of",
    "usage_from_anthropic",
]


NAME = "claude_code"

SESSION = ("cwd", "entrypoint", "gitBranch", "sessionId", "slug", "userType", "version")
"""What lines say about their session: kept as a setting, which is written when it changes."""

PLACED = {"uuid", "parentUuid", "logicalParentUuid", "isSidechain", "timestamp", "type", "message", *SESSION}
OF_MESSAGE = {"role", "content", "model", "stop_reason", "type"}

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


def kind_of(record: JsonObject) -> str:
    """The name under which a line is kept that is no message."""
    kind = as_text(record.get("type")) or "unknown"
    subtype = as_text(record.get("subtype")) or as_text(as_object(record.get("data")).get("type"))
    return f"{NAME}.{kind}.{subtype}" if subtype else f"{NAME}.{kind}"


def session_of(record: JsonObject) -> dict[str, Json]:
    """What a line says about its session."""
    return {name: record[name] for name in SESSION if record.get(name) is not None}


def fields_of(record: JsonObject, message: JsonObject) -> CustomEntry | None:
    """What a line says beside its message, such as the raw result of a tool."""
    data = omit_fields(record, PLACED)
    if left := omit_fields(message, OF_MESSAGE):
        data["message"] = left
    return CustomEntry(name=f"{NAME}.fields", data=data) if data else None


def finish_of(record: JsonObject, message: JsonObject) -> str | None:
    """Why the model ended."""
    if record.get("isApiErrorMessage") is True:
        return "error"
    reason = as_text(message.get("stop_reason"))
    return FINISH_REASONS.get(reason or "", reason)


def usage_from_anthropic(value: Json) -> Usage | None:
    """What Anthropic's interface says about a request's tokens; there, what is read from the cache and written to it is not part of the input."""
    data = as_object(value)
    fresh = as_count(data.get("input_tokens"))
    if fresh is None:
        return None
    cached = as_count(data.get("cache_read_input_tokens")) or 0
    made = as_count(data.get("cache_creation_input_tokens")) or 0
    return Usage(input_tokens=fresh + cached + made, output_tokens=as_count(data.get("output_tokens")) or 0, cached_tokens=cached)


def checkpoint_of(record: JsonObject, first_kept: str | None) -> Checkpoint:
    """The checkpoint that a boundary line begins, without its summary."""
    meta = as_object(record.get("compactMetadata"))
    return Checkpoint(
        summary="",
        first_kept=first_kept,
        trigger=as_text(meta.get("trigger")) or "unknown",
        tokens_before=as_count(meta.get("preTokens")),
        tokens_after=as_count(meta.get("postTokens")),
    )


def preserved(record: JsonObject) -> tuple[str, str] | None:
    """The uuids of the first and the last line that a compaction kept as they were."""
    meta = as_object(record.get("compactMetadata"))
    kept = as_object(meta.get("preservedSegment"))
    first, last = as_text(kept.get("headUuid")), as_text(kept.get("tailUuid"))
    if first and last:
        return first, last
    uuids = [uuid for uuid in as_list(as_object(meta.get("preservedMessages")).get("uuids")) if isinstance(uuid, str)]
    return (uuids[0], uuids[-1]) if uuids else None


def inner_line(record: JsonObject, above: str | None, *, begins: bool) -> tuple[str, JsonObject]:
    """The line of a subagent inside a progress line, and the name of the subagent; `above` is the line before it."""
    data = as_object(record.get("data"))
    inner = as_object(data.get("message"))
    agent = as_text(data.get("agentId")) or as_text(record.get("parentToolUseID")) or "unknown"
    about = {"parentToolUseID": record.get("parentToolUseID"), **omit_fields(data, {"message", "type"})} if begins else {}
    line = {**about, **session_of(record), "timestamp": record.get("timestamp"), **inner}
    return agent, {**line, "agentId": agent, "isSidechain": True, "parentUuid": above}


class ClaudeCodeFormat:
    """Reads Claude Code's project files."""

    name = NAME
    about = "Claude Code project JSONL"

    def detects(self, head: FileHead) -> bool:
        """Lines with a type that name a session or a parent."""
        return any(isinstance(record.get("type"), str) and _is_line(record) for record in head.records)

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, line by line."""
        reading = _Reading()
        for number, line in source.lines():
            yield reading.line(number, line)
        yield reading.end()


def _is_line(record: JsonObject) -> bool:
    return "parentUuid" in record or "leafUuid" in record or "snapshot" in record or "sessionId" in record


class _Reading:
    """One pass through a file."""

    def __init__(self) -> None:
        self._tree = SessionTree()
        self._strands = ConversationIndex()
        self._answers: set[str] = set()  # ids of the model's messages
        self._time = 0.0
        self._number = 0
        self._messages = 0
        self._mended: list[ReadProblem] = []

    def line(self, number: int, line: bytes) -> Batch:
        """What a line comes to. It may be nothing yet, or what was held back before it."""
        self._number, self._messages, self._mended = number, 0, []
        begun = self._strands.conversations
        record = parse_object(line)
        skipped: tuple[ReadProblem, ...] = ()
        if isinstance(record, str):
            skipped = (ReadProblem(line=number, detail=record),)
            self._aside(keep_bad_line(NAME, number, line, record))
        else:
            self._read(record, len(line))
        made = Batch(entries=self._tree.take(), messages=self._messages, conversations=self._strands.conversations - begun)
        return attrs.evolve(made, skipped=skipped, mended=tuple(self._mended))

    def end(self) -> Batch:
        """What was held back to the end."""
        self._tree.finish(list(self._strands))
        return Batch(entries=self._tree.take())

    def _read(self, record: JsonObject, size: int) -> None:
        self._time = parse_time(record.get("timestamp")) or self._time
        uuid = as_text(record.get("uuid"))
        if record.get("type") == "progress" and isinstance(as_object(record.get("data")).get("message"), Mapping):
            self._of_subagent(record, uuid, size)
        elif uuid or isinstance(record.get("message"), Mapping):
            self._placed(record, uuid or f"line-{self._number}", size)
        else:
            self._unplaced(record)

    def _of_subagent(self, record: JsonObject, uuid: str | None, size: int) -> None:
        """A line of a subagent inside the progress of the call that runs it. What follows the progress follows what was before it."""
        above = self._above(record)
        if above and uuid:
            self._tree.places[uuid] = above
        agent, _ = inner_line(record, None, begins=False)
        strand = self._strands.agent(agent)
        _, line = inner_line(record, strand.uuid if strand else None, begins=strand is None)
        self._placed(line, as_text(line.get("uuid")) or f"line-{self._number}", size)

    def _unplaced(self, record: JsonObject) -> None:
        """A line that has no place in the tree: it stands where it was written."""
        leaf = as_text(record.get("leafUuid")) or ""
        title = as_text(record.get("summary"))
        if record.get("type") == "summary" and leaf in self._tree.places and title:
            strand, _ = self._tree.places[leaf]
            self._append(strand, Label(target=self._tree.entry_of(leaf), label=title), f"line-{self._number}")
        else:
            self._aside(CustomEntry(name=kind_of(record), data=record))

    def _aside(self, payload: EntryPayload) -> None:
        """What belongs to no line of the tree stands behind the main conversation's last."""
        self._tree.main = self._tree.main or self._strands.first()
        self._append(self._tree.main, payload, f"line-{self._number}")

    def _append(self, strand: Conversation, payload: EntryPayload, wanted: str) -> None:
        self._tree.append(strand, payload, parent=strand.tail, time=self._time, wanted=wanted)

    def _placed(self, record: JsonObject, uuid: str, size: int) -> None:
        """A line with a place in the tree."""
        side = record.get("isSidechain") is True
        message = record.get("message")
        above = self._above(record)
        strand = self._strands.of(record, above, self._number)
        begins = strand.first is None and strand.round is None
        strand.linked = strand.linked or above is not None
        if not side:
            self._tree.main = strand
        match record.get("type"):
            case "assistant" if isinstance(message, Mapping):
                self._answer(record, message, uuid, strand)
            case "user" if isinstance(message, Mapping) and record.get("isCompactSummary") is True:
                self._summary(record, message, uuid, strand)
            case "user" if isinstance(message, Mapping):
                self._user(record, message, uuid, strand)
            case "system" if record.get("subtype") == "compact_boundary":
                self._boundary(record, uuid, strand)
            case _:
                self._other(record, uuid, strand)
        strand.uuid = uuid
        if strand.round:
            strand.round.size += size
        if begins and (target := strand.first or (strand.round and strand.round.entry_id)):
            if side:
                self._append(strand, Label(target=target, label=f"subagent {record.get('agentId') or uuid}"), f"{target}-label")
            else:
                for named, first, name in self._strands.names(strand, target):
                    self._append(named, Label(target=first, label=name), f"{first}-label")
        self._tree.relieve(strand)

    def _above(self, record: JsonObject) -> LinePlace | None:
        """Where the line before this one went."""
        return self._tree.places.get(as_text(record.get("parentUuid")) or as_text(record.get("logicalParentUuid")) or "")

    def _behind(self, record: JsonObject, strand: Conversation, *, root: bool) -> str | None:
        """The id of the entry that a line stands behind. `root`: it may begin a branch of its own."""
        named = as_text(record.get("parentUuid"))
        if above := self._above(record):
            return self._tree.after(above)
        if named is None and root and strand.first and strand.linked:
            return None
        tail = self._tree.tail(strand)
        if named is not None:
            where = f"behind {tail!r}" if tail else "at the beginning"
            self._mended.append(
                ReadProblem(line=self._number, detail=f"the line before it, {named!r}, is not in this file; it stands {where}.")
            )
        return tail

    def _put(self, strand: Conversation, payload: EntryPayload, parent: str | None, wanted: str) -> str:
        return self._tree.put(strand, payload, parent=parent, time=self._time, wanted=wanted)

    def _told(self, record: JsonObject, strand: Conversation, parent: str | None) -> str | None:
        """What a line says about its session, if that is news; the entry that the line stands behind then."""
        said = session_of(record)
        if not said or said == strand.settings:
            return parent
        strand.settings = said
        return self._put(strand, Setting(name=f"{NAME}.session", value=said), parent, f"line-{self._number}-session")

    def _answer(self, record: JsonObject, message: JsonObject, uuid: str, strand: Conversation) -> None:
        """A piece of an answer of the model; those of one answer have one message id."""
        answer = as_text(message.get("id"))
        self._messages = int(answer is None or answer not in self._answers)
        self._answers.update([answer] if answer else [])
        held = strand.round
        if held is None or answer is None or held.message_id != answer or uuid in self._tree.places:
            parent = self._behind(record, strand, root=False)
            self._tree.close(strand)
            held = strand.round = HeldAnswer(self._told(record, strand, parent), self._tree.ids.allocate(uuid), self._time, answer)
        held.add(
            read_anthropic_content(message.get("content")),
            usage=usage_from_anthropic(message.get("usage")),
            model=as_text(message.get("model")),
            finish=finish_of(record, message),
        )
        if fields := fields_of(record, message):
            self._append(strand, fields, f"{uuid}-fields")
        self._tree.places[uuid] = (strand, held)

    def _user(self, record: JsonObject, message: JsonObject, uuid: str, strand: Conversation) -> None:
        """What the user said, or the results of calls."""
        self._messages = 1
        blocks = read_anthropic_content(message.get("content"))
        ids = {result.tool_call_id for result in blocks.results if result.tool_call_id}
        held = strand.round
        follows = held is not None and self._above(record) == (strand, held)
        payloads: list[EntryPayload] = [MessageEntry(message=result) for result in blocks.results]
        if blocks.parts or not payloads:
            payloads.append(MessageEntry(message=Message(role="user", content=tuple(blocks.parts))))
        if fields := fields_of(record, message):
            payloads.append(fields)
        place: str | HeldAnswer
        if held is not None and (any(call.id in ids for call in held.calls) or (follows and (ids or not held.is_answered))):
            held.answered |= ids
            for payload in payloads:
                self._append(strand, payload, uuid if isinstance(payload, MessageEntry) else f"{uuid}-fields")
            place = held
        else:
            self._tree.close(strand)
            parent = self._told(record, strand, self._behind(record, strand, root=not ids))
            for payload in payloads:
                parent = self._put(strand, payload, parent, uuid if isinstance(payload, MessageEntry) else f"{uuid}-fields")
            place = parent or uuid
        self._tree.places[uuid] = (strand, place)

    def _other(self, record: JsonObject, uuid: str, strand: Conversation) -> None:
        """A line that is no message; what follows it in the recording follows it here."""
        kept = CustomEntry(name=kind_of(record), data=record)
        if strand.round and self._above(record) == (strand, strand.round):
            self._append(strand, kept, uuid)
            self._tree.places[uuid] = (strand, strand.round)
        else:
            self._tree.places[uuid] = (strand, self._put(strand, kept, self._behind(record, strand, root=False), uuid))

    def _boundary(self, record: JsonObject, uuid: str, strand: Conversation) -> None:
        """A compaction begins: its summary is a line of its own."""
        above = self._above(record)
        parent = self._tree.after(above) if above else None
        tail = self._tree.tail(strand)
        kept = preserved(record)
        first = self._tree.entry_of(kept[0]) if kept and kept[0] in self._tree.places else None
        parent = self._put(strand, CustomEntry(name=kind_of(record), data=record), parent or tail, f"{uuid}-boundary")
        entry_id = self._tree.ids.allocate(uuid)
        strand.pending = PendingCheckpoint(entry_id=entry_id, parent=parent, time=self._time, made=checkpoint_of(record, first))
        self._tree.places[uuid] = (strand, entry_id)
        if kept:
            self._tree.places[kept[1]] = (strand, entry_id)  # what goes on from there is shown behind the summary

    def _summary(self, record: JsonObject, message: JsonObject, uuid: str, strand: Conversation) -> None:
        """The summary of the compaction that has begun; or one without a beginning, as older versions wrote it."""
        self._messages = 1
        text = "".join(part for part in read_anthropic_content(message.get("content")).parts if isinstance(part, str))
        entry_id = self._tree.settle(strand, text)
        if entry_id is None:
            parent = self._told(record, strand, self._behind(record, strand, root=True))
            entry_id = self._put(strand, Checkpoint(summary=text, trigger="unknown"), parent, uuid)
        if fields := fields_of(record, message):
            entry_id = self._put(strand, fields, entry_id, f"{uuid}-fields")
        self._tree.places[uuid] = (strand, entry_id)
