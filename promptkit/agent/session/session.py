"""A conversation with a model that has tools: the loop around a context window."""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self

from promptkit import providers
from promptkit.agent.session.attachments import (
    Attachment,
    check_attachments,
    fit_attachments,
    read_attachments,
)
from promptkit.agent.session.stream import StreamEvent, stream_turn
from promptkit.agent.session.subagents import (
    FORK_NOTE,
    Forked,
    Handoff,
    Isolated,
    SubagentResult,
    SubagentTask,
    build_result,
    entering_subagent,
    find_fork_point,
    link,
    open_beside,
)
from promptkit.agent.session.tools import (
    ToolRunner,
    TurnHooks,
    TurnResult,
    run_before_request,
    tools_by_name,
)
from promptkit.agent.settings import (
    WindowSettings,
    check_content,
    check_tools,
    check_type,
    resolve_preset,
)
from promptkit.agent.window.continuation import ask_to_go_on, find_pending_calls
from promptkit.agent.window.prompt import ContextUsage, Prompt
from promptkit.agent.window.window import ContextWindow
from promptkit.compaction import (
    ArchiveDirectory,
    CarriedContext,
    CompactionController,
    CompactionHooks,
    Events,
    LeastSize,
    MediaLimits,
    Pin,
    Policy,
    Preset,
    ReduceToolResults,
    Summarizer,
)
from promptkit.compaction.planning.selection import Keep
from promptkit.compaction.recall.tool import (
    PAGE_TOKENS,
    RECALL,
    RecallSettings,
    build_recall_tool,
)
from promptkit.compaction.run.events import (
    ObservedModel,
    TurnEnded,
    TurnStarted,
    get_conversation_id,
)
from promptkit.compaction.storage import MemoryDirectory, MemoryExtractor
from promptkit.compaction.summarizers.summarizer import sum_usage
from promptkit.elements.element import Child
from promptkit.errors import (
    CompactionInProgressError,
    ContextLengthExceededError,
    InvalidArgumentError,
    MaxStepsExceededError,
    NoPendingMessageError,
    SummaryError,
    TurnInProgressError,
)
from promptkit.messages import Message, Part, ToolDefinition, Usage, is_instance
from promptkit.providers import Model, Reply, with_options
from promptkit.providers.model import is_anthropic_name
from promptkit.rendering import Rendered
from promptkit.rendering.renderer import Defaults
from promptkit.reprs import describe
from promptkit.tokens import ContextBudget, Tokenizer
from promptkit.tools import AnyTool, Tool, parse_content
from promptkit.transcript import Entry, InMemoryStore, Redactor, Reset, Transcript, TranscriptStore
from promptkit.transcript.log.view import INCOMPLETE_FINISHES

COMPACT = ToolDefinition(
    name="compact",
    description=(
        "Have the older messages of this conversation replaced by a summary before your next step, to make room in the context window. "
        "Call it between two pieces of work, when earlier details are no longer needed."
    ),
    parameters={
        "type": "object",
        "properties": {
            "focus": {
                "type": "string",
                "description": "What the summary must keep: decisions, names, open work.",
            }
        },
        "required": ["focus"],
    },
)
"""The tool with which a model asks for a compaction."""


