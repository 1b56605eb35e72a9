"""A request as it came, and what became of it: what tests look at."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs

from promptkit.testing.server.validation import as_chat, mapping, sequence, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.messages import Json, Usage

__all__ = ["CHAT", "COMPACT", "INPUT_TOKENS", "MODELS", "RESPONSES", "Exchange", "ServerStats", "Stats"]

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
INPUT_TOKENS = "/v1/responses/input_tokens"
COMPACT = "/v1/responses/compact"
MODELS = "/v1/models"


@attrs.define(eq=False, slots=False)
class Exchange:
    """A request, and its answer as far as there is one."""

    number: int
    """From 1, in the order in which the server heard them."""
    method: str
    path: str
    headers: Mapping[str, str]
    """By names in lower case."""
    client: tuple[str, int]
    """The address and the port that it came from: one for each connection."""
    raw: bytes = attrs.field(repr=False)
    """The body as it came."""
    body: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"], repr=False)
    """The body read, empty where it is no JSON object."""
    status: int | None = None
    """What was answered; None while nothing is, and where the connection ended without."""
    usage: Usage | None = None
    """What the answer said that it cost."""
    problem: str | None = None
    """Why the request was refused as ill-formed."""
    fault: str | None = None
    """The name of the fault that was done to it."""

    @cached_property
    def chat(self) -> dict[str, Any]:  # Any: JSON that a test looks into
        """The body as one of Chat Completions, whichever of the two it is."""
        return as_chat(self.body) if self.path.startswith(RESPONSES) else dict(self.body)

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:  # Any: likewise
        """The messages as Chat Completions has them, whichever API was asked."""
        return [mapping(message) for message in sequence(self.chat.get("messages"))]

    @property
    def text(self) -> str:
        """The text of the last message."""
        return text_of(self.messages[-1].get("content")) if self.messages else ""

    @property
    def stream(self) -> bool:
        """Whether a stream was asked for."""
        return self.body.get("stream") is True


@attrs.frozen(kw_only=True)
class Stats:
    """What a server has seen so far. Tokens are those of the requests that were answered by the model."""

    requests: int = 0
    answered: int = 0
    """By the model: by a step, a rule or what comes after the script."""
    invalid: int = 0
    """Refused because the real endpoint would refuse them, too."""
    overflows: int = 0
    """Refused because they do not fit into the window."""
    faults: int = 0
    beyond_script: int = 0
    """Refused because the script was used up."""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    @property
    def cached_share(self) -> float:
        """The share of the input tokens that the prompt cache had; 0 where there were none."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0


class ServerStats:
    """Counts, from many threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def add(self, **amounts: int) -> None:
        """Add to counts, by the names that Stats has for them."""
        with self._lock:
            self._counts.update(amounts)

    @property
    def stats(self) -> Stats:
        """The counts so far."""
        with self._lock:
            return Stats(**self._counts)
