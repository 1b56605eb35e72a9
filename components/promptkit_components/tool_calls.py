"""`ToolCalls`: the tool calls and results of the current turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from promptkit import Child, Metadata, PromptElement, Sizing, ToolRound, component
from promptkit.messages import Repair
from promptkit.pairing import MISSING_TOOL_RESULT
from promptkit_components.truncation import truncate_output

__all__ = ["ToolCalls"]


def _freeze_rounds(rounds: Sequence[ToolRound]) -> tuple[ToolRound, ...]:
    return tuple(rounds)


@component(pure=True)
class ToolCalls(PromptElement):
    """The tool rounds of the current turn.

    The newest is kept longest, and a round is pruned as a whole.

    A call without a result (an interrupted tool) gets a placeholder as its result. A result without
    a call is dropped. Both are reported in `rendered.repairs`.

    >>> from promptkit import ToolCall, render
    >>> call = ToolCall(id="c1", name="run_tests", arguments='{"path": "tests"}')
    >>> for message in render(ToolCalls(rounds=[ToolRound(calls=[call], results={"c1": "3 passed"})])).messages:
    ...     print(f"{message.role}: {message.text or message.tool_calls[0].name}")
    assistant: run_tests
    tool: 3 passed
    """

    rounds: Sequence[ToolRound] = attrs.field(converter=_freeze_rounds)
    """The tool rounds, oldest first, which are kept as a tuple. A round without a priority gets its
    position as its priority."""

    truncate_at: int | None = None
    """The maximum tokens of one result that is text. A longer result keeps a head (40 %) and a tail
    (60 %)."""

    def render(self, sizing: Sizing) -> Child:
        """Return one ToolRound per round, with the repairs."""
        _ = sizing
        return tuple(
            (self._build_repairs(number, item), self._build_round(number, item))
            for number, item in enumerate(self.rounds)
        )

    def _build_round(self, number: int, item: ToolRound) -> ToolRound:
        return ToolRound(
            calls=item.calls,
            results={
                call.id: self._truncate_result(item.results.get(call.id, MISSING_TOOL_RESULT))
                for call in item.calls
            },
            text=item.text,
            priority=number if item.priority is None else item.priority,
            required=item.required,
            fallback=item.fallback,
            label=item.label,
        )

    def _truncate_result(self, result: Child) -> Child:
        return (
            truncate_output(result, self.truncate_at)
            if self.truncate_at is not None and isinstance(result, str) and result
            else result
        )

    def _build_repairs(self, number: int, item: ToolRound) -> Iterator[Metadata]:
        ids = {call.id for call in item.calls}
        for key in sorted(ids - item.results.keys()):
            yield Metadata(
                value=Repair(
                    kind="missing result",
                    detail=f"rounds[{number}]: call {key!r} has no result; {MISSING_TOOL_RESULT!r} answers it.",
                )
            )
        for key in sorted(item.results.keys() - ids):
            yield Metadata(
                value=Repair(
                    kind="orphan result",
                    detail=f"rounds[{number}]: no call {key!r} is in this round; its result was dropped.",
                )
            )
