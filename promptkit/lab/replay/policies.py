"""The policies that can be replayed: their interface, promptkit's own, the rules of other libraries, and finding them by name.

A policy gets the recorded messages, and returns the requests that it would send. promptkit's own are
the real `ContextWindow` over a transcript in memory, with any preset; the cost of summaries is
recorded: the tokens that a model was billed for, or would have been. The others, for comparison, are
the documented rules of other libraries, reimplemented with their weaknesses. All of them have the
same limit, use the same tokenizer unless their own rule counts differently, and keep no transcript.
"""

from __future__ import annotations

import difflib
import math
import operator
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import dropwhile, takewhile
from typing import TypeVar, get_args, get_type_hints

import attrs

from promptkit.agent import ContextWindow, ConversationView, WindowRequest
from promptkit.agent.window.prompt import ConversationPrompt
from promptkit.agent.window.requests import match_items
from promptkit.compaction import (
    PRESETS,
    Compact,
    CompactionCommitted,
    DecisionMade,
    Event,
    Events,
    ExtractiveSummarizer,
    FallbackSummarizer,
    LastRequest,
    Plan,
    Preset,
    Summarizer,
    SummarizerContext,
    Summary,
    SummaryTask,
    Wait,
    load_settings,
)
from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.planning.plan import TARGET_SHARE
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.summarizers.defaults import make_fallback_factory, make_simple_summarizer
from promptkit.elements import Group, element_from_message
from promptkit.elements.element import Child
from promptkit.errors import ContextWindowFullError, PromptKitError, SettingsError, SummaryError
from promptkit.lab.replay.prompt_cache import MessageCounts, count_overhead
from promptkit.messages import Message, ToolDefinition, Usage
from promptkit.providers import Model, Reply
from promptkit.providers.openai.api import CompactedInput
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import BilledTokens, ContextBudget, Tokenizer
from promptkit.transcript import InMemoryStore, Transcript, ViewItem

TRANSCRIPT_PATH = "transcripts/replayed.jsonl"
"""The path of the transcript that breadcrumbs name, for policies that keep a transcript."""


@attrs.frozen(kw_only=True)
class ReplayPolicy:
    """A policy that can be replayed."""

    name: str
    """The name on the command line and in tables."""
    start: Callable[[ReplayTerms], PolicyRun]
    """Starts a conversation."""


class PolicyRun(ABC):
    """A policy that manages the context window of one conversation.

    `transcript_path` is the path of the transcript that the policy keeps; None: dropped messages
    are lost.
    """

    def __init__(self, transcript_path: str | None = None) -> None:
        self.checkpoints: int = 0
        """Summaries so far that replaced messages."""
        self.waits: int = 0
        """Requests so far that waited for a summary."""
        self.summary_calls: list[SummaryCall] = []
        """The summaries so far."""
        self.transcript_path = transcript_path

    @abstractmethod
    async def add(self, message: Message) -> None:
        """Append a message of the user or a tool result."""

    @abstractmethod
    async def request(self) -> Sequence[Message]:
        """Return the messages of the next request, without system messages.

        If they exceed the window, an overflow is counted.
        """

    async def add_reply(self, reply: Message, usage: Usage | None) -> None:
        """Append the model's reply, by default as any message.

        Returns when the policy has finished its work in the background.

        Args:
            reply: The reply.
            usage: What a provider with the simulated prompt cache reports for the request. None: it
                would have refused the request.
        """
        await self.add(reply)

    async def close(self) -> None:  # noqa: B027  # most policies have nothing to end
        """End the conversation. By default nothing runs in the background."""


@attrs.frozen(kw_only=True)
class ReplayTerms:
    """The settings of a conversation, the same for every policy."""

    budget: ContextBudget
    """The budget of the window. Policies may use its `limit`: the window without the tokens
    reserved for the reply."""
    tokenizer: Tokenizer
    """Counts for budgets."""
    counts: MessageCounts
    """Counts for bills."""
    tools: tuple[ToolDefinition, ...]
    system: tuple[Message, ...]
    """The system messages with which every request starts."""
    request_tokens: int
    """Tokens of every request besides its messages, such as those of tool definitions."""
    rng: Callable[[], float]
    """Returns a random number from 0 to below 1. The numbers are the same in every run."""
    clock: Callable[[], float]
    """Returns the time in the recording, in seconds."""
    summary_tokens: int = 0
    """The least tokens that a model is assumed to write for a summary."""
    model: Model | None = None
    """The model that writes summaries; None: they are extracted from the conversation."""

    @property
    def fixed_tokens(self) -> int:
        """Tokens of every request besides the conversation: the request's own, and those of the system messages."""
        return self.request_tokens + self.count(self.system)

    def count(self, messages: Sequence[Message]) -> int:
        """Count the tokens of messages."""
        return sum(count.tokens for count in self.counts.count_messages(messages))


