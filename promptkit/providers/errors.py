"""What a provider's error means for the program that gets it: one of four classes, by status first, then by code, then by text.

A status is believed before a text: texts hold ids and figures that look like anything. 429 is never an overflow, whatever it says of
tokens. 413 always is one, also where its code speaks of rates: a request larger than what a whole minute may hold gets through only
when it is smaller.

How providers say that a request does not fit into the window: as data, since there is no standard for it.

OpenAI's own code is `context_length_exceeded`. The servers that speak its protocol have their own codes and sentences, or none. The
table was put together from error bodies that users of these servers published; tests hold one body for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.errors import ContextLengthExceededError, ModelError, ModelRequestError, ModelUnavailableError, RateLimitedError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Failure", "Overflow", "error_from_failure", "find_overflow", "overflow_from_error"]


CODES = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",  # llama.cpp
        "model_context_window_exceeded",
        "model_max_prompt_tokens_exceeded",  # GitHub
        "request_too_large",  # Anthropic, 413
    }
)
"""`code`, `type` or finish reason."""

TOO_LONG = frozenset({"array_above_max_length", "string_above_max_length"})
"""OpenAI's, for any list or text beyond a limit: an overflow only where the list or the text is the conversation."""

CONVERSATION = re.compile(r"(?:messages|input)(?:\[\d+\](?:\.(?:content|output)(?:\[\d+\](?:\.text)?)?)?)?")

_N = r"([\d,]+)"
TEXTS = tuple(
    re.compile(text.replace("WINDOW", f"(?P<window>{_N})").replace("TOKENS", f"(?P<tokens>{_N})"), re.IGNORECASE)
    for text in (
        # OpenAI, Azure, vLLM, DeepSeek, OpenRouter, Together
        r"maximum context length (?:is|of) WINDOW tokens.{0,40}(?:resulted in|requested(?: about)?|request has) TOKENS",
        r"prompt contains TOKENS tokens.{0,60}with WINDOW maximum context length",  # Mistral
        r"maximum context length",
        r"exceeds? (?:the |this )?(?:model's )?(?:maximum )?context (?:window|length)",
        r"context[ _](?:length|window)[ _](?:is )?exceeded",
        r"reduce the length of the (?:messages|prompt|input)",
        # Anthropic, behind a proxy that speaks OpenAI's protocol
        r"prompt is too long(?:: TOKENS tokens > WINDOW maximum)?",
        r"exceed context limit: TOKENS \+ [\d,]+ > WINDOW",
        r"input is too long for (?:the )?requested model",  # Bedrock
        r"input token count \(TOKENS\) exceeds the maximum number of tokens allowed \(WINDOW\)",  # Gemini
        r"maximum prompt length is WINDOW but the request contains TOKENS",  # xAI
        r"prompt token count of TOKENS exceeds the limit of WINDOW",  # GitHub
        r"exceeded model token limit: WINDOW(?: \(requested: TOKENS\))?",  # Moonshot
        r"context window exceeds limit",  # MiniMax
        r"exceeds the available context size",  # llama.cpp
        r"greater than the context length",  # LM Studio
        r"input \(TOKENS tokens\) is longer than the model's context length \(WINDOW tokens\)",  # SGLang
        r"prompt \(length TOKENS\) is longer than the maximum model length of WINDOW",  # vLLM
        r"max_tokens must be at least 1, got -\d+",  # vLLM: the window less the input
        r"`?inputs`? tokens \+ `?max_new_tokens`? must be <= WINDOW",  # Text Generation Inference
        r"prompt exceeds max(?:imum)? length",  # Zhipu
        r"range of input length should be \[\d+, WINDOW\]",  # DashScope
    )
)
"""What a message says, with the figures where it has any. The first that matches is believed."""


@attrs.frozen(kw_only=True)
class Overflow:
    """A request was too large. Figures are tokens, None where the provider says none."""

    tokens: int | None = None
    window: int | None = None


