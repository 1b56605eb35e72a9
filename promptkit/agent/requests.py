"""The requests of one conversation: its prompt, rendered from the view, as its model is to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.agent.manners import Manners
from promptkit.agent.prompt import Conversation, ConversationView, Recordings
from promptkit.agent.summaries import UNLIMITED
from promptkit.compaction.plan import LastRequest
from promptkit.errors import BadPropError, BudgetExceededError
from promptkit.rendering.renderer import Renderer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.agent.prompt import Prompt
    from promptkit.element import Child
    from promptkit.messages import ToolDefinition
    from promptkit.rendering.result import Rendered
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log import Transcript
    from promptkit.transcript.projection import Projection

__all__ = ["Requests"]


class Requests:
    """Makes requests for one conversation. What was rendered for a model and a budget is not rendered again.

    `prompt` makes the prompt; without one it is `instructions` and the messages. `tools` are offered in every request. Raises
    BadPropError for a prompt and instructions: nobody would see the instructions.
    """

    def __init__(self, transcript: Transcript, prompt: Prompt | None, *, instructions: Child, tools: Sequence[ToolDefinition]) -> None:
        if prompt is not None and instructions is not None:
            problem = "a session takes instructions or a prompt of its own, not both: put the instructions into the prompt."
            raise BadPropError(problem)
        self._transcript = transcript
        recordings = Recordings()
        self.tools = tuple(tools)
        self.rendered: Rendered | None = None
        """The last one, with its receipt."""
        self._prompt: Prompt = prompt or (lambda view: Conversation(view=view, instructions=instructions, recordings=recordings))
        self._manners = Manners()
        self._renderer: tuple[object, Renderer] | None = None

    async def make(
        self, shown: Projection, *, model: str, tokenizer: Tokenizer, budget: int | None, may_prune: bool
    ) -> tuple[LastRequest, int]:
        """The request that shows a view, and its tokens. `budget` is the most that it may have; None: nothing is known.

        Raises BudgetExceededError if what is required does not fit, and whatever a component raises.
        """
        manner = self._manners.of(model, self._transcript, shown.checkpoint, tokenizer=tokenizer)
        renderer = self._renderer_for(model, tokenizer, UNLIMITED if budget is None else max(1, budget - manner.tokens))
        view = ConversationView(messages=shown.messages, may_prune=may_prune)
        try:
            self.rendered = await renderer.render_async(self._prompt(view))
        except BudgetExceededError as error:
            error.required += manner.tokens
            raise
        return LastRequest(messages=manner.of(self.rendered.messages), tools=self.tools), self.rendered.tokens + manner.tokens

    def _renderer_for(self, model: str, tokenizer: Tokenizer, room: int) -> Renderer:
        if self._renderer is None or self._renderer[0] != (model, room):
            self._renderer = (model, room), Renderer(budget=room, model=model, tokenizer=tokenizer, tools=self.tools)
        return self._renderer[1]
