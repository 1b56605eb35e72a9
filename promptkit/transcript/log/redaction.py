"""Removal of secrets from what leaves a conversation: summaries, their facts, exports.

It is off unless a redactor is passed.

Redaction never changes the transcript or the messages that the model is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import attrs

from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.transcript.log.secret_patterns import SECRET_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from promptkit.messages import Json, Message, Part

Redactor: TypeAlias = Callable[[str], str]
"""Remove secrets from a text. Must be deterministic and idempotent.

An exception of the redactor ends the compaction or the export that called it, so no text leaves
without having been checked.
"""


def redact_secrets(text: str) -> str:
    """Remove secrets of common shapes from a text.

    Remove secrets whose value you know with a redactor of your own.

    >>> redact_secrets("curl -H 'Authorization: Bearer abcdefghijklmnop1234'")
    "curl -H 'Authorization: Bearer [redacted: bearer token]'"
    """
    for secret in SECRET_PATTERNS:
        text = secret.redact(text)
    return text


def load_scanner(*, confidence: Literal["low", "medium", "high"] = "medium") -> Redactor:
    """Return a redactor that applies `redact_secrets`, and then the rules of the scanner Kingfisher, which know some hundred services.

    Needs the extra `scanner`. Load it once: its rules are compiled for some seconds, and then kept
    in the user's cache directory. Nothing is sent anywhere: the scanner could ask services whether
    a secret is valid, and is not told to.

    >>> session = AgentSession(model="gpt-5", redactor=load_scanner())

    Args:
        confidence: The least confidence of the rules that are used. With `low` more is taken for a
            secret.

    Raises:
        ImportError: The scanner is not installed.
    """
    try:
        from kingfisher_sdk import Rules, Scanner
    except ImportError as error:
        message = "the rules of a scanner need Kingfisher: pip install 'kingfisher-secret-scanner>=1.5', or the extra promptkit[scanner]."
        raise ImportError(message) from error
    scanner = Scanner(Rules(confidence=confidence), base64=False)

    def redact(text: str) -> str:
        text = redact_secrets(text)
        while secrets := {
            found.secret
            for found in scanner.scan(text.encode("utf-8", "replace"))
            if found.visible and found.secret
        }:
            redacted = text
            for secret in sorted(secrets, key=len, reverse=True):
                redacted = redacted.replace(secret, "[redacted: secret]")
            if redacted == text:
                break
            text = redact_secrets(redacted)
        return text

    return redact


def redact_message(message: Message, redactor: Redactor) -> Message:
    """Remove secrets from a message. Returns the same message if it contains none.

    Texts, tool call arguments (which stay valid JSON), URLs of images and names of documents are
    redacted; images and documents themselves are not read. An opaque part that contains a secret is
    dropped as a whole, because it may be signed.
    """
    content = tuple(_redact_parts(message.content, redactor))
    calls = tuple(
        attrs.evolve(call, arguments=_redact_arguments(call.arguments, redactor))
        for call in message.tool_calls
    )
    if content == message.content and calls == message.tool_calls:
        return message
    return attrs.evolve(message, content=content, tool_calls=calls)


def redact_json(value: Json, redactor: Redactor) -> Json:
    """Remove secrets from the strings and the keys of a JSON value.

    The value itself is not changed.
    """
    root: list[Json] = [value]
    pending: list[tuple[Json, Callable[[Json], object]]] = [(value, partial(root.__setitem__, 0))]
    while pending:
        item, store = pending.pop()
        if isinstance(item, str):
            store(redactor(item))
        elif isinstance(item, Mapping):
            mapping = {redactor(name): child for name, child in item.items()}
            store(mapping)
            pending.extend(
                (child, partial(mapping.__setitem__, name)) for name, child in mapping.items()
            )
        elif isinstance(item, list):
            items = list(item)
            store(items)
            pending.extend(
                (child, partial(items.__setitem__, index)) for index, child in enumerate(items)
            )
    return root[0]


def _redact_parts(content: Iterable[Part], redactor: Redactor) -> Iterator[Part]:
    for is_text, group in groupby(content, lambda part: isinstance(part, str)):
        if is_text:
            yield from _redact_texts([part for part in group if isinstance(part, str)], redactor)
            continue
        for part in group:
            match part:
                case ImagePart(url=url) if not url.startswith("data:"):
                    yield attrs.evolve(part, url=redactor(url))
                case DocumentPart(name=str(name)):
                    yield attrs.evolve(part, name=redactor(name))
                case OpaquePart(value=value) if redact_json(value, redactor) != value:
                    continue
                case _:
                    yield part


def _redact_texts(texts: list[str], redactor: Redactor) -> list[str]:
    """Redact adjacent texts, each alone and all of them joined: a secret may begin in one text and end in the next."""
    redacted = [redactor(text) for text in texts]
    joined = "".join(redacted)
    redacted_joined = redactor(joined) if len(redacted) > 1 else joined
    return redacted if redacted_joined == joined else [redacted_joined]


def _redact_arguments(text: str, redactor: Redactor) -> str:
    """Redact the values of tool call arguments, then the JSON text, where the key next to a value may give it away."""
    try:
        value = cast("Json", json.loads(text))  # json.loads returns JSON
        redacted_value = redact_json(value, redactor)
        redacted = (
            text if redacted_value == value else json.dumps(redacted_value, ensure_ascii=False)
        )
    except (ValueError, RecursionError):
        return redactor(text)
    redacted_text = redactor(redacted)
    if redacted_text != redacted:
        try:
            json.loads(redacted_text)
        except (ValueError, RecursionError):
            return json.dumps({"redacted": redacted_text}, ensure_ascii=False)
    return redacted_text
