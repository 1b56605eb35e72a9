"""A summary for a turn that is cut in two: the first part of the turn gets a summary of its own, so that the rest can be understood."""

from __future__ import annotations

import asyncio

import attrs

from promptkit.compaction.planning.blocks import is_summary
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import Plan, Summary, SummaryTask
from promptkit.compaction.summarizers.summarizer import (
    PARTIAL,
    Summarizer,
    get_previous_summary,
    sum_usage,
)
from promptkit.errors import SummaryError
from promptkit.tokens import Tokenizer

PREFIX_SHARE = 5 / 13
"""Share of the task's tokens for the first part of the turn. Source: pi, 0.5 of its reserve beside
0.8."""

NO_HISTORY = "No prior history."
HEADING = "\n\n---\n\n**The turn that is cut in two, up to where it goes on below:**\n\n"
PREFIX = (
    "This is the beginning of a turn whose rest stays as it is behind your summary. Tell three things, and nothing else: what was asked "
    "at its beginning; what was done and found so far; what the rest cannot be understood without."
)


@attrs.frozen(kw_only=True)
class SplitTurnSummarizer:
    """Summarizes the history before a cut turn and the turn's first part concurrently, and joins both summaries.

    If no turn is cut, it delegates to the summarizer. If there are no new messages before the turn,
    no model is asked for the history: the previous summary is kept, or a fixed text says that there
    is none. For plans of `select(split=True)`. Source: pi.
    """

    summarizer: Summarizer
    """Writes both summaries."""
    tokenizer: Tokenizer

    async def summarize(self, task: SummaryTask) -> Summary:
        """Summarize both parts.

        Raises:
            SummaryError: One of the two summaries failed; the other is cancelled. Or there is no
                room for two summaries.
        """
        if not task.plan.prefix:
            return await self.summarizer.summarize(task)
        room = task.max_tokens - self.tokenizer.count(HEADING)
        prefix_tokens = int(room * PREFIX_SHARE)
        history_tokens = room - prefix_tokens
        kept = self._keep_history(task)
        if kept is not None and self.tokenizer.count(kept) > history_tokens:
            # The previous summary leaves no room for a second one, so both parts get one summary.
            merged_plan = attrs.evolve(
                task.plan, dropped=(*task.plan.dropped, *task.plan.prefix), prefix=()
            )
            return await self.summarizer.summarize(attrs.evolve(task, plan=merged_plan))
        if prefix_tokens < 1:
            raise SummaryError(
                reason="does_not_fit",
                detail=f"{task.max_tokens:,} tokens are too few for a summary in two parts.",
            )
        first = asyncio.ensure_future(self._summarize_history(task, history_tokens))
        second = asyncio.ensure_future(self._summarize_prefix(task, prefix_tokens))
        try:
            history, prefix = await asyncio.gather(first, second)
        finally:
            for future in (first, second):
                future.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
        return Summary(
            text=f"{history.text}{HEADING}{prefix.text}",
            mode=PARTIAL if PARTIAL in {history.mode, prefix.mode} else prefix.mode,
            model=prefix.model or history.model,
            author=prefix.author,
            usage=sum_usage([history.usage, prefix.usage]),
            missed=history.missed + prefix.missed,
        )

    async def _summarize_history(self, task: SummaryTask, tokens: int) -> Summary:
        kept = self._keep_history(task)
        if kept is not None:
            return Summary(text=kept, mode="kept")
        # Without the last request: it shows the whole conversation, so a summary asked for after it
        # would cover both parts.
        plan_part = attrs.evolve(task.plan, prefix=())
        return await self.summarizer.summarize(
            attrs.evolve(task, plan=plan_part, max_tokens=tokens, last_request=None, check=None)
        )

    def _keep_history(self, task: SummaryTask) -> str | None:
        """Return the summary before the turn if there is nothing new before it, else None."""
        if not all(map(is_summary, task.plan.dropped)):
            return None
        return get_previous_summary(task) or NO_HISTORY

    async def _summarize_prefix(self, task: SummaryTask, tokens: int) -> Summary:
        plan_part = Plan(leaf=task.plan.leaf, dropped=task.plan.prefix, kept=task.plan.kept)
        instructions = "\n\n".join(filter(None, (PREFIX, task.instructions)))
        subtask = attrs.evolve(
            task,
            plan=plan_part,
            max_tokens=tokens,
            instructions=instructions,
            headings=False,
            last_request=None,
            facts=Facts(),
            check=None,
        )
        return await self.summarizer.summarize(subtask)
