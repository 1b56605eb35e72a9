"""What the server is told to answer: replies of a model, and everything that goes wrong on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.messages import Json, Message, ToolCall, Usage
from promptkit.providers.model import Reply

if TYPE_CHECKING:
    from promptkit.testing.server.journal import Exchange

__all__ = [
    "Answer",
    "Delay",
    "Fault",
    "Hang",
    "HttpAnswer",
    "Malformed",
    "Reset",
    "Rule",
    "Scripted",
    "Step",
    "Truncated",
    "api_error",
    "echo",
    "rate_limited",
    "scripted",
    "server_error",
]


@attrs.frozen(kw_only=True)
class Scripted:
    """A reply of which not everything need be said."""

    message: Message
    finish: str | None = None
    """`tool_calls` where there are calls, `length` where the request's limit cut the text, else `stop`."""
    usage: Usage | None = None
    """By default what promptkit counts."""


@attrs.frozen(kw_only=True)
class HttpAnswer:
    """Any answer of HTTP. `body` goes out as JSON, or as it is where it is text; None is an empty body."""

    status: int
    body: Json = None
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen(kw_only=True)
class Delay:
    """The answer comes so many seconds late. Without an `answer` it is the one that would have come anyway."""

    seconds: float
    answer: Step | None = None


@attrs.frozen(kw_only=True)
class Hang:
    """No answer, for as long as the client waits."""


@attrs.frozen(kw_only=True)
class Reset:
    """The connection is reset in the middle of the body."""


@attrs.frozen(kw_only=True)
class Truncated:
    """The body ends in the middle: a stream without its last events, properly closed; anything else shorter than it said."""


@attrs.frozen(kw_only=True)
class Malformed:
    """The status is 200, and the body, or the first event of a stream, is broken JSON."""


Fault: TypeAlias = "HttpAnswer | Delay | Hang | Reset | Truncated | Malformed"
"""What can go wrong with a request."""

Answer: TypeAlias = "str | ToolCall | Sequence[ToolCall] | Message | Reply | Scripted | Fault"
"""What a step may be: text, calls, a whole assistant message, a whole reply with its usage, or a fault."""

Step: TypeAlias = "Answer | Callable[[Exchange], Answer]"
"""Likewise, or a function of the request that returns it, called in the thread of the connection."""


@attrs.frozen(kw_only=True)
class Rule:
    """Which requests get an answer, however often they come.

    `match` is a regular expression that is searched for in the text of the last message, or a function of the request. A call with
    an empty id gets one that is new.
    """

    match: str | Callable[[Exchange], bool]
    answer: Step


def api_error(
    status: int, message: str, *, code: str | None = None, kind: str = "invalid_request_error", param: str | None = None
) -> HttpAnswer:
    """An error as OpenAI writes it."""
    return HttpAnswer(status=status, body={"error": {"message": message, "type": kind, "param": param, "code": code}})


def rate_limited(retry_after: float | None = None) -> HttpAnswer:
    """429, with the header `Retry-After` where seconds are given."""
    message = "Rate limit reached for requests per min (RPM): Limit 3, Used 3, Requested 1."
    answer = api_error(429, message, code="rate_limit_exceeded", kind="requests")
    return answer if retry_after is None else attrs.evolve(answer, headers={"Retry-After": f"{retry_after:g}"})


def server_error(status: int = 500) -> HttpAnswer:
    """A server that fails."""
    return api_error(status, "The server had an error while processing your request. Sorry about that!", kind="server_error")


def echo(exchange: Exchange) -> str:
    """The text of the last message again."""
    return exchange.text or "(no text)"


def scripted(answer: Answer) -> Scripted | Fault:
    """Any answer as one of the two. Raises TypeError for what is none."""
    match answer:
        case Scripted() | HttpAnswer() | Delay() | Hang() | Reset() | Truncated() | Malformed():
            return answer
        case str():
            return Scripted(message=Message(role="assistant", content=(answer,) if answer else ()))
        case ToolCall():
            return Scripted(message=Message(role="assistant", tool_calls=(answer,)))
        case Message(role="assistant"):
            return Scripted(message=answer)
        case Reply():
            return Scripted(message=answer.message, finish=answer.finish, usage=answer.usage)
        case Sequence() if calls := tuple(call for call in answer if type(call) is ToolCall):
            return Scripted(message=Message(role="assistant", tool_calls=calls))
        case _:
            problem = f"an answer is text, a ToolCall or several, an assistant Message, a Reply, a Scripted or a fault, not {answer!r}."
            raise TypeError(problem)
