"""Build the requests of one conversation: a transcript's view goes in, a request that the model can be sent comes out."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any

import attrs

from promptkit.agent.settings import WindowSettings
from promptkit.agent.window.prompt import ContextUsage, ConversationPrompt, ConversationView, Prompt
from promptkit.agent.window.wire import is_recorded
from promptkit.compaction import LastRequest, RequestPruned, UsageByPart
from promptkit.compaction.planning.blocks import find_last_user_request
from promptkit.compaction.planning.facts import thinking_from_json
from promptkit.compaction.planning.worker import run_beside
from promptkit.compaction.policy.usage import count_parts, find_summary_ids
from promptkit.compaction.pruning.processors import RequestLimits, ViewProcessor
from promptkit.compaction.summarizers.defaults import UNLIMITED
from promptkit.compaction.summarizers.quirks import (
    Quirks,
    adapt_messages,
    count_added_tokens,
    find_quirks,
)
from promptkit.elements import SystemMessage
from promptkit.elements.element import Child, flatten
from promptkit.errors import BudgetExceededError, InvalidArgumentError
from promptkit.messages import Json, Message, OpaquePart, ToolDefinition
from promptkit.pairing import pair_tool_calls
from promptkit.providers.anthropic.api import beta_headers, build_body
from promptkit.providers.model import CacheTtl, ModelOptions
from promptkit.providers.openai.api import build_chat_body, build_responses_body
from promptkit.rendering import Rendered, Renderer
from promptkit.rendering.expand.build import show_message
from promptkit.rendering.expand.render_cache import RequestRuns
from promptkit.rendering.expand.sizing import Sizer
from promptkit.reprs import describe_fields
from promptkit.tokens import Tokenizer
from promptkit.transcript import Checkpoint, Transcript, TranscriptView, ViewItem
from promptkit.wire import AnthropicRequest, to_anthropic, to_chat, to_responses
from promptkit.wire.anthropic import mark_prefix


@attrs.frozen
class Origin:
    """A caller's own object, and the message that was read from it."""

    message: Message
    value: object


