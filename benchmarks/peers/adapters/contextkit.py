"""cendor-contextkit: a history as one block that drops its oldest turns; a long message as one that is truncated at its head."""

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
    else:
        context.add(contextkit.Block(messages=work["items"], evict="drop_oldest"))
    return context, context.assemble()


def wire(result: tuple[Any, list[dict[str, Any]]]) -> list[dict[str, Any]]:  # Any: a context, JSON
    return result[1]


def claim(result: tuple[Any, list[dict[str, Any]]]) -> int:  # Any: a context, JSON
    return int(result[0].report().used)
