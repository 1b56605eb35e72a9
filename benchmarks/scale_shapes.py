"""Measure how the time of pages, imports, `fit` and of further shapes of prompts grows: `python -m benchmarks.scale_shapes`."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import linear_regression
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from benchmarks.recorded import fresh_messages, read_texts, record
from benchmarks.timing import medians
from benchmarks.tokenizing import encoding, fresh_tokenizer
from benchmarks.workload import SHORT, fresh, texts
from promptkit import (
    ContextBudget,
    JsonlStore,
    KeepWith,
    Message,
    Renderer,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolDefinition,
    Transcript,
    UserMessage,
    fit,
    render,
)
from promptkit.agent.session.attachments import TextAttachment, fit_attachments, read_attachments
from promptkit.elements import Expandable
from promptkit.lab.recordings import import_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from promptkit.elements.element import PromptElement

__all__ = [
    "MEASURES",
    "measure_fit",
    "measure_import_over_json",
    "measure_shapes",
    "measure_view",
]

REQUESTS: Final = (1_000, 10_000)
"""The requests of the conversations whose pages are written."""

FIT_MESSAGES: Final = (100, 1_000)
SHARES: Final = (0.1, 0.5, 0.9)
PAGE: Final = (200, 400)
"""The fewest and the most words of the other messages."""

LONG_CHARACTERS: Final = 50_000
"""Characters of the tool result and of the arguments of a call that `fit` has to shorten."""

IMPORTED_LINES: Final = 4_000
SIZES: Final = (1_000, 4_000, 10_000, 40_000)
MAX_FILES: Final = 10_000
ROUNDS: Final = 27
SHAPE_ROUNDS: Final = 3


def measure_view() -> dict[int, float]:
    """Return for each number of requests the seconds of processor time of `promptkit transcript view`."""
    found: dict[int, float] = {}
    with TemporaryDirectory() as folder:
        for requests in REQUESTS:
            file = Path(folder, f"{requests}.jsonl")
            # a turn of four messages has two requests
            Transcript(JsonlStore(file)).append_messages(*record(2 * requests).turns)
            command = [sys.executable, "-m", "promptkit", "transcript", "view", str(file), "-q"]
            before = os.times()
            subprocess.run([*command, "-o", str(file.with_suffix(".html"))], check=True)  # noqa: S603  # promptkit itself
            after = os.times()
            found[requests] = (
                after.children_user
                + after.children_system
                - before.children_user
                - before.children_system
            )
    return found


def measure_fit() -> dict[str, float]:
    """Return for each share of a conversation's tokens the time of `fit` over tokenising all texts, at the worst number of messages.

    A long tool result and long arguments of a call are shortened.
    """
    found: dict[str, float] = {}
    for messages in FIT_MESSAGES:
        conversation = _add_long(messages)
        contents = read_texts(conversation)
        tokens = sum(len(encoding().encode_ordinary(text)) for text in contents)

        def floor(contents: Sequence[str] = contents) -> Callable[[], object]:
            given = fresh(contents)
            return lambda: [len(encoding().encode_ordinary(text)) for text in given]

        def cold(
            share: float, given: Sequence[Message] = conversation, tokens: int = tokens
        ) -> Callable[[], object]:
            anew, tokenizer = fresh_messages(given), fresh_tokenizer()
            return lambda: fit(anew, budget=int(tokens * share), tokenizer=tokenizer)

        cases = {f"{share:g}": lambda share=share: cold(share) for share in SHARES}
        timed = medians({"floor": floor, **cases}, ROUNDS, choose=min)
        for share in cases:
            found[share] = max(found.get(share, 0), timed[share] / timed["floor"])
    return found


def _add_long(messages: int) -> tuple[Message, ...]:
    """Return a conversation of some pages, in which a call has long arguments, and its result is long."""
    long = " ".join(texts(200, (70, 90), seed=9))[:LONG_CHARACTERS]
    code = "\n".join(long[at : at + 60].replace("\n", " ") for at in range(0, len(long), 60))
    call = ToolCall(
        id="long", name="write_file", arguments=json.dumps({"path": "src/long.py", "content": code})
    )
    pages = [
        Message(role="assistant" if number % 2 else "user", content=(text,))
        for number, text in enumerate(texts(messages, PAGE))
    ]
    return (
        *pages[:4],
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=(long,), tool_call_id="long"),
        *pages[4:],
    )


def measure_import_over_json() -> float:
    """Return the time to import a recording of Claude Code over that of `json.loads` of its lines."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "session.jsonl")
        file.write_text("".join(f"{json.dumps(line)}\n" for line in _write_lines()))

        def parse() -> Callable[[], object]:
            lines = file.read_text().splitlines()
            return lambda: [json.loads(line) for line in lines]

        cases = {"json": parse, "import": lambda: lambda: import_recording(file)}
        timed = medians(cases, ROUNDS, choose=min)
    return timed["import"] / timed["json"]


