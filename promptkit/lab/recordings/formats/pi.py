"""pi's session files, versions 1 to 3: one JSON object per line.

Since version 2 each line names its parent.

Version 1 has no ids: each line follows the one before it, and a compaction names the first kept
line by its index in the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from promptkit.lab.recordings.reading.files import Batch, FileHead, LineFormat
from promptkit.lab.recordings.reading.values import (
    ANTHROPIC,
    JsonObject,
    as_blocks,
    as_count,
    as_object,
    as_objects,
    as_text,
    dump_arguments,
    keep_fields,
    mark_error,
    omit_fields,
    parse_time,
)
from promptkit.messages import ImagePart, Json, Message, OpaquePart, Part, ToolCall, Usage
from promptkit.transcript import (
    BranchSummary,
    Checkpoint,
    CustomEntry,
    CustomMessage,
    EntryPayload,
    Label,
    MessageEntry,
    ReadProblem,
    Setting,
)
from promptkit.transcript.log.entries import Author

NAME = "pi"
LINE_FIELDS = {"type", "id", "parentId", "timestamp"}
FINISHES = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool_calls",
    "error": "error",
    "aborted": "aborted",
}
MAX_KEPT_MESSAGES = 500
"""Messages that a compaction may keep by their number."""


class PiFormat(LineFormat):
    """Read pi's session files."""

    name = NAME
    batch_bytes = 0  # each line is a batch, because the next one may begin another session

    def __init__(self) -> None:
        super().__init__()
        self._by_index: list[str | None] = []  # for version 1: the first entry of each line
        # the first and the last entry of each line
        self._by_line_id: dict[str, tuple[str, str]] = {}
        # the messages since the last compaction, which a compaction can keep by their number
        self._latest_messages: deque[str] = deque(maxlen=MAX_KEPT_MESSAGES)
        self._has_begun = False
        self._session = 0

    def matches(self, head: FileHead) -> bool:
        """Return whether the file has a session header, or messages on lines that name no session."""
        return any(
            (
                record.get("type") == "session"
                and isinstance(record.get("id"), str)
                and "message" not in record
            )
            or (
                record.get("type") == "message"
                and isinstance(record.get("message"), Mapping)
                and "sessionId" not in record
            )
            for record in head.records
        )

    def read_record(self, record: JsonObject, size: int) -> None:
        """Read a line."""
        begins = not self._has_begun or record.get("type") == "session"
        own = as_text(record.get("id"))
        if record.get("type") == "session":
            if self._has_begun:
                self.chain.tail = None
                self._by_line_id.clear()
            self._by_index.clear()
            self._latest_messages.clear()
            self._session += 1
        elif own is not None:
            self.chain.tail = self._find_parent(record)
        self._has_begun = True
        entries = self.chain.add(
            *self._read_payloads(record), time=parse_time(record.get("timestamp")), entry_id=own
        )
        is_message = any(
            isinstance(entry.payload, MessageEntry | Checkpoint | CustomMessage | BranchSummary)
            for entry in entries
        ) or (record.get("type") == "message" and isinstance(record.get("message"), Mapping))
        if own is not None:
            self._by_line_id[own] = (entries[0].id, entries[-1].id)
        self._by_index.append(entries[0].id)
        if any(isinstance(entry.payload, Checkpoint) for entry in entries):
            self._latest_messages.clear()
        elif is_message:
            self._latest_messages.append(entries[0].id)
        if (problem := _find_problem(record)) is not None:
            self.batch.skipped += (ReadProblem(line=self.number, detail=problem),)
        self.batch = Batch(
            skipped=self.batch.skipped,
            relocated=self.batch.relocated,
            entries=entries,
            messages=int(is_message),
            conversations=int(begins),
            call_id_scope=str(self._session),
        )

    def _find_parent(self, record: JsonObject) -> str | None:
        """Return the id of the entry that a line follows."""
        parent_id = record.get("parentId")
        if parent_id is None and "parentId" in record and self._by_line_id:
            return None
        if isinstance(parent_id, str) and parent_id in self._by_line_id:
            return self._by_line_id[parent_id][1]
        if parent_id is not None:
            problem = ReadProblem(
                line=self.number,
                detail=f"its parent {parent_id!r} is not before it; it was placed {f'after {self.chain.tail!r}' if self.chain.tail else 'at the beginning'}.",
            )
            self.batch.relocated += (problem,)
        return self.chain.tail

    def _read_payloads(self, record: JsonObject) -> Iterator[EntryPayload]:
        """Yield the payloads of a line. What is not understood becomes a custom entry."""
        extra, message = omit_fields(record, LINE_FIELDS), record.get("message")
        summary, label = as_text(record.get("summary")), as_text(record.get("label"))
        # the line that a label, or the summary of a branch, is about
        target = self._by_line_id.get(
            as_text(record.get("targetId")) or as_text(record.get("fromId")) or ""
        )
        match record.get("type"):
            case "session":
                yield Setting(name=f"{NAME}.session", value=dict(record))
            case "model_change" | "thinking_level_change" | "session_info" as kind:
                yield Setting(name=f"{NAME}.{kind}", value=extra)
            case "message" if isinstance(message, Mapping):
                yield from _read_message(message)
            case "compaction" if summary is not None and _find_problem(record) is None:
                yield self._read_checkpoint(record, summary)
                yield from keep_fields(
                    NAME, omit_fields(extra, {"summary", "tokensBefore", "firstKeptEntryId"})
                )
            case "custom_message":
                yield from _read_custom_message(record, omit_fields(extra, {"content"}))
            case "branch_summary" if target and summary is not None:
                yield BranchSummary(
                    summary=summary,
                    leaf=target[1],
                    author=_find_author(record),
                    facts=as_object(record.get("details")),
                )
            case "label" if target and label is not None:
                yield Label(target=target[0], label=label)
            case kind:
                yield CustomEntry(name=f"{NAME}.{as_text(kind) or 'unknown'}", data=record)

    def _read_checkpoint(self, record: JsonObject, summary: str) -> Checkpoint:
        index, last = (
            as_count(record.get("firstKeptEntryIndex")),
            as_count(record.get("keepLastMessages")),
        )
        first = None
        if (first_kept_id := as_text(record.get("firstKeptEntryId"))) is not None:
            first = (
                self._by_line_id[first_kept_id][0] if first_kept_id in self._by_line_id else None
            )
        elif index is not None:
            first = self._by_index[index] if 0 < index < len(self._by_index) else None
        elif last and self._latest_messages:
            first = self._latest_messages[-min(last, len(self._latest_messages))]
        author = _find_author(record)
        return Checkpoint(
            summary=summary,
            first_kept=first,
            trigger="extension" if author == "hook" else "unknown",
            author=author,
            tokens_before=as_count(record.get("tokensBefore")),
            facts=as_object(record.get("details")),
        )


