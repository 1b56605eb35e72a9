from enum import StrEnum
from typing import Any

from pydantic import BaseModel

class MessageRole(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"

class TextBlock(BaseModel):
    text: str

class ImageBlock(BaseModel):
    url: object | None
    def inline_url(self) -> str: ...

class ThinkingBlock(BaseModel):
    content: str | None

class ToolCallBlock(BaseModel):
    tool_call_id: str | None
    tool_name: str
    tool_kwargs: dict[str, Any] | str

class ChatMessage(BaseModel):
    role: MessageRole
    additional_kwargs: dict[str, Any]
    blocks: list[Any]
    def __init__(
        self,
        /,
        content: str | list[Any] | None = None,
        *,
        role: MessageRole | str = ...,
        blocks: list[Any] = ...,
        additional_kwargs: dict[str, Any] = ...,
    ) -> None: ...
    @property
    def content(self) -> str | None: ...

class ChatResponse(BaseModel):
    message: ChatMessage
    raw: Any
    additional_kwargs: dict[str, Any]

class LLMMetadata(BaseModel):
    context_window: int
    num_output: int
    is_function_calling_model: bool
    model_name: str
