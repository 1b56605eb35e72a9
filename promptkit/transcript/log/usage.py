"""Read what a provider billed for an entry, one way for all figures: statistics, requests, replays and pages."""

from __future__ import annotations

import attrs

from promptkit.messages import Usage
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import BilledTokens, tokenizer_for
from promptkit.transcript.log.entries import (
    BranchSummary,
    Checkpoint,
    CustomMessage,
    EntryPayload,
    MessageEntry,
)

PLACEHOLDER_SHARE = 0.5
"""A reported output below this share of the reply's own tokens is a placeholder, if no end of the reply was
recorded: a stream starts with one, and some agents write it down."""


def read_usage(payload: EntryPayload) -> Usage | None:
    """Return the usage of the request that an entry answered, or of the requests for a summary; None if none was reported.

    The placeholder of a stream is replaced by the tokens of the reply, as the model that the entry
    names counts them on average.
    """
    if not isinstance(payload, MessageEntry | Checkpoint | BranchSummary | CustomMessage):
        return None
    usage = payload.usage
    if (
        usage is None
        or not (isinstance(payload, MessageEntry) and usage.input_tokens)
        or payload.finish is not None
        or payload.model is None
    ):
        return usage
    written = Sizer(tokenizer_for(payload.model, mean=True)).count_message(payload.message)
    is_placeholder = usage.output_tokens < PLACEHOLDER_SHARE * written
    return attrs.evolve(usage, output_tokens=written) if is_placeholder else usage


def read_bill(payload: EntryPayload) -> BilledTokens | None:
    """Return what an entry was billed, as `read_usage` reads it; None if its provider reported no input.

    No more tokens can be read from a cache or written to it than the request had, or its price
    would be negative.
    """
    usage = read_usage(payload)
    if usage is None or not usage.input_tokens:
        return None
    cached = min(usage.cached_tokens, usage.input_tokens)
    written = min(usage.written_tokens, usage.input_tokens - cached)
    return BilledTokens(
        input_tokens=usage.input_tokens,
        cached_tokens=cached,
        written_tokens=written,
        written_1h_tokens=min(usage.written_1h_tokens, written),
        output_tokens=usage.output_tokens,
    )