def _find_author(record: JsonObject) -> Author | None:
    """Return `hook` for a summary that an extension wrote, and None for any other."""
    return "hook" if record.get("fromHook") is True or record.get("fromExtension") is True else None


def _find_problem(record: JsonObject) -> str | None:
    """Return why a compaction cannot be read, or None."""
    last = as_count(record.get("keepLastMessages")) or 0
    return (
        f"keepLastMessages is {last:,}, and a compaction can keep {MAX_KEPT_MESSAGES} messages at most by their number: name the first one, as firstKeptEntryId."
        if record.get("type") == "compaction"
        and last > MAX_KEPT_MESSAGES
        and not {"firstKeptEntryId", "firstKeptEntryIndex"} & record.keys()
        else None
    )


def _read_message(message: JsonObject) -> list[EntryPayload]:
    """Read a message of the conversation."""
    extra = omit_fields(message, {"role", "content", "timestamp"})
    content = message.get("content")
    match message.get("role"):
        case "user":
            return [
                MessageEntry(message=Message(role="user", content=tuple(_read_parts(content)))),
                *keep_fields(NAME, extra),
            ]
        case "assistant":
            return _read_reply(message, extra)
        case "toolResult":
            return [
                MessageEntry(
                    message=mark_error(
                        Message(
                            role="tool",
                            content=tuple(_read_parts(content)),
                            tool_call_id=as_text(message.get("toolCallId")) or "",
                            name=as_text(message.get("toolName")),
                        ),
                        failed=message.get("isError") is True,
                    )
                ),
                *keep_fields(NAME, omit_fields(extra, {"toolCallId", "toolName"})),
            ]
        case "custom" | "hookMessage":
            return _read_custom_message(message, extra)
        case "bashExecution" if message.get("excludeFromContext") is not True:
            return [
                MessageEntry(
                    message=Message(role="user", content=(_format_shell_command(message),))
                ),
                *keep_fields(NAME, extra),
            ]
        case _:
            return [CustomEntry(name=f"{NAME}.message", data=message)]