def _write_lines() -> Iterator[dict[str, object]]:
    for number, message in enumerate(record(IMPORTED_LINES).turns):
        blocks: list[dict[str, object]] = [
            {"type": "text", "text": part} for part in message.content if isinstance(part, str)
        ]
        if message.role == "tool":
            blocks = [
                {
                    "type": "tool_result",
                    "tool_use_id": message.tool_call_id,
                    "content": message.text,
                }
            ]
        blocks.extend(
            {
                "type": "tool_use",
                "id": call.id,
                "name": call.name,
                "input": json.loads(call.arguments),
            }
            for call in message.tool_calls
        )
        role = "assistant" if message.role == "assistant" else "user"
        content: dict[str, object] = {"role": role, "content": blocks}
        if role == "assistant":
            usage = {"input_tokens": 9, "cache_read_input_tokens": 900, "output_tokens": 60}
            content |= {"id": f"msg_{number}", "model": "claude-sonnet-4-5", "usage": usage}
        yield {
            "type": role,
            "uuid": f"line-{number}",
            "parentUuid": f"line-{number - 1}" if number else None,
            "sessionId": "session",
            "timestamp": f"2026-11-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000Z",
            "cwd": "/home/user/project",
            "version": "2.0.0",
            "message": content,
        }


def measure_shapes() -> dict[str, float]:
    """Return for each shape the slope of log time over log number; 1 is linear."""
    return {name: _find_slope(name, prepare) for name, prepare in _SHAPES.items()}


def _find_slope(name: str, prepare: Callable[[Sequence[str]], Callable[[], object]]) -> float:
    sizes = [size for size in SIZES if name != "files" or size <= MAX_FILES]
    contents = texts(sizes[-1], SHORT)
    cases = {str(size): lambda size=size: prepare(fresh(contents[:size])) for size in sizes}
    spent = medians(cases, SHAPE_ROUNDS).values()
    return linear_regression(list(map(math.log, sizes)), list(map(math.log, spent))).slope


def _render(
    write: Callable[[int, str], PromptElement],
) -> Callable[[Sequence[str]], Callable[[], object]]:
    """Return a case: messages rendered at half of their tokens, the message of each text written by a function."""

    def prepare(contents: Sequence[str]) -> Callable[[], object]:
        prompt = [write(number, text) for number, text in enumerate(contents)]
        tokens = sum(len(encoding().encode_ordinary(text)) + 4 for text in contents)
        renderer = Renderer(budget=tokens // 2, tokenizer=fresh_tokenizer())
        return lambda: renderer.render(prompt).messages

    return prepare


def _count_tools(contents: Sequence[str]) -> Callable[[], object]:
    tools = [
        ToolDefinition(
            name=f"tool_{number}",
            description=text,
            parameters={"type": "object", "properties": {"path": {"type": "string"}}},
        )
        for number, text in enumerate(contents)
    ]
    tokenizer = fresh_tokenizer()
    return lambda: (
        render(
            UserMessage()["Fix the parser."], budget=100_000_000, tokenizer=tokenizer, tools=tools
        ).tokens
    )


def _attach_files(contents: Sequence[str]) -> Callable[[], object]:
    files = [
        TextAttachment(name=f"src/{number}.py", text=text) for number, text in enumerate(contents)
    ]
    budget = ContextBudget(window=20 * len(contents))
    return lambda: fit_attachments(
        read_attachments(files), budget=budget, tokenizer=fresh_tokenizer()
    )


_SHAPES: Final[Mapping[str, Callable[[Sequence[str]], Callable[[], object]]]] = {
    "tools": _count_tools,
    "token_limit": _render(
        lambda number, text: UserMessage(priority=number)[
            TokenLimit(max_tokens=12)[TextChunk(priority=1)[text], TextChunk(priority=2)["kept"]]
        ]
    ),
    "keep_with": _render(
        lambda number, text: KeepWith(group=number // 2, priority=number)[UserMessage()[text]]
    ),
    "expandable": _render(
        lambda number, text: UserMessage(priority=number)[Expandable(value=lambda _: text)]
    ),
    "files": _attach_files,
}

MEASURES: Final[Mapping[str, Callable[[], object]]] = {
    "view": measure_view,
    "fit": measure_fit,
    "import_over_json": measure_import_over_json,
    "shapes": measure_shapes,
}
"""Name of a figure → what measures it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_shapes", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=sorted(MEASURES), help="measure this one; repeatable"
    )
    asked = parser.parse_args(arguments)
    encoding()  # is loaded once, and no part of any figure
    print(
        json.dumps({name: MEASURES[name]() for name in asked.only or MEASURES}, indent=2),
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
