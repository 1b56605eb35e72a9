"""A note in the place of a summary: that something was here, and how much. It keeps a conversation going that nothing else can."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from promptkit.compaction.plan import Summary
from promptkit.compaction.summarizer import carried, dropped_items, earlier_summary
from promptkit.errors import SummaryError
from promptkit.messages import ImagePart

if TYPE_CHECKING:
    from promptkit.compaction.plan import SummaryTask
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["PlaceholderSummarizer"]


@attrs.frozen(kw_only=True)
class PlaceholderSummarizer:
    """Says how many messages and images are missing, behind the summary before, if that still has room: the last tier of GSV.

    It tells nothing of what was said, so it is only ever the last link of a Chain, and only where somebody put it there:
    ExtractiveSummarizer asks no model either, and tells what happened.
    """

    tokenizer: Tokenizer
    only_last: ClassVar[bool] = True

    async def summarize(self, task: SummaryTask) -> Summary:
        """The note. Raises SummaryError where not even that has room."""
        items = dropped_items(task)
        images = sum(isinstance(part, ImagePart) for item in items for part in item.message.content)
        among = f", with {images:,} image{'' if images == 1 else 's'}" if images else ""
        several = "message is" if len(items) == 1 else "messages are"
        note = f"[{len(items):,} earlier {several} left out here{among}. They could not be summarized.]"
        before = earlier_summary(task)
        for text in (f"{before}\n\n{note}" if before else note, note):
            if self.tokenizer.count(text) <= task.max_tokens:
                return Summary(text=text, mode="placeholder", facts=carried(task))
        raise SummaryError(reason="does_not_fit", detail=f"{task.max_tokens:,} tokens hold not even a note.")