@attrs.frozen(kw_only=True)
class WindowRequest:
    """One request to a model: messages and tools that fit the context window.

    `to_chat()`, `to_responses()` and `to_anthropic()` return the messages in a provider's format.
    `chat_arguments()`, `responses_arguments()` and `anthropic_arguments()` return everything that
    the SDK's call takes.
    """

    model: str
    """The model's name."""
    messages: tuple[Message, ...]
    """The messages to send, the system message among them."""
    tools: tuple[ToolDefinition, ...] = ()
    tokens: int
    """The size of the request in tokens: messages, framing and tool definitions."""
    omitted: tuple[Message, ...] = ()
    """The messages of the view that the request leaves out or shortens, although no summary covers
    them."""
    pruned: bool = False
    """Whether the history could be pruned, because no summary made enough room."""
    reserved_output_tokens: int | None = None
    """The tokens of the context window that are reserved for the reply, if they are known."""
    _render: Callable[[], Rendered] = attrs.field(alias="render", repr=False, eq=False)
    _items: tuple[ViewItem, ...] = attrs.field(alias="items", default=(), repr=False, eq=False)
    changed_by: tuple[str, ...] = attrs.field(default=(), repr=False, eq=False)
    """The names of the processors that changed messages of the view."""
    _origins: Mapping[str, Origin] = attrs.field(
        alias="origins_by_entry", factory=dict[str, "Origin"], repr=False, eq=False
    )

    __repr__ = describe_fields

    @cached_property
    def rendered(self) -> Rendered:
        """The render behind it, with its receipt. Model-specific additions (`messages`) are not in it."""
        return self._render()

    @cached_property
    def origins(self) -> tuple[object | None, ...]:
        """The caller's own object for each of `messages`; None for a message that was changed, or that is not the caller's."""
        if not self._origins:
            return (None,) * len(self.messages)
        return tuple(map(self._find_origin, match_items(self.messages, self._items)))

    @cached_property
    def sources(self) -> tuple[object | None, ...]:
        """The caller's own object that each of `messages` was made from.

        That is its origin, and for a message that was changed the object with the same tool calls,
        or with the result of the same call. None for other messages, such as summaries.
        """
        entries = {key: item.entry_id for item in self._items for key in _call_keys(item.message)}
        return tuple(
            self._find_changed(message, entries) if origin is None else origin
            for origin, message in zip(self.origins, self.messages, strict=True)
        )

    @cached_property
    def lasting(self) -> int:
        """The number of messages, from the first one, that the next request begins with as well, if nothing is compacted.

        What the prompt shows behind the conversation, such as a `ContextStatus`, is not among them.
        """
        last = self._items[-1].message if self._items else None
        count = len(self.messages)
        while (
            last is not None
            and count
            and not _is_unchanged(shown := self.messages[count - 1], last)
            # nor the shortened result of the same call
            and (last.tool_call_id is None or shown.tool_call_id != last.tool_call_id)
        ):
            count -= 1
        return count or len(self.messages)

    def find_entry(self, message: Message | None) -> str | None:
        """Return the id of the entry that one of `messages` shows as the view does; None if there is none."""
        shown = zip(self.messages, match_items(self.messages, self._items), strict=True)
        return next((item.entry_id for each, item in shown if each is message and item), None)

    def _find_changed(
        self, message: Message, entries: Mapping[tuple[str, str], str]
    ) -> object | None:
        return next(
            (
                origin.value
                for key in _call_keys(message)
                if key in entries
                and (origin := self._origins.get(entries[key])) is not None
                and origin.message.role == message.role
            ),
            None,
        )

    def _find_origin(self, item: ViewItem | None) -> object | None:
        """Return the object of the entry that an item shows, unless the view changed the message: capped, edited, or made of its calls."""
        origin = None if item is None else self._origins.get(item.entry_id)
        return (
            None
            if item is None or origin is None or not is_recorded(item.message, origin.message)
            else origin.value
        )

    # Any: the SDK's unions of TypedDicts take no dict[str, ...]
    def to_chat(self, *, cache: bool = True) -> list[Any]:
        """Return the messages for Chat Completions (`messages=`).

        `cache=False` leaves out cache breakpoints.
        """
        return to_chat(self.messages, cache=cache)

    def to_responses(self, *, cache: bool = True) -> list[Any]:  # Any: as above
        """Return the messages for the Responses API (`input=`).

        `cache=False` leaves out cache breakpoints.
        """
        return to_responses(self.messages, cache=cache)

    def to_anthropic(
        self, *, cache: bool = True, cache_ttl: CacheTtl | None = None
    ) -> AnthropicRequest:
        """Return the messages for Anthropic's Messages API: `{"system": …, "messages": …}`.

        They have cache breakpoints after the instructions and where the newest requests ended.

        Args:
            cache: Whether they have cache breakpoints.
            cache_ttl: How long the provider keeps what they mark. None: for five minutes.
        """
        return to_anthropic(mark_prefix(self.messages, self.lasting, cache_ttl), cache=cache)

    def chat_arguments(self) -> dict[str, Any]:  # Any: as above
        """Return the arguments for `client.chat.completions.create(**request.chat_arguments())`."""
        return build_chat_body(self.model, self.messages, self.tools, {})

    def responses_arguments(self) -> dict[str, Any]:  # Any: as above
        """Return the arguments for `client.responses.create(**request.responses_arguments())`."""
        return build_responses_body(self.model, self.messages, self.tools, {})

    # Any stands for as above
    def anthropic_arguments(
        self,
        *,
        max_tokens: int | None = None,
        cache: bool = True,
        cache_ttl: CacheTtl | None = None,
    ) -> dict[str, Any]:
        """Return the arguments for `client.messages.create(**request.anthropic_arguments())`.

        They have cache breakpoints after the tools and instructions and where the newest requests
        ended. For models that bind their thinking to the conversation they have `thinking` and
        `extra_headers`, with which the API leaves thinking out that a compaction has made invalid.

        Args:
            max_tokens: The output limit, in tokens, which Anthropic requires. By default the tokens
                that are reserved for the reply.
            cache: Whether they have cache breakpoints.
            cache_ttl: How long the provider keeps what they mark. None: for five minutes.

        Raises:
            InvalidArgumentError: No output limit is given, and none is known.
        """
        limit = self.reserved_output_tokens if max_tokens is None else max_tokens
        if not limit:
            raise InvalidArgumentError(
                "Anthropic requires an output limit and none is known for this model: write anthropic_arguments(max_tokens=4096)."
            )
        options: ModelOptions = {
            "max_output_tokens": limit,
            "cache_breakpoints": cache,
            "cache_messages": self.lasting,
        }
        if cache_ttl is not None:
            options["cache_ttl"] = cache_ttl
        body = build_body(self.model, self.messages, self.tools, options)
        headers = beta_headers(body)
        return {**body, "extra_headers": headers} if headers else body

    def as_last_request(self) -> LastRequest:
        """Return the messages and tools, for a summarizer that continues this request."""
        return LastRequest(messages=self.messages, tools=self.tools)