def find_overflow(codes: frozenset[str], texts: tuple[str, ...], param: str | None) -> Overflow | None:
    """What the codes and sentences of an error say of an overflow; None if they say nothing of the kind."""
    too_long = codes & TOO_LONG and param is not None and CONVERSATION.fullmatch(param)
    for pattern in TEXTS:
        for text in texts:
            if match := pattern.search(text):
                found = match.groupdict()
                return Overflow(tokens=_figure(found.get("tokens")), window=_figure(found.get("window")))
    return Overflow() if codes & CODES or too_long else None


def _figure(digits: str | None) -> int | None:
    digits = (digits or "").replace(",", "")
    return int(digits) if 0 < len(digits) < 10 else None  # noqa: PLR2004  # digits: no window has a billion tokens


def overflow_from_error(error: BaseException) -> Overflow | None:
    """Return what an exception of a provider's SDK says about a request that is too large; None if it says something else.

    Args:
        error: A `ContextLengthExceededError`, or any SDK's exception: its `status_code`, `body` and text are read, as far as it has them.
    """
    if isinstance(error, ContextLengthExceededError):
        return Overflow(tokens=error.tokens, window=error.window)
    if isinstance(error, ModelError) or not isinstance(error, Exception):
        return None
    status: object = getattr(error, "status_code", None)
    body: object = getattr(error, "body", None)
    message = str(error)
    read = error_from_failure(Failure(model="", message=message, status=status if isinstance(status, int) else None, body=body or message))
    return Overflow(tokens=read.tokens, window=read.window) if isinstance(read, ContextLengthExceededError) else None


BAD_REQUEST, TIMEOUT, CONFLICT, TOO_LARGE, UNPROCESSABLE, TOO_MANY, SERVER = 400, 408, 409, 413, 422, 429, 500
MAY_OVERFLOW = (None, BAD_REQUEST, TOO_LARGE, UNPROCESSABLE)
"""Statuses with which an overflow may be said in words alone. None: in the middle of a stream, where there is no status."""

RATES = frozenset(
    {
        "rate_limit_error",
        "rate_limit_exceeded",
        "resource_exhausted",
        "throttlingexception",
        "toomanyrequestsexception",
        "too_many_requests",
    }
)
"""Codes of limits that waiting helps against, where the status does not say so."""

USED_UP = frozenset({"billing_hard_limit_reached", "billing_not_active", "insufficient_quota"})
"""Codes of limits that come with 429, and that no waiting helps against."""

PASSING = re.compile(r"server|internal|overload|timeout|unavailable|upstream|api_error")
"""Codes, in the middle of a stream, of failures that may pass."""

AGAIN = re.compile(r"try again in (?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?(?:(?P<s>\d+(?:\.\d+)?)s|(?P<ms>\d+)ms)?", re.IGNORECASE)
"""How OpenAI and others say in words how long to wait."""

MOST = 100
"""Objects of an error body that are looked into: it may be anything, of any depth."""

LONGEST = 10_000
"""Characters of one text that are looked at."""

SHOWN = 500
"""Characters of the provider's sentence that an error repeats."""


@attrs.frozen(kw_only=True)
class Failure:
    """What is known of a request that failed."""

    model: str
    message: str
    """What the client says of it."""
    status: int | None = None
    """The HTTP status; None where the error came in the middle of a stream."""
    body: object = None
    """JSON as the server sent it, or text."""
    retry_after: float | None = None
    """Seconds, by the server's headers."""


def error_from_failure(failure: Failure) -> ModelError:
    """The error for a failure, to be raised."""
    said = _read(failure.body)
    status = failure.status if failure.status is not None else said.status
    texts = (*said.texts, failure.message[:LONGEST])
    overflow = _overflow(status, said, texts, empty=not failure.body)
    error: ModelError
    if overflow is not None:
        error = ContextLengthExceededError(_sentence(failure, said), model=failure.model)
        error.tokens = overflow.tokens or said.tokens
        error.window = overflow.window or said.window
    elif said.codes & USED_UP:
        error = ModelRequestError(_sentence(failure, said), model=failure.model)
    elif status == TOO_MANY or (said.codes & RATES and (status is None or status < SERVER)):
        error = RateLimitedError(_sentence(failure, said), model=failure.model)
        error.retry_after = failure.retry_after if failure.retry_after is not None else _again(texts)
    elif _may_pass(status, said.codes):
        error = ModelUnavailableError(_sentence(failure, said), model=failure.model)
    else:
        error = ModelRequestError(_sentence(failure, said), model=failure.model)
    error.status, error.code, error.param = status, said.code, said.param
    return error


