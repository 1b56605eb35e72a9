"""Encrypted and signed reasoning in messages, which only the model that wrote it can read."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptkit.messages import Message, OpaquePart, Part

REASONING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""The types of reasoning in Anthropic's Messages API and in the Responses API."""

REASONING_FIELDS = frozenset({"reasoning_details", "thinking_blocks"})
"""Fields of a message of Chat Completions that hold sealed reasoning, of OpenRouter and of LiteLLM."""


def has_reasoning(message: Message) -> bool:
    """Return whether a message has encrypted or signed reasoning."""
    return any(isinstance(part, OpaquePart) and _is_reasoning(part) for part in message.content)


def remove_reasoning(message: Message) -> Message:
    """Return a message without encrypted and signed reasoning; the same message if it has none.

    In the Responses API other items of the reply name the reasoning that they followed by their ids,
    and are refused without it. They lose their ids, and the provider's own items leave.
    """
    if not has_reasoning(message):
        return message
    content = [stripped for part in message.content if (stripped := _strip(part)) is not None]
    return attrs.evolve(message, content=content)


def _is_reasoning(part: OpaquePart) -> bool:
    value = part.value
    return isinstance(value, Mapping) and (
        value.get("type") in REASONING_TYPES or not REASONING_FIELDS.isdisjoint(value)
    )


def _strip(part: Part) -> Part | None:
    """Return a part of a message whose reasoning is removed; None if it leaves."""
    if not isinstance(part, OpaquePart) or not isinstance(part.value, Mapping):
        return part
    if part.value.get("type") in REASONING_TYPES:
        return None
    if part.provider == "responses" and "id" in part.value:
        return None
    dropped = {*REASONING_FIELDS, *(("id",) if part.provider in _WITH_IDS else ())}
    kept = {name: value for name, value in part.value.items() if name not in dropped}
    return attrs.evolve(part, value=kept)


_WITH_IDS = frozenset({"responses.message", "responses.call"})