def recount(request: WindowRequest, tokenizer: Tokenizer) -> WindowRequest:
    """Return a request whose messages or tools were changed with its size, in tokens."""
    system = _find_system_text(request.messages)
    tokens = tokenizer.count_overhead(request.tools, system=system).tokens + sum(
        map(Sizer(tokenizer).count_message, request.messages)
    )
    return attrs.evolve(request, tokens=tokens)


def _find_system_text(messages: Iterable[Message]) -> str | bool:
    """Return the text of the first system message. False: there is none."""
    return next((message.text for message in messages if message.role == "system"), False)


@attrs.frozen(kw_only=True)
class RequestTarget:
    """The model that requests are sent to, and what they have besides the conversation."""

    model: str
    """The model's name."""
    tokenizer: Tokenizer
    fixed_tokens: int
    """The tokens that every request has besides the conversation, as far as they are known."""
    sizer: Sizer = attrs.field(
        default=attrs.Factory(lambda self: Sizer(self.tokenizer), takes_self=True)
    )
    """Counts messages with the tokenizer."""


class RequestBuilder:
    """Build requests from views of one transcript.

    A Renderer is kept as long as the model and the budget are the same.
    """

    def __init__(
        self,
        transcript: Transcript,
        settings: WindowSettings,
        *,
        processor: ViewProcessor | None = None,
        find_cut_markers: Callable[[], Mapping[str, str]] = dict[str, str],
        measure: Callable[[], ContextUsage] | None = None,
    ) -> None:
        """Build requests with the prompt of the settings, or with their instructions and the messages.

        Args:
            transcript: The conversation.
            settings: The prompt, the instructions and the tools of every request. Their events
                receive `RequestPruned` if a processor removes or shortens a message.
            processor: Changes the messages of each request before it is rendered.
            find_cut_markers: Returns what replaces the middle of results that are shortened, by the
                ids of their calls.
            measure: Measures the conversation beside its window, for a prompt that shows it.
        """
        instructions = settings.instructions
        self.tools = settings.definitions
        self._transcript = transcript
        self._prompt: Prompt = settings.prompt or ConversationPrompt(
            None if instructions is None else SystemMessage(required=True)[instructions]
        )
        self._system = _read_system(instructions) if settings.prompt is None else None
        self._processor = processor or ViewProcessor()
        self._find_cut_markers = find_cut_markers
        self._measure = measure
        self._settings = settings
        self._adaptation: tuple[object, RequestAdaptation] = None, RequestAdaptation(Quirks())
        self._renderer: tuple[object, Renderer] | None = None
        self._overhead: tuple[object, tuple[int, int]] = None, (0, 0)
        """The values that the last result of `_count_overhead` depends on, and that result."""
        self._earlier: tuple[Message, ...] = ()
        self._shown: tuple[tuple[Message, ...], tuple[Message, ...]] = (), ()
        """The messages of the last conversation that was shown whole, as they are and as a prompt shows them."""

    async def build(
        self,
        view: TranscriptView,
        target: RequestTarget,
        *,
        budget: int | None,
        pruned: bool = False,
        runs: RequestRuns | None = None,
    ) -> WindowRequest:
        """Build the request that shows a view.

        Args:
            view: The messages to show.
            target: The model that is sent the request.
            budget: The most tokens that the request may have; None: no limit is known.
            pruned: Whether messages may be left out.
            runs: What components rendered when this request was built before, from another view.
                None: it was not.

        Raises:
            BudgetExceededError: The required content does not fit the budget.
        """
        adaptation = self._adapt_to(target, view.checkpoint_id)
        limit = None if budget is None else max(1, budget - adaptation.tokens)
        sizer = target.sizer
        at = find_last_user_request(view.items) if pruned else None
        request = None if at is None else view.items[at].message
        cut_markers = self._find_cut_markers() if pruned else dict[str, str]()
        messages = self._processor.process(
            view,
            RequestLimits(
                limit=limit if pruned else None,
                fixed_tokens=target.fixed_tokens,
                tokenizer=target.tokenizer,
                model=target.model,
                pruned=pruned,
                request=request,
                cut_markers=cut_markers,
                count_message=sizer.count_message,
            ),
        ).messages
        by = self._processor.changed_by
        renderer = self._renderer_for(target, limit)
        prompt = self._prompt(
            ConversationView(
                messages=messages,
                may_prune=pruned,
                request=request,
                cut_markers=cut_markers,
                measure=self._measure,
            )
        )
        render: Callable[[], Rendered] = partial(renderer.render, prompt)
        whole = None if pruned else self._show_whole(view, messages, target)
        if whole is not None and (limit is None or whole[1] <= limit):
            sent, tokens = whole
        else:
            try:
                rendered = await renderer.render_request(
                    prompt, RequestRuns() if runs is None else runs, sizer
                )
            except BudgetExceededError as error:
                error.required += adaptation.tokens
                raise
            sent, tokens, render = rendered.messages, rendered.tokens, lambda: rendered
        earlier, self._earlier = self._earlier, sent
        shown = messages
        if pruned and isinstance(self._prompt, ConversationPrompt):
            items = match_items(sent, view.items)
            shown = tuple(
                message if item is None else item.message
                for message, item in zip(sent, items, strict=True)
                if message.role != "system"
            )
        omitted = self._report_omitted(view.messages, shown, sizer, by)
        return WindowRequest(
            model=target.model,
            messages=adapt_messages(sent, adaptation.quirks, thinking=adaptation.thinking),
            tools=self.tools,
            tokens=tokens + adaptation.tokens,
            render=lambda: attrs.evolve(render(), earlier=earlier),
            omitted=omitted,
            pruned=pruned,
            items=view.items,
            changed_by=by,
        )

    def _show_whole(
        self, view: TranscriptView, messages: tuple[Message, ...], target: RequestTarget
    ) -> tuple[tuple[Message, ...], int] | None:
        """Return what a request without pruning shows, and its tokens. None: only a render tells.

        A conversation is shown as it is, so that the render can wait until the program reads its
        receipt.
        """
        if self._system is None:
            return None
        if messages is not view.messages:  # a view has every call with its result
            messages = pair_tool_calls(messages).messages
        earlier, shown = self._shown
        new = messages[len(earlier) :]
        if messages[: len(earlier)] != earlier:
            new, shown = messages, ()
        shown = (*shown, *filter(None, map(show_message, new)))
        self._shown = messages, shown
        tokens = self.count_fixed(messages, target).total + sum(target.sizer.count_messages(shown))
        return (*self._system, *shown), tokens

    def measure(self, view: TranscriptView, target: RequestTarget) -> UsageByPart:
        """Count by part what the request that shows a view would take, if nothing is compacted or pruned for it.

        With instructions that are a text, or with none, the sum is exactly the size of that
        request. Otherwise only a render tells what the request has besides the messages, and that
        part is the one of the last request. A message that was counted before costs one look-up.

        Args:
            view: The messages to show.
            target: The model that is sent the request.

        Returns:
            The sizes in tokens.
        """
        fixed, count = self._plan_count(view, target)
        return fixed + count()

    def _plan_count(
        self, view: TranscriptView, target: RequestTarget
    ) -> tuple[UsageByPart, Callable[[], UsageByPart]]:
        """Return what the request that shows a view has besides its messages, and what counts those in any thread."""
        sizer, summary_ids = target.sizer, find_summary_ids(view.items)
        adaptation = self._adapt_to(target, view.checkpoint_id)
        messages = self._processor.process(
            view,
            RequestLimits(
                limit=None,
                fixed_tokens=target.fixed_tokens,
                tokenizer=target.tokenizer,
                model=target.model,
                count_message=sizer.count_message,
            ),
        ).messages
        fixed = self.count_fixed(messages, target)
        if self._system is None:
            return fixed, partial(count_parts, messages, summary_ids, sizer.count_message)

        def count_shown(message: Message) -> int:
            shown = show_message(message)
            return 0 if shown is None else sizer.count_message(shown)

        fixed += UsageByPart(summary=adaptation.tokens)
        return fixed, partial(count_parts, messages, summary_ids, count_shown)

    async def find_size(self, view: TranscriptView, target: RequestTarget) -> int | None:
        """Return the tokens that `measure` counts, or None where only a render tells them exactly."""
        if self._system is None:
            return None
        fixed, count = self._plan_count(view, target)
        return (fixed + await run_beside(view.items, count)).total

    def count_fixed(self, messages: Sequence[Message], target: RequestTarget) -> UsageByPart:
        """Count by part what a request that shows `messages` has besides them."""
        fixed, system = target.fixed_tokens, self._system
        text = True if system is None else _find_system_text(chain(system, messages))
        overhead, tools = self._count_overhead(target.tokenizer, system=text)
        if system is not None:
            fixed = overhead + sum(map(target.sizer.count_message, system))
        tools = min(fixed, tools)
        return UsageByPart(system=fixed - tools, tools=tools)

    def _count_overhead(self, tokenizer: Tokenizer, *, system: str | bool) -> tuple[int, int]:
        """Count what requests with this system text have besides messages, and the tool definitions alone: once while they stay the same."""
        tools = self.tools
        try:  # a program may change a schema in place, if only from 1 to 1.0
            schemas = marshal.dumps([each.parameters for each in tools], 2)
        except ValueError:  # it holds values of other types than JSON's
            schemas = None
        key = tokenizer, tools, system, schemas
        if schemas is None or self._overhead[0] != key:
            given = (tools, system), (tools, True), ((), True)
            counts = [tokenizer.count_overhead(each, system=text).tokens for each, text in given]
            self._overhead = key, (counts[0], counts[1] - counts[2])
        return self._overhead[1]

    def _adapt_to(self, target: RequestTarget, checkpoint: str | None) -> RequestAdaptation:
        """Return the adaptation to a model.

        It is constant while one checkpoint holds, so that the prompt cache stays valid.
        """
        key = target.model, checkpoint
        if self._adaptation[0] != key:
            self._adaptation = (
                key,
                find_adaptation(
                    target.model, self._transcript, checkpoint, tokenizer=target.tokenizer
                ),
            )
        return self._adaptation[1]

    def _report_omitted(
        self,
        shown: Sequence[Message],
        messages: Sequence[Message],
        sizer: Sizer,
        by: tuple[str, ...],
    ) -> tuple[Message, ...]:
        """Return the messages of a view that a request does not show as they are, and emit an event if there are any."""
        if messages is shown:
            return ()
        kept = set(map(id, messages))
        omitted = tuple(message for message in shown if id(message) not in kept)
        if omitted:
            before, after = (sum(map(sizer.count_message, each)) for each in (shown, messages))
            self._settings.events.emit(
                RequestPruned(
                    messages=len(omitted), before=before, after=after, by=by or ("render",)
                )
            )
        return omitted

    def _renderer_for(self, target: RequestTarget, limit: int | None) -> Renderer:
        budget = UNLIMITED if limit is None else limit
        key = target.model, budget, target.tokenizer, self.tools
        if self._renderer is None or self._renderer[0] != key:
            self._renderer = (
                key,
                Renderer(
                    budget=budget,
                    model=target.model,
                    tokenizer=target.tokenizer,
                    tools=self.tools,
                    defaults=self._settings.defaults,
                ),
            )
        return self._renderer[1]


