"""A summary of the conversation as one text: for any model and any window, and after other summarizers have failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.prompts import SummaryOfText, render_summary_request
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.sections import TEMPLATE, find_sections
from promptkit.compaction.summarizers.summarizer import limit_output, summary_from_reply
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.elements.element import Child
    from promptkit.providers.model import Model
    from promptkit.tokens.tokenizer import Tokenizer

RESULT_SHARE = 8
"""A tool result may take an eighth of the window: its first 40 % and its last 60 %."""


@attrs.frozen(kw_only=True)
class SimpleSummarizer:
    """Sends the conversation as text and asks for its summary.

    The request has no tools and no pictures, so no provider can refuse it.
    """

    model: Model
    """The summarizing model."""
    window: int
    """Context window of the model in tokens, input and output together."""
    tokenizer: Tokenizer | None = None
    """None: the model's tokenizer."""
    template: str | os.PathLike[str] = TEMPLATE
    """The template of the instructions."""
    prompt: Callable[[SummaryTask], Child] | None = None
    """Makes another prompt than `SummaryOfText`."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Ask the model for the summary.

        Raises:
            SummaryError: There is nothing to summarize, no message fits the window, or the reply is
                not a summary.
            ModelError: The request failed.
        """
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        prompt = SummaryOfText(
            task=task,
            quirks=find_quirks(self.model.name),
            max_result_tokens=max(1, self.window // RESULT_SHARE),
            template=self.template,
        )
        request = prompt if self.prompt is None else self.prompt(task)
        rendered = await render_summary_request(
            request, self.window, tokenizer=tokenizer, marks_new=self.prompt is None
        )
        reply = await limit_output(self.model, task, room=self.window - rendered.tokens).complete(
            rendered.messages
        )
        sections = find_sections(self.template) if self.prompt is None else ()
        return summary_from_reply(
            reply,
            task,
            mode="simple",
            model=self.model.name,
            tokenizer=tokenizer,
            require_tags=bool(sections),
            sections=sections,
        )
