"""Run the adapter of a Python peer in the peer's environment: `python -P serve.py ADAPTER.py`.

Needs only Python.

Reads lines with the path of a workload, and writes a line of JSON for each: the processor time and
wall-clock time of one run; the processor time to tokenise every text once with the same tokenizer;
the peer's own token count of the result; the kept messages. An exception is answered as `error`.
The adapter is a script with four functions:

- `fit(work)` does what is measured, from plain data to the peer's own result
- `wire(result)` returns the result as Chat Completions messages
- `claim(result)` returns the tokens of the result as the peer counts them, or None
- `encode(text)` is the peer's tokenizer
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["answer"]


# Any: JSON, and functions of any adapter
def answer(adapter: dict[str, Any], path: str) -> dict[str, Any]:
    """Run an adapter on the workload in a file.

    The file is read again for each timed part, because a string caches its hash.

    The garbage collector is off, as in `timeit`, except for the shape `history`, the everyday
    prompt: programs run with it on.
    """
    work = _read(path)
    seconds, clock, result = _timed(
        lambda: adapter["fit"](work), collector=work["shape"] == "history"
    )
    texts, encode = (
        [text for item in _read(path)["items"] for text in _texts(item)],
        adapter["encode"],
    )
    floor, _, _ = _timed(
        lambda: sum(len(encode(text)) for text in texts), collector=work["shape"] == "history"
    )
    claim, messages = adapter["claim"](result), adapter["wire"](result)
    return {
        "seconds": seconds,
        "clock": clock,
        "floor": floor,
        "claim": claim,
        "messages": messages,
    }


def _read(path: str) -> dict[str, Any]:  # Any: JSON
    work: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))  # Any: JSON
    return work


def _texts(item: dict[str, Any]) -> list[str]:  # Any: JSON
    """Return the texts to tokenise in a message."""
    return [
        item["content"],
        *(call["function"]["arguments"] for call in item.get("tool_calls", ())),
    ]


# Any stands for whatever a peer gives back
def _timed(call: Callable[[], Any], *, collector: bool) -> tuple[float, float, Any]:
    """Return processor time and wall-clock time in seconds, and the result."""
    gc.collect()
    if not collector:
        gc.disable()
    try:
        start, began = time.process_time(), time.perf_counter()
        result = call()
        return time.process_time() - start, time.perf_counter() - began, result
    finally:
        gc.enable()


def main() -> None:
    """Answer until the input ends."""
    # What a library prints goes to the log, so that the answers stand alone.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    adapter: dict[str, Any] | None = None  # Any: functions of any adapter
    for line in sys.stdin:
        try:
            if adapter is None:
                adapter = runpy.run_path(sys.argv[1])
                # what a library brings along need not be looked through before every run
                gc.freeze()
            reply = answer(adapter, line.strip())
        except Exception as error:  # noqa: BLE001  # whatever a peer raises is its answer
            text = str(error).strip().partition("\n")[0]
            reply = {"error": f"{type(error).__name__}: {text}"}
        out.write(json.dumps(reply) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
