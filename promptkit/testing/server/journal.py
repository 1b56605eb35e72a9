"""The record of a request and its answer, and the counts of a server, for tests to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from promptkit.messages import Json, Usage, as_mapping, as_sequence
from promptkit.providers.model import PURPOSE_HEADER
from promptkit.reprs import describe_fields
from promptkit.testing.server.anthropic_validation import CheckedMessages, convert_messages_to_chat
from promptkit.testing.server.validation import convert_to_chat, extract_text

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
INPUT_TOKENS = "/v1/responses/input_tokens"
COMPACT = "/v1/responses/compact"
MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
MODELS = "/v1/models"


@attrs.define(eq=False, slots=False)
class Exchange:
    """A request, and its answer as far as it was sent."""

    number: int
    """From 1, in the order in which the requests arrived."""
    method: str
    path: str
    headers: Mapping[str, str]
    """Headers by their names in lower case."""
    client: tuple[str, int]
    """Address and port of the client: one pair for each connection."""
    raw: bytes = attrs.field(repr=False)
    """The body in bytes."""
    body: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"], repr=False)
    """The parsed body; empty if it is no JSON object."""
    status: int | None = None
    """The HTTP status of the answer; None before it is sent, and if the connection ended without
    one."""
    usage: Usage | None = None
    """The usage that the answer reported."""
    problem: str | None = None
    """Why the request was refused as ill-formed."""
    fault: str | None = None
    """The class name of the fault that was applied."""

    seconds_between: float = attrs.field(default=0, repr=False)
    """Seconds before each event of a streamed answer, by a `Delay`."""
    checked: CheckedMessages | None = attrs.field(default=None, repr=False)
    """For Anthropic's API: the places of thinking blocks that were left out, and what the thinking
    of the reply is bound to."""

    __repr__ = describe_fields

    @cached_property
    def chat(self) -> dict[str, Any]:  # Any: JSON
        """The body in the form of Chat Completions, whichever API was called."""
        if self.path.startswith(MESSAGES):
            return convert_messages_to_chat(self.body)
        return convert_to_chat(self.body) if self.path.startswith(RESPONSES) else dict(self.body)

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:  # Any: JSON
        """The messages in the form of Chat Completions, whichever API was called."""
        return [as_mapping(message) for message in as_sequence(self.chat.get("messages"))]

    @property
    def text(self) -> str:
        """The text of the last message."""
        return extract_text(self.messages[-1].get("content")) if self.messages else ""

    @property
    def purpose(self) -> str | None:
        """The purpose that the request's header names, such as `compaction`; None for a request of the conversation."""
        return self.headers.get(PURPOSE_HEADER.lower())

    @property
    def stream(self) -> bool:
        """Whether the client asked for a stream."""
        return self.body.get("stream") is True


@attrs.frozen(kw_only=True)
class Stats:
    """What a server has counted so far.

    Tokens are those of the requests that the model answered.
    """

    requests: int = 0
    answered: int = 0
    """Requests that were answered by a step, a rule or the function after the script."""
    invalid: int = 0
    """Requests that were refused because the real endpoint would refuse them."""
    overflows: int = 0
    """Requests that were refused because they do not fit the window."""
    faults: int = 0
    """Requests that were answered by a fault. An answer that a `Delay` delays is none; no answer at
    all, an error and a broken body are."""
    beyond_script: int = 0
    """Requests that were refused because the script was used up."""
    input_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    """Input tokens that were written to the prompt cache, as far as the API reports them."""
    written_1h_tokens: int = 0
    """The part of them that the cache keeps for an hour."""
    output_tokens: int = 0

    __repr__ = describe_fields

    @property
    def cached_share(self) -> float:
        """The share of input tokens that the prompt cache had, from 0 to 1; 0 if there were none."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0