def _read_system(instructions: Child) -> tuple[Message, ...] | None:
    """Return the system messages of every request: one, or none without instructions.

    None: only a render tells, because of elements.
    """
    children = [child for child in flatten(instructions, "instructions") if child is not None]
    if not all(isinstance(child, str) for child in children):
        return None
    text = "".join(child for child in children if isinstance(child, str))
    shown = show_message(Message(role="system", content=(text,)))
    return () if shown is None else (shown,)


@attrs.frozen
class RequestAdaptation:
    """Model-specific additions to requests that follow a compaction: reminder text, preserved thinking blocks."""

    quirks: Quirks
    thinking: OpaquePart | None = None
    tokens: int = 0
    """The most tokens that it adds."""


def find_adaptation(
    model: str, transcript: Transcript, checkpoint: str | None, *, tokenizer: Tokenizer
) -> RequestAdaptation:
    """Return the adaptation of requests to a model.

    Args:
        model: The model's name.
        transcript: The conversation.
        checkpoint: The id of the checkpoint that requests show; None before the first compaction.
        tokenizer: Counts what is added.
    """
    payload = None if checkpoint is None else transcript.get(checkpoint).payload
    facts = payload.facts if isinstance(payload, Checkpoint) else dict[str, Json]()
    thinking = thinking_from_json(facts) if facts.get("thinking_model") in {None, model} else None
    quirks = find_quirks(model)
    tokens = count_added_tokens(quirks, thinking=thinking, tokenizer=tokenizer) if checkpoint else 0
    return RequestAdaptation(quirks, thinking, tokens)


