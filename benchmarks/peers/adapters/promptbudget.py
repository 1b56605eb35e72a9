"""promptbudget: `pack_chat` for messages, with calls as metadata; a section of items for lines."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["claim", "encode", "fit", "wire"]

promptbudget: Any = import_module("promptbudget")  # Any: only in the peer's own environment
encode = import_module("tiktoken").get_encoding("o200k_base").encode_ordinary
tokenizer = promptbudget.TiktokenTokenizer("gpt-4o")


def fit(work: dict[str, Any]) -> Any:  # noqa: ANN401  # Any: JSON, and a result of the peer's
    if work["shape"] == "chunks":
        items = [promptbudget.Item(item["content"]) for item in work["items"]]
        section = promptbudget.Section("lines", items, strategy="drop_oldest", separator="\n")
        return promptbudget.pack([section], budget=work["budget"], tokenizer=tokenizer)
    history = [
        promptbudget.Message(
            item["role"], item["content"], metadata={key: item[key] for key in ("tool_calls", "tool_call_id") if key in item}
        )
        for item in work["items"]
    ]
    return promptbudget.pack_chat(history=history, budget=work["budget"], tokenizer=tokenizer, tokens_per_message=4)


def wire(result: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # Any: a result of the peer's, JSON
    if hasattr(result, "text"):
        return [{"role": "user", "content": result.text}]
    return [{**message.to_openai(), **message.metadata} for message in result.messages]


def claim(result: Any) -> int:  # noqa: ANN401  # Any: a result of the peer's
    return int(result.used_tokens)