@attrs.frozen(kw_only=True)
class SummaryCall:
    """The request for a summary. If no model wrote the summary, it is billed as if one had."""

    request: tuple[Message, ...] = ()
    """The messages of the request at whose end the summary was requested. The prompt cache serves
    them as in any other request."""
    uncached_tokens: int = 0
    """Input tokens after these messages, or of a request of its own. They are never cached."""
    output_tokens: int = 0
    """Tokens of the summary."""
    billed: BilledTokens | None = None
    """The tokens that the model's provider counted. If set, the other fields are ignored."""


TRUNCATION_STEP = 4_000
"""Tokens: prompt-poet's `truncation_step`, as in its own example."""


def drop_oldest(conversation: CountedMessages, max_tokens: int) -> Sequence[Message]:
    """Drop the oldest messages until the rest fits and starts with a user message.

    Many early chat programs have this rule. Here its requests are always valid: tool calls are
    dropped with their results, and in a long turn of tool calls the user message stays before the
    newest of them.
    """
    start = conversation.place_fitting(max_tokens)
    user_place = conversation.next_user_place(start)
    if start == 0 or user_place is not None:
        return conversation.messages[user_place or 0 :] if start else conversation.messages
    if not conversation.user_places:
        return conversation.messages[_after_results(conversation, start) :]
    user_place = conversation.user_places[-1]
    user_tokens = (
        conversation.tokens_before[user_place + 1] - conversation.tokens_before[user_place]
    )
    start = conversation.place_fitting(max_tokens - user_tokens)
    return [
        conversation.messages[user_place],
        *conversation.messages[_after_results(conversation, start) :],
    ]


def _after_results(conversation: CountedMessages, place: int) -> int:
    """Return the first place from `place` on that is not a tool result, so that no result is left without its call."""
    end = len(conversation.messages)
    return next((at for at in range(place, end) if conversation.messages[at].role != "tool"), end)


def trim_last(conversation: CountedMessages, max_tokens: int) -> Sequence[Message]:
    """Keep the newest messages that fit, starting with a user message.

    Source: LangChain, `trim_messages(strategy="last", start_on="human", include_system=True)`, as
    its documentation recommends it for chat models. If a turn has many tool calls, the newest
    messages contain no user message, and only the system messages are left.
    """
    user_place = conversation.next_user_place(conversation.place_fitting(max_tokens))
    return () if user_place is None else conversation.messages[user_place:]


def truncate_in_steps(conversation: CountedMessages, max_tokens: int) -> Sequence[Message]:
    """Drop a multiple of TRUNCATION_STEP tokens from the front, message by message, so that the prefix seldom changes.

    Source: prompt-poet (PyPI 0.0.52), `truncate`: the surplus is rounded up to the step, and the
    oldest parts are dropped until their tokens reach it. The system message and the last message
    have priority 0, and are never dropped. Parts are not aware of tool calls and results.
    """
    surplus = max(0, conversation.tokens_before[-1] - max_tokens)
    place = conversation.place_after(math.ceil(surplus / TRUNCATION_STEP) * TRUNCATION_STEP)
    return conversation.messages[min(place, len(conversation.messages) - 1) :]


