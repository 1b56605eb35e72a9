"""Read what a program passes to a window: messages and replies as dicts or SDK objects of a provider, and the branch that a list of messages continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, TypeAlias

import attrs

from promptkit.errors import InvalidArgumentError
from promptkit.messages import Message, OpaquePart, Usage, as_mapping, as_wire_object
from promptkit.providers import Reply
from promptkit.providers.anthropic.api import FINISHES, count_thinking, read_usage
from promptkit.providers.model import as_tokens, count_reasoning
from promptkit.providers.openai.api import parse_chat_reply, parse_responses_reply
from promptkit.transcript import (
    Checkpoint,
    Edit,
    Entry,
    MessageEntry,
    Reset,
    Setting,
    Transcript,
)
from promptkit.transcript.log.quotes import restore_quotes
from promptkit.transcript.log.transcript import LEAF_SETTING
from promptkit.wire import messages_from_anthropic, messages_from_chat, messages_from_responses
from promptkit.wire.parts import WireMessage, find_format

AnyMessage: TypeAlias = Message | WireMessage
"""A message, or one of a provider: a dict or an SDK object."""

AnyReply: TypeAlias = Reply | Message | WireMessage
"""A reply, an assistant message, or what a provider's SDK returns."""

# Any: the readers share the parameter that is passed here, and differ in others
_READERS: Mapping[str, Callable[[Any], list[Message]]] = {
    "": list,  # promptkit's own messages
    "chat": messages_from_chat,
    "responses": messages_from_responses,
    "anthropic": messages_from_anthropic,
}


def read_messages(
    values: Sequence[AnyMessage], origins: Sequence[object] | None
) -> tuple[list[Message], Sequence[object] | None]:
    """Return the messages, and the caller's own object for each.

    Without `origins`, these are the dicts and SDK objects themselves, if each of them is one
    message: some of Anthropic's and of the Responses API are several messages, or parts of one.

    Raises:
        InvalidArgumentError: A dict or an SDK object is not a message, or there is a wrong number of
            `origins`.
        TypeError: A value is neither a message nor one of these.
    """
    messages = [
        message
        for name, group in groupby(values, _find_format)
        for message in _READERS[name](group)
    ]
    if (
        origins is None
        and len(messages) == len(values)
        and any(not isinstance(value, Message) for value in values)
    ):
        origins = values
    if origins is not None and len(origins) != len(messages):
        raise InvalidArgumentError(
            f"origins must have one object for each message: {len(messages)} messages have {len(origins)} origins."
        )
    return messages, origins


def _find_format(value: object) -> str:
    """Return the wire format of a message, and an empty text for promptkit's own.

    Raises TypeError if it is no message.
    """
    if isinstance(value, Message):
        return ""
    record = as_wire_object(value)
    if record is None:
        raise TypeError(
            f"a context window takes messages such as Message(role='user', content='Hello'), dicts and SDK objects, not {value!r:.80}."
        )
    return find_format(record) or "chat"


def read_reply(
    reply: AnyReply, usage: Usage | None, model: str
) -> tuple[Message | None, Usage | None, str | None]:
    """Return the message of a reply, its usage and its finish reason.

    The message is None if it is not an assistant message.

    The message of an SDK's reply is the same that `read_messages` reads from it, with what only the
    provider knows (ids, citations).

    Args:
        reply: A `Reply`, a message, or a chat completion, a response or a message of OpenAI's or
            Anthropic's SDK.
        usage: What the caller knows of the cost; it goes before that of the reply.
        model: The model's name, for errors.

    Raises:
        EmptyReplyError: The reply of an SDK has neither text nor tool calls.
    """
    record = {} if isinstance(reply, Reply | Message) else as_wire_object(reply) or {}
    match record:
        case {"choices": [{"message": dict(message)}, *_]}:
            reply = _keep_all(
                parse_chat_reply(record, model), "chat", [{"role": "assistant", **message}]
            )
        case {"output": list(items)}:
            reply = parse_responses_reply(record, model)
            if _are_accepted(items, stored=record.get("store") is True):
                details = as_mapping(as_mapping(record.get("usage")).get("output_tokens_details"))
                reply = _keep_all(
                    reply,
                    "responses",
                    items,
                    reasoning=as_tokens(details.get("reasoning_tokens")),
                )
        case {"role": "assistant"}:
            messages, _ = read_messages([record], None)
            reason, reported = record.get("stop_reason"), as_mapping(record.get("usage"))
            has_usage = isinstance(reported.get("input_tokens"), int)
            return (
                count_thinking(messages[0], reported),
                usage or (read_usage(reported) if has_usage else None),
                FINISHES.get(reason) if isinstance(reason, str) else None,
            )
        case _:
            pass
    if isinstance(reply, Reply):
        return reply.message, usage or reply.usage, reply.finish
    return (
        (reply if isinstance(reply, Message) and reply.role == "assistant" else None),
        usage,
        None,
    )


