"""Attachments of a user message: files become text, images and documents, each within the context window."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import TypeAlias, cast

import attrs

from promptkit.compaction.planning.user_messages import ATTACHMENT_END, ATTACHMENT_START
from promptkit.errors import InvalidArgumentError
from promptkit.fitting.shorten import HEAD_SHARE, find_level
from promptkit.messages import DocumentPart, ImagePart, Message, OpaquePart, Part
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import ContextBudget, Tokenizer
from promptkit.tokens.truncation import truncate_text


@attrs.frozen(kw_only=True)
class TextAttachment:
    """A text with a name, which is attached as a file with this content is."""

    name: str
    """The name that the model sees, such as a path or a URI."""
    text: str


Attachment: TypeAlias = Path | TextAttachment | ImagePart | DocumentPart | OpaquePart
"""An attachment of a user message: a file, a text with a name, or a part such as an image."""

MAX_FILE_BYTES = 50_000_000
"""The largest file that is read, in bytes. Providers accept no larger request."""

MAX_CHARACTERS_PER_TOKEN = 16
"""A text with more characters for each token of its limit is cut without being counted."""

MARKER = "\n[… the middle of this file is left out …]\n"
"""Replaces the middle of a text that is shortened."""

_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def check_attachments(attachments: object) -> Sequence[Attachment]:
    """Return attachments that a session takes. Raises TypeError."""
    if not isinstance(attachments, Iterable) or isinstance(attachments, str | bytes):
        raise TypeError(
            f"attachments must be a list such as [Path('notes.txt')], not {attachments!r:.80}."
        )
    checked: list[Attachment] = []
    for each in cast("Iterable[object]", attachments):  # of any items
        if not isinstance(each, Path | TextAttachment | ImagePart | DocumentPart | OpaquePart):
            raise TypeError(
                f"an attachment is a Path('notes.txt'), a TextAttachment(name=…, text=…), or a part such as ImagePart(url=…), not {each!r:.80}."
            )
        checked.append(each)
    return checked


def read_attachments(attachments: Sequence[Attachment]) -> list[tuple[str, Part]]:
    """Return the name of each attachment and its content: the text of a file, or a part.

    The content of a file tells what it is: an image, a PDF, or text.

    Raises:
        OSError: A file is not there, or cannot be read. The error names it.
        InvalidArgumentError: A file is too large, or none of these.
    """
    return [_read_attachment(number, each) for number, each in enumerate(attachments, 1)]


def fit_attachments(
    attachments: Sequence[tuple[str, Part]], *, budget: ContextBudget, tokenizer: Tokenizer
) -> list[Part]:
    """Return the parts of a user message with attachments.

    Long texts are shortened, so that all of them take half of what messages may take.

    Args:
        attachments: The name and the content of each attachment.
        budget: The budget of requests.
        tokenizer: Counts tokens.

    Raises:
        InvalidArgumentError: An image or a document alone takes more tokens than messages may take.
    """
    texts = [content if isinstance(content, str) else "" for _, content in attachments]
    limit = budget.result_tokens
    if limit is not None:
        # A text that is certainly too long is not counted: its size beyond the limit makes no
        # difference.
        sizes = [
            limit + 1 if len(text) > limit * MAX_CHARACTERS_PER_TOKEN else tokenizer.count(text)
            for text in texts
        ]
        level = find_level(sizes, limit)
        texts = [
            text
            if size <= level
            else truncate_text(text, level, head=HEAD_SHARE, marker=MARKER, tokenizer=tokenizer)
            or MARKER.strip()
            for text, size in zip(texts, sizes, strict=True)
        ]
    available = budget.message_budget
    for name, content in attachments:
        if available is not None and not isinstance(content, str):
            tokens = Sizer(tokenizer).count_message(Message(role="user", content=(content,)))
            if tokens > available:
                raise InvalidArgumentError(
                    f"{name} takes {tokens:,} tokens, and all messages together may take {available:,}: attach a smaller one."
                )
    return [
        _label(name, text) if isinstance(content, str) else content
        for (name, content), text in zip(attachments, texts, strict=True)
    ]


def _read_attachment(number: int, attachment: Attachment) -> tuple[str, Part]:
    if isinstance(attachment, TextAttachment):
        return attachment.name, attachment.text
    if not isinstance(attachment, Path):
        return f"the {type(attachment).__name__} number {number}", attachment
    name, size = str(attachment), attachment.stat().st_size
    if size > MAX_FILE_BYTES:
        raise InvalidArgumentError(
            f"the attachment {name!r} has {size:,} bytes, and at most {MAX_FILE_BYTES:,} are read: attach a part of it."
        )
    return name, parse_attachment(name, attachment.read_bytes())


def parse_attachment(name: str, data: bytes) -> str | ImagePart | DocumentPart:
    """Return what the bytes of a file are: an image, a PDF, or text.

    Args:
        name: The path or the URI of the file.
        data: Its content.

    Raises:
        InvalidArgumentError: The file is none of these.
    """
    media_type = next((kind for start, kind in _IMAGES.items() if data.startswith(start)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        media_type = "image/webp"
    if media_type is not None:
        return ImagePart(
            url=f"data:{media_type};base64,{base64.b64encode(data).decode()}", media_type=media_type
        )
    if data.startswith(b"%PDF-"):
        return DocumentPart(
            data=base64.b64encode(data).decode(),
            media_type="application/pdf",
            name=PurePath(name).name,
        )
    return _decode(name, data)


def _decode(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidArgumentError(
            f"the attachment {name!r} is neither text in UTF-8 or UTF-16, nor an image (PNG, JPEG, GIF, WebP), nor a PDF: "
            "convert it, or attach a part such as DocumentPart(…)."
        )
    return text.replace("\r\n", "\n")


def _label(name: str, text: str) -> str:
    """Put a text into tags that name its file. The closing tag is escaped in the text itself."""
    escaped = text.replace("</attachment", "<\\/attachment").rstrip("\n")
    return f'\n\n{ATTACHMENT_START}{html.escape(name)}">\n{escaped}\n{ATTACHMENT_END}'
