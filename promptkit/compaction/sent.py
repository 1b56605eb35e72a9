"""The last request, and how much of a conversation it shows: whether a summary can be asked for behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.plan import LastRequest, Plan
    from promptkit.messages import Message
    from promptkit.transcript.view import Projected

__all__ = ["Sent"]


@attrs.frozen(kw_only=True)
class Sent:
    """A request that was sent, and what it shows: the first `items` of the view, as it was when `leaf` was the last entry."""

    request: LastRequest
    leaf: str
    items: int

    def answered(self, reply: Message, view: Sequence[Projected]) -> Sent:
        """With the answer behind it, where that is the next item of the view. Calls without results cannot be sent: they are left out."""
        if reply.tool_calls or not view[self.items :] or view[self.items].message != reply:
            return self
        request = attrs.evolve(self.request, messages=(*self.request.messages, reply))
        return attrs.evolve(self, request=request, items=self.items + 1)

    def shows(self, plan: Plan, view: Sequence[Projected]) -> bool:
        """Whether it shows all that a plan for the view drops."""
        return len(view) - len(plan.kept) <= self.items
