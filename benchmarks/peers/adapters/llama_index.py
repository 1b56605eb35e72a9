"""llama-index: a `ChatMemoryBuffer` with the history, and the messages that it returns."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["claim", "encode", "fit", "wire"]

llms: Any = import_module("llama_index.core.llms")  # Any: only in the peer's own environment
memory: Any = import_module("llama_index.core.memory")  # Any: as above
encode = import_module("tiktoken").get_encoding("o200k_base").encode_ordinary


def fit(work: dict[str, Any]) -> list[Any]:  # Any: JSON, messages of the peer's
    history = [
        llms.ChatMessage(
            role=item["role"],
            content=item["content"],
            additional_kwargs={
                key: item[key] for key in ("tool_calls", "tool_call_id") if key in item
            },
        )
        for item in work["items"]
    ]
    buffer = memory.ChatMemoryBuffer.from_defaults(
        chat_history=history, token_limit=work["budget"], tokenizer_fn=encode
    )
    return list(buffer.get())


def wire(result: list[Any]) -> list[dict[str, Any]]:  # Any: messages of the peer's, JSON
    return [
        {"role": message.role.value, "content": message.content or "", **message.additional_kwargs}
        for message in result
    ]


def claim(result: list[Any]) -> int:  # Any: messages of the peer's
    return len(encode(" ".join(str(message.content) for message in result)))
