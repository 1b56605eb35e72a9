from .anthropic import (
    AnthropicRequest as AnthropicRequest,
    messages_from_anthropic as messages_from_anthropic,
    to_anthropic as to_anthropic,
    tools_to_anthropic as tools_to_anthropic,
)
from .chat import (
    messages_from_chat as messages_from_chat,
    to_chat as to_chat,
    tools_to_chat as tools_to_chat,
)
from .responses import (
    messages_from_responses as messages_from_responses,
    to_responses as to_responses,
    tools_to_responses as tools_to_responses,
)

__all__: list[str]
