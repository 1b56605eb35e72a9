"""Claude Code's project files: one JSON object per line, each naming its parent line.

A line is a message or a part of one, a mark (a compaction, a file snapshot, the progress of a
tool), or something that a later version added. A line without a message becomes a custom entry in
the tree, because later lines may follow it; one with something that the model was shown (an
attachment, a queued command) becomes a message, too. Subagents are in the same file, as lines of a
side chain or inside the progress of the call that runs them, and become branches of their own. The
last answer of one is beside the result of the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from promptkit.lab.recordings.reading.files import FileHead, IdAllocator, LineFormat
from promptkit.lab.recordings.reading.values import (
    JsonObject,
    as_blocks,
    as_count,
    as_list,
    as_object,
    as_objects,
    as_text,
    omit_fields,
    parse_time,
    read_anthropic_content,
    usage_from_anthropic,
)
from promptkit.messages import ImagePart, Json, Message, Part, ToolCall, Usage
from promptkit.providers.anthropic.api import FINISHES
from promptkit.transcript import (
    Checkpoint,
    CustomEntry,
    CustomMessage,
    Entry,
    EntryPayload,
    Label,
    MessageEntry,
    ReadProblem,
    Setting,
)
from promptkit.transcript.log.transcript import LEAF_SETTING

NAME = "claude_code"

SESSION_FIELDS = ("cwd", "entrypoint", "gitBranch", "sessionId", "slug", "userType", "version")
"""Fields about the session. They become a setting, which is written when they change."""

LINE_FIELDS = {
    "uuid",
    "parentUuid",
    "logicalParentUuid",
    "isSidechain",
    "timestamp",
    "type",
    "message",
    *SESSION_FIELDS,
}
MESSAGE_FIELDS = {"role", "content", "model", "stop_reason", "type"}
MARKS = {"parentUuid", "leafUuid", "snapshot", "sessionId"}
"""Fields by which a line of these files is recognized: it has one of them."""

VISIBLE = (MessageEntry, CustomMessage, Checkpoint)
"""The payloads that the model is shown."""

MAX_HELD_ENTRIES = 2_000
MAX_HELD_BYTES = 1 << 25
"""Limits of a held answer. A larger one is written, and a later line of it becomes a message of its
own."""


class ClaudeCodeFormat(LineFormat):
    """Read Claude Code's project files."""

    name = NAME

    def __init__(self) -> None:
        super().__init__()
        self._tree = SessionTree(self)
        self._conversations = ConversationIndex()
        self._message_ids: set[str] = set()  # ids of the model's answers
        self._queue: list[Json] = []  # commands that were queued while the model worked
        self._taken: list[Json] = []  # those that it was shown

    def matches(self, head: FileHead) -> bool:
        """Return whether lines have a type and name a session or a parent."""
        return any(
            isinstance(record.get("type"), str) and MARKS & record.keys() for record in head.records
        )

    def finish(self) -> None:
        """Write the entries that were held to the end."""
        self._tree.finish(list(self._conversations))

    def read_record(self, record: JsonObject, size: int) -> None:
        """Read a line. Earlier ones that were held may be complete then."""
        self._tree.time = parse_time(record.get("timestamp")) or self._tree.time
        uuid = as_text(record.get("uuid"))
        if record.get("type") == "progress" and (messages := _find_subagent_messages(record)):
            for message in messages:
                self._read_subagent_line(record, message, uuid, size)
        elif uuid or isinstance(record.get("message"), dict):
            self._read_tree_line(record, uuid or f"line-{self.number}", size)
        else:
            self._read_line_without_place(record)

    def _read_subagent_line(
        self, record: JsonObject, message: JsonObject, uuid: str | None, size: int
    ) -> None:
        """Read a subagent's line inside a progress line.

        The children of the progress line become children of its parent.
        """
        if (parent := self._find_parent(record)) and uuid:
            self._tree.places[uuid] = parent
        subagent = self._conversations.find_subagent(_subagent_name(record))
        line = _unwrap_subagent_line(
            record, message, subagent.last_uuid if subagent else None, begins=subagent is None
        )
        self._read_tree_line(line, as_text(line.get("uuid")) or f"line-{self.number}", size)

    def _read_line_without_place(self, record: JsonObject) -> None:
        """Read a line that has no place in the tree. It is written where it is in the file."""
        leaf = as_text(record.get("leafUuid")) or ""
        title = as_text(record.get("summary"))
        if record.get("type") == "summary" and leaf in self._tree.places and title:
            conversation, _ = self._tree.places[leaf]
            self._tree.add(
                conversation,
                Label(target=self._tree.entry_of(leaf), label=title),
                conversation.end,
                f"line-{self.number}",
            )
        else:
            if record.get("type") == "queue-operation":
                self._read_queue_operation(record)
            self.keep(CustomEntry(name=_entry_name(record), data=record))

    def _read_queue_operation(self, record: JsonObject) -> None:
        """Follow the queue of commands.

        One that is removed while the model works is shown to it; older versions write nothing else
        of it.
        """
        content, operation = record.get("content"), record.get("operation")
        if operation == "enqueue":
            self._queue.append(content)
        elif operation == "popAll":
            self._queue.clear()
        elif operation in ("dequeue", "remove") and self._queue:
            taken = self._queue.pop(self._queue.index(content) if content in self._queue else 0)
            main = self._tree.main
            if (
                operation == "remove"
                and main is not None
                and main.answer is not None
                and not str(taken).startswith("/")
                and (
                    payload := read_queued_command(
                        taken, is_prompt=not str(taken).startswith("<task-notification>")
                    )
                )
            ):
                self._taken.append(taken)
                self.batch.attachments += 1
                self.keep(payload)

    def keep(self, payload: EntryPayload) -> None:
        """Append an entry to the main conversation."""
        self._tree.main = self._tree.main or self._conversations.first()
        self._tree.add(self._tree.main, payload, self._tree.main.end, f"line-{self.number}")

    def _read_tree_line(self, record: JsonObject, uuid: str, size: int) -> None:
        """Read a line with a place in the tree."""
        is_subagent = record.get("isSidechain") is True
        message = record.get("message")
        parent = self._find_parent(record)
        known = self._conversations.count
        conversation = self._conversations.find(record, parent, self.number)
        self.batch.conversations += self._conversations.count - known
        begins = conversation.first is None and conversation.answer is None
        conversation.has_parents = conversation.has_parents or parent is not None
        if not is_subagent:
            self._tree.main = conversation
        match record.get("type"):
            case "assistant" if isinstance(message, dict):
                self._read_answer(record, message, uuid, conversation, parent)
            case "user" if isinstance(message, dict) and record.get("isCompactSummary") is True:
                self._read_summary(record, message, uuid, conversation, parent)
            case "user" if isinstance(message, dict):
                self._read_user_message(record, message, uuid, conversation, parent)
            case "system" if record.get("subtype") == "compact_boundary":
                self._read_compact_boundary(record, uuid, conversation, parent)
            case _:
                self._read_other_line(record, uuid, conversation, parent)
        conversation.last_uuid = uuid
        if conversation.answer:
            conversation.answer.bytes_read += size
        if begins and (
            first := conversation.first or (conversation.answer and conversation.answer.entry_id)
        ):
            labels = (
                [(conversation, first, f"subagent {record.get('agentId') or uuid}")]
                if is_subagent
                else self._conversations.label(conversation, first)
            )
            for labelled, target, label in labels:
                self._tree.add(
                    labelled, Label(target=target, label=label), labelled.end, f"{target}-label"
                )
        if (answer := conversation.answer) and (
            len(answer.followers) > MAX_HELD_ENTRIES or answer.bytes_read > MAX_HELD_BYTES
        ):
            self._tree.write_answer(conversation)

    def _find_parent(self, record: JsonObject) -> LinePlace | None:
        """Return where the parent of a line went."""
        return self._tree.places.get(
            as_text(record.get("parentUuid")) or as_text(record.get("logicalParentUuid")) or ""
        )

    def _parent_id(
        self,
        record: JsonObject,
        conversation: RecordedConversation,
        parent: LinePlace | None,
        *,
        may_be_root: bool,
    ) -> str | None:
        """Return the id of the entry that a line follows.

        `parent` is where the line's parent went; `may_be_root`: the line may begin a branch of its
        own.
        """
        if parent:
            return self._tree.parent_at(parent)
        parent_uuid = as_text(record.get("parentUuid"))
        if parent_uuid is None and may_be_root and conversation.first and conversation.has_parents:
            return None
        tail = self._tree.flush(conversation)
        if parent_uuid is not None:
            problem = ReadProblem(
                line=self.number,
                detail=f"its parent line {parent_uuid!r} is not in this file; it was placed {f'after {tail!r}' if tail else 'at the beginning'}.",
            )
            self.batch.relocated += (problem,)
        return tail

    def _write_session_setting(
        self, record: JsonObject, conversation: RecordedConversation, parent: str | None
    ) -> str | None:
        """Write a setting if the session fields have changed.

        Returns the id of the entry that the line follows then.
        """
        values = [*map(record.get, SESSION_FIELDS)]
        if values == conversation.session_values or not (session := _session_fields(record)):
            return parent
        conversation.session_values = values
        return self._tree.write(
            conversation,
            Setting(name=f"{NAME}.session", value=session),
            parent,
            f"line-{self.number}-session",
        )

    def _read_answer(
        self,
        record: JsonObject,
        message: JsonObject,
        uuid: str,
        conversation: RecordedConversation,
        parent_place: LinePlace | None,
    ) -> None:
        """Read a line of an answer of the model.

        All lines of an answer have the same message id.
        """
        message_id = as_text(message.get("id"))
        self.batch.messages += message_id is None or message_id not in self._message_ids
        if message_id:
            self._message_ids.add(message_id)
        answer = conversation.answer
        if (
            answer is None
            or message_id is None
            or answer.message_id != message_id
            or uuid in self._tree.places
        ):
            parent = self._parent_id(record, conversation, parent_place, may_be_root=False)
            self._tree.write_answer(conversation)
            parent = self._write_session_setting(record, conversation, parent)
            answer = conversation.answer = HeldAnswer(
                parent,
                self._tree.ids.allocate(uuid),
                self._tree.time,
                message_id,
                [],
                [],
                [],
                set(),
            )
        blocks = read_anthropic_content(message.get("content"))
        answer.parts += blocks.parts
        answer.calls += blocks.calls
        answer.usage = usage_from_anthropic(message.get("usage")) or answer.usage
        answer.model = as_text(message.get("model")) or answer.model
        answer.finish = _read_finish(record, message) or answer.finish
        if fields := _read_extra_fields(record, message):
            self._tree.add(conversation, fields, conversation.end, f"{uuid}-fields")
        self._tree.places[uuid] = (conversation, answer)

    def _read_user_message(
        self,
        record: JsonObject,
        message: JsonObject,
        uuid: str,
        conversation: RecordedConversation,
        parent_place: LinePlace | None,
    ) -> None:
        """Read a user message or tool results."""
        self.batch.messages += 1
        blocks = read_anthropic_content(message.get("content"))
        answer = conversation.answer
        follows_answer = answer is not None and parent_place == (conversation, answer)
        call_ids: set[str] = set()
        payloads: list[tuple[EntryPayload, str]] = []
        for answered in blocks.results:
            payloads.append((MessageEntry(message=answered), uuid))
            if answered.tool_call_id:
                call_ids.add(answered.tool_call_id)
        if blocks.parts or not payloads:
            payloads.append(
                (MessageEntry(message=Message(role="user", content=tuple(blocks.parts))), uuid)
            )
        if fields := _read_extra_fields(record, message):
            payloads.append((fields, f"{uuid}-fields"))
        if answer is not None and (
            (call_ids and any(call.id in call_ids for call in answer.calls))
            or (follows_answer and (call_ids or not answer.is_answered))
        ):
            answer.answered_calls |= call_ids
            self._tree.place(uuid, conversation, payloads, answer)
        else:
            self._tree.write_answer(conversation)
            parent = self._parent_id(record, conversation, parent_place, may_be_root=not call_ids)
            parent = self._write_session_setting(record, conversation, parent)
            self._tree.place(uuid, conversation, payloads, parent)
        if result := as_object(record.get("toolUseResult")):
            self._read_last_answer(result, uuid)

    def _read_last_answer(self, result: JsonObject, uuid: str) -> None:
        """Read the last answer of a subagent from the result of its call, if the subagent's own lines end with a tool's result."""
        subagent = self._conversations.find_subagent(as_text(result.get("agentId")) or "")
        parts = (
            read_anthropic_content(result.get("content")).parts
            if result.get("status") == "completed"
            else []
        )
        if (
            subagent is None
            or subagent.answer is None
            or not (subagent.answer.calls and subagent.answer.is_answered)
            or not parts
        ):
            return
        payload = MessageEntry(
            message=Message(role="assistant", content=tuple(parts)),
            usage=usage_from_anthropic(result.get("usage")),
            model=subagent.answer.model,
        )
        entry_id = self._tree.write(subagent, payload, self._tree.flush(subagent), f"{uuid}-answer")
        subagent.last_uuid = entry_id
        self._tree.places[entry_id] = (subagent, entry_id)
        self.batch.attachments += 1

    def _read_other_line(
        self,
        record: JsonObject,
        uuid: str,
        conversation: RecordedConversation,
        parent_place: LinePlace | None,
    ) -> None:
        """Read a line without a message, or with what the model was shown beside its messages.

        Its children are its children here.
        """
        entry = CustomEntry(name=_entry_name(record), data=record)
        shown = self._read_shown(record)
        payloads: list[tuple[EntryPayload, str]] = (
            [(shown, uuid), (entry, f"{uuid}-fields")] if shown else [(entry, uuid)]
        )
        answer = conversation.answer
        self._tree.place(
            uuid,
            conversation,
            payloads,
            answer
            if answer and parent_place == (conversation, answer)
            else self._parent_id(record, conversation, parent_place, may_be_root=False),
        )

    def _read_shown(self, record: JsonObject) -> EntryPayload | None:
        """Return the message of an attachment; None for any other line, and for a command that was read when it left the queue."""
        attachment = as_object(record.get("attachment"))
        if attachment.get("type") == QUEUED and attachment.get("prompt") in self._taken:
            self._taken.remove(attachment.get("prompt"))
            return None
        shown = read_attachment(record)
        self.batch.attachments += shown is not None
        return shown

    def _read_compact_boundary(
        self,
        record: JsonObject,
        uuid: str,
        conversation: RecordedConversation,
        parent_place: LinePlace | None,
    ) -> None:
        """Read the line that begins a compaction. The summary is on a line of its own."""
        parent = self._tree.parent_at(parent_place) if parent_place else None
        tail = self._tree.flush(conversation)
        kept = _find_kept_lines(record)
        first_kept = self._tree.entry_of(kept[0]) if kept and kept[0] in self._tree.places else None
        parent = self._tree.write(
            conversation,
            CustomEntry(name=_entry_name(record), data=record),
            parent or tail,
            f"{uuid}-boundary",
        )
        metadata = as_object(record.get("compactMetadata"))
        conversation.pending = Entry(
            id=self._tree.ids.allocate(uuid),
            parent_id=parent,
            time=self._tree.time,
            payload=Checkpoint(
                summary="",
                first_kept=first_kept,
                trigger=as_text(metadata.get("trigger")) or "unknown",
                tokens_before=as_count(metadata.get("preTokens")),
                tokens_after=as_count(metadata.get("postTokens")),
            ),
        )
        place = (conversation, conversation.pending.id)
        self._tree.places[uuid] = place
        if kept:
            # a line that follows the last kept one is shown after the summary
            self._tree.places[kept[1]] = place

    def _read_summary(
        self,
        record: JsonObject,
        message: JsonObject,
        uuid: str,
        conversation: RecordedConversation,
        parent_place: LinePlace | None,
    ) -> None:
        """Read the summary of a compaction. Older versions wrote it without a boundary line."""
        self.batch.messages += 1
        text = "\n\n".join(
            part
            for part in read_anthropic_content(message.get("content")).parts
            if isinstance(part, str)
        )
        if (entry_id := self._tree.write_checkpoint(conversation, text)) is None:
            parent = self._parent_id(record, conversation, parent_place, may_be_root=True)
            parent = self._write_session_setting(record, conversation, parent)
            entry_id = self._tree.write(
                conversation, Checkpoint(summary=text, trigger="unknown"), parent, uuid
            )
        if fields := _read_extra_fields(record, message):
            entry_id = self._tree.write(conversation, fields, entry_id, f"{uuid}-fields")
        self._tree.places[uuid] = (conversation, entry_id)


