"""promptbudget: `pack_chat` for messages, with calls as metadata; a section of items for lines, among them those of the log of `history`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["claim", "encode", "fit", "wire"]

promptbudget: Any = import_module("promptbudget")  # Any: only in the peer's own environment
encode = import_module("tiktoken").get_encoding("o200k_base").encode_ordinary
tokenizer = promptbudget.TiktokenTokenizer("gpt-4o")


def fit(work: dict[str, Any]) -> Any:  # noqa: ANN401  # Any: JSON, and a result of the peer's
    if work["shape"] == "chunks":
        return _pack_lines([item["content"] for item in work["items"]], work["budget"])
    if work["shape"] == "history":
        system, *turns, log, request = work["items"]
        shortened = _pack_lines(log["content"].split("\n"), work["budget"] // 4).text
        ends = [
            promptbudget.Message("user", shortened, pinned=True),
            promptbudget.Message("user", request["content"], pinned=True),
        ]
        return _pack_chat([*map(_message, turns), *ends], work["budget"], system=system["content"])
    return _pack_chat([_message(item) for item in work["items"]], work["budget"])


def _pack_lines(lines: list[str], budget: int) -> Any:  # noqa: ANN401  # Any: a result of the peer's
    section = promptbudget.Section(
        "lines", [promptbudget.Item(line) for line in lines], strategy="drop_oldest", separator="\n"
    )
    return promptbudget.pack([section], budget=budget, tokenizer=tokenizer)


def _pack_chat(history: list[Any], budget: int, system: str | None = None) -> Any:  # noqa: ANN401  # Any: messages and a result of the peer's
    return promptbudget.pack_chat(
        history=history, budget=budget, system=system, tokenizer=tokenizer, tokens_per_message=4
    )


def _message(item: dict[str, Any]) -> Any:  # noqa: ANN401  # Any: JSON, a message of the peer's
    metadata = {key: item[key] for key in ("tool_calls", "tool_call_id") if key in item}
    return promptbudget.Message(item["role"], item["content"], metadata=metadata)


def wire(result: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # Any: a result of the peer's, JSON
    if hasattr(result, "text"):
        return [{"role": "user", "content": result.text}]
    return [{**message.to_openai(), **message.metadata} for message in result.messages]


def claim(result: Any) -> int:  # noqa: ANN401  # Any: a result of the peer's
    return int(result.used_tokens)
