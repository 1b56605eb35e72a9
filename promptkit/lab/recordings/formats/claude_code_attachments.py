"""Attachments of Claude Code: what the program showed the model beside the messages, such as commands that were queued and hooks' output.

Newer versions write an attachment as a line of its own. Most kinds are shown to the model as a text
around what the line contains. A kind that contains no text (a reminder of the program, a change of
the mode) is none of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from promptkit.lab.recordings.reading.json_values import JsonObject, as_object, as_objects, as_text
from promptkit.lab.recordings.reading.messages import read_anthropic_content
from promptkit.messages import ImagePart, Json, Message, Part
from promptkit.transcript import CustomMessage, MessageEntry

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


def read_attachment(record: JsonObject, name: str) -> MessageEntry | CustomMessage | None:
    """Return the message that the model was shown for an attachment; None if the line has no text of it.

    Args:
        record: The line.
        name: The name of the format, for the name of the message.
    """
    attachment = as_object(record.get("attachment"))
    kind = as_text(attachment.get("type")) or ""
    if kind == QUEUED:
        is_prompt = attachment.get("commandMode") in (None, "prompt") and as_object(
            attachment.get("origin")
        ).get("kind") in (None, "human")
        return read_queued_command(attachment.get("prompt"), name, is_prompt=is_prompt)
    content = tuple(_read_rendered(record) or _read_texts(attachment, kind))
    return (
        CustomMessage(name=f"{name}.{kind}", message=Message(role="user", content=content))
        if content
        else None
    )


def read_queued_command(
    content: Json, name: str, *, is_prompt: bool = True
) -> MessageEntry | CustomMessage | None:
    """Return the message of a command that was queued while the model worked, and that it was shown before its next reply.

    Args:
        content: The text or the blocks of the command.
        name: The name of the format, for the name of the message.
        is_prompt: A person wrote it. Otherwise the program did, for example to tell that a task in
            the background has ended.
    """
    message = Message(role="user", content=tuple(read_anthropic_content(content).parts))
    if not message.content:
        return None
    return (
        MessageEntry(message=message)
        if is_prompt
        else CustomMessage(name=f"{name}.{QUEUED}", message=message)
    )


def _read_rendered(record: JsonObject) -> list[Part]:
    """Read the messages that newer versions write as they sent them."""
    return [
        part
        for sent in as_objects(record.get("rendered"))
        for part in read_anthropic_content(sent.get("content")).parts
    ]


def _read_texts(attachment: JsonObject, kind: str) -> list[Part]:
    if kind == "hook_success" and attachment.get("hookEvent") not in SHOWN_HOOKS:
        return []
    places = TEXTS.get(kind)
    if places is None:
        return []
    *sources, texts = (
        [text for text in _find_texts(attachment, place.split(".")) if text.strip()]
        for place in places
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
        found = [as_object(item).get(key) for item in _spread(found)]
    yield from (item for item in _spread(found) if isinstance(item, str))


def _spread(values: list[Json]) -> Iterator[Json]:
    for value in values:
        yield from value if isinstance(value, list) else [value]