def _call_keys(message: Message) -> Iterator[tuple[str, str]]:
    """Return the role of a message with the id of each tool call that it has or answers.

    In a view they are unique.
    """
    if message.role == "tool":
        yield message.role, message.tool_call_id or ""
    for call in message.tool_calls:
        yield message.role, call.id


def match_items(messages: Sequence[Message], items: Sequence[ViewItem]) -> list[ViewItem | None]:
    """Return for each message the item of a view that it shows unchanged, or None.

    Items are matched in order, each at most once.

    A render joins adjacent texts of a message, which does not count as a change.
    """
    pairs = enumerate(zip(messages, items, strict=False))
    start = next(
        (at for at, (message, item) in pairs if not _is_unchanged(message, item.message)),
        min(len(messages), len(items)),
    )
    found: list[ViewItem | None] = list(items[:start])  # as a rule the whole view is shown
    places: dict[object, list[int]] = {}
    for at in range(len(items) - 1, start - 1, -1):
        places.setdefault(_key(items[at].message), []).append(at)
    next_place = start
    for message in messages[start:]:
        waiting = places.get(_key(message), [])
        while waiting and waiting[-1] < next_place:
            waiting.pop()
        place = next(
            (at for at in reversed(waiting) if _is_unchanged(message, items[at].message)), None
        )
        found.append(None if place is None else items[place])
        next_place = next_place if place is None else place + 1
    return found


def _key(message: Message) -> object:
    """Return what a message and its render have in common; unlike a message itself it can always be hashed."""
    return (
        message.role,
        message.text,
        message.tool_call_id,
        tuple(call.id for call in message.tool_calls),
    )


def _is_unchanged(message: Message, other: Message) -> bool:
    """Return whether two messages differ at most in how their text is split into parts."""
    return message is other or (
        message.role == other.role
        and message.tool_call_id == other.tool_call_id
        and message.name == other.name
        and message.tool_calls == other.tool_calls
        and (
            message.content == other.content
            or (message.text == other.text and _other_parts(message) == _other_parts(other))
        )
    )


def _other_parts(message: Message) -> list[object]:
    return [part for part in message.content if not isinstance(part, str)]