def _entry_name(record: JsonObject) -> str:
    """Return the name of the custom entry for a line without a message."""
    kind = as_text(record.get("type")) or "unknown"
    inner = as_object(record.get("data")) or as_object(record.get("attachment"))
    subtype = as_text(record.get("subtype")) or as_text(inner.get("type"))
    return f"{NAME}.{kind}.{subtype}" if subtype else f"{NAME}.{kind}"


def _session_fields(record: JsonObject) -> dict[str, Json]:
    return {name: record[name] for name in SESSION_FIELDS if record.get(name) is not None}


def _read_extra_fields(record: JsonObject, message: JsonObject) -> CustomEntry | None:
    """Return the fields of a line that messages do not have, such as the raw result of a tool; None if there are none."""
    data = omit_fields(record, LINE_FIELDS)
    if extra := omit_fields(message, MESSAGE_FIELDS):
        data["message"] = extra
    return CustomEntry(name=f"{NAME}.fields", data=data) if data else None


def _read_finish(record: JsonObject, message: JsonObject) -> str | None:
    if record.get("isApiErrorMessage") is True:
        return "error"
    reason = as_text(message.get("stop_reason"))
    return FINISHES.get(reason or "", reason)


def _find_kept_lines(record: JsonObject) -> tuple[str, str] | None:
    """Return the uuids of the first and the last line that a compaction kept; None if it kept none."""
    metadata = as_object(record.get("compactMetadata"))
    segment = as_object(metadata.get("preservedSegment"))
    first, last = as_text(segment.get("headUuid")), as_text(segment.get("tailUuid"))
    if first and last:
        return first, last
    uuids = [
        uuid
        for uuid in as_list(as_object(metadata.get("preservedMessages")).get("uuids"))
        if isinstance(uuid, str)
    ]
    return (uuids[0], uuids[-1]) if uuids else None


