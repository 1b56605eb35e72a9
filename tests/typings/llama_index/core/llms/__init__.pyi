from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata

class LLM:
    @property
    def metadata(self) -> LLMMetadata: ...
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse: ...
