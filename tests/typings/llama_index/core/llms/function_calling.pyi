from collections.abc import Sequence

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.llms import LLM
from llama_index.core.tools import BaseTool

class FunctionCallingLLM(LLM):
    def chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        *,
        chat_history: list[ChatMessage] | None = None,
        allow_parallel_tool_calls: bool = False,
    ) -> ChatResponse: ...
