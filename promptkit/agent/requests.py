"""The requests of one conversation: its prompt, rendered from the view, as its model is to get it.

What a model is to find in a request behind a summary, beside what the prompt renders: by its quirks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.agent.prompt import Conversation, ConversationView, Recordings
from promptkit.compaction.events import RequestReduced
from promptkit.compaction.planning.plan import LastRequest
from promptkit.compaction.pruning.processors import Processor, RequestLimits
from promptkit.compaction.summarizers.defaults import UNLIMITED
from promptkit.compaction.summarizers.facts import thinking_of
from promptkit.compaction.summarizers.quirks import Quirks, adapt_messages, added_tokens, quirks_of
from promptkit.errors import BudgetExceededError, InvalidArgumentError
from promptkit.rendering.renderer import Renderer
from promptkit.rendering.sizing import Sizer
from promptkit.transcript.entries import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.agent.prompt import Prompt
    from promptkit.compaction.controller import CompactionController
    from promptkit.element import Child
    from promptkit.messages import Message, OpaquePart, ToolDefinition
    from promptkit.rendering.result import Rendered
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.transcript import Transcript
    from promptkit.transcript.view import TranscriptView

__all__ = ["RequestAdaptation", "RequestAdaptations", "RequestBuilder"]


@attrs.frozen
class RequestAdaptation:
    """How requests to one model are changed while one checkpoint holds: the same for all of them, so that the prompt cache keeps its worth."""

    quirks: Quirks
    thinking: OpaquePart | None = None
    tokens: int = 0
    """The most that it adds."""

    def of(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages as they are sent."""
        return adapt_messages(messages, self.quirks, thinking=self.thinking)


class RequestAdaptations:
    """The manner of each request. Worked out once for a checkpoint and a model."""

    def __init__(self) -> None:
        self._known: tuple[object, RequestAdaptation] = None, RequestAdaptation(Quirks())

    def of(self, model: str, transcript: Transcript, checkpoint: str | None, *, tokenizer: Tokenizer) -> RequestAdaptation:
        """How a request to a model is changed that shows what a checkpoint left; None: there was none yet."""
        key = model, checkpoint
        if self._known[0] != key:
            payload = None if checkpoint is None else transcript.get(checkpoint).payload
            thinking = thinking_of(payload.facts) if isinstance(payload, Checkpoint) else None
            quirks = quirks_of(model)
            tokens = added_tokens(quirks, thinking=thinking, tokenizer=tokenizer) if checkpoint else 0
            self._known = key, RequestAdaptation(quirks, thinking, tokens)
        return self._known[1]


class RequestBuilder:
    """Makes requests for one conversation. What was rendered for a model and a budget is not rendered again.

    `prompt` makes the prompt; without one it is `instructions` and the messages. `tools` are offered in every request. Raises
    InvalidArgumentError for a prompt and instructions: nobody would see the instructions.
    """

    def __init__(
        self,
        transcript: Transcript,
        prompt: Prompt | None,
        *,
        instructions: Child,
        tools: Sequence[ToolDefinition],
        processors: Sequence[Processor] = (),
    ) -> None:
        if prompt is not None and instructions is not None:
            problem = "a session takes instructions or a prompt of its own, not both: put the instructions into the prompt."
            raise InvalidArgumentError(problem)
        self._transcript = transcript
        recordings = Recordings()
        self.tools = tuple(tools)
        self.rendered: Rendered | None = None
        """The last one, with its receipt."""
        self.left_out: tuple[Message, ...] = ()
        """What of the view is not in it as it was said: left out or shortened, to save room, and without a summary."""
        self._prompt: Prompt = prompt or (lambda view: Conversation(view=view, instructions=instructions, recordings=recordings))
        self._manners = RequestAdaptations()
        self._processors = tuple(processors)
        self._renderer: tuple[object, Renderer] | None = None

    async def fitted(self, keeper: CompactionController, asked: Callable[[], tuple[str, Tokenizer]]) -> tuple[LastRequest, int]:
        """The next request, made to fit by the keeper, and its tokens. `asked` is the model's name and tokenizer at the moment.

        Raises ContextWindowFullError where it cannot be made to fit, and whatever a component raises.
        """
        while True:
            shown, (model, tokenizer) = keeper.view, asked()
            try:
                request, tokens = await self._make(keeper, shown, model=model, tokenizer=tokenizer)
            except BudgetExceededError as error:
                await keeper.overflow(error.required)
                continue
            if keeper.view is shown and asked()[0] == model:  # a component may have awaited while something else happened
                keeper.rendered(tokens)
                return request, tokens

    async def _make(
        self, keeper: CompactionController, shown: TranscriptView, *, model: str, tokenizer: Tokenizer
    ) -> tuple[LastRequest, int]:
        """The request that shows a view, and its tokens. Raises BudgetExceededError if what is required does not fit."""
        budget = keeper.budget.render_budget
        manner = self._manners.of(model, self._transcript, shown.checkpoint, tokenizer=tokenizer)
        renderer = self._renderer_for(model, tokenizer, UNLIMITED if budget is None else max(1, budget - manner.tokens))
        messages = shown.messages
        room = RequestLimits(
            limit=None if budget is None else max(1, budget - manner.tokens),
            beside=keeper.beside,
            tokenizer=tokenizer,
            warm=keeper.warm,
            pruned=keeper.pruned,
        )
        for process in self._processors:
            messages = tuple(process(messages, room))
        self.left_out = self._left_out(keeper, shown.messages, messages, tokenizer)
        view = ConversationView(messages=messages, may_prune=keeper.pruned)
        try:
            self.rendered = await renderer.render_async(self._prompt(view))
        except BudgetExceededError as error:
            error.required += manner.tokens
            raise
        return LastRequest(messages=manner.of(self.rendered.messages), tools=self.tools), self.rendered.tokens + manner.tokens

    def _left_out(
        self, keeper: CompactionController, shown: Sequence[Message], messages: Sequence[Message], tokenizer: Tokenizer
    ) -> tuple[Message, ...]:
        """What became of a view under the processors, told as an event where something did."""
        there = set(map(id, messages))
        gone = tuple(message for message in shown if id(message) not in there)
        if gone:
            size = Sizer(tokenizer).message
            known = set(map(id, shown))
            instead = sum(size(message) for message in messages if id(message) not in known)
            saved = sum(map(size, gone)) - instead
            keeper.compactor.events.emit(RequestReduced(messages=len(gone), tokens=saved))
        return gone

    def _renderer_for(self, model: str, tokenizer: Tokenizer, room: int) -> Renderer:
        if self._renderer is None or self._renderer[0] != (model, room):
            self._renderer = (model, room), Renderer(budget=room, model=model, tokenizer=tokenizer, tools=self.tools)
        return self._renderer[1]
