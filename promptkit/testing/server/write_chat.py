"""Replies as Chat Completions writes them: whole, or as a stream of chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptkit.testing.server.made import pieces, refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Usage
    from promptkit.testing.server.made import Made

__all__ = ["chunks", "completion"]


def completion(made: Made) -> dict[str, Any]:  # Any: JSON
    """The whole answer."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": made.message.text or None,
        "refusal": _refusal(made),
        "annotations": [],
    }  # Any: as above
    if made.message.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in made.message.tool_calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": made.finish}
    return {**_head(made, "chat.completion"), "choices": [choice], "usage": _chat_usage(made.usage)}


def chunks(made: Made, *, include_usage: bool) -> Iterator[dict[str, Any]]:  # Any: as above
    """The answer as the values of a stream's events."""
    head = _head(made, "chat.completion.chunk") | ({"usage": None} if include_usage else {})

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:  # Any: as above
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": "" if made.message.text else None, "refusal": None})
    for key, text in (("content", made.message.text), ("refusal", _refusal(made) or "")):
        for piece in pieces(text):
            yield chunk({key: piece})
    for index, call in enumerate(made.message.tool_calls):
        start = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [start]})
        for piece in pieces(call.arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, made.finish)
    if include_usage:
        yield {**head, "choices": [], "usage": _chat_usage(made.usage)}


def _head(made: Made, kind: str) -> dict[str, Any]:  # Any: as above
    return {"id": f"chatcmpl-{made.number}", "object": kind, "created": made.created, "model": made.model, "service_tier": "default"}


def _refusal(made: Made) -> str | None:
    return "".join(str(said) for part in made.message.content if (said := refusal_of(part))) or None


def _chat_usage(usage: Usage) -> dict[str, Any]:  # Any: as above
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
