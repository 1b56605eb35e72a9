"""Messages in the providers' wire formats: plain lists and dicts that the SDKs take as they are. No SDK is imported.

The lists are `list[Any]` on purpose: the SDKs declare their parameters as unions of TypedDicts, to which no `dict[str, ...]` is
assignable. With `Any` inside, `client.chat.completions.create(messages=to_chat(messages))` passes mypy and pyright in strict mode,
and with the TypedDict `AnthropicRequest` so does `client.messages.create(**to_anthropic(messages), ...)`: spreading a
`dict[str, Any]` would cost the reply its type. Every call returns fresh values, which the caller may change.
"""

from __future__ import annotations

from promptkit.emitters.anthropic import AnthropicRequest, to_anthropic, tools_to_anthropic
from promptkit.emitters.chat import to_chat, tools_to_chat
from promptkit.emitters.responses import to_responses, tools_to_responses

__all__ = ["AnthropicRequest", "to_anthropic", "to_chat", "to_responses", "tools_to_anthropic", "tools_to_chat", "tools_to_responses"]