def _subagent_name(record: JsonObject) -> str:
    return (
        as_text(as_object(record.get("data")).get("agentId"))
        or as_text(record.get("parentToolUseID"))
        or "unknown"
    )


def _find_subagent_messages(record: JsonObject) -> list[JsonObject]:
    """Return the lines of a subagent inside a progress line: its message, what older versions list, or the text alone."""
    data = as_object(record.get("data"))
    if isinstance(message := data.get("message"), dict):
        return [message]
    if data.get("type") != "agent_progress":
        return []
    if listed := as_objects(data.get("normalizedMessages")):
        return listed
    text = as_text(message) or as_text(data.get("text"))
    return (
        [{"type": "assistant", "message": {"role": "assistant", "content": text}}] if text else []
    )


def _unwrap_subagent_line(
    record: JsonObject, message: JsonObject, parent_uuid: str | None, *, begins: bool
) -> JsonObject:
    """Return the subagent's line inside a progress line.

    The first line of a subagent also gets the fields of the progress.
    """
    origin = {
        "parentToolUseID": record.get("parentToolUseID"),
        **omit_fields(as_object(record.get("data")), {"message", "type"}),
    }
    return {
        **(origin if begins else {}),
        **_session_fields(record),
        "timestamp": record.get("timestamp"),
        **message,
        "agentId": _subagent_name(record),
        "isSidechain": True,
        "parentUuid": parent_uuid,
    }


