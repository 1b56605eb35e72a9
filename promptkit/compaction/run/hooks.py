"""Hooks that run before and after a compaction, and before and after the conversation continues on another branch.

A hook can cancel a compaction, write the summary itself, add instructions for the summarizer, and
act on a committed checkpoint.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping

import attrs

from promptkit.compaction.planning.plan import Plan, Summary
from promptkit.messages import Json, is_instance
from promptkit.reprs import describe_fields
from promptkit.transcript import Entry, Transcript

_LOGGER = logging.getLogger("promptkit")


@attrs.frozen(kw_only=True)
class PreCompactResult:
    """The request of a hook before a compaction, or before a branch is left. The default requests nothing."""

    cancel: bool = False
    """Cancel the compaction, or the change of the branch. The conversation stays as it is."""
    summary: Summary | None = None
    """A summary to use instead of the summarizer's. It is rejected if it is blank, too large or no
    smaller than the messages it replaces."""
    instructions: tuple[str, ...] = ()
    """Instructions for the summarizer, in addition to the user's."""
    known_memories: tuple[str, ...] = ()
    """Memories that are written down already, for a summarizer that lists new ones."""

    data: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """Data of the program that the entry of the summary keeps as its `data`. The model is never shown
    it."""

    __repr__ = describe_fields

    def join_instructions(self, given: str | None) -> str | None:
        """Return the user's instructions (None: there are none) with these, or None without any."""
        return "\n\n".join(filter(None, (given, *self.instructions))) or None


class CompactionHooks:
    """Base class of compaction hooks, which does nothing.

    Subclass it and override the methods you need.

    >>> class SkipSmall(CompactionHooks):
    ...     async def pre_compact(self, plan, *, trigger, instructions):
    ...         return PreCompactResult(cancel=len(plan.dropped) < 20)
    """

    async def pre_compact(
        self, plan: Plan, *, trigger: str, instructions: str | None
    ) -> PreCompactResult:
        """Handle a compaction that is about to start, in the foreground or in the background.

        Args:
            plan: Which messages are dropped and which are kept.
            trigger: Why the compaction runs, for example `background`, `foreground` or `manual`.
            instructions: The user's instructions for the summary, or None.
        """
        return PreCompactResult()

    async def pre_branch(
        self, plan: Plan, *, to: str | None, instructions: str | None
    ) -> PreCompactResult:
        """Handle a `switch_branch` that is about to leave a branch.

        Args:
            plan: What is left: its `dropped` messages. The summary is of them, if one was asked for.
            to: The id of the entry that the conversation continues from; None: the beginning.
            instructions: The user's instructions for the summary, or None.
        """
        return PreCompactResult()

    async def post_compact(self, checkpoint: Entry) -> None:
        """Handle a checkpoint that was appended to the transcript."""

    def on_branch_change(self, transcript: Transcript) -> None:
        """Handle a rewind, a change of the branch, a reset or an undone compaction.

        It is a plain method, since these are.

        Args:
            transcript: The conversation, already where it continues.
        """

    def fork(self, transcript: Transcript) -> CompactionHooks:
        """Return the hooks of a copy of the conversation, by default these very hooks.

        Override it if they act on checkpoints by their ids.

        Args:
            transcript: The copy. Its entries have the ids that they have in the conversation.
        """
        return self


class HookChain(CompactionHooks):
    """Run several hooks in order. A hook that raises is logged and skipped.

    The first hook that cancels ends the chain. The first summary is used. Instructions and
    memories are concatenated, and data is joined.
    """

    def __init__(self, *hooks: CompactionHooks) -> None:
        for each in hooks:
            if not is_instance(each, CompactionHooks):
                raise TypeError(
                    f"each argument of HookChain must be a CompactionHooks, as in HookChain(first, second), not {each!r:.80}."
                )
        self._hooks = hooks

    async def pre_compact(
        self, plan: Plan, *, trigger: str, instructions: str | None
    ) -> PreCompactResult:
        """Combine the results of all hooks."""
        return await self._combine(
            lambda hooks: run_pre_compact(hooks, plan, trigger=trigger, instructions=instructions)
        )

    async def pre_branch(
        self, plan: Plan, *, to: str | None, instructions: str | None
    ) -> PreCompactResult:
        """Combine the results of all hooks."""
        return await self._combine(
            lambda hooks: run_pre_branch(hooks, plan, to=to, instructions=instructions)
        )

    async def _combine(
        self, ask: Callable[[CompactionHooks], Awaitable[PreCompactResult]]
    ) -> PreCompactResult:
        results: list[PreCompactResult] = []
        for hooks in self._hooks:
            results.append(await ask(hooks))
            if results[-1].cancel:
                return results[-1]
        return PreCompactResult(
            summary=next((each.summary for each in results if each.summary), None),
            instructions=tuple(text for each in results for text in each.instructions),
            known_memories=tuple(text for each in results for text in each.known_memories),
            data={key: value for each in results for key, value in each.data.items()},
        )

    async def post_compact(self, checkpoint: Entry) -> None:
        """Pass the checkpoint to every hook."""
        for hooks in self._hooks:
            await run_post_compact(hooks, checkpoint)

    def on_branch_change(self, transcript: Transcript) -> None:
        """Pass the transcript to every hook."""
        for hooks in self._hooks:
            run_on_branch_change(hooks, transcript)

    def fork(self, transcript: Transcript) -> CompactionHooks:
        """Return a chain of the hooks of a copy of the conversation."""
        return HookChain(*(hooks.fork(transcript) for hooks in self._hooks))


async def run_pre_compact(
    hooks: CompactionHooks,
    plan: Plan,
    *,
    trigger: str,
    instructions: str | None,
) -> PreCompactResult:
    """Call `pre_compact`.

    An exception is logged and counts as an empty result, so that a faulty hook cannot prevent a
    compaction.
    """
    return await _ask(
        lambda: hooks.pre_compact(plan, trigger=trigger, instructions=instructions),
        before="a compaction",
    )


async def run_pre_branch(
    hooks: CompactionHooks | None, plan: Plan, *, to: str | None, instructions: str | None
) -> PreCompactResult:
    """Call `pre_branch`, if there are hooks. An exception is logged and counts as an empty result."""
    if hooks is None:
        return PreCompactResult()
    return await _ask(
        lambda: hooks.pre_branch(plan, to=to, instructions=instructions),
        before="a change of the branch",
    )


async def _ask(ask: Callable[[], Awaitable[PreCompactResult]], *, before: str) -> PreCompactResult:
    """Return the result of a hook, or an empty one if it raises or has data that a transcript cannot hold."""
    try:
        result = await ask()
        json.dumps(dict(result.data), allow_nan=False)
    except Exception:
        _LOGGER.exception("a hook raised before %s, which continues without it", before)
        return PreCompactResult()
    return result


async def run_post_compact(hooks: CompactionHooks, checkpoint: Entry) -> None:
    """Call `post_compact`. An exception is logged."""
    try:
        await hooks.post_compact(checkpoint)
    except Exception:
        _LOGGER.exception("a hook raised after a compaction, which is committed")


def run_on_branch_change(hooks: CompactionHooks, transcript: Transcript) -> None:
    """Call `on_branch_change`. An exception is logged."""
    try:
        hooks.on_branch_change(transcript)
    except Exception:
        _LOGGER.exception("a hook raised after a change of the branch, which is done")
