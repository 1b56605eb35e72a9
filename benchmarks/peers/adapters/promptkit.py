"""promptkit itself: a new Renderer and an empty tokenizer cache for every run, so that nothing is cached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptkit import AssistantMessage, Renderer, TextChunk, ToolCall, ToolMessage, UserMessage
from promptkit.tokens.encodings import get_encoding
from promptkit.tokens.openai_tokenizer import OpenAITokenizer

if TYPE_CHECKING:
    from promptkit import PromptElement, Rendered

__all__ = ["claim", "encode", "fit", "wire"]

encode = get_encoding("o200k_base").encode_ordinary


def fit(work: dict[str, Any]) -> Rendered:  # Any: JSON
    if work["shape"] == "chunks":
        tree: tuple[PromptElement, ...] = (
            UserMessage()[(TextChunk(priority=age)[item["content"]] for age, item in enumerate(work["items"]))],
        )
    else:
        tree = tuple(_element(item, age) for age, item in enumerate(work["items"]))
    rendered = Renderer(budget=work["budget"], tokenizer=OpenAITokenizer("o200k_base")).render(tree)
    _ = rendered.messages, rendered.tokens
    return rendered


def _element(item: dict[str, Any], priority: int) -> PromptElement:  # Any: JSON
    match item:
        case {"role": "tool"}:
            return ToolMessage(tool_call_id=item["tool_call_id"], priority=priority)[item["content"]]
        case {"tool_calls": calls}:
            return AssistantMessage(tool_calls=[ToolCall(id=call["id"], **call["function"]) for call in calls], priority=priority)
        case {"role": "user"}:
            return UserMessage(priority=priority)[item["content"]]
        case _:
            return AssistantMessage(priority=priority)[item["content"]]


def wire(result: Rendered) -> list[Any]:  # Any: as to_openai has it
    return result.to_openai()


def claim(result: Rendered) -> int:
    return result.tokens
