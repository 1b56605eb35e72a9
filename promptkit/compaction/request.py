"""A request for a summary, made to fit the window of the model that writes it: or an error, and no request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.compaction.prompts import NEW
from promptkit.errors import BudgetExceededError, SummaryError
from promptkit.rendering.renderer import render_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.element import Child
    from promptkit.messages import ToolDefinition
    from promptkit.rendering.result import Rendered
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["fitted"]


async def fitted(prompt: Child, window: int, *, tokenizer: Tokenizer, marked: bool, tools: Sequence[ToolDefinition] = ()) -> Rendered:
    """The request, within `window` tokens.

    `marked`: the prompt marks with NEW what is to be summarized. Raises SummaryError where what is required does not fit, or where
    nothing of what is to be summarized does: a tiny window prunes all of it without an error.
    """
    try:
        rendered = await render_async(prompt, budget=window, tokenizer=tokenizer, tools=tools)
    except BudgetExceededError as error:
        detail = f"the instructions and the summary before do not fit {window:,} tokens: {error}"
        raise SummaryError(reason="does_not_fit", detail=detail) from error
    if not (NEW in rendered.metadata if marked else rendered.messages):
        raise SummaryError(reason="does_not_fit", detail=f"nothing of the conversation fits {window:,} tokens beside the instructions.")
    return rendered
