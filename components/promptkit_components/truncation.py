"""Truncation of long output in the middle."""

from __future__ import annotations

from promptkit import Child, Isolate, Truncate

__all__ = ["truncate_output"]

MARKER = "\n[… output cut …]\n"


def truncate_output(text: str, tokens: int) -> Child:
    """Truncate text to a number of tokens: keep a head (40 %) and a tail (60 %), since commands report their outcome at the end."""
    if len(text.encode("utf-8", "surrogatepass")) <= tokens:
        return text  # a token has at least one byte
    # Isolate: a Truncate never exceeds its share of the budget, and among many messages the share
    # is tiny.
    return Isolate(tokens=tokens)[Truncate(keep="middle", ratio=0.4, marker=MARKER)[text]]
