"""promptkit itself: a new Renderer and an empty tokenizer cache for every run, so that nothing is cached.

`history` is rendered with the README's prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from promptkit import (
    AssistantMessage,
    Child,
    History,
    Message,
    PromptElement,
    Renderer,
    Sizing,
    SystemMessage,
    TextChunk,
    ToolCall,
    ToolMessage,
    Truncate,
    UserMessage,
    component,
)
from promptkit.tokens.encodings import get_encoding
from promptkit.tokens.openai_tokenizer import OpenAITokenizer
from promptkit.wire import messages_from_chat

if TYPE_CHECKING:
    from promptkit import Rendered

__all__ = ["claim", "encode", "fit", "wire"]

encode = get_encoding("o200k_base").encode_ordinary


@component
class AgentPrompt(PromptElement):
    """The README's prompt."""

    instructions: str
    history: Sequence[Message]
    query: str
    log: str

    def render(self, sizing: Sizing) -> Child:
        return (
            SystemMessage(required=True)[self.instructions],
            History(turns=self.history, priority=700, flex_grow=1),
            UserMessage(priority=800, flex_grow=2)[
                Truncate(keep="tail", max_tokens=sizing.token_budget // 4)[self.log]
            ],
            UserMessage(required=True)[self.query],
        )


def fit(work: dict[str, Any]) -> Rendered:  # Any: JSON
    rendered = Renderer(budget=work["budget"], tokenizer=OpenAITokenizer("o200k_base")).render(
        _tree(work["shape"], work["items"])
    )
    _ = rendered.messages, rendered.tokens
    return rendered


def _tree(shape: str, items: list[dict[str, Any]]) -> tuple[PromptElement, ...]:  # Any: JSON
    match shape:
        case "chunks":
            return (
                UserMessage()[
                    (TextChunk(priority=age)[item["content"]] for age, item in enumerate(items))
                ],
            )
        case "history":
            system, *turns, log, request = items
            history = messages_from_chat(turns)
            return (
                AgentPrompt(
                    instructions=system["content"],
                    history=history,
                    query=request["content"],
                    log=log["content"],
                ),
            )
        case _:
            return tuple(_element(item, age) for age, item in enumerate(items))


def _element(item: dict[str, Any], priority: int) -> PromptElement:  # Any: JSON
    match item:
        case {"role": "tool"}:
            return ToolMessage(tool_call_id=item["tool_call_id"], priority=priority)[
                item["content"]
            ]
        case {"tool_calls": calls}:
            return AssistantMessage(
                tool_calls=[ToolCall(id=call["id"], **call["function"]) for call in calls],
                priority=priority,
            )
        case {"role": "user"}:
            return UserMessage(priority=priority)[item["content"]]
        case _:
            return AssistantMessage(priority=priority)[item["content"]]


def wire(result: Rendered) -> list[Any]:  # Any: as to_chat has it
    return result.to_chat()


def claim(result: Rendered) -> int:
    return result.tokens
