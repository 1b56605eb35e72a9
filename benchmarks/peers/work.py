"""The workloads: one history in three shapes, with a budget for a part of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

import attrs

from benchmarks.workload import LONG, SHORT, texts
from promptkit import count_request

if TYPE_CHECKING:
    from promptkit.messages import Json

__all__ = ["MODEL", "SHAPES", "ShapeName", "WireMessage", "Work", "count", "key", "make_workload"]

MODEL: Final = "gpt-4o"
"""The model whose rules count every result: o200k_base, and documented message framing."""

ShapeName: TypeAlias = Literal["messages", "tools", "chunks"]
SHAPES: Final[tuple[ShapeName, ...]] = get_args(ShapeName)

WireMessage: TypeAlias = "Mapping[str, Json]"
"""A message in the format of Chat Completions."""

RESULT = 2  # places from the end of a turn: request, answer, result, call
CALL = 3
TURN = 4


@attrs.frozen(kw_only=True)
class Work:
    """A task for a peer: keep the newest of `items` that fit into `budget` tokens.

    The items are the messages of a request, or in the shape `chunks` the lines of its only message.
    """

    shape: ShapeName
    size: int
    items: tuple[WireMessage, ...]
    tokens: int
    """The tokens of a request with all items, counted exactly."""
    budget: int

    def to_json(self) -> str:
        """Return the workload as JSON for an adapter."""
        return json.dumps({"shape": self.shape, "budget": self.budget, "items": self.items}, ensure_ascii=False)

    def most(self) -> int:
        """Return how many of the newest items fit, without a result whose call does not fit."""
        fewest, over = 0, self.size + 1
        while over - fewest > 1:
            middle = (fewest + over) // 2
            if count(_request(self.shape, self.items[self.size - middle :])) <= self.budget:
                fewest = middle
            else:
                over = middle
        return fewest - 1 if fewest and self.items[self.size - fewest]["role"] == "tool" else fewest


def make_workload(shape: ShapeName, size: int) -> Work:
    """Create a workload of `size` items with a budget of half of their tokens. The same arguments give the same workload."""
    items = GENERATORS[shape](size)
    if len({key(item) for item in items}) < size:
        message = f"Two of {size:,} items are alike, so that it could not be told which of them a peer kept."
        raise ValueError(message)
    tokens = count(_request(shape, items))
    return Work(shape=shape, size=size, items=items, tokens=tokens, budget=tokens // 2)


def _request(shape: ShapeName, items: Sequence[WireMessage]) -> list[WireMessage]:
    """Return the messages of a request with these items."""
    if shape != "chunks":
        return list(items)
    return [{"role": "user", "content": "\n".join(str(item["content"]) for item in items)}] if items else []


def count(messages: Sequence[WireMessage]) -> int:
    """Return the tokens of a request of these messages, as OpenAI bills them."""
    return count_request({"model": MODEL, "messages": cast("list[Json]", list(messages))}).tokens  # a list is a JSON value


def key(item: WireMessage) -> str:
    """Return what identifies an item: the id of its call, or its text."""
    calls = item.get("tool_calls")
    if calls:
        return str(cast("list[Mapping[str, Json]]", calls)[0]["id"])  # as Chat Completions has it
    return str(item.get("content", ""))


def _messages(size: int) -> tuple[WireMessage, ...]:
    """Return alternating user and assistant messages; the last is a user message."""
    contents = texts(size, LONG)
    return tuple({"role": "assistant" if (size - index) % 2 == 0 else "user", "content": text} for index, text in enumerate(contents))


def _tools(size: int) -> tuple[WireMessage, ...]:
    """Return turns of four messages: a user message, a call, its result, a reply. The last message is a user message.

    Every other call writes a file, with the whole text in its arguments; the others read one, with short arguments.
    """
    contents = texts(size, LONG)
    return tuple(_in_turn(text, index, (size - 1 - index) % TURN) for index, text in enumerate(contents))


def _in_turn(text: str, index: int, place: int) -> WireMessage:
    """Return the message at a position from the end of its turn. A result that would come first, without its call, is a user message."""
    if place == CALL:
        path = f"src/module_{index}.py"
        written = index // TURN % 2 > 0
        arguments = json.dumps({"path": path, "content": text} if written else {"path": path}, ensure_ascii=False)
        function = {"name": "write_file" if written else "read_file", "arguments": arguments}
        return {"role": "assistant", "content": "", "tool_calls": [{"id": f"call_{index}", "type": "function", "function": function}]}
    if place == RESULT and index:
        return {"role": "tool", "content": text, "tool_call_id": f"call_{index - 1}"}
    return {"role": "assistant" if place == 1 else "user", "content": text}


def _chunks(size: int) -> tuple[WireMessage, ...]:
    """Return lines of some ten words each, for one user message."""
    return tuple({"role": "user", "content": " ".join(text.split())} for text in texts(size, SHORT))


GENERATORS: Final[Mapping[ShapeName, Callable[[int], tuple[WireMessage, ...]]]] = {
    "messages": _messages,
    "tools": _tools,
    "chunks": _chunks,
}
