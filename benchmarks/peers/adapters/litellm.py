"""litellm: `trim_messages` with an explicit limit."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["claim", "encode", "fit", "wire"]

utils: Any = import_module("litellm.utils")  # Any: only in the peer's own environment
encode = import_module("tiktoken").get_encoding("o200k_base").encode_ordinary


def fit(work: dict[str, Any]) -> list[dict[str, Any]]:  # Any: JSON
    history = work["items"]
    if work["shape"] == "chunks":
        history = [
            {"role": "user", "content": "\n".join(item["content"] for item in work["items"])}
        ]
    if work["shape"] == "history":  # the log is shortened first
        history[-2:-1] = utils.trim_messages(
            history[-2:-1], model="gpt-4o", max_tokens=work["budget"] // 4
        )
    return list(utils.trim_messages(history, model="gpt-4o", max_tokens=work["budget"]))


def wire(result: list[dict[str, Any]]) -> list[dict[str, Any]]:  # Any: JSON
    return result


def claim(result: list[dict[str, Any]]) -> int:  # Any: JSON
    return int(utils.token_counter(model="gpt-4o", messages=result))
