"""Write a whole request as Markdown, whichever API it is for: nothing of its JSON is left out.

Values are shown in the order in which they are sent. Each item of a list of objects, such as a
message, a part or a tool, has a heading of its own, and each text of several lines a fence, so that
a difference names the item that changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

import attrs

from promptkit.messages import Json, as_mapping, as_sequence
from promptkit.providers.model import PURPOSE_HEADER
from promptkit.testing.server.journal import Exchange
from promptkit.testing.snapshots.documents import shorten_media
from promptkit.testing.snapshots.markdown import fence_json, fence_text, quote_inline
from promptkit.testing.snapshots.stabilize import Stabilizer
from promptkit.transcript import Redactor, redact_json, redact_secrets

SHOWN_HEADERS = ("anthropic-", "openai-beta", PURPOSE_HEADER.lower())
"""How the names of headers begin that change what a request means. No other header is shown: keys
are in some, and versions of SDKs in others."""

MAX_LEVEL = 6
"""The levels of headings that Markdown has."""


@attrs.frozen(kw_only=True)
class HttpRequest:
    """A request to be written down."""

    body: Json
    """The body's JSON; a text for any other body."""
    title: str = "Request"
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


class _Url(Protocol):
    path: str


@runtime_checkable
class _ClientRequest(Protocol):
    """A request of `httpx` or `httpx2`, which have the same form."""

    method: str
    url: _Url
    headers: Mapping[str, str]

    def read(self) -> bytes: ...


def read_request(value: object) -> HttpRequest:
    """Read a request of the test server or of an HTTP client, or the arguments of an SDK's call.

    What an SDK leaves out of its request (`NOT_GIVEN`, `omit`) is left out. Raises TypeError for
    anything else, and for arguments that are not JSON.
    """
    arguments = as_mapping(value)
    if isinstance(value, Exchange):
        title, headers, content = f"{value.method} {value.path}", value.headers, value.raw
    elif isinstance(value, _ClientRequest):
        title, headers = f"{value.method} {value.url.path}", value.headers
        content = _read_content(value)
    elif isinstance(value, dict):
        given = {
            name: each
            for name, each in arguments.items()
            if type(each).__name__ not in {"NotGiven", "Omit"}
        }
        try:
            text = json.dumps(given, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"the arguments of a wire snapshot must be JSON, such as the result of a model_dump(): {error}."
            ) from error
        return HttpRequest(body=json.loads(text, object_pairs_hook=shorten_media))
    else:
        raise TypeError(
            f"a wire snapshot compares with a request: one of server.requests, one of an HTTP client, or an SDK's arguments, not a {type(value).__name__}."
        )
    if boundary := headers.get("content-type", "").partition("boundary=")[2]:
        # of a form, random each time
        content = content.replace(boundary.encode(), b"boundary")
    shown = {name: text for name, text in headers.items() if name.startswith(SHOWN_HEADERS)}
    try:
        body = json.loads(content, object_pairs_hook=shorten_media)
    except (ValueError, RecursionError):
        body = content.decode(errors="replace")
    return HttpRequest(title=title, headers=shown, body=body)


def _read_content(request: _ClientRequest) -> bytes:
    try:
        return request.read()
    except (AssertionError, RuntimeError) as error:
        # of an asynchronous stream, or one that was sent and is gone
        raise TypeError(
            f"the body of {request.method} {request.url.path} is a stream that cannot be read here: give the request after read() or aread()."
        ) from error


def format_request(
    request: HttpRequest, stabilizer: Stabilizer, *, redactor: Redactor = redact_secrets
) -> str:
    """Format a request as Markdown, with a line break at the end.

    Args:
        request: The request.
        stabilizer: Replaces what varies from run to run.
        redactor: Removes secrets.
    """
    body = stabilizer.stabilize_json(redact_json(request.body, redactor))
    headers = "\n".join(f"{name}: {redactor(text)}" for name, text in request.headers.items())
    return "{}\n".format(
        "\n\n".join(
            [
                f"# {request.title}",
                *([fence_text(headers)] if headers else []),
                *_format_value(body, "body", 1),
            ]
        )
    )


def _format_value(value: object, name: str, level: int) -> Iterator[str]:
    """Yield the blocks below the heading of a value: first what is short, as JSON, then each other value under a heading."""
    fields = as_mapping(value)
    if isinstance(value, str):
        yield fence_text(value)
    elif level >= MAX_LEVEL or not (fields or _has_items(value)):
        yield fence_json(value)
    else:
        if not fields:
            fields = {name: value}
        short = {key: each for key, each in fields.items() if not _is_long(each)}
        if short:
            yield fence_json(short)
        for key, each in fields.items():
            if key not in short:
                yield from _format_long(each, key, level + 1)


def _format_long(value: object, key: str, level: int) -> Iterator[str]:
    mark = "#" * level
    if not _has_items(value):
        yield f"{mark} {quote_inline(key)}"
        yield from _format_value(value, key, level)
        return
    for at, item in enumerate(as_sequence(value)):
        yield " ".join((mark, f"{quote_inline(key)}[{at}]", *_list_names(item)))
        yield from _format_value(item, f"{key}[{at}]", level)


def _list_names(item: object) -> Iterator[str]:
    """Yield the words by which a reader recognizes an item: its role, its type, its name."""
    fields = as_mapping(item)
    for each in (fields, as_mapping(fields.get("function"))):
        yield from (
            quote_inline(name)
            for key in ("role", "type", "name")
            if isinstance(name := each.get(key), str)
        )


def _has_items(value: object) -> bool:
    """Return whether a value is a list of which an item has a heading of its own."""
    return any(as_mapping(item) or _is_long(item) for item in as_sequence(value))


def _is_long(value: object) -> bool:
    return _has_items(value) or any(
        isinstance(each, str) and "\n" in each for each in (value, *as_mapping(value).values())
    )
