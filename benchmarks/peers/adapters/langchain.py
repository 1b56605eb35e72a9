"""langchain-core: `trim_messages` that keeps the last messages, with a counter that follows OpenAI's rule, as in its guide."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

__all__ = ["claim", "encode", "fit", "wire"]

messages: Any = import_module("langchain_core.messages")  # Any: only in the peer's own environment
encode = import_module("tiktoken").get_encoding("o200k_base").encode_ordinary

ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
FRAMING = 3


def counted(history: list[Any]) -> int:  # Any: messages of the peer's
    tokens = FRAMING
    for message in history:
        tokens += FRAMING + len(encode(ROLES[message.type])) + len(encode(message.content))
        for call in getattr(message, "tool_calls", ()):
            tokens += len(encode(call["name"])) + len(
                encode(json.dumps(call["args"], ensure_ascii=False))
            )
    return tokens


def fit(work: dict[str, Any]) -> list[Any]:  # Any: JSON, messages of the peer's
    options = {"max_tokens": work["budget"], "token_counter": counted, "strategy": "last"}
    if work["shape"] == "chunks":
        history = [messages.HumanMessage("\n".join(item["content"] for item in work["items"]))]
        return list(messages.trim_messages(history, allow_partial=True, **options))
    history = [_message(item) for item in work["items"]]
    if work["shape"] == "history":  # the log is shortened to its end first
        history[-2:-1] = messages.trim_messages(
            history[-2:-1], allow_partial=True, **{**options, "max_tokens": work["budget"] // 4}
        )
    return list(messages.trim_messages(history, start_on="human", include_system=True, **options))


def _message(item: dict[str, Any]) -> Any:  # noqa: ANN401  # Any: JSON, a message of the peer's
    match item:
        case {"role": "tool"}:
            return messages.ToolMessage(item["content"], tool_call_id=item["tool_call_id"])
        case {"tool_calls": calls}:
            made = [
                {
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "args": json.loads(call["function"]["arguments"]),
                }
                for call in calls
            ]
            return messages.AIMessage(item["content"], tool_calls=made)
        case {"role": "user"}:
            return messages.HumanMessage(item["content"])
        case {"role": "system"}:
            return messages.SystemMessage(item["content"])
        case _:
            return messages.AIMessage(item["content"])


def wire(result: list[Any]) -> list[dict[str, Any]]:  # Any: messages of the peer's, JSON
    return list(messages.convert_to_openai_messages(result))


def claim(result: list[Any]) -> int:  # Any: messages of the peer's
    return counted(result)
