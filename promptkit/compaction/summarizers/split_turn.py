"""A turn that is cut in two: its first part is summarized for itself, so that what is kept of it can be understood."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.blocks import is_summary
from promptkit.compaction.planning.plan import Plan, Summary
from promptkit.compaction.summarizers.breadcrumb import strip_breadcrumb
from promptkit.compaction.summarizers.summarizer import sum_usage, updated_facts
from promptkit.errors import InvalidArgumentError, SummaryError

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import SummaryTask
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["SplitTurnSummarizer"]

NO_HISTORY = "No prior history."
HEADING = "\n\n---\n\n**The turn that is cut in two, up to where it goes on below:**\n\n"
PREFIX = (
    "This is the beginning of a turn whose rest stays as it is behind your summary. Tell three things, and nothing else: what was asked "
    "at its beginning; what was done and found so far; what the rest cannot be understood without."
)


@attrs.frozen(kw_only=True)
class SplitTurnSummarizer:
    """Has what is before a turn that is cut in two, and the turn's first part, summarized side by side, and puts them together.

    Where no turn is cut it is the summarizer itself. Where nothing new is before the turn, no model is asked for that: the summary
    before stays, or a fixed text says that there is none. For plans of `select(split=True)`. (pi.)
    """

    summarizer: Summarizer
    """For what is before the turn."""
    tokenizer: Tokenizer
    prefix_summarizer: Summarizer | None = None
    """For the first part of the turn; None: the same."""
    prefix_share: float = 5 / 13
    """Of the tokens, what the first part of the turn may have. (pi: 0.5 of its reserve beside 0.8.)"""

    def __attrs_post_init__(self) -> None:
        if not 0 < self.prefix_share < 1:
            problem = f"share={self.prefix_share:g} must be above 0 and below 1."
            raise InvalidArgumentError(problem)

    async def summarize(self, task: SummaryTask) -> Summary:
        """The summary of both. Raises SummaryError if one of them is not to be had: the other is called off then."""
        if not task.plan.prefix:
            return await self.summarizer.summarize(task)
        room = task.max_tokens - self.tokenizer.count(HEADING)
        most = int(room * self.prefix_share)
        if self._kept(task) and self.tokenizer.count(self._before(task)) > room - most:
            # The summary before leaves no room for a second one: one is made of both.
            whole = attrs.evolve(task.plan, dropped=(*task.plan.dropped, *task.plan.prefix), prefix=())
            return await self.summarizer.summarize(attrs.evolve(task, plan=whole))
        if most < 1:
            raise SummaryError(reason="does_not_fit", detail=f"{task.max_tokens:,} tokens hold no summary in two parts.")
        first = asyncio.ensure_future(self._history(task, room - most))
        second = asyncio.ensure_future(self._prefix(task, most))
        try:
            history, prefix = await asyncio.gather(first, second)
        finally:
            for each in (first, second):
                each.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
        return Summary(
            text=f"{history.text}{HEADING}{prefix.text}",
            mode=prefix.mode,
            model=prefix.model or history.model,
            usage=sum_usage([history.usage, prefix.usage]),
            facts=updated_facts(task),
        )

    async def _history(self, task: SummaryTask, tokens: int) -> Summary:
        plan = task.plan
        if self._kept(task):
            return Summary(text=self._before(task), mode="kept")
        # Neither part is asked for behind the last request: that shows the whole conversation, and its summary would be that of all of it.
        alone = attrs.evolve(plan, prefix=())
        return await self.summarizer.summarize(attrs.evolve(task, plan=alone, max_tokens=tokens, last_request=None, check=None))

    def _kept(self, task: SummaryTask) -> bool:
        """Whether nothing new is before the turn: no model is asked for that."""
        return all(map(is_summary, task.plan.dropped))

    def _before(self, task: SummaryTask) -> str:
        return NO_HISTORY if task.plan.previous is None else strip_breadcrumb(task.plan.previous)

    async def _prefix(self, task: SummaryTask, tokens: int) -> Summary:
        alone = Plan(leaf=task.plan.leaf, dropped=task.plan.prefix, kept=task.plan.kept)
        instructions = "\n\n".join(filter(None, (PREFIX, task.instructions)))
        asked = attrs.evolve(task, plan=alone, max_tokens=tokens, instructions=instructions, last_request=None, facts={}, check=None)
        return await (self.prefix_summarizer or self.summarizer).summarize(asked)