class SessionTree:
    """The entries of a file. Those that are complete go into the batch of the line.

    Claude Code writes one answer of the model on several lines, with the results of its first tool
    calls in between, each as the child of the line that made the call. Here an answer is one
    message, followed by its results. Therefore an answer and what follows it is held until the next
    answer begins. Of everything else only ids are kept in memory.
    """

    def __init__(self, lines: LineFormat) -> None:
        self._lines = lines
        self.ids = IdAllocator()
        """The ids that are taken."""
        self.places: dict[str, LinePlace] = {}
        """For each uuid of a line its conversation and its entry."""
        self.main: RecordedConversation | None = None
        """The conversation of the last line that is not a subagent's."""
        self.time = 0.0
        """The time of the line that is read."""
        self._last: Entry | None = None

    def parent_at(self, place: LinePlace) -> str | None:
        """Return the id of the entry that the child of a line follows.

        A held answer at that place is written first.
        """
        conversation, target = place
        if isinstance(target, HeldAnswer):
            if target.tail is None:
                self.write_answer(conversation)
            target = target.tail or target.entry_id
        if conversation.pending and target == conversation.pending.id:
            self.write_checkpoint(conversation)
        return target

    def entry_of(self, uuid: str) -> str:
        """Return the id of the entry that a line became, or became a part of."""
        _, target = self.places[uuid]
        return (
            target.entry_id
            if isinstance(target, HeldAnswer)
            else uuid
            if uuid in self.ids
            else target
        )

    def flush(self, conversation: RecordedConversation) -> str | None:
        """Write all that is held of a conversation. Returns the id of its last entry."""
        self.write_answer(conversation)
        self.write_checkpoint(conversation)
        return conversation.tail

    def write(
        self,
        conversation: RecordedConversation,
        payload: EntryPayload,
        parent: str | None,
        preferred_id: str,
    ) -> str:
        """Write an entry. Returns its id."""
        return self._emit(
            conversation,
            Entry(
                id=self.ids.allocate(preferred_id),
                parent_id=parent,
                time=self.time,
                payload=payload,
            ),
        )

    def place(
        self,
        uuid: str,
        conversation: RecordedConversation,
        payloads: Sequence[tuple[EntryPayload, str]],
        after: HeldAnswer | str | None,
    ) -> None:
        """Add the entries of a line, with the ids that they should have, after the answer that is held or after an entry."""
        for payload, preferred_id in payloads:
            after = self.add(conversation, payload, after, preferred_id)
        self.places[uuid] = (conversation, after or uuid)

    def add(
        self,
        conversation: RecordedConversation,
        payload: EntryPayload,
        after: HeldAnswer | str | None,
        preferred_id: str,
    ) -> HeldAnswer | str:
        """Add an entry after the answer that is held or after an entry. Returns what the next one follows."""
        if not isinstance(after, HeldAnswer):
            return self.write(conversation, payload, after, preferred_id)
        after.followers.append((payload, self.time, self.ids.allocate(preferred_id)))
        return after

    def write_answer(self, conversation: RecordedConversation) -> None:
        """Write the answer that is held, and what follows it."""
        answer, conversation.answer = conversation.answer, None
        if answer is None:
            return
        reply = MessageEntry(
            message=Message(
                role="assistant", content=tuple(answer.parts), tool_calls=tuple(answer.calls)
            ),
            usage=answer.usage,
            model=answer.model,
            finish=answer.finish,
        )
        parent = answer.parent
        for payload, time, entry_id in ((reply, answer.time, answer.entry_id), *answer.followers):
            parent = answer.tail = self._emit(
                conversation, Entry(id=entry_id, parent_id=parent, time=time, payload=payload)
            )
        answer.parts, answer.calls, answer.followers, answer.answered_calls = [], [], [], set()

    def write_checkpoint(self, conversation: RecordedConversation, summary: str = "") -> str | None:
        """Write the checkpoint that is pending, with its summary.

        Returns its id; None if there is none.
        """
        pending, conversation.pending = conversation.pending, None
        if pending is None or not isinstance(checkpoint := pending.payload, Checkpoint):
            return None
        return self._emit(
            conversation, attrs.evolve(pending, payload=attrs.evolve(checkpoint, summary=summary))
        )

    def finish(self, conversations: list[RecordedConversation]) -> None:
        """Write all that is held.

        The leaf becomes the end of the main conversation, whatever line was last.
        """
        for conversation in conversations:
            self.flush(conversation)
        main, last = self.main, self._last
        if main and main.tail is not None and last and last.id != main.tail:
            self.time = last.time
            self.write(
                main, Setting(name=LEAF_SETTING, value=main.tail), main.tail, f"{main.tail}-leaf"
            )

    def _emit(self, conversation: RecordedConversation, entry: Entry) -> str:
        self._lines.batch.entries.append(entry)
        self._last = entry
        is_visible = isinstance(entry.payload, VISIBLE)
        if is_visible or entry.parent_id == conversation.tail or conversation.tail is None:
            conversation.tail = entry.id
        if conversation.first is None and is_visible:
            conversation.first = entry.id
        return entry.id


