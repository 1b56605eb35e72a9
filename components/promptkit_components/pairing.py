"""Tool calls and their results, brought together again: what a recording really contains, made into what providers accept."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import attrs

from promptkit import Message, Repair, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["NO_RESULT", "Paired", "pair"]

NO_RESULT = "[no result was recorded]"
"""What answers a call that the recording does not answer."""


@attrs.frozen(kw_only=True)
class Paired:
    """Messages in which every call is answered once, right behind it, and every result answers a call."""

    messages: tuple[Message, ...]
    """Calls carry ids that are unique in the conversation; results follow the message that holds their calls."""

    repairs: tuple[Repair, ...] = ()
    """What was mended, in the order of the recording."""


@attrs.define(eq=False)
class _Call:
    """One occurrence of a call; `id` is unique, `result` the index of the message that answers it."""

    call: ToolCall
    id: str
    message: int
    result: int | None = None


def pair(turns: Sequence[Message]) -> Paired:
    """A recording with its calls and results paired; what was right stays byte for byte. Linear in the number of messages.

    * a call without a result is answered by `NO_RESULT`: what was tried stays visible to the model
    * a result of no call is dropped
    * of several results of one call the first stays: what a provider has cached does not change when a repeat is appended
    * a call id that occurs again is made unique, in the call and in its result
    * a result that stands before its call, or apart from it, is moved behind the call
    """
    calls = _calls(turns)
    found = _Findings()
    _match(turns, calls, found)
    messages: list[Message] = []
    for index, message in enumerate(turns):
        if message.role == "tool":
            continue
        here = calls.get(index, ())
        messages.append(message if all(c.id == c.call.id for c in here) else _renamed(message, here))
        messages += _results(turns, here, found)
    return Paired(messages=tuple(messages), repairs=tuple(found))


class _Findings:
    """Repairs, sorted by the message that they are about."""

    def __init__(self) -> None:
        self._found: list[tuple[int, Repair]] = []

    def add(self, index: int, kind: str, detail: str) -> None:
        self._found.append((index, Repair(kind=kind, detail=f"turns[{index}]: {detail}")))

    def __iter__(self) -> Iterator[Repair]:
        return (repair for _, repair in sorted(self._found, key=lambda item: item[0]))


def _calls(turns: Sequence[Message]) -> dict[int, tuple[_Call, ...]]:
    taken = {call.id for message in turns for call in message.tool_calls}
    seen: set[str] = {""}  # an empty id answers to nothing, so it counts as one that is in use
    counters: defaultdict[str, int] = defaultdict(lambda: 1)
    calls: dict[int, tuple[_Call, ...]] = {}
    for index, message in enumerate(turns):
        if message.role != "assistant" or not message.tool_calls:
            continue
        here: list[_Call] = []
        for call in message.tool_calls:
            unique = call.id if call.id not in seen else _fresh(call.id or "call", counters, taken)
            seen.add(unique)
            taken.add(unique)
            here.append(_Call(call=call, id=unique, message=index))
        calls[index] = tuple(here)
    return calls


def _fresh(name: str, counters: defaultdict[str, int], taken: set[str]) -> str:
    while True:
        counters[name] += 1
        if (candidate := f"{name}_{counters[name]}") not in taken:
            return candidate


def _match(turns: Sequence[Message], calls: dict[int, tuple[_Call, ...]], found: _Findings) -> None:
    # Rounds that re-use an id answer the latest one; within a round, results come in the order of the calls.
    waiting: defaultdict[str, list[deque[_Call]]] = defaultdict(list)
    answered: set[str] = set()
    early: defaultdict[str, deque[int]] = defaultdict(deque)
    for index, message in enumerate(turns):
        for call in calls.get(index, ()):
            rounds = waiting[call.call.id]
            if rounds and rounds[-1][0].message == index:
                rounds[-1].append(call)
            else:
                rounds.append(deque([call]))
            if call.id != call.call.id:
                found.add(index, "repeated call id", f"the id {call.call.id!r} is in use; this call and its result are now {call.id!r}.")
        if message.role != "tool":
            continue
        key = message.tool_call_id
        if key is None:
            found.add(index, "orphan result", "a tool message without a call id was dropped.")
        elif rounds := waiting[key]:
            rounds[-1].popleft().result = index
            answered.add(key)
            if not rounds[-1]:
                rounds.pop()
        elif key in answered:
            found.add(index, "repeated result", f"call {key!r} has a result already; this one was dropped.")
        else:
            early[key].append(index)
    _match_early(waiting, early, found)


def _match_early(waiting: dict[str, list[deque[_Call]]], early: dict[str, deque[int]], found: _Findings) -> None:
    for key, indices in early.items():
        for call in (call for calls in waiting.get(key, ()) for call in calls):
            if indices:
                call.result = indices.popleft()
        for index in indices:
            found.add(index, "orphan result", f"no call {key!r} was recorded for this result; it was dropped.")


def _renamed(message: Message, calls: Sequence[_Call]) -> Message:
    return attrs.evolve(message, tool_calls=tuple(attrs.evolve(c.call, id=c.id) for c in calls))


def _results(turns: Sequence[Message], calls: Sequence[_Call], found: _Findings) -> Iterator[Message]:
    if not calls:
        return
    here = calls[0].message
    last = here + 1
    while last < len(turns) and turns[last].role == "tool":
        last += 1
    for call in sorted(calls, key=lambda c: len(turns) if c.result is None else c.result):
        if call.result is None:
            found.add(here, "missing result", f"call {call.id!r} has no result; {NO_RESULT!r} answers it.")
            yield Message(role="tool", content=(NO_RESULT,), tool_call_id=call.id)
            continue
        if not here < call.result < last:
            found.add(call.result, "moved result", f"it was moved behind call {call.id!r} in turns[{here}].")
        result = turns[call.result]
        yield result if result.tool_call_id == call.id else attrs.evolve(result, tool_call_id=call.id)
