"""Long output, cut in the middle."""

from __future__ import annotations

from promptkit import Child, Isolate, Truncate

__all__ = ["truncate_output"]

MARKER = "\n[… output cut …]\n"


def truncate_output(text: str, tokens: int) -> Child:
    """Text within `tokens`: the first 40 % and the last 60 % of what fits, since commands say at the end how they ended."""
    if len(text.encode("utf-8", "surrogatepass")) <= tokens:
        return text  # no token is shorter than a byte
    # A Truncate is never larger than its share, and among many messages a share is next to nothing.
    return Isolate(tokens=tokens)[Truncate(keep="middle", ratio=0.4, marker=MARKER)[text]]
