"""Classify a provider's errors: by status first, then by code, then by text.

A status counts before a text, since texts hold ids and figures that look like anything. 429 is
never a context overflow, whatever its text says about tokens. 413 always is one, even where its
code is about rates: a request larger than the limit of a whole minute only succeeds when it is
smaller.

There is no standard for the error of a request that exceeds the context window. OpenAI's own code
is `context_length_exceeded`. The servers that speak its protocol have their own codes and
sentences, or none. The tables below were collected from error bodies that users of these servers
published; tests hold one body for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

import attrs

from promptkit.errors import (
    ContextLengthExceededError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from promptkit.messages import as_mapping, as_sequence

BAD_REQUEST, TIMEOUT, CONFLICT, TOO_LARGE, UNPROCESSABLE, TOO_MANY, SERVER = (
    400,
    408,
    409,
    413,
    422,
    429,
    500,
)
MAY_OVERFLOW = (None, BAD_REQUEST, TOO_LARGE, UNPROCESSABLE)
"""Statuses with which a text alone may mean a context overflow. None: the error came in the middle
of a stream, without a status."""

RATE_CODES = frozenset(
    {
        "rate_limit_error",
        "rate_limit_exceeded",
        "resource_exhausted",
        "throttlingexception",
        "toomanyrequestsexception",
        "too_many_requests",
    }
)
"""Codes that mean a rate limit, where the status does not say so."""

QUOTA_CODES = frozenset({"billing_hard_limit_reached", "billing_not_active", "insufficient_quota"})
"""Codes of exhausted quotas: they come with 429, and waiting does not help."""

_TEMPORARY = re.compile(r"server|internal|overload|timeout|unavailable|upstream|api_error")
"""Codes of errors in the middle of a stream that may pass."""

_RETRY_AFTER = re.compile(
    r"try again in (?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?(?:(?P<s>\d+(?:\.\d+)?)s|(?P<ms>\d+)ms)?",
    re.IGNORECASE,
)
"""The sentence in which OpenAI and others say how long to wait."""

_MAX_OBJECTS = 100
"""The most objects of an error body that are read: a body may be anything, of any depth."""

_MAX_TEXT = 10_000
"""Characters of one text that are read."""

_MAX_SENTENCE = 500
"""Characters of the provider's sentence that an error repeats."""


def error_from_failure(
    *,
    model: str,
    message: str,
    status: int | None = None,
    body: object = None,
    retry_after: float | None = None,
) -> ModelError:
    """Return the error to raise for a failed request.

    Args:
        model: The model's name.
        message: The client's own error text.
        status: The HTTP status; None where the error came in the middle of a stream.
        body: The response's body: JSON or text.
        retry_after: Seconds to wait, from the response's headers.
    """
    holders = [*_iterate_objects(body)]
    marks = [holder.get(name) for holder in holders for name in _MARKS]
    codes = frozenset(
        mark.lower() for mark in marks if isinstance(mark, str) and mark not in ("", "error")
    )
    sentences = [
        text[:_MAX_TEXT]
        for text in (body, *(holder.get(name) for holder in holders for name in _SENTENCES))
        if isinstance(text, str) and text.strip()
    ][::-1]  # a proxy's "Provider returned error" encloses the provider's own sentence
    sentence = (sentences[0] if sentences else message if body else "no reason was given")[
        :_MAX_SENTENCE
    ]
    if status is None:
        status = next(
            (mark for mark in marks if isinstance(mark, int) and BAD_REQUEST <= mark < 2 * SERVER),
            None,
        )
    else:
        sentence = f"HTTP {status}: {sentence}"
    texts = (*sentences, message[:_MAX_TEXT])
    param = _find_first(str, (each.get("param") for each in holders))
    overflow = _find_overflow(status, codes, texts, param, empty=not body)
    waits = not codes & QUOTA_CODES  # waiting does not help where a quota is exhausted
    error: ModelError
    if overflow is not None:
        # the figures of a rate limit are those of a minute
        is_size = not codes & RATE_CODES
        tokens, window = (  # beside the sentence, as llama.cpp has them
            _find_first(int, (each.get(name) for each in holders))
            for name in ("n_prompt_tokens", "n_ctx")
        )
        error = ContextLengthExceededError(
            sentence,
            model=model,
            tokens=(overflow.tokens or tokens) if is_size else None,
            window=(overflow.window or window) if is_size else None,
        )
    elif waits and (
        status == TOO_MANY or (codes & RATE_CODES and (status is None or status < SERVER))
    ):
        error = RateLimitedError(
            sentence,
            model=model,
            retry_after=_find_retry_after(texts) if retry_after is None else retry_after,
        )
    elif waits and _may_pass(status, codes):
        error = ModelUnavailableError(sentence, model=model)
    else:
        error = ModelRequestError(sentence, model=model)
    error.status, error.param = status, param
    error.code = _find_first(str, (each.get("code") or each.get("error_code") for each in holders))
    return error


def overflow_from_error(error: BaseException) -> Overflow | None:
    """Return what an exception of a provider's SDK says about a request that is too large; None if it says something else.

    Args:
        error: A `ContextLengthExceededError`, or any SDK's exception: its `status_code`, `body` and
            text are read, as far as it has them.
    """
    if isinstance(error, Exception) and not isinstance(error, ModelError):
        status: object = getattr(error, "status_code", None)
        error = error_from_failure(
            model="",
            message=str(error),
            status=status if isinstance(status, int) else None,
            body=getattr(error, "body", None) or str(error),
        )
    if not isinstance(error, ContextLengthExceededError):
        return None
    is_rate = (error.code or "").lower() in RATE_CODES
    return Overflow(
        tokens=error.tokens,
        window=error.window,
        is_rate=is_rate,
        is_body=error.status == TOO_LARGE and error.window is None and not is_rate,
    )