class CountedMessages:
    """All messages of a conversation, with sums of tokens, so that a rule only needs to read the newest messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.tokens_before = [0]
        """The tokens before each message, and after the last one."""
        self.user_places: list[int] = []
        """The places of the user's messages."""

    def add(self, message: Message, tokens: int) -> None:
        """Append a message that has so many tokens."""
        if message.role == "user":
            self.user_places.append(len(self.messages))
        self.messages.append(message)
        self.tokens_before.append(self.tokens_before[-1] + tokens)

    def place_after(self, tokens: int) -> int:
        """Return the first place that has at least so many tokens before it."""
        return bisect_left(self.tokens_before, tokens) if tokens > 0 else 0

    def place_fitting(self, max_tokens: int) -> int:
        """Return the first place from which all messages to the end have at most `max_tokens` tokens."""
        return min(self.place_after(self.tokens_before[-1] - max_tokens), len(self.messages))

    def next_user_place(self, place: int) -> int | None:
        """Return the place of the first user message at or after a place, or None."""
        at = bisect_left(self.user_places, place)
        return self.user_places[at] if at < len(self.user_places) else None


class _TrimmedRun(PolicyRun):
    """One conversation that is trimmed for every request.

    `trim` is given all messages of the conversation and the tokens that those of a request may have,
    and returns the messages that are sent.
    """

    def __init__(
        self, trim: Callable[[CountedMessages, int], Sequence[Message]], terms: ReplayTerms
    ) -> None:
        super().__init__()
        self._terms = terms
        self._trim = trim
        self._conversation = CountedMessages()

    async def add(self, message: Message) -> None:
        """Append a message."""
        self._conversation.add(message, self._terms.count((message,)))

    async def request(self) -> Sequence[Message]:
        """Return the trimmed messages."""
        limit = self._terms.budget.limit
        return (
            self._conversation.messages
            if limit is None
            else self._trim(self._conversation, limit - self._terms.fixed_tokens)
        )


THRESHOLD = 0.85
"""Share of the limit from which on LangChain's middleware summarizes a conversation."""

KEPT_MESSAGES = 20
SUMMARIZED_TOKENS = 4_000
INSTRUCTION_TOKENS = 400
"""Approximate tokens of the middleware's own instructions."""

CHARACTERS_PER_TOKEN = 4
FRAMING = 3
"""Tokens around a message. Both numbers are those of `count_tokens_approximately`."""

MIN_REDUCTION = 2
"""An extracted summary has at most 1/MIN_REDUCTION of the tokens of its messages."""

TOO_LONG = "Previous conversation was too long to summarize."
OPENING = "Here is a summary of the conversation to date:\n\n"