def _read_custom_message(message: JsonObject, extra: JsonObject) -> list[EntryPayload]:
    return [
        CustomMessage(
            name=as_text(message.get("customType")) or NAME,
            message=Message(role="user", content=tuple(_read_parts(message.get("content")))),
        ),
        *keep_fields(NAME, omit_fields(extra, {"customType"})),
    ]


def _read_reply(message: JsonObject, extra: dict[str, Json]) -> list[EntryPayload]:
    calls = [
        block for block in as_objects(message.get("content")) if block.get("type") == "toolCall"
    ]
    extra_by_call = {
        as_text(call.get("id")) or "": fields
        for call in calls
        if (fields := omit_fields(call, {"type", "id", "name", "arguments"}))
    }
    return [
        MessageEntry(
            message=Message(
                role="assistant",
                content=tuple(
                    _read_parts(message.get("content"), as_text(message.get("api")) or "unknown")
                ),
                tool_calls=tuple(
                    ToolCall(
                        id=as_text(call.get("id")) or "",
                        name=as_text(call.get("name")) or "",
                        arguments=dump_arguments(call.get("arguments")),
                    )
                    for call in calls
                ),
            ),
            usage=_read_usage(as_object(message.get("usage"))),
            model=as_text(message.get("model")),
            finish=FINISHES.get(
                as_text(message.get("stopReason")) or "", as_text(message.get("stopReason"))
            ),
        ),
        *keep_fields(
            NAME,
            {
                **omit_fields(extra, {"model", "stopReason"}),
                **({"calls": extra_by_call} if extra_by_call else {}),
            },
        ),
    ]


def _read_parts(content: Json, api: str = "") -> Iterator[Part]:
    for block in as_blocks(content):
        match block:
            case None | "" | {"type": "toolCall"} | {"type": "text", "text": ""}:
                continue
            case str(text) | {"type": "text", "text": str(text)}:
                yield text
            case {"type": "image", "data": str(data), "mimeType": str(media_type)}:
                yield ImagePart(url=f"data:{media_type};base64,{data}", media_type=media_type)
            case {"type": "thinking", "thinking": str(thinking)} if api.startswith("anthropic"):
                signature = as_object(block).get("thinkingSignature")
                yield OpaquePart(
                    value={
                        "type": "thinking",
                        "thinking": thinking,
                        **({"signature": signature} if signature else {}),
                    },
                    provider=ANTHROPIC,
                )
            case _:
                yield OpaquePart(value=block, provider=f"{NAME}.{api}")


def _read_usage(data: JsonObject) -> Usage | None:
    if (uncached := as_count(data.get("input"))) is None:
        return None
    cached, written = as_count(data.get("cacheRead")) or 0, as_count(data.get("cacheWrite")) or 0
    return Usage(
        input_tokens=uncached + cached + written,
        output_tokens=as_count(data.get("output")) or 0,
        cached_tokens=cached,
        written_tokens=written,
    )


def _format_shell_command(message: JsonObject) -> str:
    """Format a command that the user ran as the model was shown it."""
    output, code = as_text(message.get("output")), as_count(message.get("exitCode"))
    path = as_text(message.get("fullOutputPath")) if message.get("truncated") is True else None
    return "\n".join(
        [
            f"Ran `{as_text(message.get('command')) or ''}`",
            f"```\n{output}\n```" if output else "(no output)",
            *(
                ["\n(command cancelled)"]
                if message.get("cancelled") is True
                else [f"\nCommand exited with code {code}"]
                if code
                else []
            ),
            *([f"\n[Output truncated. Full output: {path}]"] if path else []),
        ]
    )
