"""One turn of a session: ask the model and run the tools that it calls, until it is done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.agent.session.hooks import TurnHooks, run_before_request
from promptkit.agent.session.tools import run_tools
from promptkit.agent.window.continuation import ask_to_go_on, may_go_on
from promptkit.compaction.run.events import TurnEnded, TurnStarted
from promptkit.compaction.run.observed_model import ObservedModel, get_conversation_id
from promptkit.compaction.summarizers.summarizer import sum_usage
from promptkit.errors import ContextLengthExceededError, MaxStepsExceededError
from promptkit.messages import Usage
from promptkit.providers.model import with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from promptkit.agent.window.window import ContextWindow
    from promptkit.compaction.run.events import Events
    from promptkit.providers.model import Model, Reply
    from promptkit.tools import Tool


@attrs.frozen(kw_only=True)
class TurnResult:
    """The result of one turn: a user message, and everything until the model's last reply."""

    text: str
    """The text of the model's last reply. If a reply was cut off and the model continued it, both
    texts. If the model was asked to go on after a compaction, its replies of before and after, with
    a blank line between them."""
    steps: int
    """The number of requests of the turn."""
    usage: tuple[Usage, ...]
    """The cost of each request, in order."""
    finish: Literal["stop", "tool_calls", "length", "content_filter"] = "stop"
    """The reason why the model ended. `length`: its reply was cut off, and so was the next one.
    `content_filter`: the provider withheld the rest."""


@attrs.frozen(kw_only=True)
class Turn:
    """The loop of one turn over a context window."""

    window: ContextWindow
    find_model: Callable[[], Model]
    """Returns the model that answers, before each request: it may be changed during the turn."""
    tools: Mapping[str, Tool]
    max_steps: int
    hooks: TurnHooks
    auto_continue: bool = False
    """Whether the model is asked to go on after a compaction at the end of the turn."""
    on_text: Callable[[str], object] | None = None

    async def run(self) -> TurnResult:
        """Run the turn, and report its start and its end. Raises MaxStepsExceededError."""
        number, started, usages, error = (
            self.events.next_number("turn"),
            time.monotonic(),
            list[Usage](),
            None,
        )
        self.events.emit(
            TurnStarted(number=number, conversation=get_conversation_id(self.window.transcript))
        )
        try:
            return await self._run(usages)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            seconds = time.monotonic() - started
            self.events.emit(
                TurnEnded(
                    number=number,
                    seconds=seconds,
                    steps=len(usages),
                    usage=sum_usage(usages),
                    error=error,
                )
            )

    @property
    def events(self) -> Events:
        """Receives what happens in the turn."""
        return self.window.compaction.compactor.events

    async def _run(self, usages: list[Usage]) -> TurnResult:
        """Run the turn, and append the cost of each request to `usages`."""
        texts: list[str] = []
        while len(usages) < self.max_steps:
            reply = await self._complete()
            usages.append(reply.usage)
            # none of its tool calls is run: any of them may be cut in two
            if reply.finish == "length":
                if await self.window.retry_cut_reply():
                    continue
            elif reply.message.tool_calls and reply.finish != "content_filter":
                # a withheld reply may be cut, too
                await run_tools(
                    self.tools,
                    reply.message.tool_calls,
                    lambda results: self.window.add(*results),
                    self.hooks,
                    events=self.events,
                    conversation=get_conversation_id(self.window.transcript),
                )
                continue
            texts.append(self.window.last_text)
            if (
                await self._end_turn()
                and reply.finish == "stop"
                and len(usages) < self.max_steps
                and self._ask_to_go_on()
            ):
                continue
            return TurnResult(
                text="\n\n".join(filter(None, texts)),
                steps=len(usages),
                usage=tuple(usages),
                finish=reply.finish,
            )
        raise MaxStepsExceededError(self.max_steps)

    async def _end_turn(self) -> bool:
        """End the turn. Returns True if a compaction was made at its end."""
        before = self.window.view.checkpoint_id
        await self.window.end_turn()
        return self.window.view.checkpoint_id not in {None, before}

    def _ask_to_go_on(self) -> bool:
        """Ask the model to go on, if that is wanted and allowed."""
        transcript = self.window.transcript
        if not self.auto_continue or not may_go_on(transcript.path()):
            return False
        transcript.append(ask_to_go_on())
        return True

    async def _complete(self) -> Reply:
        while True:
            request = await run_before_request(self.hooks, await self.window.request())
            self.window.replace_request(request)
            model = self.find_model()
            try:
                reply = await with_options(self._observe(model), on_text=self.on_text).complete(
                    request.messages, tools=request.tools
                )
            except ContextLengthExceededError as error:
                if not await self.window.recover(error):
                    raise
                continue
            self.window.add_reply(reply)
            return reply

    def _observe(self, model: Model) -> Model:
        transcript, compacted = self.window.transcript, self.window.view.checkpoint_id is not None
        return ObservedModel(
            model=model,
            events=self.events,
            conversation=get_conversation_id(transcript),
            compacted=compacted,
        )