class LangChainRun(PolicyRun):
    """One conversation under LangChain's summarizing middleware, by its documented rules and with its defaults.

    Source: langchain 1.5.0, `SummarizationMiddleware`. It keeps the newest 20 messages
    (`keep=("messages", 20)`), summarizes the last 4,000 tokens of the others, starting with a user
    message (`trim_tokens_to_summarize=4000`), and counts a token for four characters. It has no
    default for the threshold: deepagents, by the same authors, sets 0.85 of the window.
    """

    def __init__(self, terms: ReplayTerms) -> None:
        super().__init__()
        self._terms = terms
        self._messages: list[Message] = []
        self._tokens = sum(map(_approximate_tokens, terms.system))
        """Tokens of the messages, as the middleware counts them."""

    async def add(self, message: Message) -> None:
        """Append a message."""
        self._messages.append(message)
        self._tokens += _approximate_tokens(message)

    async def request(self) -> Sequence[Message]:
        """Return the conversation, after summarizing it if it exceeds the threshold."""
        limit = self._terms.budget.limit
        if (
            limit is not None
            and self._tokens >= THRESHOLD * limit
            and (cut := _find_cut(self._messages))
        ):
            await self._summarize(cut)
        return tuple(self._messages)

    async def _summarize(self, cut: int) -> None:
        dropped, kept = self._messages[:cut], self._messages[cut:]
        selected = self._select_summarized(dropped)
        text = TOO_LONG
        if selected:
            text = await self._write_summary(selected)
            self.summary_calls.append(
                SummaryCall(
                    uncached_tokens=INSTRUCTION_TOKENS + self._terms.count(selected),
                    output_tokens=self._terms.counts.tokenizer.count(text),
                )
            )
        self._messages = [Message(role="user", content=(OPENING + text,)), *kept]
        self._tokens = sum(map(_approximate_tokens, (*self._terms.system, *self._messages)))
        self.checkpoints += 1
        self.waits += 1

    def _select_summarized(self, dropped: Sequence[Message]) -> Sequence[Message]:
        """Return the newest of the dropped messages, starting with a user message: the summarizing model gets these."""
        left, start = SUMMARIZED_TOKENS, len(dropped)
        while start > 0 and (size := _approximate_tokens(dropped[start - 1])) <= left:
            start -= 1
            left -= size
        return [*dropwhile(lambda message: message.role != "user", dropped[start:])]

    async def _write_summary(self, selected: Sequence[Message]) -> str:
        """Summarize with the model. Without one, extract the summary from the messages."""
        terms = self._terms
        task = SummaryTask(
            plan=Plan(
                leaf="",
                dropped=tuple(
                    ViewItem(message=message, entry_id=str(at))
                    for at, message in enumerate(selected)
                ),
            ),
            max_tokens=max(
                1, min(terms.budget.summary_tokens, terms.count(selected) // MIN_REDUCTION)
            ),
        )
        summarizer = make_fallback_factory(make_simple_summarizer)(
            SummarizerContext(model=terms.model, budget=terms.budget, tokenizer=terms.tokenizer)
        )
        try:
            return (await summarizer.summarize(task)).text
        except SummaryError as error:
            return f"Error generating summary: {error}"


def _approximate_tokens(message: Message) -> int:
    """Count the tokens of a message as the middleware does."""
    characters = len(message.text) + sum(
        len(call.name) + len(call.arguments) for call in message.tool_calls
    )
    return math.ceil(characters / CHARACTERS_PER_TOKEN) + FRAMING


def _find_cut(messages: Sequence[Message]) -> int:
    """Return the place of the oldest message that is kept: KEPT_MESSAGES from the end, or before, at the call of a tool result there."""
    if len(messages) <= KEPT_MESSAGES:
        return 0
    cut = len(messages) - KEPT_MESSAGES
    results = list(takewhile(lambda message: message.role == "tool", messages[cut:]))
    ids = {result.tool_call_id for result in results}
    return next(
        (
            at
            for at in range(cut - 1, -1, -1)
            if any(call.id in ids for call in messages[at].tool_calls)
        ),
        cut + len(results),
    )


BASELINES: dict[str, Callable[[ReplayTerms], PolicyRun]] = {
    "drop_oldest": partial(_TrimmedRun, drop_oldest),
    "trim_last": partial(_TrimmedRun, trim_last),
    "prompt_poet": partial(_TrimmedRun, truncate_in_steps),
    "langchain": LangChainRun,
}


T = TypeVar("T")


class UnknownPolicyError(PromptKitError):
    """There is no policy with this name."""


POLICY_GROUPS: dict[str, tuple[str, ...]] = {
    "presets": tuple(PRESETS),
    "naive": tuple(BASELINES),
    "all": (*PRESETS, *BASELINES),
}
"""Names for several policies together."""


def describe_policies() -> str:
    """Return a line for each policy: its name, and for a preset the system and the version that it follows."""
    width = max(map(len, POLICY_GROUPS["all"]))
    return "\n".join(
        [
            *(
                f"{name:{width}}  follows {preset().follows or 'no system'}"
                for name, preset in PRESETS.items()
            ),
            *(
                f"{name:{width}}  a rule of another library, for comparison"
                for name in POLICY_GROUPS["naive"]
            ),
        ]
    )


def parse_policy_names(text: str) -> tuple[str, ...]:
    """Parse a list of policies and groups, separated by commas.

    Returns the names of the policies, each once.

    Raises:
        UnknownPolicyError: There is no policy or group with one of the names.
    """
    names = dict.fromkeys(
        name
        for part in filter(None, (part.strip() for part in text.split(",")))
        for name in POLICY_GROUPS.get(part, (part,))
    )
    for name in names:
        find_policy(name, known=(*POLICY_GROUPS["all"], *POLICY_GROUPS))
    return tuple(names)


@attrs.frozen(kw_only=True)
class NameList:
    """The setting that every preset has."""

    names_tokens: int = setting(0, minimum=0)
    """The most tokens of the list of names beside a summary."""


def make_preset(name: str, pairs: Sequence[str]) -> Preset:
    """Make a preset with settings, which are written as `name=value`."""
    make: Callable[..., Preset] = PRESETS[name]
    settings = next(
        iter(get_args(get_type_hints(make, localns={"Preset": Preset}).get("settings"))), None
    )
    values = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    listed = (
        {}
        if settings is not None and "names_tokens" in attrs.fields_dict(settings)
        else {key: values.pop(key) for key in {"names_tokens"} & values.keys()}
    )
    if settings is None and values:
        raise SettingsError(
            source=name, setting=next(iter(values)), why="the preset has no settings"
        )
    preset = make(_load(name, settings, values)) if settings and values else make()
    return (
        attrs.evolve(
            preset,
            replacement=attrs.evolve(
                preset.replacement, names_tokens=_load(name, NameList, listed).names_tokens
            ),
        )
        if listed
        else preset
    )


def _load(name: str, settings: type[T], values: Mapping[str, str]) -> T:
    """Read the settings that stand behind the name of a preset."""
    prefix = f"{name}:"
    try:
        return load_settings(
            settings,
            prefix=prefix,
            environ={f"{prefix}{key}": value for key, value in values.items()},
        )
    except SettingsError as error:
        raise SettingsError(source=name, setting=error.setting, why=error.why) from None


def find_policy(name: str, *, known: tuple[str, ...] = POLICY_GROUPS["all"]) -> ReplayPolicy:
    """Return the policy with a name.

    Settings of a preset stand behind it: `break_even:beta=1:tail_tokens=4000`. Every preset has
    `names_tokens`. `known` are the names that the error of an unknown one lists.

    Raises:
        UnknownPolicyError: There is no policy with this name.
        SettingsError: The preset has no such setting, or it cannot have that value.
    """
    preset, *pairs = name.split(":")
    if preset in PRESETS:
        made = attrs.evolve(make_preset(preset, pairs), name=name) if pairs else PRESETS[preset]()
        return ReplayPolicy(name=made.name, start=partial(PresetRun, made))
    if name in BASELINES:
        return ReplayPolicy(name=name, start=BASELINES[name])
    close = difflib.get_close_matches(name, known, n=1)
    raise UnknownPolicyError(
        f"there is no policy {name!r}.{f' Did you mean {close[0]!r}?' if close else ''} Use one of: {', '.join(known)}."
    )


WAITING_DECISIONS = frozenset({Wait.__name__, Compact.__name__})
"""Decisions for which the user waits."""


class PresetRun(PolicyRun):
    """One conversation in a context window."""

    def __init__(self, preset: Preset, terms: ReplayTerms) -> None:
        super().__init__(TRANSCRIPT_PATH)
        self._waited = False
        ids = iter(range(1, 1 << 62))
        summarizer = make_metered_summarizer(
            preset,
            SummarizerContext(
                model=terms.model,
                budget=preset.adjust_budget(terms.budget),
                tokenizer=terms.tokenizer,
            ),
            terms=terms,
            calls=self.summary_calls,
            restore=self._restore,
        )
        self._originals: dict[int, tuple[Message, Message]] = {}
        self._terms = terms
        self._window = ContextWindow(
            model=terms.budget.model or "",
            transcript=Transcript(
                InMemoryStore(address=TRANSCRIPT_PATH),
                clock=lambda: 0.0,
                new_id=lambda: f"e{next(ids)}",
            ),
            prompt=_ReplayPrompt(terms, lambda: self._window.budget.render_budget),
            tools=terms.tools,
            budget=terms.budget,
            preset=preset,
            summarizer=summarizer,
            tokenizer=terms.tokenizer,
            events=Events(self._on_event),
            rng=terms.rng,
            clock=terms.clock,
        )

    async def add(self, message: Message) -> None:
        """Append a message, as a session does."""
        self._window.add(message)

    async def request(self) -> Sequence[Message]:
        """Return the messages that a session would send."""
        self._waited = False
        try:
            request = await self._window.request()
        except ContextWindowFullError:
            messages: Sequence[Message] = self._window.view.messages
        else:
            self._remember_originals(request)
            messages = self._restore(request.messages)[len(self._terms.system) :]
        self.waits += self._waited
        return messages

    async def add_reply(self, reply: Message, usage: Usage | None) -> None:
        """Append the reply, and wait for the summary that it started."""
        self._window.add_reply(reply, usage=usage)
        await self._window.wait_idle()
        if not reply.tool_calls:
            await self._window.end_turn()

    async def close(self) -> None:
        """Cancel what runs in the background."""
        await self._window.close()

    def _remember_originals(self, request: WindowRequest) -> None:
        """Remember the recorded message behind each rendered one, unless the render itself removed messages."""
        if request.pruned and request.rendered.removals:
            self._originals = {}
            return
        system = self._terms.system
        items = match_items(request.messages[len(system) :], self._window.view.items)
        recorded = [*system, *(None if item is None else item.message for item in items)]
        self._originals = {
            id(message): (message, original)
            for message, original in zip(request.messages, recorded, strict=True)
            if original is not None
        }

    def _restore(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Replace rendered messages by the recorded ones, which are counted and found in the simulated cache by their identity."""
        return [self._originals.get(id(message), (message, message))[1] for message in messages]

    def _on_event(self, event: Event) -> None:
        if isinstance(event, CompactionCommitted):
            self.checkpoints += 1
        elif isinstance(event, DecisionMade) and event.decision in WAITING_DECISIONS:
            self._waited = True


class _ReplayPrompt(ConversationPrompt):
    """The recorded system messages and the conversation.

    A pruned request gets only the messages that it can contain.
    """

    def __init__(self, terms: ReplayTerms, limit: Callable[[], int | None]) -> None:
        super().__init__(
            Group(required=True)[[element_from_message(message) for message in terms.system]]
        )
        self._terms = terms
        self._limit = limit

    def __call__(self, view: ConversationView) -> Child:
        """Return the prompt of the part of the view that a pruned request can contain."""
        limit = self._limit()
        return super().__call__(
            view
            if not view.may_prune or limit is None
            else attrs.evolve(view, messages=_candidates(view.messages, limit, self._terms))
        )


def _candidates(messages: Sequence[Message], limit: int, terms: ReplayTerms) -> tuple[Message, ...]:
    """Return the messages that a pruned request of at most `limit` tokens can contain.

    These are the newest messages, until they exceed the limit, the user message of their turn, and
    the messages that are always kept. The oldest messages are pruned first, so the request is the
    same as with all messages, but its cost depends on what it contains.
    """
    start, tokens = len(messages), 0
    while start > 0 and (tokens <= limit or messages[start].role == "tool"):
        start -= 1
        tokens += terms.count(messages[start : start + 1])
    last_user = next(
        (at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None
    )
    turn_start = next((at for at in range(start - 1, -1, -1) if messages[at].role == "user"), None)
    summary = next(
        (at for at, message in enumerate(messages) if extract_summary_text(message) is not None),
        None,
    )
    return (
        *(
            messages[at]
            for at in range(start)
            if at in {last_user, turn_start, summary} or messages[at].role == "system"
        ),
        *messages[start:],
    )


def make_metered_summarizer(
    preset: Preset,
    context: SummarizerContext,
    *,
    terms: ReplayTerms,
    calls: list[SummaryCall],
    restore: Callable[[Sequence[Message]], Sequence[Message]],
) -> Summarizer:
    """Make a preset's summarizer, with a record of the cost of each of its requests in `calls`.

    Without a model, the summaries are extracted from the conversation. The preset's summarizers
    build their requests all the same, and these are counted as if a model had answered them with
    the extracted text.

    Args:
        preset: The preset.
        context: What the preset's summarizer is made of.
        terms: The settings of the conversation.
        calls: The requests for summaries.
        restore: Returns the recorded messages behind those of the last request, which are found in
            the simulated prompt cache.
    """
    if context.model is not None:
        return _BilledSummarizer(summarizer=preset.summarizer(context), calls=calls)
    model = _CountingModel(
        name=terms.budget.model or "",
        tokenizer=terms.counts.tokenizer,
        calls=calls,
        restore=restore,
    )
    return _SimulatedSummarizer(
        summarizer=_simulate_model(
            preset.summarizer(attrs.evolve(context, model=model)), model, terms.summary_tokens
        )
    )


@attrs.frozen(kw_only=True)
class _BilledSummarizer:
    """A summarizer with a real model, which reports its own figures."""

    summarizer: Summarizer
    calls: list[SummaryCall]

    async def summarize(self, task: SummaryTask) -> Summary:
        summary = await self.summarizer.summarize(task)
        if (usage := summary.usage) is not None:
            self.calls.append(
                SummaryCall(
                    billed=BilledTokens(
                        input_tokens=usage.input_tokens,
                        cached_tokens=usage.cached_tokens,
                        written_tokens=usage.written_tokens,
                        output_tokens=usage.output_tokens,
                    )
                )
            )
        return summary


@attrs.frozen(kw_only=True)
class _SimulatedSummarizer:
    """A summarizer whose models are simulated.

    They answer at once, so that no time limit applies: the same file has the same figures.
    """

    summarizer: Summarizer

    async def summarize(self, task: SummaryTask) -> Summary:
        return await self.summarizer.summarize(attrs.evolve(task, seconds=None))


@attrs.frozen(kw_only=True)
class _CountingModel:
    """A model whose requests are counted. It answers each with the same text."""

    name: str
    tokenizer: Tokenizer
    calls: list[SummaryCall]
    restore: Callable[[Sequence[Message]], Sequence[Message]]
    answer: str = "Done."
    last_request: LastRequest | None = None

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Count a request."""
        self._record(messages, tools)
        return Reply(
            message=Message(role="assistant", content=(f"<summary>{self.answer}</summary>",)),
            usage=Usage(input_tokens=0),
            finish="stop",
        )

    async def compact(self, messages: Sequence[Message]) -> CompactedInput:
        """Count a request for the provider's own compaction: a copy of the messages."""
        self._record(messages, ())
        return CompactedInput(
            messages=(Message(role="user", content=(self.answer,)),), usage=Usage(input_tokens=0)
        )

    def _record(self, messages: Sequence[Message], tools: Sequence[ToolDefinition]) -> None:
        """Record a request. The prompt cache holds the last request, if this one begins with it."""
        sent = () if self.last_request is None else self.last_request.messages
        is_live = (
            bool(sent) and len(messages) > len(sent) and all(map(operator.is_, messages, sent))
        )
        overhead = 0 if is_live else count_overhead(self.tokenizer, tools, messages)
        new = messages[len(sent) :] if is_live else messages
        self.calls.append(
            SummaryCall(
                request=tuple(self.restore(sent)) if is_live else (),
                uncached_tokens=overhead + sum(map(Sizer(self.tokenizer).count_message, new)),
                output_tokens=self.tokenizer.count(self.answer),
            )
        )


def _simulate_model(
    summarizer: Summarizer, model: _CountingModel, summary_tokens: int
) -> Summarizer:
    """Return a preset's summarizer with extracted texts in place of those of the model.

    Its other summarizers stay as they are.
    """
    if isinstance(summarizer, FallbackSummarizer):
        return FallbackSummarizer(
            [_simulate_model(each, model, summary_tokens) for each in summarizer.summarizers]
        )
    if not attrs.has(type(summarizer)):
        return summarizer
    if getattr(summarizer, "model", None) is model:
        return _ExtractedAnswer(summarizer=summarizer, model=model, summary_tokens=summary_tokens)
    inner: Summarizer | None = getattr(summarizer, "summarizer", None)
    if inner is None:
        return summarizer
    return attrs.evolve(summarizer, summarizer=_simulate_model(inner, model, summary_tokens))  # type: ignore[misc]  # an attrs class, as was found above


@attrs.frozen(kw_only=True)
class _ExtractedAnswer:
    """A summarizer that asks a simulated model.

    The model's answer is extracted from the messages that the summarizer is given.
    """

    summarizer: Summarizer
    model: _CountingModel
    summary_tokens: int = 0
    """The least tokens that the model reports for the summary. 0: it reports nothing."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Have the summarizer build and send its requests, and return the extracted summary."""
        if assumed := self.summary_tokens:
            task = attrs.evolve(task, max_tokens=TARGET_SHARE * assumed)
        summary = await ExtractiveSummarizer(tokenizer=self.model.tokenizer).summarize(task)
        if assumed:
            summary = attrs.evolve(
                summary,
                usage=Usage(
                    input_tokens=0,
                    output_tokens=max(assumed, self.model.tokenizer.count(summary.text)),
                ),
            )
        model = attrs.evolve(self.model, answer=summary.text, last_request=task.last_request)
        # The answer has the headings of another template, and what is checked is the summary that
        # is returned.
        asked = attrs.evolve(task, headings=False, check=None, report=None, observe=None)
        await attrs.evolve(self.summarizer, model=model).summarize(asked)  # type: ignore[misc]  # an attrs class: `_simulate_model` takes no other
        return summary
