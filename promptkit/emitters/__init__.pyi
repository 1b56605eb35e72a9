from .anthropic import AnthropicRequest as AnthropicRequest, to_anthropic as to_anthropic, tools_to_anthropic as tools_to_anthropic
from .chat import to_chat as to_chat, tools_to_chat as tools_to_chat
from .responses import to_responses as to_responses, tools_to_responses as tools_to_responses

__all__: list[str]
