"""What a model is to find in a request behind a summary, beside what the prompt renders: by its quirks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.facts import thinking_of
from promptkit.compaction.summarizers.quirks import Quirks, adapted, added_tokens, quirks_of
from promptkit.transcript.entries import Checkpoint

if TYPE_CHECKING:
    from promptkit.messages import Message, OpaquePart
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.transcript import Transcript

__all__ = ["Manner", "Manners"]


@attrs.frozen
class Manner:
    """How requests to one model are changed while one checkpoint holds: the same for all of them, so that the prompt cache keeps its worth."""

    quirks: Quirks
    thinking: OpaquePart | None = None
    tokens: int = 0
    """The most that it adds."""

    def of(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages as they are sent."""
        return adapted(messages, self.quirks, thinking=self.thinking)


class Manners:
    """The manner of each request. Worked out once for a checkpoint and a model."""

    def __init__(self) -> None:
        self._known: tuple[object, Manner] = None, Manner(Quirks())

    def of(self, model: str, transcript: Transcript, checkpoint: str | None, *, tokenizer: Tokenizer) -> Manner:
        """How a request to a model is changed that shows what a checkpoint left; None: there was none yet."""
        key = model, checkpoint
        if self._known[0] != key:
            payload = None if checkpoint is None else transcript.get(checkpoint).payload
            thinking = thinking_of(payload.facts) if isinstance(payload, Checkpoint) else None
            quirks = quirks_of(model)
            tokens = added_tokens(quirks, thinking=thinking, tokenizer=tokenizer) if checkpoint else 0
            self._known = key, Manner(quirks, thinking, tokens)
        return self._known[1]
