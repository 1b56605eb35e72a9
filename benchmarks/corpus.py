"""Write a corpus of synthetic conversations, to measure runs over many files: `python -m benchmarks.corpus --conversations 100000 -o DIR`.

Each file is a list of messages in OpenAI's format: an agent with two tool calls, of about 1,400
characters. The same number of the same seed makes the same files. See docs/at-scale.md.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

FILES_PER_FOLDER = 1_000
WORDS = (
    "parser",
    "index",
    "cache",
    "retry",
    "token",
    "budget",
    "window",
    "branch",
    "commit",
    "socket",
    "buffer",
    "queue",
    "schema",
    "route",
    "layout",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=2, help="tool calls of a conversation")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    start, size = time.perf_counter(), 0
    for number in range(options.conversations):
        folder = options.output / f"{number // FILES_PER_FOLDER:06}"
        if number % FILES_PER_FOLDER == 0:
            folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(make_conversation(number, rounds=options.rounds)).encode()
        (folder / f"{number:09}.json").write_bytes(content)
        size += len(content)
    print(
        f"{options.conversations:,} conversations, {size / 1e6:,.1f} MB in {time.perf_counter() - start:,.1f} s"
    )


def make_conversation(number: int, *, rounds: int = 2) -> list[dict[str, object]]:
    """Return the messages of a conversation: a task, some calls of a tool with their results, and an answer that uses them again."""
    chance = random.Random(number)
    module = f"src/{chance.choice(WORDS)}_{number}.py"
    messages: list[dict[str, object]] = [
        {
            "role": "system",
            "content": "You are a programmer. Read the files before you change them.",
        },
        {"role": "user", "content": f"Mend load_{number} in {module}: {make_text(chance, 15)}"},
    ]
    for at in range(rounds):
        call = f"call_{number}_{at}"
        arguments = json.dumps({"path": module, "from": at * 40})
        messages.append(
            {
                "role": "assistant",
                "content": make_text(chance, 12),
                "tool_calls": [
                    {
                        "id": call,
                        "type": "function",
                        "function": {"name": "read", "arguments": arguments},
                    }
                ],
            }
        )
        messages.append(
            {
                "role": "tool",
                "tool_call_id": call,
                "content": f"def step_{number}_{at}():\n    {make_text(chance, 15)}",
            }
        )
    messages.append(
        {
            "role": "assistant",
            "content": f"step_{number}_{rounds - 1} in {module} lost a value; it is mended. {make_text(chance, 15)}",
        }
    )
    return messages


def make_text(chance: random.Random, words: int) -> str:
    return " ".join(
        chance.choice(WORDS) + (f"_{chance.randrange(10_000)}" if chance.random() < 0.1 else "")
        for _ in range(words)
    )


if __name__ == "__main__":
    main()
