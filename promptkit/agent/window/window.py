"""The context window of one conversation: everything that a program with its own loop needs, and what sessions are built on.

A window owns the transcript, the compaction controller and the request builder. It has no loop,
sends nothing and calls no tools.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
import time
from collections.abc import Callable, Sequence
from functools import cache
from types import TracebackType
from typing import Self

import attrs

from promptkit.agent.settings import WindowSettings, check_types
from promptkit.agent.window.cache_misses import CacheMonitor, find_answered
from promptkit.agent.window.continuation import find_pending_calls, join_reply_text, retry_cut_reply
from promptkit.agent.window.prompt import ContextUsage, Prompt
from promptkit.agent.window.requests import (
    Origin,
    RequestBuilder,
    RequestTarget,
    WindowRequest,
    recount,
)
from promptkit.agent.window.tool_list import (
    ToolList,
    build_announcement,
    describe_tool_changes,
    find_asked,
)
from promptkit.agent.window.wire import (
    AnyMessage,
    AnyReply,
    find_branch,
    read_messages,
    read_reply,
)
from promptkit.compaction import (
    ArchiveDirectory,
    CacheMissed,
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
    RequestPruned,
    Summarizer,
    SummarizerContext,
    ToolsChanged,
    UsageByPart,
    WindowLearned,
)
from promptkit.compaction.planning.blocks import find_last_user_request, is_user_request
from promptkit.compaction.planning.selection import Keep
from promptkit.compaction.planning.worker import run_in_worker, take_turn
from promptkit.compaction.policy.state import Phase
from promptkit.compaction.policy.usage import (
    compacts_overflow,
    count_newest,
    describe_largest,
    find_threshold,
)
from promptkit.compaction.pruning.media import SMALLEST_BODY, find_newest
from promptkit.compaction.recall.tool import build_note
from promptkit.compaction.run.branches import (
    SummaryWriter,
    handoff,
    make_handoff_summarizer,
    switch_branch,
)
from promptkit.compaction.run.compactor import MAX_LOOK_UP
from promptkit.compaction.run.pins import UNPIN, find_marked, find_pin, list_pins, pin_entry
from promptkit.compaction.run.replacement import count_pins
from promptkit.compaction.run.reset import reset
from promptkit.compaction.run.state import PendingRequest, RequestState, find_promotion
from promptkit.compaction.storage import MemoryDirectory, MemoryExtractor
from promptkit.compaction.summarizers.defaults import compute_max_summary_tokens
from promptkit.compaction.summarizers.native import get_wire_format, make_portable
from promptkit.elements.element import Child
from promptkit.errors import (
    BudgetExceededError,
    ContextWindowFullError,
    InvalidArgumentError,
    NoPendingMessageError,
    SummaryError,
    TranscriptError,
    TurnInProgressError,
)
from promptkit.messages import Message, ToolCall, ToolDefinition, Usage
from promptkit.providers import Model
from promptkit.providers.errors import Overflow, overflow_from_error
from promptkit.rendering import Rendered
from promptkit.rendering.expand.render_cache import RequestRuns
from promptkit.rendering.renderer import Defaults
from promptkit.reprs import describe
from promptkit.tokens import ContextBudget, Tokenizer, resolve_budget, tokenizer_for
from promptkit.tokens.budget import BUFFER_STEP, LAPSE_SUCCESSES, LearnedBudget
from promptkit.tokens.models import model_name
from promptkit.tools import AnyTool, tool_definitions
from promptkit.transcript import (
    Entry,
    EntryPayload,
    MessageEntry,
    Redactor,
    RequestBudget,
    Reset,
    Setting,
    SyncingStore,
    Transcript,
    TranscriptStore,
    TranscriptView,
)
from promptkit.transcript.log.view import MODEL_SETTING

_LOGGER = logging.getLogger("promptkit")


class ContextWindow:
    """Keep a conversation within a model's context window, for a program with a loop of its own.

    For use in one event loop.

    >>> window = ContextWindow(model="gpt-5", transcript=Transcript(JsonlStore("talk.jsonl")), instructions="Be brief.")
    >>> window.add(Message(role="user", content="Fix the parser."))
    >>> request = await window.request()
    >>> response = await client.chat.completions.create(**request.chat_arguments())
    >>> window.add_reply(response)
    >>> await window.retry_cut_reply() or await window.end_turn()

    Attributes:
        transcript: Everything that was said, in full.
        compaction: The controller that compacts and prunes.
        last_request: The request that `request` returned last, or None.
    """

    def __init__(  # noqa: PLR0913  # the parts of a conversation, each with a default
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
        redactor: Redactor | None = None,
        events: Events | None = None,
        archives: ArchiveDirectory | None = None,
        promotions: Sequence[Model] = (),
        read_tool: str = "read_file",
        carry: Callable[[], CarriedContext] | None = None,
        pin_marks: tuple[str, str] | None = None,
        recall_tokens: int | str = 0,
        defaults: Defaults = "promptkit",
        freeze_tools: bool = True,
        enabled: bool = True,
        rng: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the window of a new or an existing conversation.

        Args:
            model: The name of the model that answers, or a model object.
            transcript: The conversation; by default a new one in memory. An existing one is
                continued.
            instructions: The content of the system message.
            prompt: Makes the prompt of each request from a `ConversationView`; excludes
                `instructions`.
            tools: Offered in every request.
            budget: What requests may take: tokens, a text such as `"8k"`, or a `ContextBudget`. By
                default what is known of the model.
            preset: How the conversation is compacted: a name in `promptkit.compaction.PRESETS`, or
                a `Preset`.
            policy: Replaces the preset's policy.
            summarizer: Replaces the preset's summarizer; or the model object that the preset's
                summarizers use. By default they use `model` if it is an object. With a name alone,
                summaries are extracted from the transcript without a model.
            keep: Replaces what the preset keeps verbatim.
            reduce: Replaces which old and superseded tool results the preset takes out of the
                conversation.
            media: How much of a request pictures and documents may take. By default what the
                model's provider accepts.
            tokenizer: Counts tokens; by default the model's.
            hooks: Run before and after a compaction.
            redactor: Removes secrets from summaries, and from copies of the conversation that
                summarizers read. A summarizer that continues the last request sends what that
                request sent.
            events: Receive what the controller decides and does.
            archives: Where the entries that a summary replaces are archived.
            promotions: Larger models, the smallest first, for presets that switch to one before
                they summarize.
            read_tool: The name of the tool with which the model can read the transcript.
            carry: Returns the present plan, todos, skills, rules and agent, which each summary then
                shows instead of those that the conversation recorded. It may be called in another
                thread.
            pin_marks: Two texts, such as `("[[keep]]", "[[/keep]]")`: a passage between them in a
                message of the user is pinned. None: there are no marks.
            recall_tokens: The most tokens of a note behind each message of the user, with the best
                passages for it of what summaries replaced. 0: there is none.
            defaults: `prompt-tsx` removes as VS Code's prompts do, as in `Renderer`. The request of the
                user stays all the same.
            freeze_tools: Offer changed tools only where that does not break the prompt cache, and
                tell the model of them until then, as `set_tools` describes. False: the next request
                offers them.
            enabled: False: nothing is compacted automatically; a request that is too large is
                pruned.
            rng: Returns numbers from 0 to below 1, for the jitter of thresholds.
            clock: Returns seconds that only grow.

        Raises:
            InvalidArgumentError: An argument has a value that it cannot have.
            TypeError: An argument has the wrong type.
        """
        self._open(
            WindowSettings(
                instructions=instructions,
                prompt=prompt,
                tools=tools,
                preset=preset,
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
                clock=clock,
            ),
            model,
            transcript,
            budget,
        )

    def __repr__(self) -> str:
        return describe(
            self, model=model_name(self.model), limit=self.budget.limit, transcript=self.transcript
        )

    @classmethod
    def from_settings(
        cls,
        settings: WindowSettings,
        *,
        model: str | Model,
        transcript: Transcript | None = None,
        budget: int | str | ContextBudget | None = None,
    ) -> Self:
        """Open a window with settings that are one value. The other arguments are those of the constructor."""
        window = cls.__new__(cls)
        cls._open(window, settings, model, transcript, budget)
        return window

    def _open(
        self,
        settings: WindowSettings,
        model: str | Model,
        transcript: Transcript | None,
        budget: int | str | ContextBudget | None,
    ) -> None:
        check_types(transcript=transcript)
        self._settings = settings
        self.transcript = Transcript() if transcript is None else transcript
        self._syncing = sync_later(self.transcript.store)
        self._tools: ToolList | None = None
        self._written_tools: tuple[str | None, Sequence[ToolDefinition]] = None, ()
        """The checkpoint and the tools of the newest reply of this window in the transcript."""
        self._counts_tools = not (isinstance(budget, ContextBudget) and budget.tools)
        self._media = settings.media or MediaLimits()
        self._media_checkpoint: str | None = None
        """The checkpoint for which the oldest pictures were left out."""
        tokenizer = settings.tokenizer or tokenizer_for(model_name(model))
        self.compaction: CompactionController = settings.build_controller(
            self.transcript,
            model,
            settings.build_context(
                model,
                _resolve_budget(budget, model, tokenizer, settings.definitions),
                tokenizer,
            ),
            self._count_fixed,
        )
        self._learned = LearnedBudget(given=self.budget)
        self._holder: SummarizerContext | None = None
        self._requests = RequestBuilder(
            self.transcript,
            settings,
            processor=self.compaction.processor,
            find_cut_markers=self.compaction.compactor.find_cut_markers,
            measure=self.context_usage,
        )
        self.last_request: WindowRequest | None = None
        self._threshold: tuple[tuple[ContextBudget, bool], int | None] | None = None
        self._origins: dict[str, Origin] = {}
        self._cache = CacheMonitor(self.transcript, last=find_answered(self.transcript.path()))
        self._written_budget = RequestBudget()
        """The budget that the newest reply of this window in the transcript had."""
        self._offer_promotion()

    @property
    def model(self) -> str | Model:
        """The model's name, or the model object, that answers."""
        return self.compaction.state.model

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that counts requests: the one that was given, or the model's, with what it learned from the provider's usage."""
        return self.compaction.state.tokenizer

    @property
    def budget(self) -> ContextBudget:
        """The token budget of requests, the preset's thresholds included."""
        return self.compaction.budget

    @property
    def view(self) -> TranscriptView:
        """The messages of the transcript that the next request shows."""
        return self.compaction.view

    @property
    def last_rendered(self) -> Rendered | None:
        """The render behind the last request, with its receipt."""
        return self.last_request.rendered if self.last_request else None

    def context_usage(self) -> ContextUsage:
        """Measure how much of the context window the next request takes, in all and by part.

        Costs a look-up for each message.
        """
        view, budget, compaction = self.view, self.budget, self.compaction
        reading = compaction.usage()
        counted = (
            None
            if reading.counted_entry_id is None
            else self.transcript.get(reading.counted_entry_id).payload
        )
        return ContextUsage(
            parts=self._requests.measure(view, self._find_target()),
            reading=reading,
            messages=len(view.items),
            window=budget.window,
            limit=budget.limit,
            threshold=self._find_threshold(budget),
            last=counted.usage if isinstance(counted, MessageEntry) else None,
        )

    def least_size(self) -> LeastSize:
        """Return the least that requests can be compacted to, by part.

        Instructions that are not a text count once they were rendered.
        """
        compaction, budget, fixed = self.compaction, self.budget, self._count_fixed()
        summarizes = (
            compaction.enabled
            and self._settings.policy is None
            and compacts_overflow(self._settings.preset.policy(lambda: 0.5), budget)
        )
        return LeastSize(
            instructions=fixed.system,
            tools=fixed.tools,
            newest=count_newest(self.view.items, self.tokenizer),
            summary=compaction.compactor.max_summary_tokens if summarizes else 0,
            beside=self._settings.preset.replacement.limited_to(budget.base).tokens_beside
            if summarizes
            else 0,
            limit=budget.render_budget,
        )

    def _check_least(self) -> None:
        """Raise ContextWindowFullError, with the sizes, before the first request to a model in whose window none can stay."""
        if self.last_request is None or self.last_request.model != model_name(self.model):
            self.least_size().check()

    def _count_fixed(self) -> UsageByPart:
        return self._requests.count_fixed(self.view.messages, self._find_target())

    def _find_target(self) -> RequestTarget:
        return RequestTarget(
            model=model_name(self.model),
            tokenizer=self.tokenizer,
            fixed_tokens=self.compaction.fixed_tokens,
            sizer=self.compaction.sizer,
        )

    def _find_threshold(self, budget: ContextBudget) -> int | None:
        """Return the size from which the preset compacts next; None with a policy of the program's own, which may draw random numbers."""
        compaction = self.compaction
        if not compaction.enabled or self._settings.policy is not None:
            return None
        key = budget, compaction.warm
        if self._threshold is None or self._threshold[0] != key:
            self._threshold = (
                key,
                find_threshold(
                    # the middle of a threshold that is drawn
                    self._settings.preset.policy(lambda: 0.5),
                    budget,
                    warm=compaction.warm,
                ),
            )
        return self._threshold[1]

    def add(self, *messages: AnyMessage, origins: Sequence[object] | None = None) -> list[Entry]:
        """Append messages to the transcript: user messages, tool results, or earlier parts of a conversation.

        Use `add_reply` for the reply to a request. All messages of one call are written as one
        batch, which is in the store when this returns. Where that is a file, the next `await` of the
        window waits for the disk, in a thread.

        Args:
            messages: The messages: promptkit's, or dicts and SDK objects of OpenAI and Anthropic.
            origins: The caller's own object for each message, which requests return in
                `request.origins`. By default the dicts and SDK objects themselves, if each is one
                message.

        Returns:
            The transcript's entries, one for each message.

        Raises:
            TypeError: A value is not a message.
            InvalidArgumentError: The number of origins differs from that of the messages, or a dict
                is not a message.
            TranscriptError: The messages cannot be appended, for example a tool result without its
                call.
        """
        read, origins = read_messages(messages, origins)
        if not read:
            return []
        entries = self.transcript.append_messages(*read)
        self._remember_origins(entries, read, origins)
        if any(message.role == "user" for message in read):
            self._pin_marked(entries, read)
            self.compaction.on_user_message()
        return entries

    def sync(
        self, messages: Sequence[AnyMessage], origins: Sequence[object] | None = None
    ) -> list[Entry]:
        """Make the conversation equal to a list of messages, for a framework that passes the whole list each time.

        New messages at the end are appended. If the list departs from what was recorded, because of
        a rewind or an edit, the transcript switches to another branch: to an existing one that
        begins with the most of these messages, or to a new one. Nothing is deleted. A summary of
        messages that stay is kept. New messages are written as one batch, or as one on either side
        of a reply. An assistant message that follows a request counts as its reply.

        Args:
            messages: The conversation's messages without the system message of `instructions`, of
                any kind that `add` takes.
            origins: The caller's own object for each message, as in `add`.

        Returns:
            The entries that were appended.

        Raises:
            TypeError: A value is not a message.
            InvalidArgumentError: The number of origins differs from that of the messages, or a dict
                is not a message.
        """
        read, origins = read_messages(messages, origins)
        branch = find_branch(self.transcript, read)
        common = branch.matched
        if origins is not None:
            self._remember_origins(branch.entries[:common], read[:common], origins[:common])
        if branch.leaf != self.transcript.leaf:
            self._rewind(branch.leaf, *branch.summaries)
        reply = (
            next((at for at in range(common, len(read)) if read[at].role == "assistant"), None)
            if self.compaction.state.pending is not None
            else None
        )
        if reply is None:
            return self.add(*read[common:], origins=None if origins is None else origins[common:])
        appended = self.add(
            *read[common:reply], origins=None if origins is None else origins[common:reply]
        )
        appended.append(self.add_reply(read[reply]))
        self._remember_origins(
            appended[-1:],
            read[reply : reply + 1],
            None if origins is None else origins[reply : reply + 1],
        )
        return appended + self.add(
            *read[reply + 1 :], origins=None if origins is None else origins[reply + 1 :]
        )

    async def request(self) -> WindowRequest:
        """Build the next request. Compacts or prunes if the conversation does not fit.

        The components of the prompt run once for a request, also where it is rendered again because
        it does not fit or was refused. A component runs again only if its props or the budget that
        it read have changed.

        Returns:
            The messages and tools to send, within the budget.

        Raises:
            ContextWindowFullError: The conversation does not fit, whatever is compacted or pruned.
                The window can be used again.
            NoPendingMessageError: The request would have no messages besides system messages.
        """
        await take_turn()
        compaction = self.compaction
        refused = compaction.state.refused
        compaction.state = attrs.evolve(compaction.state, pending=None, refused=None)
        await compaction.compactor.read_ahead()
        await self._add_recalled()
        self._check_least()
        if refused is not None and refused.version == compaction.version:
            state, runs = refused.state, refused.runs
        else:
            state, runs = await compaction.prepare(), RequestRuns()
        limit = self.budget.render_budget
        if state.compacted or limit is None or compaction.usage().tokens <= limit:
            self._release_holder()
        while True:
            self._update_tools()
            self._limit_media()
            version, model = compaction.version, self.model
            request = await self._build(state, runs)
            if isinstance(request, int):
                await take_turn()
                try:
                    state = await compaction.make_room(state, request)
                finally:
                    self._release_holder()
                continue
            await self.wait_synced()
            # while the disk or a component was awaited something else may have happened
            if compaction.version == version:
                break
        if all(message.role == "system" for message in request.messages):
            raise NoPendingMessageError(empty=True)
        compaction.on_rendered(
            PendingRequest(
                state=state,
                content=request.as_last_request(),
                tokens=request.tokens,
                model=model,
                runs=runs,
                seconds=compaction.seconds_since_request,
            )
        )
        self._tools = attrs.evolve(
            self._open_tools(), sent=True, checkpoint_id=self.view.checkpoint_id
        )
        self._check_least()  # the size of a prompt function's own messages is known now
        self.last_request = attrs.evolve(
            request,
            reserved_output_tokens=self.budget.output_reserve,
            origins_by_entry=dict(self._origins),
        )
        return self.last_request

    def _limit_media(self, *, refused: bool = False) -> bool:
        """Write a line in place of each of the oldest pictures and documents, if they take too much. Returns True if it did."""
        view, before = self.view, self._media_checkpoint
        self._media_checkpoint = view.checkpoint_id
        edits = self._media.plan(
            view,
            model_name(self.model),
            self.compaction.sizer.count_part,
            compacted=view.checkpoint_id != before,
            refused=refused,
        )
        if edits:
            size = self.compaction.usage().local
            self.transcript.append(*edits)
            self._settings.events.emit(
                RequestPruned(
                    messages=len(edits),
                    before=size,
                    after=self.compaction.usage().local,
                    by=(MediaLimits.__name__,),
                )
            )
        return bool(edits)

    async def _add_recalled(self) -> None:
        """Put a note with what was said before behind the user's message, if that is the newest one."""
        view, tokens = self.view, self._settings.recall_tokens
        newest = view.items[-1] if view.items else None
        if (
            tokens <= 0
            or view.checkpoint_id is None
            or newest is None
            or not is_user_request(newest)
            or newest.kind != "message"
        ):
            return
        shown = {item.entry_id for item in view.items}
        path = self.transcript.path()
        newest_entries = path[-MAX_LOOK_UP:]
        start = max(
            (at for at, each in enumerate(newest_entries) if isinstance(each.payload, Reset)),
            default=0,
        )
        dropped = [entry for entry in newest_entries[start:] if entry.id not in shown]
        note = await run_in_worker(
            build_note,
            dropped,
            newest.message.text,
            shown=view.messages,
            max_tokens=tokens,
            tokenizer=self.tokenizer,
            redactor=self._settings.redactor,
        )
        if note is not None and self.transcript.leaf == path[-1].id:
            self.transcript.append(note)

    async def _build(self, state: RequestState, runs: RequestRuns) -> WindowRequest | int:
        """Build the next request, or return its tokens if it exceeds the budget. That may be known without a render."""
        view, target = self.view, self._find_target()
        budget = min(filter(None, (self.budget.render_budget, state.limit)), default=None)
        if budget is not None and not state.pruned and self.compaction.usage().local > budget:
            size = await self._requests.find_size(view, target)
            if size is not None and size > budget:
                return size
        try:
            return await self._requests.build(
                view, target, budget=budget, pruned=state.pruned, runs=runs
            )
        except BudgetExceededError as error:
            return error.required

    @property
    def pins(self) -> tuple[Pin, ...]:
        """The texts that every summary shows word for word, oldest first."""
        return list_pins(self.transcript.path(), self.view.checkpoint_id)

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
        pin, pins = find_pin(self.transcript, entry, text), self.pins
        if (redactor := self._settings.redactor) is not None:
            # as summaries have it, so that `unpin` finds it after one
            pin = attrs.evolve(pin, text=redactor(pin.text))
        replacement = self.compaction.compactor.replacement
        tokens = count_pins(dict.fromkeys((*pins, pin)), self.tokenizer)
        if tokens > replacement.binding_tokens:
            raise InvalidArgumentError(
                f"the pins would have {tokens:,} tokens, and at most {replacement.binding_tokens:,} are allowed: pin a passage, or unpin something."
            )
        if pin not in pins:
            self.transcript.append(pin_entry(pin))
        return pin

    def unpin(self, pin: Pin) -> None:
        """Let summaries drop what was pinned. Raises InvalidArgumentError if it is not pinned."""
        if pin not in self.pins:
            raise InvalidArgumentError(
                f"{pin.text!r:.80} is not pinned: give one of the values of `pins`."
            )
        self.transcript.append(pin_entry(pin, name=UNPIN))

    def _pin_marked(self, entries: Sequence[Entry], messages: Sequence[Message]) -> None:
        """Pin the passages between the marks in messages of the user."""
        marks = self._settings.pin_marks
        for entry, message in zip(entries, messages, strict=True):
            for passage in (
                find_marked(message.text, marks) if marks and message.role == "user" else ()
            ):
                try:
                    self.pin(entry.id, text=passage)
                except InvalidArgumentError as error:
                    _LOGGER.warning("a marked passage is not pinned: %s", error)

    def undo_compaction(self) -> Entry | None:
        """Show again what the latest compaction summarized. Returns None if there is none."""
        return self.compaction.undo()

    def rewind(self, to: str | None, *, abandon_calls: bool = False) -> Entry:
        """Continue from an earlier entry. Later entries stay in the transcript, as a branch.

        Args:
            to: The id of the entry; None: the beginning.
            abandon_calls: Go on although tool calls wait for results, which can then no longer be
                added.

        Returns:
            The last entry that was written.

        Raises:
            TurnInProgressError: Tool calls wait for results.
            TranscriptError: There is no entry with this id.
        """
        self._check_calls(abandon=abandon_calls)
        return self._rewind(to)

    def _rewind(self, to: str | None, *payloads: EntryPayload) -> Entry:
        """Continue from an earlier entry, with entries after it."""
        entry = self.transcript.rewind(to, *payloads)
        self.compaction.on_branch_change("the conversation continues from another entry")
        return entry

    def _check_calls(self, *, abandon: bool) -> None:
        """Raise TurnInProgressError if tool calls wait for results, which could not be added on another branch."""
        waiting = () if abandon else self.pending_calls
        if waiting:
            raise TurnInProgressError(waiting=[f"{call.name} ({call.id})" for call in waiting])

    async def switch_branch(
        self,
        to: str | None,
        *,
        instructions: str | None = None,
        summarize: bool = True,
        abandon_calls: bool = False,
    ) -> Entry | None:
        """Continue from another entry, with a summary of the branch that is left.

        Args:
            to: The id of the entry; None: the beginning.
            instructions: What the summary should pay attention to.
            summarize: False: leave the branch without a summary, as `rewind` does.
            abandon_calls: Go on although tool calls wait for results, which can then no longer be
                added.

        Returns:
            The last entry that was written; None if a hook cancelled the change.

        Raises:
            TurnInProgressError: Tool calls wait for results.
            SummaryError: No model wrote a summary, where the conversation has a summarizing model.
                Nothing was changed.
            TranscriptError: There is no entry with this id.
        """
        self._check_calls(abandon=abandon_calls)
        compactor = self.compaction.compactor
        entry = await switch_branch(
            self.transcript,
            to,
            writer=self._make_writer(compactor.summarizer) if summarize else None,
            instructions=instructions,
            hooks=compactor.hooks,
        )
        if entry is not None:
            self.compaction.on_branch_change("the conversation continues on another branch")
        await self.wait_synced()
        return entry

    def _make_writer(self, summarizer: Summarizer) -> SummaryWriter:
        """Return what writes the summary of what the conversation leaves."""
        compactor = self.compaction.compactor
        return SummaryWriter(
            summarizer=summarizer,
            tools=compactor.tools,
            redactor=compactor.redactor,
            tokenizer=self.tokenizer,
            seconds=self.compaction.wait_seconds,
            events=compactor.events,
            count_request=compactor.count_request,
        )

    async def reset(
        self,
        reason: str = "manual",
        *,
        extractor: MemoryExtractor | None = None,
        memories: MemoryDirectory | None = None,
        move_to_archive: bool = False,
        abandon_calls: bool = False,
    ) -> Entry | None:
        """Start over: no earlier message is shown, and all of them stay in the transcript.

        Args:
            reason: Recorded in the transcript, in one word.
            extractor: Extracts memories from the conversation before it is reset.
            memories: Where the memories are written.
            move_to_archive: Move the hidden entries into an archive, if the store has archives.
            abandon_calls: Go on although tool calls wait for results, which can then no longer be
                added.

        Returns:
            The entry of the reset, or None if there are no messages.

        Raises:
            TurnInProgressError: Tool calls wait for results.
        """
        self._check_calls(abandon=abandon_calls)
        entry = await reset(
            self.transcript,
            reason=reason,
            extractor=extractor,
            memories=memories,
            move_to_archive=move_to_archive,
        )
        self.compaction.on_branch_change("the conversation was reset")
        await self.wait_synced()
        return entry

    async def handoff(self, goal: str, store: TranscriptStore, *, carries: bool = True) -> Self:
        """Continue with a goal in a new conversation, which starts with a document of what serves the goal.

        Args:
            goal: What the new conversation is for.
            store: An empty store for the new conversation.
            carries: False: its summaries do not show what `carry` returns, as those of a sub-agent.

        Returns:
            A window with the same settings over the new conversation.

        Raises:
            SummaryError: No document was written. Nothing was changed.
            TranscriptError: The store is not empty.
        """
        sync_later(store)
        context = self._settings.build_context(self.model, self.budget, self.tokenizer)
        if context.model is None:
            raise SummaryError(
                reason="no_request",
                detail="a handoff needs a model that writes it: give the window a model object.",
            )
        transcript = await handoff(
            self.transcript,
            self.view,
            goal,
            store,
            writer=attrs.evolve(
                self._make_writer(make_handoff_summarizer(context, context.model)),
                max_tokens=compute_max_summary_tokens(context.budget),
                last_request=None
                if self.last_request is None
                else self.last_request.as_last_request(),
            ),
        )
        window = self._reopen(
            self._settings if carries else attrs.evolve(self._settings, carry=None), transcript
        )
        await self.wait_synced()
        await window.wait_synced()
        return window

    def fork(self, store: TranscriptStore, *, at: str | None = None) -> Self:
        """Open a window with the same settings over a copy of the conversation.

        Args:
            store: An empty store for the copy.
            at: The last entry to copy; by default the latest.
        """
        copy = self.transcript.fork(store, at=at)
        return self._reopen(
            attrs.evolve(self._settings, hooks=self.compaction.compactor.hooks.fork(copy)), copy
        )

    def isolate(
        self,
        store: TranscriptStore,
        *,
        instructions: Child = None,
        tools: Sequence[AnyTool] | None = None,
        model: str | Model | None = None,
    ) -> Self:
        """Open a window over a new conversation, with the settings that are not given here.

        Its summaries do not show what `carry` returns, which is this conversation's.

        Args:
            store: An empty store for the new conversation.
            instructions: The content of the system message; by default this window's instructions
                or prompt.
            tools: Offered in every request; by default this window's.
            model: The model that answers; by default this window's.

        Raises:
            TranscriptError: The store is not empty.
        """
        transcript, settings = Transcript(store), self._settings
        if transcript.leaf is not None:
            raise TranscriptError(
                "the store for the new conversation is not empty: pass an empty store."
            )
        settings = attrs.evolve(
            settings,
            instructions=settings.instructions if instructions is None else instructions,
            prompt=settings.prompt if instructions is None else None,
            tools=settings.tools if tools is None else tools,
            hooks=self.compaction.compactor.hooks.fork(transcript),
            carry=None,
        )
        return self._reopen(settings, transcript, model)

    def _reopen(
        self, settings: WindowSettings, transcript: Transcript, model: str | Model | None = None
    ) -> Self:
        window = copy.copy(self)  # with what a subclass has besides
        ContextWindow._open(
            window,
            settings,
            model or self.model,
            transcript,
            self._learned.given if model is None else None,
        )
        return window

    def replace_request(self, request: WindowRequest) -> WindowRequest:
        """Note that the last request is sent in another form, so that its reply and its usage are read as those of what was sent.

        Args:
            request: The request as it is sent, such as `attrs.evolve(request, messages=…)`.

        Returns:
            The request, with its size.
        """
        last, state = self.last_request, self.compaction.state
        if (
            last is None
            or state.pending is None
            or (request.messages == last.messages and request.tools == last.tools)
        ):
            return request
        self.last_request = changed = recount(request, self.tokenizer)
        self.compaction.state = attrs.evolve(
            state,
            pending=attrs.evolve(
                state.pending, content=changed.as_last_request(), tokens=changed.tokens
            ),
        )
        return changed

    def add_reply(self, reply: AnyReply, *, usage: Usage | None = None) -> Entry:
        """Append the model's reply to the last request, and start a background summary if it is time.

        Args:
            reply: A `Reply`, an assistant message, or what OpenAI's or Anthropic's SDK returned: a
                chat completion, a response, a message.
            usage: What the provider reports for the request, in tokens. By default that of the
                reply.

        Returns:
            The transcript's entry.

        Raises:
            TypeError: `reply` is none of these.
            EmptyReplyError: The SDK's reply has neither text nor tool calls.
        """
        message, usage, finish = read_reply(reply, usage, model_name(self.model))
        if message is None:
            raise TypeError(
                f"add_reply takes a reply, or a message with the role 'assistant', not {reply!r:.80}: use add() for other messages."
            )
        sent = self.compaction.state.pending
        self.compaction.state = attrs.evolve(self.compaction.state, pending=None)
        budget = RequestBudget(window=self.budget.window, limit=self.budget.limit)
        missed = None if sent is None else self._explain_miss(sent, usage)
        (entry,) = self.transcript.append(
            MessageEntry(
                message=message,
                usage=usage,
                model=None if sent is None else model_name(sent.model),
                finish=finish,
                budget=None if budget == self._written_budget else budget,
                tools=None if sent is None else self._find_unwritten_tools(sent.content.tools),
                cache_miss=missed,
            )
        )
        self._written_budget = budget
        if missed is not None:
            self._settings.events.emit(missed)
        if sent is not None:
            self.compaction.on_reply(sent, message)
            if sent.model is self.model:
                self._apply(
                    self._learned.after_success(), f"{LAPSE_SUCCESSES} requests succeeded since"
                )
                if usage is not None and usage.cached_tokens <= usage.input_tokens:
                    self._learn(sent.tokens, usage.input_tokens)
        return entry

    def _find_unwritten_tools(
        self, tools: tuple[ToolDefinition, ...]
    ) -> tuple[ToolDefinition, ...] | None:
        """Return the tools of a request if the transcript does not have them since the last checkpoint, and note that it does now."""
        checkpoint_id, written = self._written_tools
        is_written = tools == written and (not tools or checkpoint_id == self.view.checkpoint_id)
        self._written_tools = self.view.checkpoint_id, tools
        return None if is_written else tools

    def _explain_miss(self, sent: PendingRequest, usage: Usage | None) -> CacheMissed | None:
        """Return why the provider's cache served less of a request than it could have; None if it did not, or if nothing is known."""
        request, compaction = self.last_request, self.compaction
        if request is None or request.messages is not sent.content.messages:
            return None
        return self._cache.explain(
            request,
            usage,
            seconds=sent.seconds,
            cache_seconds=compaction.cache_seconds,
            count=compaction.sizer.count_message,
        )

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the newest reply, if they wait for results.

        Empty for a reply that was cut off: its calls must not be run.
        """
        return find_pending_calls(self.transcript.path())

    @property
    def last_text(self) -> str:
        """The text of the newest reply. If it continues one that was cut off, both texts."""
        return join_reply_text(self.transcript.path())

    async def retry_cut_reply(self) -> bool:
        """Prepare another request if the last reply was cut off.

        Call it after `add_reply`, and run only the tool calls in `pending_calls`.

        A reply that reached the output limit stays, and a message asks the model to continue it, or
        to repeat its tool calls with shorter arguments. If the context window was full, the reply
        is taken out of the view, and room is made. The transcript keeps all of it.

        Returns:
            True if the model should be asked again, with `request`. False if the reply is whole, if
            it is the second one in a row that was cut off, or if a full window cannot be made
            roomier.
        """
        await self.wait_synced()
        return await retry_cut_reply(
            self.transcript,
            self.compaction,
            request_tokens=self.last_request.tokens if self.last_request else 0,
            tokenizer=self.tokenizer,
        )

    async def recover(self, error: BaseException, request: WindowRequest | None = None) -> bool:
        """Handle a provider's refusal of a request: learn its window, and make room.

        Args:
            error: What the call raised: a `ContextLengthExceededError`, or an exception of the
                provider's SDK.
            request: The request that was refused. Default: the last one. Of an earlier one only the
                window is learned, to which the next request is made.

        Returns:
            True if a smaller request should be made with `request`. False if the error is not about
            the size of the request, or if the same request was refused before.

        Raises:
            ContextWindowFullError: No smaller request is possible, or the refusal is about the
                newest message, whose pictures and documents the error names. Later requests leave
                these out.
        """
        sent, overflow = self.compaction.state.pending, overflow_from_error(error)
        if request is not None and request is not self.last_request:
            return (
                overflow is not None
                and request.model == model_name(self.model)
                and self._learn_window(request.tokens, overflow)
            )
        if sent is None or overflow is None:
            return False
        compaction, state = self.compaction, sent.state
        is_lower = sent.model is not self.model or self._learn_window(sent.tokens, overflow)
        if state.refused:
            return False
        if overflow.is_body and self._limit_media(refused=True):
            return True
        if not is_lower:
            self._check_newest(sent, error, overflow)
            state = attrs.evolve(state, limit=int(sent.tokens * BUFFER_STEP))
        state = await compaction.make_room(state, sent.tokens, refused_by=model_name(sent.model))
        compaction.state = compaction.state.on_refusal(state, compaction.version)
        return True

    def _learn_window(self, refused: int, overflow: Overflow) -> bool:
        """Learn from the refusal of a request of so many tokens. Returns True if the limit is below it now."""
        if overflow.is_body or overflow.is_rate:
            return False
        least = self._count_fixed().total + count_newest(self.view.items, self.tokenizer)
        window = overflow.window
        learned = self._learned.after_refusal(refused, window=window, least=least)
        why = (
            f"a request of {refused:,} tokens was refused, without a figure"
            if window is None
            else f"the provider named a window of {window:,} tokens"
        )
        self._apply(learned, why)
        limit = learned.budget.limit
        return limit is not None and limit < refused

    def _update_budget(
        self, budget: ContextBudget, *, holder: SummarizerContext | None = None
    ) -> None:
        self._settings.update_budget(
            self.compaction,
            self._settings.build_context(self.model, budget, self.tokenizer),
            holder=holder,
        )

    def _apply(self, learned: LearnedBudget, why: str) -> None:
        """Continue with what was learned of the budget, and report a changed limit."""
        before, self._learned = self._learned.budget, learned
        if learned.budget != before:
            self._update_budget(learned.budget)
            self._settings.events.emit(
                WindowLearned(before=before.limit, after=self.budget.limit, why=why)
            )

    def _check_newest(self, sent: PendingRequest, error: BaseException, overflow: Overflow) -> None:
        """Raise ContextWindowFullError if a refusal that teaches nothing is about the newest message, so that no compaction helps.

        Its pictures and documents are left out of later requests.
        """
        items = self.view.items
        newest = find_newest(items, find_last_user_request(items), sent.content.messages)
        may_be_size = not overflow.is_body or newest.body >= SMALLEST_BODY
        if may_be_size and not newest.is_most:
            return
        media = newest.describe_media()
        edits = newest.leave_out_media(self.transcript) if may_be_size else []
        if edits:
            self.transcript.append(*edits)
        advice = (
            f"The newest message has: {media}."
            if media
            else describe_largest(sent.content.messages, self.tokenizer)
        )
        if edits:
            advice += " Send smaller ones; later requests leave these out."
        said, size = str(error).rstrip("."), f"{sent.tokens:,} tokens and {newest.body:,} bytes"
        raise ContextWindowFullError(
            f"the provider refused a request of {size}, which is not about the context window: {said}. {advice}"
        ) from error

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
        entry = await self.compaction.compact(instructions, allow_extractive=allow_extractive)
        await self.wait_synced()
        return entry

    def set_model(
        self, model: str | Model, *, budget: int | str | ContextBudget | None = None
    ) -> None:
        """Continue with another model.

        If its window is smaller and the conversation does not fit, the model that holds the
        conversation summarizes it before the next request.

        Args:
            model: The model's name, or a model object.
            budget: What requests may take; by default what is known of the model.
        """
        name = model_name(model)
        tokenizer = self._settings.tokenizer or tokenizer_for(name)
        resolved = _resolve_budget(budget, model, tokenizer, self._requests.tools)
        self.transcript.append(Setting(name=MODEL_SETTING, value=name))
        make_portable(self.transcript, provider=get_wire_format(model), model=name)
        context = self._settings.build_context(model, resolved, tokenizer)
        holder = self._holder or self._settings.build_context(
            self.model, self.budget, self.tokenizer
        )
        self.compaction.set_model(model, context.budget, tokenizer=tokenizer)
        self._learned = LearnedBudget(given=context.budget)
        self._holder = holder if self.compaction.state.to_smaller_window else None
        self._settings.update_budget(self.compaction, context, holder=self._holder)
        self._offer_promotion()

    def set_tools(self, tools: Sequence[AnyTool]) -> None:
        """Give the conversation other tools.

        Tool definitions stand before all messages, so that other ones make the provider read
        everything anew. Requests therefore offer them, in the given order, from the first request on
        that is read anew in any case: before the first reply, after a checkpoint, after the time for
        which the cache keeps a prompt, or with another model. Until then a message at the end tells
        the model of them. The model may call a tool that it was told of; it is offered at once if
        the user or the model asks for it by its name. With `freeze_tools=False`, or if requests had no
        tools, the next one offers them.

        Calls of tools that have left, and their results, stay in the conversation.

        Args:
            tools: All tools from now on.

        Raises:
            TypeError: A value is no tool.
            InvalidArgumentError: Two tools have the same name.
            ToolsFillBudgetError: The tool definitions leave nothing for messages.
        """
        given = tool_definitions(tools)
        self._count_tools(given)  # raises ToolsFillBudgetError
        current = self._open_tools()
        self._settings = attrs.evolve(self._settings, tools=tuple(tools))
        self._tools = attrs.evolve(current, given=given)

    def _open_tools(self) -> ToolList:
        """Return the tools of the conversation, which the transcript tells when it is first needed."""
        if self._tools is None:
            opened = ToolList.open(
                self.transcript.path(), self._settings.definitions, shows_calls=self._shows_calls()
            )
            self._tools = attrs.evolve(opened, checkpoint_id=self.view.checkpoint_id)
            if opened.sent:
                self._written_tools = self.view.checkpoint_id, opened.offered
            if opened.offered != opened.given:
                self._offer(self._tools)
        return self._tools

    def _update_tools(self) -> None:
        """Let requests offer the tools that the program has given, or tell the model of them at the end."""
        tools = self._open_tools()
        if tools.given == tools.offered == tools.announced:
            return
        why = None if tools.given == tools.offered else self._find_reason_to_offer(tools)
        if why is not None:
            self._offer(tools.offer())
        elif tools.given == tools.announced or self.pending_calls:
            return
        else:
            announcement = build_announcement(tools.announced, tools.given)
            entry = None if announcement is None else self.transcript.append(announcement)[0]
            self._tools = attrs.evolve(
                tools, announced=tools.given, announcement=None if entry is None else entry.id
            )
        if tools.sent:
            self._settings.events.emit(
                ToolsChanged(
                    change=describe_tool_changes(tools.offered, tools.given),
                    offered=why is not None,
                    why="requests up to the next checkpoint begin with the tools of before"
                    if why is None
                    else why,
                )
            )

    def _find_reason_to_offer(self, tools: ToolList) -> str | None:
        """Return why the next request may offer the given tools; None: they have to wait."""
        compaction, items = self.compaction, self.view.items
        seconds = compaction.seconds_since_request
        if not tools.given and self._shows_calls():
            return None  # providers refuse calls in a request without tools
        if not self._settings.freeze_tools:
            return "the tools are not frozen"
        if not tools.sent or not tools.offered:
            return "requests had no tools"  # and could not show the call of an announced one
        if seconds is None or seconds > compaction.cache_seconds:
            return "the prompt cache is cold"
        if self.view.checkpoint_id != tools.checkpoint_id:
            return "the conversation was compacted"
        asked = find_asked(
            items,
            tools.announcement,
            [tool.name for tool in tools.given if tool not in tools.offered],
        )
        return asked and f"{asked} was asked for"

    def _shows_calls(self) -> bool:
        return any(item.message.tool_calls for item in self.view.items)

    def _offer(self, tools: ToolList) -> None:
        """Let requests offer tools from now on."""
        self._tools, self._requests.tools = tools, tools.offered
        settings = self._settings
        self.compaction.compactor.set_tools(
            tools.offered, limits=settings.result_tokens, supersedes=settings.supersedes
        )
        if self._counts_tools:
            self._learned = attrs.evolve(self._learned, given=self._count_tools(tools.offered))
            self._update_budget(self._learned.budget, holder=self._holder)

    def _count_tools(self, tools: Sequence[ToolDefinition]) -> ContextBudget:
        """Return the budget with what tool definitions take. Raises ToolsFillBudgetError."""
        given = self._learned.given
        return (
            attrs.evolve(given, tools=self.tokenizer.count_overhead(tools).tokens if tools else 0)
            if self._counts_tools
            else given
        )

    def _release_holder(self) -> None:
        """Let the present model summarize from now on: a switch to its window has made room."""
        if self._holder is not None:
            self._holder = None
            self.compaction.state = attrs.evolve(self.compaction.state, answered=None)
            self._update_budget(self.budget)

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
        return await self._run_phase(
            "memory" if memory_pressure else "idle", idle_seconds=idle_seconds
        )

    async def end_turn(self) -> bool:
        """Run the policy's phase for the end of a turn: the model's last reply has no tool calls.

        Returns:
            True if a compaction or pruning ran.
        """
        return await self._run_phase("turn_end")

    async def _run_phase(self, phase: Phase, *, idle_seconds: float = 0.0) -> bool:
        done = await self.compaction.run_phase(phase, idle_seconds=idle_seconds)
        await self.wait_synced()
        return done

    async def wait_synced(self) -> None:
        """Wait until everything that was added is on the disk, in a thread.

        The asynchronous methods do so themselves before they return.

        Raises TranscriptWriteError if the disk refuses it.
        """
        if self._syncing is not None and not self._syncing.is_synced:
            await asyncio.to_thread(self._syncing.sync)

    async def wait_idle(self) -> None:
        """Wait until no background summary is running."""
        await self.compaction.background.wait()

    async def close(self) -> None:
        """Cancel the background summary, and wait for the disk.

        The window can still be used; it then compacts in the foreground only, and waits for the
        disk in the event loop.
        """
        sync_later(self.transcript.store, later=False)
        await self.compaction.close()
        await self.wait_synced()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _remember_origins(
        self,
        entries: Sequence[Entry],
        messages: Sequence[Message],
        origins: Sequence[object] | None,
    ) -> None:
        if origins is not None:
            for entry, message, value in zip(entries, messages, origins, strict=True):
                known = self._origins.get(entry.id)  # its message is equal, and already in memory
                self._origins[entry.id] = Origin(message if known is None else known.message, value)

    def _learn(self, counted: int, reported: int) -> None:
        """Count the next requests with what the provider's count of the last one teaches.

        Most tokenizers learn nothing.
        """
        learned = self.tokenizer.learn(counted=counted, reported=reported)
        if learned != self.tokenizer:
            self.compaction.set_tokenizer(learned)

    def _offer_promotion(self) -> None:
        """Tell the controller of the next larger model, if there is one."""
        self.compaction.state = attrs.evolve(
            self.compaction.state,
            promotion=find_promotion(
                self._settings.promotions,
                self.budget.window,
                switch=self.set_model,
                tokenizer=self._settings.tokenizer,
            ),
        )


def sync_later(store: TranscriptStore, *, later: bool = True) -> SyncingStore | None:
    """Let a store write batches without waiting for the disk, which `wait_synced` does, and return it. None: it cannot."""
    if not isinstance(store, SyncingStore):
        return None
    store.sync_later = later
    return store


def _resolve_budget(
    budget: int | str | ContextBudget | None,
    model: str | Model,
    tokenizer: Tokenizer,
    tools: Sequence[ToolDefinition],
) -> ContextBudget:
    """Return what requests to a model may take, and warn, once for each name, of a model whose window is unknown.

    A model without a provider, such as a scripted one, has none.
    """
    name = model_name(model)
    resolved = resolve_budget(budget, model=name, tokenizer=tokenizer, tools=tools)
    if budget is None and resolved.limit is None and getattr(model, "provider", model) is not None:
        _warn_of_unknown(name)
    return resolved


@cache
def _warn_of_unknown(name: str) -> None:
    _LOGGER.warning(
        "the context window of %r is not known, so that nothing is compacted before its provider refuses a request: "
        "write budget=ContextBudget(window=…), or register_model(%r, window=…).",
        name,
        name,
    )
