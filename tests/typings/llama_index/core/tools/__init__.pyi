from collections.abc import Callable
from typing import Any

class ToolMetadata:
    def to_openai_tool(self, skip_length_check: bool = False) -> dict[str, Any]: ...

class BaseTool:
    @property
    def metadata(self) -> ToolMetadata: ...

class FunctionTool(BaseTool):
    @classmethod
    def from_defaults(cls, fn: Callable[..., object]) -> FunctionTool: ...