class ConversationIndex:
    """The conversations of a file: those of sessions and those of subagents."""

    def __init__(self) -> None:
        self._sessions: dict[str, RecordedConversation] = {}
        self._subagents: dict[str, RecordedConversation] = {}
        self._unlabelled: list[tuple[RecordedConversation, str]] = []
        self.count = 0
        """Sessions that have begun. A session that continues another one is a part of that one."""

    def __iter__(self) -> Iterator[RecordedConversation]:
        return iter([*self._sessions.values(), *self._subagents.values()])

    def first(self) -> RecordedConversation:
        """Return the conversation for lines before those of any session."""
        return self._sessions.setdefault("", RecordedConversation())

    def find_subagent(self, name: str) -> RecordedConversation | None:
        """Return the conversation of a subagent; None if it has not begun."""
        return self._subagents.get(f"agent {name}")

    def find(
        self, record: JsonObject, parent: LinePlace | None, number: int
    ) -> RecordedConversation:
        """Return the conversation of a line, which may begin with it.

        Args:
            record: The line.
            parent: Where the line's parent is.
            number: The number of the line.
        """
        is_subagent = record.get("isSidechain") is True
        session = as_text(record.get("sessionId")) or ""
        if is_subagent and (subagent := as_text(record.get("agentId"))):
            conversation = self._subagents.setdefault(
                f"agent {subagent}", RecordedConversation(is_subagent=True)
            )
        elif parent and parent[0].is_subagent is is_subagent:
            conversation = parent[0]
        elif is_subagent:
            conversation = self._subagents.setdefault(
                f"side {record.get('parentUuid') or number}", RecordedConversation(is_subagent=True)
            )
        else:
            conversation = (
                self._sessions.get(session)
                or self._sessions.pop("", None)
                or RecordedConversation()
            )
        if session not in self._sessions:
            self.count += parent is None
            self._sessions[session] = RecordedConversation() if is_subagent else conversation
        return conversation

    def label(
        self, conversation: RecordedConversation, root: str
    ) -> Iterator[tuple[RecordedConversation, str, str]]:
        """Yield the conversations to label now that one begins with the entry `root`: each with its first entry and its label.

        A session that is alone in its file has no label.
        """
        self._unlabelled.append((conversation, root))
        if len(self._sessions) > 1:
            names = {
                id(session_conversation): session
                for session, session_conversation in self._sessions.items()
            }
            for unlabelled, target in self._unlabelled:
                yield unlabelled, target, f"session {names.get(id(unlabelled), target)}"
            self._unlabelled.clear()


