"""Models that answer requests.

* `Model`, `AdjustableModel`, `ModelOptions`, `Reply`, `with_options`: what a session needs of any
  provider
* `AnthropicModel`: Anthropic, over its own API
* `OpenAIModel`: OpenAI, and every server that speaks its protocol
* `count_exact`: the tokens of a rendered prompt, as the counting endpoint of OpenAI, Anthropic or
  Google tells them
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
