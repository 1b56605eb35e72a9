"""A process that holds many conversations at once.

It may be killed at any moment, and another takes up its conversations.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import openai

from tests.soak.conversation import Conversation, Counts

__all__ = ["count_open_files", "read_memory"]

CLIENT_SECONDS = 8.0
"""How long the client waits for an answer."""
LAST_SECONDS = 2.0
"""How long the turns at the end may go on before they are cancelled."""


def count_open_files() -> int:
    """The number of open files of this process; 0 where the system does not tell."""
    gc.collect()
    place = Path("/proc/self/fd")
    return len(list(place.iterdir())) if place.is_dir() else 0


def read_memory() -> float:
    """The memory of this process in MB; 0 where the system does not tell."""
    place = Path("/proc/self/statm")
    return (
        int(place.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        if place.exists()
        else 0.0
    )


async def _measure(samples: list[tuple[float, float]]) -> None:
    while True:
        samples.append((time.monotonic(), read_memory()))
        await asyncio.sleep(0.5)


async def _hold(url: str, folder: Path, places: range, seed: int) -> dict[str, object]:
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    counts = Counts()
    before = count_open_files()
    samples: list[tuple[float, float]] = []
    measuring = asyncio.create_task(_measure(samples))
    async with openai.AsyncOpenAI(
        base_url=url, api_key="none", max_retries=0, timeout=CLIENT_SECONDS
    ) as client:
        conversations = [
            Conversation(
                place=place,
                folder=folder,
                client=client,
                counts=counts,
                rng=random.Random(seed * 1_000 + place),
            )
            for place in places
        ]
        tasks = [asyncio.create_task(each.hold(ends)) for each in conversations]
        print("ready", flush=True)
        await ends.wait()
        await asyncio.wait(tasks, timeout=LAST_SECONDS)
        for task in tasks:
            task.cancel()  # in the middle of a turn, as a program that ends may
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                counts.errors.append(f"{type(ended).__name__}: {ended}")
    measuring.cancel()
    for _ in range(20):  # a connection that is closed ends after a few turns of the loop
        await asyncio.sleep(0.1)
        gc.collect()
        if count_open_files() <= before:
            break
    here = asyncio.current_task()
    left = [task.get_name() for task in asyncio.all_tasks() if task not in {here, measuring}]
    return {
        "opened": counts.opened,
        "reopened": counts.reopened,
        "cancelled": counts.cancelled,
        "turns": counts.turns,
        "awaits": sorted(counts.awaits),
        "errors": [*counts.errors, *(f"a task is left running: {name}" for name in left)],
        "open_files": count_open_files() - before,
        "memory": samples,
    }


def main() -> int:
    """The exit code.

    Arguments: the URL, the folder, the first place, the place after the last, the seed.
    """
    url, folder, first, last, seed = sys.argv[1:]
    made = asyncio.run(_hold(url, Path(folder), range(int(first), int(last)), int(seed)))
    print(json.dumps(made), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
