"""Read the messages and replies that a program passes to a window as dicts or SDK objects of a provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from promptkit.emitters import messages_from_anthropic, messages_from_chat, messages_from_responses
from promptkit.emitters.wire import WireMessage, find_format
from promptkit.messages import Message, as_wire_object
from promptkit.providers.model import Reply
from promptkit.providers.openai.response import parse_chat_reply, parse_responses_reply
from promptkit.recordings.reading.messages import ANTHROPIC_FINISHES, usage_from_anthropic

if TYPE_CHECKING:
    from promptkit.messages import Usage

__all__ = ["AnyMessage", "AnyReply", "read_messages", "read_reply"]

AnyMessage: TypeAlias = Message | WireMessage
"""A message, or one of a provider: a dict or an SDK object."""

AnyReply: TypeAlias = Reply | Message | WireMessage
"""A reply, an assistant message, or what a provider's SDK returns."""

# Any: the readers share the parameter that is passed here, and differ in others
_READERS: Mapping[str, Callable[[Any], list[Message]]] = {
    "chat": messages_from_chat,
    "responses": messages_from_responses,
    "anthropic": messages_from_anthropic,
}


def read_messages(values: Sequence[AnyMessage], origins: Sequence[object] | None) -> tuple[list[Message], Sequence[object] | None]:
    """Return the messages, and the caller's own object for each.

    Without `origins`, these are the dicts and SDK objects themselves, if each of them is one message: some of Anthropic's and of the
    Responses API are several messages, or parts of one.

    Raises:
        InvalidArgumentError: A dict or an SDK object is not a message.
        TypeError: A value is neither a message nor one of these.
    """
    messages: list[Message] = []
    for name, group in groupby(values, _find_format):
        if name:
            messages += _READERS[name](group)
        else:
            messages += (value for value in group if isinstance(value, Message))
    if origins is None and len(messages) == len(values) and any(not isinstance(value, Message) for value in values):
        origins = values
    return messages, origins


def _find_format(value: object) -> str:
    """Return the wire format of a message, and an empty text for promptkit's own. Raises TypeError if it is no message."""
    if isinstance(value, Message):
        return ""
    record = as_wire_object(value)
    if record is None:
        problem = (
            f"a context window takes messages such as Message(role='user', content='Hello'), dicts and SDK objects, not {value!r:.80}."
        )
        raise TypeError(problem)
    return find_format(record) or "chat"


def read_reply(reply: AnyReply, usage: Usage | None, model: str) -> tuple[Message | None, Usage | None, str | None]:
    """Return the message of a reply, its usage and its finish reason. The message is None if it is not an assistant message.

    Args:
        reply: A `Reply`, a message, or a chat completion, a response or a message of OpenAI's or Anthropic's SDK.
        usage: What the caller knows of the cost; it goes before that of the reply.
        model: The model's name, for errors.

    Raises:
        EmptyReplyError: The reply of an SDK has neither text nor tool calls.
    """
    record = {} if isinstance(reply, Reply | Message) else as_wire_object(reply) or {}
    match record:
        case {"choices": [_, *_]}:
            reply = parse_chat_reply(record, model)
        case {"output": list()}:
            reply = parse_responses_reply(record, model)
        case {"role": "assistant"}:
            messages, _ = read_messages([record], None)
            reason = record.get("stop_reason")
            finish = ANTHROPIC_FINISHES.get(reason) if isinstance(reason, str) else None
            return messages[0], usage or usage_from_anthropic(record.get("usage")), finish
        case _:
            pass
    if isinstance(reply, Reply):
        return reply.message, usage or reply.usage, reply.finish
    return (reply if isinstance(reply, Message) and reply.role == "assistant" else None), usage, None
