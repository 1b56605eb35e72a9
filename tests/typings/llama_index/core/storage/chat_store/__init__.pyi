from llama_index.core.base.llms.types import ChatMessage
from pydantic import BaseModel

class BaseChatStore(BaseModel):
    def set_messages(self, key: str, messages: list[ChatMessage]) -> None: ...

class SimpleChatStore(BaseChatStore): ...
