"""Tool calls and their results, brought together again: what a recording really contains, made into what providers accept."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import Message, Repair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from promptkit.messages import ToolCall

__all__ = ["MISSING_TOOL_RESULT", "PairedMessages", "Pairer", "pair_tool_calls"]

MISSING_TOOL_RESULT = "[no result was recorded]"
"""What answers a call that the recording does not answer."""


@attrs.frozen(kw_only=True)
class PairedMessages:
    """Messages in which every call is answered once, right behind it, and every result answers a call."""

    messages: tuple[Message, ...]
    """Calls carry ids that are unique in the conversation; results follow the message that holds their calls."""

    sources: tuple[int, ...]
    """For each message the index of the turn that it comes from; for an answer that was put in, that of its call."""

    repairs: tuple[Repair, ...] = ()
    """What was mended, in the order of the recording."""


def pair_tool_calls(turns: Sequence[Message]) -> PairedMessages:
    """A recording with its calls and results paired; what was right stays byte for byte. Linear in the number of messages.

    * a call without a result is answered by `MISSING_TOOL_RESULT`: what was tried stays visible to the model
    * a result of no call is dropped
    * of several results of one call the first stays: what a provider has cached does not change when a repeat is appended
    * a call id that occurs again is made unique, in the call and in its result; what follows does not change the name that it gets
    * a result that stands before its call, or apart from it, is moved behind the call
    """
    pairer = Pairer()
    for message in turns:
        pairer.add(message)
    pairer.settle()
    return PairedMessages(messages=tuple(pairer.messages), sources=tuple(pairer.sources), repairs=pairer.repairs)


def _turn(index: int) -> str:
    return f"turns[{index}]"


@attrs.define(eq=False)
class _Call:
    """One occurrence of a call; `id` is unique, `result` the index of the message that answers it."""

    call: ToolCall
    id: str
    result: int | None = None
    apart: bool = False
    """Whether the result has to be moved."""


@attrs.define(eq=False)
class _Block:
    """A message that is no result, with its calls. It takes one place in the output, and one more for each call: places never shift."""

    turn: int
    start: int
    calls: tuple[_Call, ...]


@attrs.define(eq=False)
class _Round:
    """The calls of one message that share an id and may still be answered."""

    block: _Block
    free: deque[_Call] = attrs.field(factory=deque["_Call"])
    lent: deque[_Call] = attrs.field(factory=deque["_Call"])
    """Answered by a result that stood before them, until one comes that stands behind."""


class Pairer:
    """Pairs a conversation that grows: adding a message does not go through those before it.

    Call `settle` before `messages`, `sources` and `repairs` are read. With `early` off, a result is never taken for that of a call
    behind it: right where it is known that results are written after their calls. `name` words the place of a turn in repairs.
    """

    def __init__(self, *, early: bool = True, name: Callable[[int], str] = _turn) -> None:
        self.messages: list[Message] = []
        self.sources: list[int] = []
        self._early = early
        self._name = name
        self._turns: list[Message] = []
        self._latest: _Block | None = None
        self._unsettled: dict[int, _Block] = {}
        self._used: set[str] = {""}  # an empty id answers to nothing, so it counts as one that is in use
        self._counters: defaultdict[str, int] = defaultdict(lambda: 1)
        self._waiting: defaultdict[str, list[_Round]] = defaultdict(list)
        self._answered: set[str] = set()
        self._pool: defaultdict[str | None, deque[int]] = defaultdict(deque)  # results that wait for a call; under None those that do not
        self._lasting: list[tuple[int, Repair]] = []
        self._missing: dict[int, list[tuple[int, Repair]]] = {}
        self._repairs: tuple[Repair, ...] | None = ()

    def add(self, message: Message) -> None:
        """Put a message behind those that are there."""
        turn = len(self._turns)
        self._turns.append(message)
        if message.role == "tool":
            self._answer(turn, message.tool_call_id)
        else:
            self._open(turn, message)

    def settle(self) -> int:
        """Bring `messages` and `sources` up to date; the first place in them that changed is returned."""
        first = len(self.messages)
        for block in self._unsettled.values():
            first = min(first, block.start)
            self._write(block)
        self._unsettled.clear()
        return first

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What was mended, in the order of the conversation."""
        if self._repairs is None:
            found = [*self._lasting, *self._left_over(), *(each for some in self._missing.values() for each in some)]
            self._repairs = tuple(repair for _, repair in sorted(found, key=lambda item: item[0]))
        return self._repairs

    def _open(self, turn: int, message: Message) -> None:
        calls = message.tool_calls if message.role == "assistant" else ()
        block = _Block(turn, len(self.messages), tuple(_Call(call, self._unique(call.id)) for call in calls))
        self._latest = block
        self.messages += [message] * (1 + len(calls))
        self.sources += [turn] * (1 + len(calls))
        self._unsettled[block.start] = block
        for call in block.calls:
            key = call.call.id
            if call.id != key:
                self._mend(turn, "repeated call id", f"the id {key!r} is in use; this call and its result are now {call.id!r}.")
            rounds = self._waiting[key]
            if not rounds or rounds[-1].block is not block:
                rounds.append(_Round(block))
            if waiting := self._pool.get(key):
                call.result, call.apart = waiting.popleft(), True
                rounds[-1].lent.append(call)
            else:
                rounds[-1].free.append(call)

    def _unique(self, name: str) -> str:
        unique = name
        while unique in self._used:
            self._counters[name] += 1
            unique = f"{name or 'call'}_{self._counters[name]}"
        self._used.add(unique)
        return unique

    def _answer(self, turn: int, key: str | None) -> None:
        # Rounds that re-use an id answer the latest one; within a round, results come in the order of the calls.
        rounds = self._waiting.get(key) if key is not None else None
        if key is None:
            self._mend(turn, "orphan result", "a tool message without a call id was dropped.")
        elif rounds:
            latest = rounds[-1]
            call = (latest.free or latest.lent).popleft()
            if call.result is not None:
                self._pool[key].appendleft(call.result)
                self._repairs = None
            call.result, call.apart = turn, latest.block is not self._latest
            self._unsettled[latest.block.start] = latest.block
            self._answered.add(key)
            if not latest.free and not latest.lent:
                rounds.pop()
            if not rounds:
                del self._waiting[key]
        elif key in self._answered:
            self._mend(turn, "repeated result", f"call {key!r} has a result already; this one was dropped.")
        else:
            self._pool[key if self._early else None].append(turn)
            self._repairs = None

    def _write(self, block: _Block) -> None:
        """Settle one block."""
        message = self._turns[block.turn]
        before = self._missing.pop(block.turn, None)
        if all(call.id == call.call.id for call in block.calls):
            self.messages[block.start] = message
        else:
            self.messages[block.start] = attrs.evolve(message, tool_calls=tuple(attrs.evolve(c.call, id=c.id) for c in block.calls))
        if not block.calls:
            return
        found: list[tuple[int, Repair]] = []
        for place, call in enumerate(sorted(block.calls, key=_when), block.start + 1):
            if call.result is None:
                found.append(
                    self._repair(block.turn, "missing result", f"call {call.id!r} has no result; {MISSING_TOOL_RESULT!r} answers it.")
                )
                self.messages[place] = Message(role="tool", content=(MISSING_TOOL_RESULT,), tool_call_id=call.id)
                self.sources[place] = block.turn
                continue
            if call.apart:
                found.append(
                    self._repair(call.result, "moved result", f"it was moved behind call {call.id!r} in {self._name(block.turn)}.")
                )
            result = self._turns[call.result]
            self.messages[place] = result if result.tool_call_id == call.id else attrs.evolve(result, tool_call_id=call.id)
            self.sources[place] = call.result
        if found:
            self._missing[block.turn] = found
        if found or before:
            self._repairs = None

    def _left_over(self) -> Iterator[tuple[int, Repair]]:
        for turns in self._pool.values():
            for turn in turns:
                key = self._turns[turn].tool_call_id
                yield self._repair(turn, "orphan result", f"no call {key!r} was recorded for this result; it was dropped.")

    def _mend(self, turn: int, kind: str, detail: str) -> None:
        self._lasting.append(self._repair(turn, kind, detail))
        self._repairs = None

    def _repair(self, turn: int, kind: str, detail: str) -> tuple[int, Repair]:
        return turn, Repair(kind=kind, detail=f"{self._name(turn)}: {detail}")


def _when(call: _Call) -> float:
    """Results in the order in which they came, what is missing last."""
    return float("inf") if call.result is None else call.result
