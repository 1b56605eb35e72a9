"""The workload: one history in three shapes, and how much of it may stay."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

import attrs

from benchmarks.workload import LONG, SHORT, texts
from promptkit import count_request

if TYPE_CHECKING:
    from promptkit.messages import Json

__all__ = ["MODEL", "SHAPES", "ShapeName", "WireMessage", "Work", "count", "key", "make"]

MODEL: Final = "gpt-4o"
"""The model whose rules every result is counted by: o200k_base, and a framing that is known."""

ShapeName: TypeAlias = Literal["messages", "tools", "chunks"]
SHAPES: Final[tuple[ShapeName, ...]] = get_args(ShapeName)

WireMessage: TypeAlias = "Mapping[str, Json]"
"""A message as Chat Completions takes it."""

RESULT = 2  # places from the end of a turn: request, answer, result, call
CALL = 3
TURN = 4


@attrs.frozen(kw_only=True)
class Work:
    """What a peer is asked: keep the newest of `items` that fit into `budget` tokens.

    The items are the messages of a request, or in the shape `chunks` the lines of its only message.
    """

    shape: ShapeName
    size: int
    items: tuple[WireMessage, ...]
    tokens: int
    """What all items come to in one request, counted exactly."""
    budget: int

    def to_json(self) -> str:
        """What an adapter reads."""
        return json.dumps({"shape": self.shape, "budget": self.budget, "items": self.items}, ensure_ascii=False)

    def most(self) -> int:
        """How many of the newest items fit, no result without its call: what there is to keep."""
        fewest, over = 0, self.size + 1
        while over - fewest > 1:
            middle = (fewest + over) // 2
            if count(_request(self.shape, self.items[self.size - middle :])) <= self.budget:
                fewest = middle
            else:
                over = middle
        return fewest - 1 if fewest and self.items[self.size - fewest]["role"] == "tool" else fewest


def make(shape: ShapeName, size: int) -> Work:
    """A workload of `size` items, of whose exact tokens half may stay. The same arguments make the same."""
    items = MAKERS[shape](size)
    if len({key(item) for item in items}) < size:
        message = f"Two of {size:,} items are alike, so that it could not be told which of them a peer kept."
        raise ValueError(message)
    tokens = count(_request(shape, items))
    return Work(shape=shape, size=size, items=items, tokens=tokens, budget=tokens // 2)


def _request(shape: ShapeName, items: Sequence[WireMessage]) -> list[WireMessage]:
    """The messages that these items are in a request."""
    if shape != "chunks":
        return list(items)
    return [{"role": "user", "content": "\n".join(str(item["content"]) for item in items)}] if items else []


def count(messages: Sequence[WireMessage]) -> int:
    """The tokens of a request of these messages, as OpenAI bills them."""
    return count_request({"model": MODEL, "messages": cast("list[Json]", list(messages))}).tokens  # a list is a JSON value


def key(item: WireMessage) -> str:
    """What tells an item from every other: the id of its call, or its text."""
    calls = item.get("tool_calls")
    if calls:
        return str(cast("list[Mapping[str, Json]]", calls)[0]["id"])  # as Chat Completions has it
    return str(item.get("content", ""))


def _messages(size: int) -> tuple[WireMessage, ...]:
    """User and assistant in turn; the last is a user's."""
    contents = texts(size, LONG)
    return tuple({"role": "assistant" if (size - index) % 2 == 0 else "user", "content": text} for index, text in enumerate(contents))


def _tools(size: int) -> tuple[WireMessage, ...]:
    """Turns of four messages: a request, a call, its result, an answer. The last message is a user's.

    By turns a call reads a file, in a few words, and writes one, with the whole text in its arguments.
    """
    contents = texts(size, LONG)
    return tuple(_in_turn(text, index, (size - 1 - index) % TURN) for index, text in enumerate(contents))


def _in_turn(text: str, index: int, place: int) -> WireMessage:
    """The message at a place from the end of its turn. A result that would come first has no call: it is a request then."""
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
    """Lines of some ten words each, for one message of a user."""
    return tuple({"role": "user", "content": " ".join(text.split())} for text in texts(size, SHORT))


MAKERS: Final[Mapping[ShapeName, Callable[[int], tuple[WireMessage, ...]]]] = {"messages": _messages, "tools": _tools, "chunks": _chunks}
