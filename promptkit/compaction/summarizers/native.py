"""A provider's own compaction: its opaque messages replace the conversation, next to a summary that every provider can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeGuard, runtime_checkable

import attrs

from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.summarizer import collect_dropped_items, sum_usage
from promptkit.messages import Message, OpaquePart
from promptkit.transcript import Checkpoint, Entry, Transcript, build_summary_message, build_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.providers.openai.api import CompactedInput


@runtime_checkable
class CompactingModel(Protocol):
    """A model whose provider can compact a conversation, such as `OpenAIModel` with the Responses API."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    async def compact(self, messages: Sequence[Message]) -> CompactedInput:
        """Return the provider's messages that replace the given ones."""
        ...


def get_wire_format(model: object) -> str:
    """Return the wire format of a model: `chat`, `responses` or `anthropic`, or an empty text if it has no `api`.

    Such a model takes no opaque parts.
    """
    return str(getattr(model, "api", ""))


def can_compact(model: object) -> TypeGuard[CompactingModel]:
    """Return whether the provider of a model can compact a conversation, by what the model tells of itself."""
    return isinstance(model, CompactingModel) and get_wire_format(model) == "responses"


@attrs.frozen(kw_only=True)
class NativeSummarizer:
    """Has the provider compact the dropped messages and the previous summary, and extracts a text.

    The text is used by later summaries, by checkpoint files and by the user. The model sees it once
    the conversation moves to another provider.
    """

    model: CompactingModel
    """The model whose provider compacts."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Return the text with the provider's messages.

        The plan's messages are redacted for this request as for every summarizer.

        Raises:
            SummaryError: There is nothing to summarize, or no text was made.
            ModelError: The provider's compaction failed.
        """
        collect_dropped_items(task)  # raises SummaryError if there is nothing to summarize
        compacted = await self.model.compact(
            [item.message for item in (*task.plan.dropped, *task.plan.prefix)]
        )
        text = await ExtractiveSummarizer().summarize(attrs.evolve(task, check=None))
        return attrs.evolve(
            text,
            mode="native",
            model=self.model.name,
            usage=sum_usage([text.usage, compacted.usage]),
            replacement=compacted.messages,
            request_id=compacted.request_id,
        )


def make_portable(transcript: Transcript, *, provider: str, model: str) -> Entry | None:
    """Make the view readable by a model.

    Call it when the model is switched, before the next request.

    If the view starts with messages that only another provider or another model can read, a checkpoint is appended
    that shows the portable summary instead. Everything else stays unchanged.

    Args:
        transcript: The conversation.
        provider: The wire format of the next requests: `chat`, `responses` or `anthropic`.
        model: The name of the model that is sent them.

    Returns:
        The new checkpoint, or None if nothing had to be done.
    """
    view = build_view(transcript.path())
    if view.checkpoint_id is None:
        return None
    payload = transcript.get(view.checkpoint_id).payload
    opening = [item.message for item in view.items if item.entry_id == view.checkpoint_id]
    writer = payload.model if isinstance(payload, Checkpoint) else None
    is_foreign = any(
        isinstance(part, OpaquePart) and (part.provider != provider or writer not in {None, model})
        for message in opening
        for part in message.content
    )
    if not isinstance(payload, Checkpoint) or payload.portable is None or not is_foreign:
        return None
    is_default = payload.portable == (build_summary_message(payload.summary),)
    checkpoint = attrs.evolve(
        payload,
        replacement=None if is_default else payload.portable,
        portable=None,
        own=(),
        first_kept=next(
            (item.entry_id for item in view.items if item.entry_id != view.checkpoint_id), None
        ),
        trigger="provider",
        usage=None,
        tokens_before=None,
        tokens_after=None,
    )
    return transcript.append(checkpoint, expect=transcript.leaf)[0]
