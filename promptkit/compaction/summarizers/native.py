"""A provider's own compaction: what it puts in the place of the conversation is kept as it is, with a summary beside it that all can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.summarizer import collect_dropped_items, sum_usage
from promptkit.messages import OpaquePart
from promptkit.transcript.entries import Checkpoint
from promptkit.transcript.view import build_view, build_summary_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import Message
    from promptkit.providers.openai.compact import CompactedInput
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.transcript import Transcript

__all__ = ["CompactingModel", "NativeSummarizer", "WireFormatModel", "make_portable", "get_wire_format"]


class CompactingModel(Protocol):
    """A model whose provider compacts: OpenAIModel over the Responses API."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    async def compact(self, messages: Sequence[Message]) -> CompactedInput:
        """What stands in the place of messages."""
        ...


@runtime_checkable
class WireFormatModel(Protocol):
    """A model that says in which wire format it is asked."""

    @property
    def api(self) -> str:
        """`chat`, `responses` or `anthropic`."""
        ...


def get_wire_format(model: object) -> str:
    """The wire format of a model; an empty text for one that does not say, and to which no provider's own parts can be sent."""
    return model.api if isinstance(model, WireFormatModel) else ""


@attrs.frozen(kw_only=True)
class NativeSummarizer:
    """Has the provider compact what is dropped, an earlier summary with it, and another summarizer write the text beside it.

    The text is what summaries, files and people go by, and what the model is shown once the conversation goes on at another provider.
    """

    model: CompactingModel
    text_summarizer: Summarizer = attrs.field(factory=ExtractiveSummarizer)
    """Writes the text. The default asks no model."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """The text, with the provider's messages. Raises what the provider raises, and SummaryError if there is no text.

        Secrets are taken out of what it is sent as of what any summarizer is sent.
        """
        collect_dropped_items(task)  # raises where nothing is new
        made = await self.model.compact([item.message for item in (*task.plan.dropped, *task.plan.prefix)])
        text = await self.text_summarizer.summarize(attrs.evolve(task, check=None))
        return attrs.evolve(
            text, mode="native", model=self.model.name, usage=sum_usage([text.usage, made.usage]), replacement=made.messages
        )


def make_portable(transcript: Transcript, *, provider: str) -> Entry | None:
    """See to it that the view can be read at a provider, by the wire format that it is sent in (`chat`, `responses`, `anthropic`).

    Where the view starts with what another provider has sealed, a checkpoint is written that shows the portable summary in its place;
    everything else stays as it was. None where nothing needs to be done. Call it when the model is switched, before the next request.
    """
    path = transcript.path()
    view = build_view(path)
    if view.checkpoint_id is None:
        return None
    payload = transcript.get(view.checkpoint_id).payload
    shown = [item.message for item in view.items if item.entry_id == view.checkpoint_id]
    foreign = any(isinstance(part, OpaquePart) and part.provider != provider for message in shown for part in message.content)
    if not isinstance(payload, Checkpoint) or payload.portable is None or not foreign:
        return None
    plain = payload.portable == (build_summary_message(payload.summary),)
    portable = attrs.evolve(
        payload,
        replacement=None if plain else payload.portable,
        portable=None,
        own=(),
        first_kept=next((item.entry_id for item in view.items if item.entry_id != view.checkpoint_id), None),
        trigger="provider",
        usage=None,
        tokens_before=None,
        tokens_after=None,
    )
    return transcript.append(portable, expect=transcript.leaf)[0]