@attrs.define(eq=False)
class RecordedConversation:
    """The conversation of a session or of a subagent.

    Lines of other conversations may be between its lines.
    """

    is_subagent: bool = False
    """Whether it is a subagent's."""
    has_parents: bool = False
    """Whether its lines name their parents."""
    tail: str | None = None
    """The id of its last entry. Entries without a message that follow an earlier line do not
    count."""
    first: str | None = None
    """The id of its first message."""
    last_uuid: str | None = None
    """The uuid of the line that was read last."""
    answer: HeldAnswer | None = None
    """The answer that is held."""
    pending: Entry | None = None
    """The checkpoint whose summary has not been read yet."""
    session_values: list[Json] | None = None
    """The values of the session fields of the last line that had any."""

    @property
    def end(self) -> HeldAnswer | str | None:
        """What a further entry follows: the answer that is held, or the last entry."""
        return self.answer or self.tail


@attrs.define(eq=False)
class HeldAnswer:
    """An answer of the model, as far as it was read, and the entries after it."""

    parent: str | None
    entry_id: str
    time: float
    message_id: str | None
    parts: list[Part]
    calls: list[ToolCall]
    followers: list[tuple[EntryPayload, float, str]]
    """The payload, the time and the id of each entry after the answer."""
    answered_calls: set[str]
    usage: Usage | None = None
    model: str | None = None
    finish: str | None = None
    bytes_read: int = 0
    tail: str | None = None
    """The id of the last entry, after the answer was written."""

    @property
    def is_answered(self) -> bool:
        """Whether every tool call has a result."""
        return all(call.id in self.answered_calls for call in self.calls)