def _overflow(status: int | None, said: _Said, texts: tuple[str, ...], *, empty: bool) -> Overflow | None:
    if status == TOO_MANY:
        return None
    found = find_overflow(said.codes, texts if status in MAY_OVERFLOW else (), said.param)
    if status == TOO_LARGE or (status == BAD_REQUEST and empty):
        return found or Overflow()  # some servers say no more than that
    return None if said.codes & RATES else found


def _may_pass(status: int | None, codes: frozenset[str]) -> bool:
    if status is not None:
        return status >= SERVER or status in (TIMEOUT, CONFLICT)
    return not codes or any(PASSING.search(code) for code in codes)


def _sentence(failure: Failure, said: _Said) -> str:
    said_so = said.texts[0] if said.texts else failure.message if failure.body else "no reason was given"
    return said_so[:SHOWN] if failure.status is None else f"HTTP {failure.status}: {said_so[:SHOWN]}"


def _again(texts: tuple[str, ...]) -> float | None:
    for text in texts:
        if (match := AGAIN.search(text)) and any(match.groups()):
            hours, minutes, seconds, thousandths = (float(figure or 0) for figure in match.groups())
            return hours * 3600 + minutes * 60 + seconds + thousandths / 1000
    return None


@attrs.define
class _Said:
    """What an error body says, wherever in it."""

    codes: frozenset[str] = frozenset()
    """All codes and types, in lower case."""
    texts: tuple[str, ...] = ()
    """All sentences: the most specific first."""
    code: str | None = None
    """As the server wrote it."""
    param: str | None = None
    status: int | None = None
    tokens: int | None = None
    window: int | None = None


def _read(body: object) -> _Said:
    said = _Said()
    codes: list[str] = []
    texts: list[str] = [body[:LONGEST]] if isinstance(body, str) and body.strip() else []
    for holder in _objects(body):
        for key in ("code", "type", "status", "reason"):
            value = holder.get(key)
            if isinstance(value, str) and value not in ("", "error"):
                codes.append(value)
            elif isinstance(value, int) and BAD_REQUEST <= value < 2 * SERVER and said.status is None:
                said.status = value
        for key in ("message", "detail", "error", "raw", "msg", "error_msg"):
            value = holder.get(key)
            if isinstance(value, str) and value.strip():
                texts.append(value[:LONGEST])
        code, param = holder.get("code"), holder.get("param")
        said.code = said.code or (code if isinstance(code, str) else None)
        said.param = said.param or (param if isinstance(param, str) else None)
        tokens, window = holder.get("n_prompt_tokens"), holder.get("n_ctx")  # llama.cpp
        said.tokens = said.tokens or (tokens if isinstance(tokens, int) else None)
        said.window = said.window or (window if isinstance(window, int) else None)
    said.codes = frozenset(code.lower() for code in codes)
    said.texts = tuple(reversed(texts))  # a proxy's "Provider returned error" stands around the provider's own words
    return said


def _objects(body: object) -> Iterator[Mapping[str, object]]:
    """The objects of a body, the outermost first; texts that hold JSON are looked into, too."""
    waiting: list[object] = [body]
    looked = 0
    while waiting and looked < MOST:
        value = waiting.pop(0)
        looked += 1
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                value = cast("object", json.loads(value))  # any JSON
            except (ValueError, RecursionError):
                continue
        if isinstance(value, Mapping):
            holder = cast("Mapping[str, object]", value)  # read from JSON
            yield holder
            waiting += islice(holder.values(), MOST)
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            waiting += cast("Sequence[object]", value)[:MOST]  # likewise
