"""Emitters: convert messages and tools to the wire formats of the providers.

The results are plain lists and dicts that the SDKs accept. No SDK is imported. Every call returns
new values, which the caller may change.

The lists are `list[Any]` because the SDKs declare their parameters as unions of TypedDicts, and no
`dict[str, ...]` is assignable to these. With `Any`,
`client.chat.completions.create(messages=to_chat(messages))` passes mypy and pyright in strict mode.
With the TypedDict `AnthropicRequest`, so does
`client.messages.create(**to_anthropic(messages), ...)`; with a `dict[str, Any]` the type of the
reply would be lost.
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