@attrs.frozen(kw_only=True)
class Overflow:
    """A request that exceeded the context window.

    Figures are tokens, None where the provider does not name them.
    """

    tokens: int | None = None
    window: int | None = None
    is_rate: bool = False
    """Whether the request is larger than what a minute may have. That says nothing of the
    window."""
    is_body: bool = False
    """Whether the body of the request was refused (413), without a figure: a gateway counts bytes,
    and not tokens."""


def _may_pass(status: int | None, codes: frozenset[str]) -> bool:
    return (
        status >= SERVER or status in (TIMEOUT, CONFLICT)
        if status is not None
        else not codes or any(_TEMPORARY.search(code) for code in codes)
    )


def _find_retry_after(texts: tuple[str, ...]) -> float | None:
    for text in texts:
        if (match := _RETRY_AFTER.search(text)) and any(match.groups()):
            hours, minutes, seconds, milliseconds = (
                float(figure or 0) for figure in match.groups()
            )
            return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    return None


_MARKS = ("code", "type", "status", "reason")
"""The keys of codes and statuses."""

_SENTENCES = ("message", "detail", "error", "raw", "msg", "error_msg")
"""The keys of sentences."""

T = TypeVar("T")


def _find_first(kind: type[T], values: Iterable[object]) -> T | None:
    """Return the first value of a type that is not empty."""
    return next((value for value in values if isinstance(value, kind) and value), None)


def _iterate_objects(body: object) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a body, the outermost first. Texts that hold JSON are read as well."""
    waiting: list[object] = [body]
    for given in islice(waiting, _MAX_OBJECTS):  # the list grows meanwhile
        value = given
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                continue
        if holder := as_mapping(value):
            yield holder
            waiting += islice(holder.values(), _MAX_OBJECTS)
        waiting += as_sequence(value)[:_MAX_OBJECTS]


OVERFLOW_CODES = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",  # llama.cpp
        "model_context_window_exceeded",
        "model_max_prompt_tokens_exceeded",  # GitHub
        "request_too_large",  # Anthropic, 413
    }
)
"""Values of `code`, `type` or the finish reason that mean a context overflow."""

TOO_LONG = frozenset({"array_above_max_length", "string_above_max_length"})
"""OpenAI's codes for any list or text beyond a limit: an overflow only where the list or the text
is the conversation."""

_CONVERSATION_PARAM = re.compile(
    r"(?:messages|input)(?:\[\d+\](?:\.(?:content|output)(?:\[\d+\](?:\.text)?)?)?)?"
)

_N = r"([\d,]+)"
OVERFLOW_TEXTS = tuple(
    re.compile(
        text.replace("WINDOW", f"(?P<window>{_N})").replace("TOKENS", f"(?P<tokens>{_N})"),
        re.IGNORECASE,
    )
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
        # Gemini
        r"input token count \(TOKENS\) exceeds the maximum number of tokens allowed \(WINDOW\)",
        r"maximum prompt length is WINDOW but the request contains TOKENS",  # xAI
        r"prompt token count of TOKENS exceeds the limit of WINDOW",  # GitHub
        r"exceeded model token limit: WINDOW(?: \(requested: TOKENS\))?",  # Moonshot
        r"context window exceeds limit",  # MiniMax
        r"exceeds the available context size",  # llama.cpp
        r"loaded with context length of only WINDOW tokens",  # LM Studio
        r"greater than the context length",
        r"max size: WINDOW tokens",  # GitHub
        # SGLang
        r"input \(TOKENS tokens\) is longer than the model's context length \(WINDOW tokens\)",
        r"prompt \(length TOKENS\) is longer than the maximum model length of WINDOW",  # vLLM
        r"max_tokens must be at least 1, got -\d+",  # vLLM: the window less the input
        r"`?inputs`? tokens \+ `?max_new_tokens`? must be <= WINDOW",  # Text Generation Inference
        r"prompt exceeds max(?:imum)? length",  # Zhipu
        r"range of input length should be \[\d+, WINDOW\]",  # DashScope
    )
)
"""Patterns of messages that mean a context overflow, with the figures where they have any. The
first match counts."""


def _find_overflow(
    status: int | None,
    codes: frozenset[str],
    texts: tuple[str, ...],
    param: str | None,
    *,
    empty: bool,
) -> Overflow | None:
    """Find a context overflow in the status, the codes and the sentences of an error; None if there is none."""
    # some servers send nothing else
    is_certain = status == TOO_LARGE or (status == BAD_REQUEST and empty)
    if status == TOO_MANY or (codes & RATE_CODES and not is_certain):
        return None
    for pattern in OVERFLOW_TEXTS if status in MAY_OVERFLOW else ():
        for text in texts:
            if match := pattern.search(text):
                found = match.groupdict()
                return Overflow(
                    tokens=_read_figure(found.get("tokens")),
                    window=_read_figure(found.get("window")),
                )
    too_long = codes & TOO_LONG and _CONVERSATION_PARAM.fullmatch(param or "")
    return Overflow() if is_certain or codes & OVERFLOW_CODES or too_long else None


MAX_DIGITS = 9
"""Digits of a figure in an error: no window has a billion tokens."""


def _read_figure(digits: str | None) -> int | None:
    digits = (digits or "").replace(",", "")
    return int(digits) if 0 < len(digits) <= MAX_DIGITS else None
