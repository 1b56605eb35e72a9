"""Find the policies that can be replayed by their names."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from promptkit.elements import Group, element_from_message
from promptkit.errors import ContextWindowFullError, PromptKitError, SettingsError
from promptkit.lab.replay.policies.baselines import BASELINE_POLICIES
from promptkit.lab.replay.policies.strategy import (
    TRANSCRIPT_PATH,
    PolicyRun,
    ReplayPolicy,
    ReplayTerms,
    SummaryCall,
)
from promptkit.lab.replay.prompt_cache import count_overhead
from promptkit.messages import Message, ToolDefinition, Usage
from promptkit.providers import Reply
from promptkit.providers.openai.api import CompactedInput
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import BilledTokens, Tokenizer
from promptkit.transcript import InMemoryStore, Transcript

T = TypeVar("T")


class UnknownPolicyError(PromptKitError):
    """There is no policy with this name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        close = difflib.get_close_matches(name, known, n=1)
        suggestion = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(
            f"there is no policy {name!r}.{suggestion} Use one of: {', '.join(known)}."
        )


POLICY_GROUPS: dict[str, tuple[str, ...]] = {
    "presets": tuple(PRESETS),
    "naive": tuple(each.name for each in BASELINE_POLICIES),
    "all": (*PRESETS, *(each.name for each in BASELINE_POLICIES)),
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
        _find_policy(name, known=(*POLICY_GROUPS["all"], *POLICY_GROUPS))
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


def find_policy(name: str) -> ReplayPolicy:
    """Return the policy with a name.

    Settings of a preset stand behind it: `break_even:beta=1:tail_tokens=4000`. Every preset has
    `names_tokens`.

    Raises:
        UnknownPolicyError: There is no policy with this name.
        SettingsError: The preset has no such setting, or it cannot have that value.
    """
    return _find_policy(name, known=POLICY_GROUPS["all"])


def _find_policy(name: str, *, known: tuple[str, ...]) -> ReplayPolicy:
    """Return the policy with a name. `known` are the names of the error message."""
    preset, *pairs = name.split(":")
    if preset in PRESETS:
        made = attrs.evolve(make_preset(preset, pairs), name=name) if pairs else PRESETS[preset]()
        return ReplayPolicy(name=made.name, start=partial(PresetRun, made))
    for policy in BASELINE_POLICIES:
        if policy.name == name:
            return policy
    raise UnknownPolicyError(name, known)


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
                _ReplayStore(), clock=lambda: 0.0, new_id=lambda: f"e{next(ids)}"
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


class _ReplayStore(InMemoryStore):
    """A store in memory that names a file as its place, so that summaries have a breadcrumb."""

    @property
    def address(self) -> str | None:
        return TRANSCRIPT_PATH


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

    def select(self, view: ConversationView) -> ConversationView:
        """Return the part of the view that a pruned request can contain."""
        limit = self._limit()
        return (
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
    kept = (
        at
        for at in range(start)
        if at in {last_user, turn_start, summary} or messages[at].role == "system"
    )
    return (*(messages[at] for at in kept), *messages[start:])


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
            written = max(assumed, self.model.tokenizer.count(summary.text))
            summary = attrs.evolve(summary, usage=Usage(input_tokens=0, output_tokens=written))
        model = attrs.evolve(self.model, answer=summary.text, last_request=task.last_request)
        # The answer has the headings of another template, and what is checked is the summary that
        # is returned.
        asked = attrs.evolve(task, headings=False, check=None, report=None, observe=None)
        await attrs.evolve(self.summarizer, model=model).summarize(asked)  # type: ignore[misc]  # an attrs class: `_simulate_model` takes no other
        return summary