LinePlace: TypeAlias = tuple[RecordedConversation, "str | HeldAnswer"]
"""Where a line went: its conversation, and the entry, or the answer that it is a part of."""


QUEUED = "queued_command"

TEXTS: Mapping[str, tuple[str, ...]] = {
    "agent_listing_delta": ("addedLines",),
    "critical_system_reminder": ("content",),
    "deferred_tools_delta": ("addedLines",),
    "diagnostics": ("files.uri", "files.diagnostics.message"),
    "directory": ("path", "content"),
    "edited_text_file": ("filename", "snippet"),
    "file": ("filename", "content.file.content"),
    "hook_additional_context": ("content",),
    "hook_blocking_error": ("blockingError.blockingError",),
    "hook_stopped_continuation": ("message",),
    "hook_success": ("content",),
    "invoked_skills": ("skills.path", "skills.content"),
    "mcp_instructions_delta": ("addedBlocks",),
    "mcp_resource": ("uri", "content.contents.text"),
    "nested_memory": ("path", "content.content"),
    "plan_file_reference": ("planFilePath", "planContent"),
    "selected_lines_in_ide": ("filename", "content"),
    "skill_listing": ("content",),
}
"""Kind of an attachment → where its texts are. The last place has what the model is shown; those
before it say where that is from."""

