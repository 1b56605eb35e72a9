"""The answers of a scripted server: replies of a model, HTTP errors, and faults of the connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs

from promptkit import Message, ToolCall, Usage
from promptkit.messages import Json
from promptkit.providers import Reply
from promptkit.testing.scripted_model import read_message
from promptkit.testing.server.journal import Exchange


@attrs.frozen(kw_only=True)
class ScriptedReply:
    """A reply of the model. What is omitted is derived from the message and the request."""

    message: Message
    finish: str | None = None
    """The finish reason. Default: `tool_calls` if there are calls, `length` if the request's limit
    cut the text, otherwise `stop`."""
    usage: Usage | None = None
    """Default: counted by promptkit."""


@attrs.frozen(kw_only=True)
class HttpAnswer:
    """Any HTTP answer. A text is sent as it is, another `body` as JSON; None is an empty body."""

    status: int
    body: Json = None
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen(kw_only=True)
class Delay:
    """Delay an answer, or the events of a streamed one. Without an `answer` the regular one is delayed."""

    seconds: float = 0
    """Seconds before the answer begins."""
    between: float = 0
    """Seconds before each event of the answer, if the client asked for a stream."""
    answer: Step | None = None


@attrs.frozen(kw_only=True)
class Hang:
    """Send nothing for as long as the client waits."""


@attrs.frozen(kw_only=True)
class ConnectionReset:
    """Reset the connection in the middle of the body."""


@attrs.frozen(kw_only=True)
class TruncatedBody:
    """End the body in the middle: a stream without its last events, properly closed; another body shorter than its Content-Length."""


@attrs.frozen(kw_only=True)
class MalformedBody:
    """Send status 200 with broken JSON as the body, or as the first event of a stream."""


Fault: TypeAlias = HttpAnswer | Delay | Hang | ConnectionReset | TruncatedBody | MalformedBody
"""A fault of one request."""

Answer: TypeAlias = str | ToolCall | Sequence[ToolCall] | Message | Reply | ScriptedReply | Fault
"""One answer: text, tool calls, an assistant message, a reply with its usage, or a fault."""

Step: TypeAlias = Answer | Callable[[Exchange], Answer]
"""One step of a script: an answer, or a function that takes the request and returns the answer,
called in the connection's thread."""


@attrs.frozen(kw_only=True)
class Rule:
    """Answers all requests that match, in place of the script."""

    match: str | Callable[[Exchange], bool]
    """A regular expression that is searched in the text of the last message, or a function of the
    request."""
    answer: Step
    """The answer. A tool call with an empty id gets a new one for each request."""


def api_error(
    status: int,
    message: str,
    *,
    code: str | None = None,
    kind: str = "invalid_request_error",
    param: str | None = None,
) -> HttpAnswer:
    """Build an error in the form of the API that is called.

    Args:
        status: The HTTP status.
        message: The error's text.
        code: The error's code, such as `context_length_exceeded`.
        kind: The error's `type`.
        param: The parameter that is wrong.
    """
    return HttpAnswer(
        status=status,
        body={"error": {"message": message, "type": kind, "param": param, "code": code}},
    )


def rate_limit_error(retry_after: float | None = None) -> HttpAnswer:
    """Build the error 429, with the header `Retry-After` if seconds are passed."""
    return attrs.evolve(
        api_error(
            429,
            "Rate limit reached for requests per min (RPM): Limit 3, Used 3, Requested 1.",
            code="rate_limit_exceeded",
            kind="requests",
        ),
        headers={} if retry_after is None else {"Retry-After": f"{retry_after:g}"},
    )


def server_error(status: int = 500) -> HttpAnswer:
    """Build the error of a server that fails."""
    return api_error(
        status,
        "The server had an error while processing your request. Sorry about that!",
        kind="server_error",
    )


def echo(exchange: Exchange) -> str:
    """Return the text of the last message."""
    return exchange.text or "(no text)"


def normalize_answer(answer: Answer) -> ScriptedReply | Fault:
    """Convert an answer to a ScriptedReply or a fault. Raises TypeError for any other value."""
    match answer:
        case (
            ScriptedReply()
            | HttpAnswer()
            | Delay()
            | Hang()
            | ConnectionReset()
            | TruncatedBody()
            | MalformedBody()
        ):
            return answer
        case Reply():
            return ScriptedReply(message=answer.message, finish=answer.finish, usage=answer.usage)
        case _ if message := read_message(answer):
            return ScriptedReply(message=message)
        case _:
            raise TypeError(
                f"an answer must be text, a ToolCall or several, an assistant Message, a Reply, a ScriptedReply or a fault, not {answer!r}."
            )
