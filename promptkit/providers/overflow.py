"""How providers say that a request does not fit into the window: as data, since there is no standard for it.

OpenAI's own code is `context_length_exceeded`. The servers that speak its protocol have their own codes and sentences, or none. The
table was put together from error bodies that users of these servers published; tests hold one body for each.
"""

from __future__ import annotations

import re

import attrs

__all__ = ["Overflow", "find_overflow"]

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
