"""cendor-contextkit: a history as one block that drops its oldest turns; a long message as one that is truncated at its head.

No block has a limit of its own, so the log of `history` is shortened in a context of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["claim", "encode", "fit", "wire"]

contextkit: Any = import_module("cendor.contextkit")  # Any: only in the peer's own environment
encode = import_module("tiktoken").get_encoding("o200k_base").encode_ordinary


def fit(work: dict[str, Any]) -> tuple[Any, list[dict[str, Any]]]:  # Any: a context, JSON
    context = contextkit.Context(budget_tokens=work["budget"], model="gpt-4o")
    if work["shape"] == "chunks":
        content = "\n".join(item["content"] for item in work["items"])
        context.add(contextkit.Block(content, evict="truncate", keep="tail"))
    elif work["shape"] == "history":
        system, *turns, log, request = work["items"]
        shortened = contextkit.Context(budget_tokens=work["budget"] // 4, model="gpt-4o")
        shortened.add(contextkit.Block(log["content"], evict="truncate", keep="tail"))
        context.add(contextkit.Block(system["content"], role="system", priority=10, pin=True))
        context.add(contextkit.Block(messages=turns, evict="drop_oldest"))
        context.add(contextkit.Block(shortened.assemble()[0]["content"], priority=5))
        context.add(contextkit.Block(request["content"], priority=10, pin=True))
    else:
        context.add(contextkit.Block(messages=work["items"], evict="drop_oldest"))
    return context, context.assemble()


def wire(result: tuple[Any, list[dict[str, Any]]]) -> list[dict[str, Any]]:  # Any: a context, JSON
    return result[1]


def claim(result: tuple[Any, list[dict[str, Any]]]) -> int:  # Any: a context, JSON
    return int(result[0].report().used)