class AgentSession:
    """A conversation with a model that calls tools, kept within its context window.

    For use in one event loop.

    Every message is in the transcript, durably, before the next thing happens. An existing
    transcript is continued, also if the program that wrote it was killed in the middle of a turn.
    `SyncSession` is the same for programs without an event loop; `ContextWindow` is the part
    without the loop.

    >>> async with AgentSession(model=OpenAIModel("gpt-5"), instructions="You review code.", tools=[read_file]) as session:
    ...     print((await session.run("Is the parser tested?")).text)

    Attributes:
        window: The context window, with the transcript.
        tools: The tools by name.
        max_steps: The most requests of one turn.
    """

    def __init__(  # noqa: PLR0913  # the parts of a session, each with a default
        self,
        *,
        model: str | Model,
        transcript: Transcript | None = None,
        instructions: Child = None,
        prompt: Prompt | None = None,
        tools: Sequence[AnyTool] = (),
        budget: int | str | ContextBudget | None = None,
        preset: str | Preset = "vscode",
        policy: Policy | None = None,
        summarizer: Summarizer | Model | None = None,
        keep: Keep | None = None,
        reduce: ReduceToolResults | None = None,
        media: MediaLimits | None = None,
        tokenizer: Tokenizer | None = None,
        hooks: CompactionHooks | None = None,
        turn_hooks: TurnHooks | None = None,
        redactor: Redactor | None = None,
        events: Events | None = None,
        archives: ArchiveDirectory | None = None,
        promotions: Sequence[Model] = (),
        read_tool: str = "read_file",
        recall: bool | None = None,
        carry: Callable[[], CarriedContext] | None = None,
        pin_marks: tuple[str, str] | None = None,
        recall_tokens: int | str = 0,
        compact_tool: bool = False,
        defaults: Defaults = "promptkit",
        auto_continue: bool | None = None,
        freeze_tools: bool = True,
        enabled: bool = True,
        max_steps: int = 100,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Open a session over a new or an existing transcript.

        Args:
            model: A model object, or the name of one of OpenAI's or Anthropic's models.
            transcript: The conversation; by default a new one in memory.
                `Transcript(JsonlStore("talk.jsonl"))` keeps it in a file.
            instructions: The content of the system message.
            prompt: Makes the prompt of each request from a `ConversationView`; excludes
                `instructions`.
            tools: The tools that the model may call.
            budget: What requests may take: tokens, a text such as `"8k"`, or a `ContextBudget`. By
                default what is known of the model.
            preset: How the conversation is compacted: a name in `promptkit.compaction.PRESETS`, or
                a `Preset`.
            policy: Replaces the preset's policy.
            summarizer: Replaces the preset's summarizer; or the model object that the preset's
                summarizers use instead of `model`.
            keep: Replaces what the preset keeps verbatim.
            reduce: Replaces which old and superseded tool results the preset takes out of the
                conversation.
            media: How much of a request pictures and documents may take. By default what the
                model's provider accepts.
            tokenizer: Counts tokens; by default the model's.
            hooks: Run before and after a compaction.
            turn_hooks: Run before each request, and before and after each tool call, which they can
                change or refuse.
            redactor: Removes secrets from summaries, and from copies of the conversation that
                summarizers read. A summarizer that continues the last request sends what that
                request sent.
            events: Receive what is decided and done.
            archives: Where the entries that a summary replaces are archived.
            promotions: Larger models, the smallest first, for presets that switch to one before
                they summarize.
            defaults: `prompt-tsx` removes as VS Code's prompts do, as in `Renderer`. The request of the
                user stays all the same.
            read_tool: The name of a tool with which the model can read the transcript's file, for
                sessions without the tool `recall`.
            recall: Offer the tool `recall`, with which the model finds what a summary has left out.
                By default it is offered where a transcript is given.
            carry: Returns the present plan, todos, skills, rules and agent, which each summary then
                shows instead of those that the conversation recorded. It may be called in another
                thread.
            pin_marks: Two texts, such as `("[[keep]]", "[[/keep]]")`: a passage between them in a
                message of the user is pinned. None: there are no marks.
            recall_tokens: The most tokens of a note behind each message of the user, with the best
                passages for it of what summaries replaced. 0: there is none.
            compact_tool: Offer the tool `compact`, with which the model has the older messages
                summarized before its next step, and names what the summary must keep.
            auto_continue: Ask the model to go on after a compaction at the end of a turn, once for
                each user message, and again if it has called tools since. By default as the preset
                does: `opencode` and `oh_my_pi`.
            freeze_tools: Offer changed tools only where that does not break the prompt cache, and
                tell the model of them until then, as `set_tools` describes. False: the next request
                offers them.
            enabled: False: nothing is compacted automatically; a request that is too large is
                pruned.
            max_steps: The most requests of one turn.
            rng: Returns numbers from 0 to below 1, for the jitter of thresholds.

        Raises:
            InvalidArgumentError: An argument has a value that it cannot have.
            TypeError: An argument has the wrong type.
        """
        self._model = _resolve_model(model)
        chosen = resolve_preset(preset)
        if summarizer is None and chosen.summary_model is not None:
            summarizer = _resolve_model(chosen.summary_model)
        own = tuple(check_tools(tools))
        offers_recall = (transcript is not None if recall is None else recall) and all(
            tool.definition != RECALL for tool in own
        )
        self._make_recall = partial(build_recall_tool, redactor=redactor) if offers_recall else None
        self._offers_compact = compact_tool
        offered = (*own, *self._make_tools())
        self.tools: Mapping[str, Tool] = tools_by_name(offered)
        if max_steps < 1:
            raise InvalidArgumentError(f"max_steps must be at least 1, not {max_steps}.")
        self.max_steps = max_steps
        check_type(
            "turn_hooks",
            turn_hooks,
            lambda value: isinstance(value, TurnHooks),
            "a TurnHooks, an instance of a subclass of it",
        )
        self._auto_continue = chosen.auto_continue if auto_continue is None else auto_continue
        self._turn_hooks = turn_hooks or TurnHooks()
        self.window = ContextWindow.from_settings(
            WindowSettings(
                instructions=instructions,
                prompt=prompt,
                tools=offered,
                preset=chosen,
                policy=policy,
                summarizer=summarizer,
                keep=keep,
                reduce=reduce,
                media=media,
                tokenizer=tokenizer,
                hooks=hooks,
                redactor=redactor,
                events=events,
                archives=archives,
                promotions=promotions,
                read_tool=read_tool,
                carry=carry,
                pin_marks=pin_marks,
                recall_tokens=recall_tokens,
                defaults=defaults,
                freeze_tools=freeze_tools,
                enabled=enabled,
                rng=rng,
            ),
            model=self._model,
            transcript=transcript,
            budget=budget,
        )
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return describe(self, model=self.model.name, tools=self.tools, transcript=self.transcript)

    @property
    def model(self) -> Model:
        """The model that answers."""
        model = self.window.model
        return self._model if isinstance(model, str) else model

    @property
    def transcript(self) -> Transcript:
        """Everything that was said, in full."""
        return self.window.transcript

    @property
    def compaction(self) -> CompactionController:
        """The controller that compacts and prunes."""
        return self.window.compaction

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that counts requests: the one that was given, or the model's."""
        return self.window.tokenizer

    @property
    def last_rendered(self) -> Rendered | None:
        """The render behind the last request, with its receipt.

        Model-specific additions are not in it.
        """
        return self.window.last_rendered

    @property
    def last_omitted(self) -> tuple[Message, ...]:
        """The messages that the last request leaves out or shortens, although no summary covers them."""
        request = self.window.last_request
        return request.omitted if request else ()

    def context_usage(self) -> ContextUsage:
        """Measure how much of the context window the next request takes, in all and by part.

        Costs a look-up for each message.
        """
        return self.window.context_usage()

    def least_size(self) -> LeastSize:
        """Return the least that requests can be compacted to, by part."""
        return self.window.least_size()

    async def run(
        self,
        content: str | Sequence[Part],
        *,
        attachments: Iterable[Attachment] = (),
        on_text: Callable[[str], object] | None = None,
    ) -> TurnResult:
        """Send a user message, and let the model call tools until it is done.

        A call during another turn waits for the end of that turn.

        After an error or a cancellation the session can be used again: `resume` continues the turn,
        `run` sends another message.

        Args:
            content: Text, or texts and parts such as `ImagePart(url=…)`.
            attachments: Files (`Path("notes.txt")`: text, images, PDFs) and parts, which follow the
                content. Long texts are shortened.
            on_text: Called with each piece of the model's text as it arrives. An answer that a full
                window cut off is asked for again, and arrives again.

        Returns:
            The model's last text, and what the turn cost.

        Raises:
            NoPendingMessageError: The content is empty, and nothing is attached.
            OSError: An attached file cannot be read. Nothing was written.
            InvalidArgumentError: An attached file is of an unknown kind or too large. Nothing was
                written.
            ContextWindowFullError: The conversation does not fit its window, whatever is compacted
                or pruned.
            MaxStepsExceededError: The turn needed more than `max_steps` requests.
            ModelError: A request failed.
        """
        parts = await self._add_attachments(content, check_attachments(attachments))
        async with self._turn:
            self.window.add(Message(role="user", content=parts))
            return await self._run_turn(on_text)

    def stream(
        self, content: str | Sequence[Part], *, attachments: Iterable[Attachment] = ()
    ) -> AsyncGenerator[StreamEvent]:
        """Send a user message as `run` does, and yield what happens until the model is done.

        Closing the generator before its end cancels the turn, which `resume` continues.

        Args:
            content: As for `run`.
            attachments: As for `run`.

        Returns:
            An iterator over pieces of the model's text (`TextDelta`), requests and replies
            (`RequestSent`, `ReplyReceived` with the usage), tool calls and results (`ToolCalled`,
            `ToolReturned`), compactions, and last the `TurnResult`. It raises what `run` raises.

        >>> async for event in session.stream("Is the parser tested?"):
        ...     if isinstance(event, TextDelta):
        ...         print(event.text, end="")
        """
        return stream_turn(
            lambda on_text: self.run(content, attachments=attachments, on_text=on_text),
            self.compaction.compactor.events,
            self.transcript,
        )

    async def resume(self, *, on_text: Callable[[str], object] | None = None) -> TurnResult:
        """Continue a turn that an error, a cancellation or the end of the program cut short.

        Tool calls of that turn are not repeated: the model is told that they have no result.

        Args:
            on_text: Called with each piece of the model's text as it arrives.

        Returns:
            The model's last text, and what the rest of the turn cost.

        Raises:
            NoPendingMessageError: The model's reply is the last message. Otherwise as `run`.
        """
        async with self._turn:
            items = self.window.view.items
            if (
                not items
                or items[-1].message.role not in {"user", "tool"}
                or not self._is_pending()
            ):
                raise NoPendingMessageError
            self.compaction.on_user_message()
            return await self._run_turn(on_text)

    async def compact(
        self, instructions: str | None = None, *, allow_extractive: bool = False
    ) -> Entry | None:
        """Compact now, on the user's request.

        Args:
            instructions: What the summary should pay attention to.
            allow_extractive: Take a summary without a model if no model wrote one. Otherwise that
                raises SummaryError, unless the conversation has no summarizing model.

        Returns:
            The checkpoint; None if there is nothing to summarize.

        Raises:
            SummaryError: No summary was made.
            CompactionInProgressError: Another compaction is running.
        """
        return await self.window.compact(instructions, allow_extractive=allow_extractive)

    @property
    def pins(self) -> tuple[Pin, ...]:
        """The texts that every summary shows word for word, oldest first."""
        return self.window.pins

    def pin(self, entry: str | None = None, *, text: str | None = None) -> Pin:
        """Keep a message, or a passage of one, word for word in every summary from now on.

        All pins together may take a sixteenth of what a conversation may have, and 2,000 tokens.

        Args:
            entry: The id of the message's entry. None: the newest message that contains the passage,
                or without a passage the user's newest one.
            text: The passage. None: the whole message.

        Returns:
            The pin, for `unpin`, with secrets removed from its text.

        Raises:
            InvalidArgumentError: No message contains the passage, the message has no text, or the
                pins would be too large. Nothing was changed.
            TranscriptError: There is no entry with this id.
        """
        return self.window.pin(entry, text=text)

    def unpin(self, pin: Pin) -> None:
        """Let summaries drop what was pinned. Raises InvalidArgumentError if it is not pinned."""
        self.window.unpin(pin)

    def undo_compaction(self) -> Entry | None:
        """Show again what the latest compaction summarized.

        Returns None if there is none. Raises TurnInProgressError while a turn is running.
        """
        if self._turn.locked():
            raise TurnInProgressError
        return self.window.undo_compaction()

    def rewind(self, to: str | None) -> Entry:
        """Continue from an earlier entry; None: from the beginning.

        Later entries stay in the transcript, as a branch.

        Raises:
            TurnInProgressError: A turn is running.
            TranscriptError: There is no entry with this id.
        """
        if self._turn.locked():
            raise TurnInProgressError
        # no turn is running, so that no results will come
        return self.window.rewind(to, abandon_calls=True)

    async def switch_branch(
        self, to: str | None, *, instructions: str | None = None, summarize: bool = True
    ) -> Entry | None:
        """Continue from another entry, with a summary of the branch that is left.

        Args:
            to: The id of the entry; None: the beginning.
            instructions: What the summary should pay attention to.
            summarize: False: leave the branch without a summary, as `rewind` does.

        Returns:
            The last entry that was written; None if a hook cancelled the change.

        Raises:
            TurnInProgressError: A turn is running.
            SummaryError: No model wrote a summary, where the conversation has a summarizing model.
                Nothing was changed.
            TranscriptError: There is no entry with this id.
        """
        async with self._between_turns():
            return await self.window.switch_branch(
                to, instructions=instructions, summarize=summarize, abandon_calls=True
            )

    async def reset(
        self,
        reason: str = "manual",
        *,
        extractor: MemoryExtractor | None = None,
        memories: MemoryDirectory | None = None,
        move_to_archive: bool = False,
    ) -> Entry | None:
        """Start over: no earlier message is shown, and all of them stay in the transcript.

        Args:
            reason: Recorded in the transcript, in one word.
            extractor: Extracts memories from the conversation before it is reset.
            memories: Where the memories are written.
            move_to_archive: Move the hidden entries into an archive, if the store has archives.

        Returns:
            The entry of the reset, or None if there are no messages.

        Raises:
            TurnInProgressError: A turn is running.
        """
        async with self._between_turns():
            return await self.window.reset(
                reason,
                extractor=extractor,
                memories=memories,
                move_to_archive=move_to_archive,
                abandon_calls=True,
            )

    async def handoff(self, goal: str, store: TranscriptStore) -> AgentSession:
        """Continue with a goal in a new conversation, which starts with a document of what serves the goal.

        Args:
            goal: What the new conversation is for.
            store: An empty store for the new conversation.

        Returns:
            A session with the same settings over the new conversation.

        Raises:
            TurnInProgressError: A turn is running.
            SummaryError: No document was written. Nothing was changed.
            TranscriptError: The store is not empty.
        """
        async with self._between_turns():
            return self._with_window(await self.window.handoff(goal, store))

    def fork(self, store: TranscriptStore, *, at: str | None = None) -> AgentSession:
        """Open a session with the same settings over a copy of the conversation.

        Args:
            store: An empty store for the copy.
            at: The last entry to copy; by default the latest.
        """
        return self._with_window(self.window.fork(store, at=at))

    async def delegate(
        self, task: SubagentTask, *, store: TranscriptStore | None = None
    ) -> SubagentResult:
        """Have a sub-agent do a task in a conversation of its own, also while a turn is running.

        A tool that calls it returns `str(result)`. Both transcripts name each other. A sub-agent
        cannot start another one.

        Args:
            task: The task, by what the sub-agent is shown of this conversation: `Isolated`,
                `Forked` or `Handoff`.
            store: An empty store for its conversation. By default a file beside this
                conversation's, or a conversation of the same database; memory if it has neither.

        Returns:
            Its last reply, the files that it changed, what it has left open, and where its
            transcript is.

        Raises:
            TypeError: The task is none of these, such as a text.
            ToolError: This is called in a sub-agent.
            SummaryError: No document was written for a `Handoff`.
            TranscriptError: The store is not empty.
            ContextWindowFullError, MaxStepsExceededError, ModelError: As `run` raises them. The
                transcript is kept.
        """
        if not is_instance(task, (Isolated, Forked, Handoff)):
            raise TypeError(
                f"a sub-agent takes Isolated(task=…), Forked(task=…) or Handoff(task=…), not {task!r:.80}."
            )
        with entering_subagent():
            leaf = find_fork_point(self.transcript)
            child = await self._open_child(task, store or open_beside(self.transcript.store), leaf)
            link(self.transcript, child.transcript, task, leaf)
            start = child.transcript.leaf
            async with child:
                turn = await child.run(
                    f"{FORK_NOTE if isinstance(task, Forked) else ''}{task.task}"
                )
        return build_result(child.transcript, start, turn)

    async def _open_child(
        self, task: SubagentTask, store: TranscriptStore, leaf: str | None
    ) -> AgentSession:
        match task:
            case Forked():
                return self._with_window(self.window.fork(store, at=leaf))
            case Handoff():
                # a copy, since the conversation itself may go on while the document is written
                copied = self.window.fork(InMemoryStore(), at=leaf)
                copied.last_request = self.window.last_request
                return self._with_window(await copied.handoff(task.task, store, carries=False))
            case Isolated():
                child = copy.copy(self)
                own = () if task.tools is None else AgentSession._make_tools(child)
                tools = self.tools.values() if task.tools is None else check_tools(task.tools)
                child.tools = tools_by_name((*tools, *own))
                model = None if task.model is None else _resolve_model(task.model)
                AgentSession._open(
                    child,
                    self.window.isolate(
                        store,
                        instructions=task.instructions,
                        tools=tuple(child.tools.values()),
                        model=model,
                    ),
                    model,
                )
                return child

    def set_model(
        self, model: str | Model, *, budget: int | str | ContextBudget | None = None
    ) -> None:
        """Continue with another model.

        If its window is smaller and the conversation does not fit, the model that holds the
        conversation summarizes it before the next request.

        Args:
            model: A model object, or the name of one of OpenAI's or Anthropic's models.
            budget: What requests may take; by default what is known of the model.
        """
        self.window.set_model(_resolve_model(model), budget=budget)

    def set_tools(self, tools: Sequence[AnyTool]) -> None:
        """Give the conversation other tools.

        The model may call them from the next request on. Requests offer them, in the given order,
        where that does not break the provider's prompt cache: before the first reply, after a
        checkpoint, after the time for which the cache keeps a prompt, or with another model. Until
        then a message at the end tells the model of them; a tool that the user or the model asks for
        by its name is offered at once. With `freeze_tools=False` the next request offers them.

        A call of a tool that has left is answered with an error. The session's own tools, such as
        `recall`, stay.

        Args:
            tools: All tools from now on.

        Raises:
            TypeError: A value is no tool that can be run.
            InvalidArgumentError: Two tools have the same name.
            ToolsFillBudgetError: The tool definitions leave nothing for messages.
        """
        mine = (RECALL, COMPACT)
        own = [tool for tool in self.tools.values() if tool.definition in mine]
        given = [tool for tool in check_tools(tools) if tool.definition not in mine]
        self.window.set_tools((*given, *own))
        self.tools = tools_by_name((*given, *own))

    async def run_maintenance(
        self, *, idle_seconds: float = 0.0, memory_pressure: bool = False
    ) -> bool:
        """Run the policy's maintenance phase, for example while the user is away.

        Most presets do nothing then.

        Args:
            idle_seconds: Seconds since the last message.
            memory_pressure: Whether the host is low on memory.

        Returns:
            True if a compaction or pruning ran.
        """
        async with self._turn:
            return await self.window.run_maintenance(
                idle_seconds=idle_seconds, memory_pressure=memory_pressure
            )

    async def wait_idle(self) -> None:
        """Wait until no turn is running, and then until no background summary is."""
        async with self._turn:
            pass
        await self.window.wait_idle()

    async def close(self) -> None:
        """Cancel the background summary.

        The session can still be used; it then compacts in the foreground only.
        """
        await self.window.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run_turn(self, on_text: Callable[[str], object] | None) -> TurnResult:
        """Run the turn, and report its start and its end. Raises MaxStepsExceededError."""
        events = self.compaction.compactor.events
        number, started, usages, error = (
            events.next_number("turn"),
            time.monotonic(),
            list[Usage](),
            None,
        )
        events.emit(TurnStarted(number=number, conversation=get_conversation_id(self.transcript)))
        try:
            try:
                return await self._run_steps(usages, on_text)
            finally:
                await self.window.wait_synced()
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            events.emit(
                TurnEnded(
                    number=number,
                    seconds=time.monotonic() - started,
                    steps=len(usages),
                    usage=sum_usage(usages),
                    error=error,
                )
            )

    async def _run_steps(
        self, usages: list[Usage], on_text: Callable[[str], object] | None
    ) -> TurnResult:
        """Run the turn, and append the cost of each request to `usages`."""
        texts: list[str] = []
        while len(usages) < self.max_steps:
            reply = await self._complete(on_text)
            usages.append(reply.usage)
            if await self.window.retry_cut_reply():
                continue
            # none of the tool calls of a cut reply is run: any of them may be cut in two
            if reply.message.tool_calls and reply.finish not in INCOMPLETE_FINISHES:
                await ToolRunner(
                    tools=self.tools,
                    hooks=self._turn_hooks,
                    events=self.compaction.compactor.events,
                    conversation=get_conversation_id(self.transcript),
                ).run(reply.message.tool_calls, lambda results: self.window.add(*results))
                await self._compact_if_asked()
                continue
            texts.append(self.window.last_text)
            before = self.window.view.checkpoint_id
            await self.window.end_turn()
            if (
                self._auto_continue
                and self.window.view.checkpoint_id not in {None, before}
                and reply.finish == "stop"
                and len(usages) < self.max_steps
                and ask_to_go_on(self.transcript)
            ):
                continue
            return TurnResult(
                text="\n\n".join(filter(None, texts)),
                steps=len(usages),
                usages=tuple(usages),
                finish=reply.finish,
            )
        raise MaxStepsExceededError(self.max_steps)

    async def _complete(self, on_text: Callable[[str], object] | None) -> Reply:
        while True:
            request = self.window.replace_request(
                await run_before_request(self._turn_hooks, await self.window.request())
            )
            try:
                # the model may be changed during a turn
                model = with_options(
                    ObservedModel(
                        model=self.model,
                        events=self.compaction.compactor.events,
                        conversation=get_conversation_id(self.transcript),
                        compacted=self.window.view.checkpoint_id is not None,
                        tokens=request.tokens,
                    ),
                    on_text=on_text,
                    cache_messages=request.lasting,
                )
                reply = await model.complete(request.messages, tools=request.tools)
            except ContextLengthExceededError as error:
                if not await self.window.recover(error):
                    raise
            else:
                self.window.add_reply(reply)
                return reply

    def _is_pending(self) -> bool:
        """Return whether the last message waits for a reply.

        The transcript tells it, and not the view: after a compaction in the middle of a turn the
        view may end with the summary, and it completes the calls that a program left without
        results when it was killed.
        """
        path = self.transcript.path()
        last = next(
            (
                entry.message
                for entry in reversed(path)
                if entry.message is not None or isinstance(entry.payload, Reset)
            ),
            None,
        )
        return last is not None and (
            last.role in {"user", "tool"} or bool(find_pending_calls(path))
        )

    @asynccontextmanager
    async def _between_turns(self) -> AsyncGenerator[None]:
        """Hold off turns. Raises TurnInProgressError if one is running."""
        if self._turn.locked():
            raise TurnInProgressError
        async with self._turn:
            yield

    def _with_window(self, window: ContextWindow) -> AgentSession:
        """Return a session with the same settings over another conversation."""
        session = copy.copy(self)
        AgentSession._open(session, window)
        return session

    def _open(self, window: ContextWindow, model: Model | None = None) -> None:
        self.window, self._model = window, model or self._model
        self.tools = {**self.tools, **tools_by_name(self._make_tools())}
        self._turn = asyncio.Lock()

    def _make_tools(self) -> list[Tool]:
        """Make the tools that a session offers for its own conversation."""
        self._focus: str | None = None
        return [
            *([self._make_recall(self._find_recall_settings)] if self._make_recall else ()),
            *([Tool(definition=COMPACT, run=self._compact_later)] if self._offers_compact else ()),
        ]

    def _compact_later(self, arguments: Mapping[str, object]) -> str:
        """Note that the model asks for a compaction. It is made when the results of this step are written."""
        self._focus = str(arguments.get("focus", ""))
        return "The older messages are summarized before your next step."

    async def _compact_if_asked(self) -> None:
        """Compact if the model has asked for it in this step. A compaction that fails is an event, as each is."""
        if self._focus is not None:
            focus, self._focus = self._focus, None
            with suppress(SummaryError, CompactionInProgressError):
                await self.window.compact(focus or None, allow_extractive=True)

    def _find_recall_settings(self) -> RecallSettings:
        """Return the settings of the tool `recall`.

        A page is at most half of what the view shows of a result, so that two fit beside others.
        """
        window = self.window
        shown = window.budget.result_tokens
        return RecallSettings(
            transcript=window.transcript,
            tokenizer=window.tokenizer,
            max_tokens=PAGE_TOKENS if shown is None else min(PAGE_TOKENS, shown // 2),
        )

    async def _add_attachments(
        self, content: str | Sequence[Part], attachments: Sequence[Attachment]
    ) -> tuple[Part, ...]:
        """Return the content of a user message with its attachments."""
        own = parse_content(content)
        if own is None or not attachments:
            return check_content(content)
        read = await asyncio.to_thread(read_attachments, attachments)
        fitted = fit_attachments(read, budget=self.window.budget, tokenizer=self.tokenizer)
        return check_content((*filter(None, own), *fitted))


def _resolve_model(model: object) -> Model:
    if isinstance(model, str):
        return (
            providers.AnthropicModel(model)
            if is_anthropic_name(model)
            else providers.OpenAIModel(model)
        )
    if not isinstance(model, Model):
        raise TypeError(
            f"model must be a model such as OpenAIModel('gpt-5'), or the name of one of OpenAI's or Anthropic's models, not {model!r:.80}."
        )
    return model
