"""The workloads: one history in three shapes with a budget for a part of it, and the README's prompt at several budgets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

import attrs

from benchmarks.recorded import BUDGETS, LOG_SHARE, TURN, record
from benchmarks.workload import LONG, SHORT, texts
from promptkit import count_request
from promptkit.wire.chat import to_chat

if TYPE_CHECKING:
    from promptkit.messages import Json

__all__ = [
    "HALF",
    "MODEL",
    "SHAPES",
    "ShapeName",
    "WireMessage",
    "Work",
    "budget_names",
    "count",
    "key",
    "make_workload",
]

MODEL: Final = "gpt-4o"
"""The model whose rules count every result: o200k_base, and documented message framing."""

ShapeName: TypeAlias = Literal["messages", "tools", "chunks", "history"]
SHAPES: Final[tuple[ShapeName, ...]] = get_args(ShapeName)

WireMessage: TypeAlias = "Mapping[str, Json]"
"""A message in the format of Chat Completions."""

HALF: Final = "half"
"""The budget of every shape: half of the tokens of all items. `history` has others besides."""

RESULT = 2  # places from the end of a turn: request, answer, result, call
CALL = 3


@attrs.frozen(kw_only=True)
class Work:
    """A task for a peer: keep the newest of `size` items that fit into `budget` tokens.

    The items are the messages of a request, or in the shape `chunks` the lines of its only message.
    In the shape `history` the recorded messages stand between the instructions on one side, and a
    log and the request on the other. Instructions and request have to stay; the log is shortened to
    its end, a quarter of the budget at most.
    """

    shape: ShapeName
    size: int
    items: tuple[WireMessage, ...]
    tokens: int
    """The tokens of a request with all items, counted exactly."""
    budget: int
    at: str = HALF
    """The name of the budget."""

    def to_json(self) -> str:
        """Return the workload as JSON for an adapter."""
        return json.dumps(
            {"shape": self.shape, "budget": self.budget, "items": self.items}, ensure_ascii=False
        )

    def most(self) -> int:
        """Return how many of the newest items fit, without a result whose call does not fit.

        In the shape `history` these are recorded messages, beside as many whole lines of the log as
        it may have.
        """
        recorded, around = self._recorded(), self._around()
        fewest, over = 0, self.size + 1
        while over - fewest > 1:
            middle = (fewest + over) // 2
            if count(self._request(middle, around)) <= self.budget:
                fewest = middle
            else:
                over = middle
        return fewest - 1 if fewest and recorded[self.size - fewest]["role"] == "tool" else fewest

    def newest(self, number: int) -> list[WireMessage]:
        """Return the request of this many of the newest items.

        In the shape `history` it has the other items, too, with the log shortened.
        """
        return self._request(number, self._around())

    def _request(self, number: int, around: Sequence[WireMessage]) -> list[WireMessage]:
        return [
            *around[:1],
            *_request(self.shape, self._recorded()[self.size - number :]),
            *around[1:],
        ]

    def _recorded(self) -> Sequence[WireMessage]:
        """Return the items of which the newest are kept."""
        return self.items[1:-2] if self.shape == "history" else self.items

    def _around(self) -> Sequence[WireMessage]:
        """Return the other items of `history`, with the log shortened to the lines that it may have."""
        if self.shape != "history":
            return ()
        system, log, request = self.items[0], self.items[-2], self.items[-1]
        lines = str(log["content"]).split("\n")
        first, over = len(lines), -1
        while first - over > 1:
            middle = (first + over) // 2
            if count([{**log, "content": "\n".join(lines[middle:])}]) <= self.budget // LOG_SHARE:
                first = middle
            else:
                over = middle
        return system, {**log, "content": "\n".join(lines[first:])}, request


def budget_names(shape: ShapeName) -> Sequence[str]:
    """Return the names of the budgets of a shape."""
    return tuple(BUDGETS) if shape == "history" else (HALF,)


def make_workload(shape: ShapeName, size: int, at: str = HALF) -> Work:
    """Create a workload of `size` items. The same arguments give the same workload.

    Raises ValueError if the shape `history` is to have a number of messages that is not a multiple
    of four.
    """
    items = GENERATORS[shape](size)
    if len({key(item) for item in items}) < len(items):
        raise ValueError(
            f"Two of {size:,} items are alike, so that it could not be told which of them a peer kept."
        )
    tokens = count(_request(shape, items))
    return Work(
        shape=shape, size=size, items=items, tokens=tokens, budget=BUDGETS[at] or tokens // 2, at=at
    )


def _request(shape: ShapeName, items: Sequence[WireMessage]) -> list[WireMessage]:
    """Return the messages of a request with these items."""
    if shape != "chunks":
        return list(items)
    return (
        [{"role": "user", "content": "\n".join(str(item["content"]) for item in items)}]
        if items
        else []
    )


def count(messages: Sequence[WireMessage]) -> int:
    """Return the tokens of a request of these messages, as OpenAI bills them."""
    # a list is a JSON value
    return count_request({"model": MODEL, "messages": cast("list[Json]", list(messages))}).tokens


def key(item: WireMessage) -> str:
    """Return what identifies an item: the id of its call, or its text."""
    calls = item.get("tool_calls")
    if calls:
        return str(cast("list[Mapping[str, Json]]", calls)[0]["id"])  # as Chat Completions has it
    return str(item.get("content") or "")


def _messages(size: int) -> tuple[WireMessage, ...]:
    """Return alternating user and assistant messages; the last is a user message."""
    contents = texts(size, LONG)
    return tuple(
        {"role": "assistant" if (size - index) % 2 == 0 else "user", "content": text}
        for index, text in enumerate(contents)
    )


def _tools(size: int) -> tuple[WireMessage, ...]:
    """Return turns of four messages: a user message, a call, its result, a reply.

    The last message is a user message.

    Every other call writes a file, with the whole text in its arguments; the others read one, with
    short arguments.
    """
    contents = texts(size, LONG)
    return tuple(
        _in_turn(text, index, (size - 1 - index) % TURN) for index, text in enumerate(contents)
    )


def _in_turn(text: str, index: int, place: int) -> WireMessage:
    """Return the message at a position from the end of its turn.

    A result that would come first, without its call, is a user message.
    """
    if place == CALL:
        path = f"src/module_{index}.py"
        written = index // TURN % 2 > 0
        arguments = json.dumps(
            {"path": path, "content": text} if written else {"path": path}, ensure_ascii=False
        )
        function = {"name": "write_file" if written else "read_file", "arguments": arguments}
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": f"call_{index}", "type": "function", "function": function}],
        }
    if place == RESULT and index:
        return {"role": "tool", "content": text, "tool_call_id": f"call_{index - 1}"}
    return {"role": "assistant" if place == 1 else "user", "content": text}


def _chunks(size: int) -> tuple[WireMessage, ...]:
    """Return lines of some ten words each, for one user message."""
    return tuple({"role": "user", "content": " ".join(text.split())} for text in texts(size, SHORT))


def _history(size: int) -> tuple[WireMessage, ...]:
    """Return the README's prompt with nothing left out: instructions, recorded messages, log, request."""
    if size % TURN:
        raise ValueError(
            f"the shape history has whole turns: write a multiple of {TURN} in place of {size:,}."
        )
    request = to_chat(record(size).request())
    # peers take no null for a text
    return tuple({**message, "content": message["content"] or ""} for message in request)


GENERATORS: Final[Mapping[ShapeName, Callable[[int], tuple[WireMessage, ...]]]] = {
    "messages": _messages,
    "tools": _tools,
    "chunks": _chunks,
    "history": _history,
}
