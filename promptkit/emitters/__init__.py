"""Emitters: convert messages and tools to the wire formats of the providers.

The results are plain lists and dicts that the SDKs accept. No SDK is imported. Every call returns new values, which the caller may
change.

The lists are `list[Any]` because the SDKs declare their parameters as unions of TypedDicts, and no `dict[str, ...]` is assignable
to these. With `Any`, `client.chat.completions.create(messages=to_chat(messages))` passes mypy and pyright in strict mode. With the
TypedDict `AnthropicRequest`, so does `client.messages.create(**to_anthropic(messages), ...)`; with a `dict[str, Any]` the type of
the reply would be lost.
"""

from __future__ import annotations

from promptkit.emitters.anthropic import AnthropicRequest, to_anthropic, tools_to_anthropic
from promptkit.emitters.chat import to_chat, tools_to_chat
from promptkit.emitters.responses import to_responses, tools_to_responses

__all__ = ["AnthropicRequest", "to_anthropic", "to_chat", "to_responses", "tools_to_anthropic", "tools_to_chat", "tools_to_responses"]
