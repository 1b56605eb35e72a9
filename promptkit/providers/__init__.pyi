from .anthropic.client import AnthropicModel as AnthropicModel
from .counting import count_exact as count_exact
from .model import (
    AdjustableModel as AdjustableModel,
    Model as Model,
    ModelOptions as ModelOptions,
    Reply as Reply,
    with_options as with_options,
)
from .openai.client import OpenAIModel as OpenAIModel

__all__: list[str]