def _keep_all(
    reply: Reply, wire_format: str, items: Sequence[object], *, reasoning: int = 0
) -> Reply:
    """Return a reply with all that its message has on the wire.

    If that is not one message, or is malformed, the reply is unchanged.

    The first of its reasoning parts has the `reasoning` tokens of all, which the provider counts
    together.
    """
    try:
        messages = _READERS[wire_format](items)
    except (InvalidArgumentError, TypeError):
        return reply
    if len(messages) != 1:
        return reply
    counted = count_reasoning(
        messages[0], reasoning, lambda part: as_mapping(part.value).get("type") == "reasoning"
    )
    return attrs.evolve(reply, message=counted)


def _are_accepted(items: Sequence[object], *, stored: bool) -> bool:
    """Return whether OpenAI takes these items again: it does not know the ids of reasoning that it has not stored."""
    return stored or all(
        item.get("encrypted_content") or item.get("content")
        for item in map(as_mapping, items)
        if item.get("type") == "reasoning"
    )


def is_recorded(recorded: Message, message: Message) -> bool:
    """Return whether a recorded message is a message that a caller passes again.

    Only a reply tells the tokens of its opaque parts.
    """
    return recorded == message or (
        recorded.role == message.role and _forget_tokens(recorded) == _forget_tokens(message)
    )


def _forget_tokens(message: Message) -> Message:
    return attrs.evolve(
        message,
        content=[
            attrs.evolve(part, tokens=None) if isinstance(part, OpaquePart) else part
            for part in message.content
        ],
    )


@attrs.frozen(kw_only=True)
class Branch:
    """The part of a list of messages with which one branch of a transcript begins."""

    leaf: str | None
    """The entry to continue from: the branch's last entry if all of its messages match, or the last
    message that matches."""
    entries: tuple[Entry, ...]
    """The branch's message entries."""
    matched: int
    """The number of messages that match, from the beginning on."""
    summaries: tuple[Checkpoint, ...] = ()
    """The last summary after `leaf`, if it is of messages that match. It is valid in another branch
    from `leaf` on, too."""

    @property
    def is_whole(self) -> bool:
        """True if all messages of the branch match."""
        return self.matched == len(self.entries)


def find_branch(transcript: Transcript, messages: Sequence[Message]) -> Branch:
    """Find the branch of a transcript that begins with the most of these messages.

    As a rule it is the current one.
    """
    path = transcript.path()
    best = _match_branch(path, messages)
    rewound = any(
        isinstance(entry.payload, Setting) and entry.payload.name == LEAF_SETTING
        for entry in takewhile(
            lambda entry: not isinstance(entry.payload, MessageEntry), reversed(path)
        )
    )
    if best.is_whole and not (rewound and best.matched < len(messages)):
        return best  # messages were appended, or none
    for leaf in transcript.leaves():
        branch = _match_branch(transcript.path(leaf.id), messages)
        if branch.matched > best.matched or (
            branch.matched == best.matched and branch.is_whole and not best.is_whole
        ):
            best = branch
    return best


def _match_branch(path: Sequence[Entry], messages: Sequence[Message]) -> Branch:
    """Compare a branch with a list of messages."""
    entries = tuple(entry for entry in path if isinstance(entry.payload, MessageEntry))
    by_id = {entry.id: entry for entry in path}
    recorded = (
        restore_quotes(entry.payload, by_id.get)
        for entry in path
        if isinstance(entry.payload, MessageEntry)
    )
    matched = sum(takewhile(bool, map(is_recorded, recorded, messages)))
    if matched == len(entries) or not matched:
        return Branch(
            leaf=path[-1].id if path and matched == len(entries) else None,
            entries=entries,
            matched=matched,
        )
    departure = path.index(entries[matched])
    return Branch(
        leaf=path[departure - 1].id,
        entries=entries,
        matched=matched,
        summaries=_find_valid_summary(path[:departure], path[departure:]),
    )


def _find_valid_summary(before: Sequence[Entry], after: Sequence[Entry]) -> tuple[Checkpoint, ...]:
    """Return the last checkpoint in `after` if it summarizes nothing of `after`: what it keeps begins in `before`, or with `after`."""
    hidden = {entry.payload.target for entry in after if isinstance(entry.payload, Edit)}
    known = {entry.id for entry in (*before, after[0])}
    last: tuple[Checkpoint, ...] = ()
    for entry in after:
        payload = entry.payload
        if isinstance(payload, Reset):
            last = ()
        elif isinstance(payload, Checkpoint) and entry.id not in hidden:
            kept = None if payload.first_kept == after[0].id else payload.first_kept
            last = (attrs.evolve(payload, first_kept=kept),) if payload.first_kept in known else ()
    return last