SHOWN_HOOKS = {"SessionStart", "UserPromptSubmit"}
"""Events whose hooks' output the model is shown when they succeed."""


def read_attachment(record: JsonObject) -> MessageEntry | CustomMessage | None:
    """Return the message that the model was shown for an attachment; None if the line has no text of it."""
    attachment = as_object(record.get("attachment"))
    kind = as_text(attachment.get("type")) or ""
    if kind == QUEUED:
        is_prompt = attachment.get("commandMode") in (None, "prompt") and as_object(
            attachment.get("origin")
        ).get("kind") in (None, "human")
        return read_queued_command(attachment.get("prompt"), is_prompt=is_prompt)
    # newer versions write the messages as they sent them
    rendered = [
        part
        for sent in as_objects(record.get("rendered"))
        for part in read_anthropic_content(sent.get("content")).parts
    ]
    content = tuple(rendered or _read_texts(attachment, kind))
    return (
        CustomMessage(name=f"{NAME}.{kind}", message=Message(role="user", content=content))
        if content
        else None
    )


def read_queued_command(content: Json, *, is_prompt: bool) -> MessageEntry | CustomMessage | None:
    """Return the message of a command that was queued while the model worked, and that it was shown before its next reply.

    Args:
        content: The text or the blocks of the command.
        is_prompt: A person wrote it. Otherwise the program did, for example to tell that a task in
            the background has ended.
    """
    message = Message(role="user", content=tuple(read_anthropic_content(content).parts))
    return (
        None
        if not message.content
        else MessageEntry(message=message)
        if is_prompt
        else CustomMessage(name=f"{NAME}.{QUEUED}", message=message)
    )


def _read_texts(attachment: JsonObject, kind: str) -> list[Part]:
    if kind not in TEXTS or (
        kind == "hook_success" and attachment.get("hookEvent") not in SHOWN_HOOKS
    ):
        return []
    *sources, texts = (
        [text for text in _find_texts(attachment, place.split(".")) if text.strip()]
        for place in TEXTS[kind]
    )
    image = as_object(as_object(attachment.get("content")).get("file"))
    parts: list[Part] = (
        ["\n".join([*(text for source in sources for text in source), *texts])] if texts else []
    )
    if kind == "file" and (data := as_text(image.get("base64"))):
        media_type = as_text(image.get("type")) or "image/png"
        parts.append(ImagePart(url=f"data:{media_type};base64,{data}", media_type=media_type))
    return parts


def _find_texts(value: Json, keys: list[str]) -> Iterator[str]:
    """Yield the texts at a path. A list on it stands for each of its items."""
    found: list[Json] = [value]
    for key in keys:
        found = [as_object(item).get(key) for each in found for item in as_blocks(each)]
    yield from (item for each in found for item in as_blocks(each) if isinstance(item, str))
