"""A tree at one state of its removal order: what assembling and the receipt look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from promptkit.rendering.layout import Sizer
    from promptkit.rendering.materialize import Tree
    from promptkit.rendering.order import Step
    from promptkit.rendering.scan import Scan
    from promptkit.rendering.tree import Node

__all__ = ["Pruned"]


@attrs.frozen(kw_only=True)
class Pruned:
    """A tree at one state: the first `k` steps of its removal order taken."""

    tree: Tree
    sizer: Sizer
    scan: Scan
    k: int
    tokens: int
    budget: int
    reason: str
    """Why the scan's steps were taken: `budget`, or `limit`."""

    limited: tuple[tuple[Node, list[Step]], ...]
    """What limits removed before: (the limit's node, its steps)."""
