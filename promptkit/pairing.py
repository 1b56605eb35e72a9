"""Tool call pairing: repairs a recording so that providers accept it.

In the result, every tool call has exactly one tool result, which follows the message with the call,
and every tool result answers a tool call. Correct parts of a recording stay byte for byte.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from itertools import chain

import attrs

from promptkit.errors import InvalidArgumentError
from promptkit.messages import Message, Repair, ToolCall, is_instance

__all__ = ["MISSING_TOOL_RESULT", "PairedMessages", "ToolCallPairer", "pair_tool_calls"]

MISSING_TOOL_RESULT = "[no result was recorded]"
"""The text of the tool result that is inserted for a tool call without a result."""


@attrs.frozen(kw_only=True)
class PairedMessages:
    """The result of `pair_tool_calls`: every tool call is followed by its one result, and every result answers a call."""

    messages: tuple[Message, ...]
    """The repaired messages. Call ids are unique in the conversation; results follow the message
    with their calls."""

    sources: tuple[int, ...]
    """For each message, the index of its source in the recording. An inserted result has the index
    of its call."""

    repairs: tuple[Repair, ...] = ()
    """The repairs, in the order of the recording."""


def pair_tool_calls(
    turns: Sequence[Message], *, describe_turn: Callable[[int], str] = "turns[{}]".format
) -> PairedMessages:
    """Pair the tool calls of a recording with their results.

    Takes time linear in the number of messages.

    * A call without a result gets the result `MISSING_TOOL_RESULT`, so the model still sees what
      was tried.
    * A result without a call is dropped.
    * Of several results of one call, the first is kept: a repeated result at the end does not
      change what a provider has cached.
    * A repeated call id is made unique, in the call and in its result. Later messages do not change
      the new id.
    * A result before its call, or apart from it, is moved behind the call.

    Args:
        turns: The recorded messages, oldest first.
        describe_turn: Returns the text that names a message in a repair, given its index. The
            default is `turns[index]`.
    """
    pairer = ToolCallPairer(describe_turn=describe_turn)
    pairer.extend(turns)
    pairer.settle()
    return PairedMessages(
        messages=tuple(pairer.messages), sources=tuple(pairer.sources), repairs=pairer.repairs
    )


def _find_paired_ids(turns: Sequence[Message], used: Collection[str]) -> set[str] | None:
    """Return the ids of the calls if nothing has to be repaired: each call has an id of its own, and its one result directly behind it.

    None: something has to be. `used` are the ids that no call may have.
    """
    if not {Message}.issuperset(map(type, turns)):
        return None
    ids: set[str] = set()
    waiting: set[str] = set()
    for message in turns:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return None
            waiting.remove(message.tool_call_id)
        elif waiting:
            return None
        elif message.tool_calls and message.role == "assistant":
            for call in message.tool_calls:
                if call.id in used or call.id in ids:
                    return None
                ids.add(call.id)
                waiting.add(call.id)
    return None if waiting else ids


class ToolCallPairer:
    """Pairs tool calls incrementally in a growing conversation: adding a message does not process the earlier ones again.

    Call `settle` before you read `messages`, `sources` or `repairs`.

    Args:
        allow_early_results: Whether a result may belong to a call behind it. Switch it off where
            results are known to be written after their calls.
        describe_turn: Returns the text that names a message in a repair, given its index. The
            default is `turns[index]`.
    """

    def __init__(
        self,
        *,
        allow_early_results: bool = True,
        describe_turn: Callable[[int], str] = "turns[{}]".format,
    ) -> None:
        self.messages: list[Message] = []
        self.sources: list[int] = []
        self._allow_early_results = allow_early_results
        self._describe_turn = describe_turn
        self._turns: list[Message] = []
        self._latest: _Block | None = None
        self._settled = 0
        """The messages that the last `settle` has seen."""
        self._unsettled: dict[int, _Block] = {}
        self._used: set[str] = {""}  # an empty id cannot be answered, so it counts as used
        self._counters: defaultdict[str, int] = defaultdict(lambda: 1)
        self._waiting: defaultdict[str, list[_OpenCalls]] = defaultdict(list)
        self._answered: set[str] = set()
        # Results that wait for a call, by call id. The key None holds results that no call may
        # take.
        self._pool: defaultdict[str | None, deque[int]] = defaultdict(deque)
        self._lasting: list[tuple[int, Repair]] = []
        self._missing: dict[int, list[tuple[int, Repair]]] = {}

    def add(self, message: Message) -> None:
        """Append a message."""
        turn = len(self._turns)
        if not is_instance(message, Message):
            raise InvalidArgumentError(
                f"{self._describe_turn(turn)} must be a Message, not {message!r:.80}: "
                "messages of a provider are read by messages_from_chat(messages), messages_from_responses or messages_from_anthropic."
            )
        self._turns.append(message)
        if message.role == "tool":
            self._add_result(turn, message.tool_call_id)
        else:
            self._add_calls(turn, message)

    def extend(self, messages: Sequence[Message]) -> None:
        """Append messages. Where nothing in them has to be repaired, no call is looked at again."""
        ids = _find_paired_ids(messages, self._used)
        if ids is None:
            for message in messages:
                self.add(message)
            return
        turn = len(self._turns)
        self._turns += messages
        self.messages += messages
        self.sources += range(turn, len(self._turns))
        self._latest = None
        self._used |= ids
        self._answered |= ids

    def settle(self) -> int:
        """Bring `messages` and `sources` up to date.

        Returns the first index in them that changed.
        """
        first, self._settled = self._settled, len(self.messages)
        for block in self._unsettled.values():
            first = min(first, block.start)
            self._settle_block(block)
        self._unsettled.clear()
        return first

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs, in the order of the conversation."""
        orphans = (
            self._locate_repair(
                turn,
                "orphan result",
                f"no call {self._turns[turn].tool_call_id!r} was recorded for this result; it was dropped.",
            )
            for turn in chain(*self._pool.values())
        )
        found = chain(self._lasting, orphans, *self._missing.values())
        return tuple(repair for _, repair in sorted(found, key=lambda item: item[0]))

    def _add_calls(self, turn: int, message: Message) -> None:
        calls = message.tool_calls if message.role == "assistant" else ()
        if not calls:  # most messages have none
            self._latest = None
            self.messages.append(message)
            self.sources.append(turn)
            return
        block = _Block(
            turn,
            len(self.messages),
            tuple(_PairedCall(call, self._make_unique(call.id)) for call in calls),
        )
        self._latest = block
        self.messages += [message] * (1 + len(calls))
        self.sources += [turn] * (1 + len(calls))
        self._unsettled[block.start] = block
        for call in block.calls:
            key = call.call.id
            if call.id != key:
                self._add_repair(
                    turn,
                    "repeated call id",
                    f"the id {key!r} is in use; this call and its result are now {call.id!r}.",
                )
            rounds = self._waiting[key]
            if not rounds or rounds[-1].block is not block:
                rounds.append(_OpenCalls(block))
            if waiting := self._pool.get(key):
                call.result, call.moved = waiting.popleft(), True
                rounds[-1].answered_early.append(call)
            else:
                rounds[-1].unanswered.append(call)

    def _make_unique(self, name: str) -> str:
        unique = name
        while unique in self._used:
            self._counters[name] += 1
            unique = f"{name or 'call'}_{self._counters[name]}"
        self._used.add(unique)
        return unique

    def _add_result(self, turn: int, key: str | None) -> None:
        # A result belongs to the latest message that uses its id; within that message, results
        # follow the order of the calls.
        rounds = self._waiting.get(key) if key is not None else None
        if key is None:
            self._add_repair(turn, "orphan result", "a tool message without a call id was dropped.")
        elif rounds:
            latest = rounds[-1]
            call = (latest.unanswered or latest.answered_early).popleft()
            if call.result is not None:
                self._pool[key].appendleft(call.result)
            call.result, call.moved = turn, latest.block is not self._latest
            self._unsettled[latest.block.start] = latest.block
            self._answered.add(key)
            if not latest.unanswered and not latest.answered_early:
                rounds.pop()
            if not rounds:
                del self._waiting[key]
        elif key in self._answered:
            self._add_repair(
                turn, "repeated result", f"call {key!r} has a result already; this one was dropped."
            )
        else:
            self._pool[key if self._allow_early_results else None].append(turn)

    def _settle_block(self, block: _Block) -> None:
        """Write the messages of one block."""
        message = self._turns[block.turn]
        if any(call.id != call.call.id for call in block.calls):
            message = attrs.evolve(
                message, tool_calls=tuple(attrs.evolve(c.call, id=c.id) for c in block.calls)
            )
        self.messages[block.start] = message
        found: list[tuple[int, Repair]] = []
        # results in their recorded order, missing ones last
        ordered = sorted(
            block.calls, key=lambda call: math.inf if call.result is None else call.result
        )
        for place, call in enumerate(ordered, block.start + 1):
            self.sources[place] = block.turn if call.result is None else call.result
            if call.result is None:
                found.append(
                    self._locate_repair(
                        block.turn,
                        "missing result",
                        f"call {call.id!r} has no result; {MISSING_TOOL_RESULT!r} answers it.",
                    )
                )
                self.messages[place] = Message(
                    role="tool", content=(MISSING_TOOL_RESULT,), tool_call_id=call.id
                )
                continue
            if call.moved:
                found.append(
                    self._locate_repair(
                        call.result,
                        "moved result",
                        f"it was moved behind call {call.id!r} in {self._describe_turn(block.turn)}.",
                    )
                )
            result = self._turns[call.result]
            self.messages[place] = (
                result
                if result.tool_call_id == call.id
                else attrs.evolve(result, tool_call_id=call.id)
            )
        self._missing.pop(block.turn, None)
        if found:
            self._missing[block.turn] = found

    def _add_repair(self, turn: int, kind: str, detail: str) -> None:
        self._lasting.append(self._locate_repair(turn, kind, detail))

    def _locate_repair(self, turn: int, kind: str, detail: str) -> tuple[int, Repair]:
        return turn, Repair(kind=kind, detail=f"{self._describe_turn(turn)}: {detail}")


@attrs.define(eq=False)
class _PairedCall:
    """One occurrence of a tool call."""

    call: ToolCall
    id: str
    """The id in the repaired conversation; unique."""
    result: int | None = None
    """The index of the message that answers the call."""
    moved: bool = False
    """Whether the result must be moved behind the call."""


@attrs.define(eq=False)
class _Block:
    """A message with tool calls.

    It takes one index in the output and one more per call, so indices never shift.
    """

    turn: int
    start: int
    calls: tuple[_PairedCall, ...]


@attrs.define(eq=False)
class _OpenCalls:
    """The calls of one message that share an id and may still get a result."""

    block: _Block
    unanswered: deque[_PairedCall] = attrs.field(factory=deque["_PairedCall"])
    answered_early: deque[_PairedCall] = attrs.field(factory=deque["_PairedCall"])
    """Calls answered by an earlier result, which a later result replaces."""
