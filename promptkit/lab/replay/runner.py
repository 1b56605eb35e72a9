"""Play recorded conversations under policies, and count their requests: one conversation, a file, or several files at a time in other processes.

The result of a file does not depend on other files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack, nullcontext
from functools import cached_property, partial
from itertools import accumulate, chain
from pathlib import Path

import attrs

from promptkit.compaction.planning.plan import compute_target_tokens
from promptkit.compaction.presets.break_even import PREFACE_TOKENS, BreakEven
from promptkit.errors import PromptKitError
from promptkit.lab.engines import LostItem, open_engine, run_each
from promptkit.lab.recordings.reading.remote import fetch_file
from promptkit.lab.replay.oracle import (
    SUMMARY_TOKENS,
    PricedConversation,
    find_lower_bound,
    find_optimum,
    measure_requests,
)
from promptkit.lab.replay.policies import PolicyRun, ReplayPolicy, ReplayTerms, find_policy
from promptkit.lab.replay.prompt_cache import (
    MessageCount,
    MessageCounts,
    PromptCache,
    bill_prefix,
    count_overhead,
    is_claude,
)
from promptkit.lab.replay.recordings import (
    RecordedBill,
    Recording,
    make_unrecorded,
    measure_bill,
    read_recordings,
)
from promptkit.lab.replay.results import (
    FailedFile,
    FileResult,
    PolicyResult,
    ReplayTotals,
    TimelineRequest,
    sum_bills,
)
from promptkit.lab.replay.retention import RecordingUses, RetentionTracker
from promptkit.messages import Message, Usage
from promptkit.sizes import read_tokens
from promptkit.tokens import BilledTokens, ContextBudget, Price, Prices, tokenizer_for
from promptkit.tokens.models import describe_model
from promptkit.transcript import MessageEntry
from promptkit.transcript.log.statistics import read_bill
from promptkit.transcript.stores.addresses import is_conversation, open_reader
from promptkit.transcript.stores.jsonl.format import encode_batch
from promptkit.transcript.stores.jsonl.reader import StoredEntry

LOOKUP_CALL_TOKENS, LOOKUP_RESULT_TOKENS = 100, 1_000
"""Tokens of a call that looks something up, and of its result."""


@attrs.frozen(kw_only=True)
class ReplayRules:
    """The simulated model and prompt cache, the same for all conversations and policies of a replay."""

    model: str
    """The model whose tokenizer and limits are simulated."""
    window: int = attrs.field(converter=read_tokens)
    """The context window in tokens, input and output together."""
    cache: str
    """The rule of the prompt cache, one of LIFETIMES: `openai`, `anthropic`, `anthropic-1h` or
    `off`."""
    cache_lifetime: float | None = None
    """Seconds after which an unused prefix leaves the cache; None: as the rule says."""
    max_tokens: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens of a request, if that is less than the window leaves."""
    fixed_tokens: int | None = attrs.field(
        default=0, converter=attrs.converters.optional(read_tokens)
    )
    """Tokens of each request that the recording does not have, such as its instructions and tools.
    None: what the provider's bills say, if that leaves half of the window."""
    cache_misses: float | None = 0.0
    """Share of the requests that the provider's cache does not serve although it could. None: those
    that the recorded one did not serve."""
    summary_tokens: int = attrs.field(default=0, converter=read_tokens)
    """The least tokens that the model writes for a summary, its hidden reasoning included. 0: those
    of the extract that stands for it."""


@attrs.frozen(kw_only=True)
class SimulationResult:
    """The result of one conversation under one policy."""

    totals: ReplayTotals
    timeline: tuple[TimelineRequest, ...]


@attrs.frozen(kw_only=True)
class SentRequest:
    """One request of a conversation, as it was recorded or under one policy."""

    reply: int
    """The place of its reply in the recording."""
    messages: Sequence[MessageCount] = ()
    """Its messages, system messages included."""
    billed: BilledTokens
    """What it is billed, with its reply."""
    summaries_billed: BilledTokens = attrs.field(factory=BilledTokens)
    """What the summaries so far are billed."""
    checkpoint: bool = False
    """True: a summary replaced messages since the request before."""
    usage: Usage | None = None
    """What a provider reports for it; None if it would have refused it."""


class Simulation:
    """One conversation that can be played under any number of policies.

    Messages are counted once for all of them.

    Raises:
        ToolsFillBudgetError: The window is too small for the recorded tool definitions.
    """

    def __init__(
        self, recording: Recording, rules: ReplayRules, *, counts: MessageCounts | None = None
    ) -> None:
        """Prepare a conversation. `counts` has the counts of messages that are known already."""
        self._rules = rules
        # Budgets use margins, so that requests fit; bills use means.
        self._tokenizer = tokenizer_for(rules.model)
        billing = tokenizer_for(rules.model, mean=True)
        self._counts = (
            MessageCounts(billing, shows_thinking=is_claude(rules.model))
            if counts is None
            else counts
        )
        budget = ContextBudget.for_model(
            rules.model,
            tools=recording.tools,
            window=rules.window,
            max_tokens=rules.max_tokens,
        )
        # An explicit reserve: presets do not replace it by their own.
        self._budget = attrs.evolve(budget, reserved_output_tokens=budget.output_reserve)
        self._request_tokens = count_overhead(billing, recording.tools, recording.system)
        self._recording = recording
        if fixed := self._find_fixed_tokens():
            self._recording = recording = attrs.evolve(
                recording, system=(*recording.system, make_unrecorded(fixed))
            )
        self._uses = RecordingUses(recording, self._counts)
        self._uses.output_tokens = self._find_output_tokens()

    @cached_property
    def bill(self) -> RecordedBill | None:
        """The provider's bills for the recorded requests, and the prices that a replay of them gives; None without bills."""
        return measure_bill(
            self._recording.path,
            tools=self._recording.tools,
            skipped=self._recording.entry_ids[: self._recording.shared],
        )

    def _find_fixed_tokens(self) -> int:
        if self._rules.fixed_tokens is not None:
            return self._rules.fixed_tokens
        if self.bill is None:
            return 0
        # as many tokens of the simulated model as the text has, by the means of both families
        fixed = round(
            self.bill.fixed_tokens
            * describe_model(self._rules.model).mean
            / describe_model(self.bill.main_model).mean
        )
        limit = self._budget.limit
        return fixed if limit is None or 2 * fixed <= limit else 0

    def _find_output_tokens(self) -> tuple[int, ...]:
        """Return for each message the output tokens that are billed if it is a reply: those that its model was billed, if that is the simulated one."""
        recorded = {
            entry.id: bill.output_tokens
            for entry in self._recording.path
            if isinstance(entry.payload, MessageEntry)
            and entry.payload.model == self._rules.model
            and (bill := read_bill(entry.payload)) is not None
        }
        counted = tuple(
            map(max, (each.output_tokens for each in self._uses.messages), self._uses.output_tokens)
        )
        return tuple(map(recorded.get, self._recording.entry_ids, counted)) if recorded else counted

    def _find_misses(self, seed: str) -> frozenset[int]:
        """Return the places of the replies to requests that the provider's cache does not serve."""
        if (share := self._rules.cache_misses) is None:
            missed = frozenset[str]() if self.bill is None else self.bill.misses
            return frozenset(
                at for at, id_ in enumerate(self._recording.entry_ids) if id_ in missed
            )
        if not share:
            return frozenset()
        draw = random.Random(f"{seed}\0misses")  # noqa: S311  # the same in every run, not a secret
        return frozenset(at for at in range(len(self._recording.messages)) if draw.random() < share)

    def run(
        self,
        policy: ReplayPolicy,
        *,
        seed: str,
        summarize_with_model: bool = False,
        on_request: Callable[[SentRequest], object] | None = None,
    ) -> SimulationResult:
        """Play the conversation under a policy.

        Args:
            policy: The policy.
            seed: The seed of the random numbers that the policy gets. The same seed gives the same
                result.
            summarize_with_model: Let the model write the summaries, through OpenAI's API.
            on_request: Called with each request.
        """
        return asyncio.run(
            self._play(
                policy,
                seed,
                on_request or (lambda _: None),
                summarize_with_model=summarize_with_model,
            )
        )

    def measure(self, price: Price, result: SimulationResult | None = None) -> PricedConversation:
        """Measure the requests of the conversation without compactions, for its planned optimum.

        Args:
            price: The prices of the model.
            result: The result of a policy, of which summaries and what stays beside them have the
                sizes. None, or a result without a summary: those of `break_even`.
        """
        fixed = self._request_tokens + sum(
            count.tokens for count in self._counts.count_messages(self._recording.system)
        )
        conversation = PricedConversation(
            requests=measure_requests(
                self._uses.messages,
                self._recording.times,
                output_tokens=self._uses.output_tokens,
                fixed_tokens=fixed,
                shared=self._recording.shared,
            ),
            fixed_tokens=fixed,
            limit=self._budget.limit,
            price=price,
            cache=self._rules.cache,
            cache_lifetime=self._rules.cache_lifetime,
            cache_minimum=describe_model(self._rules.model).cache_minimum,
            summary_tokens=min(SUMMARY_TOKENS, compute_target_tokens(self._budget.summary_tokens)),
            beside_tokens=PREFACE_TOKENS + BreakEven(tail_tokens=0).count_beside(self._budget),
        )
        return conversation if result is None else _with_sizes_of(conversation, result)

    async def _play(
        self,
        policy: ReplayPolicy,
        seed: str,
        on_request: Callable[[SentRequest], object],
        *,
        summarize_with_model: bool,
    ) -> SimulationResult:
        # A request is sent at the time of the message before its reply; the reply's own time is
        # that of its end.
        known = list(accumulate((time or 0.0 for time in self._recording.times), max, initial=0.0))
        now = 0.0
        misses = self._find_misses(seed)
        async with AsyncExitStack() as stack:
            model = None
            if summarize_with_model:
                from promptkit.providers import OpenAIModel

                # Other servers that speak OpenAI's protocol mostly have only the older of its two
                # endpoints.
                model = await stack.enter_async_context(
                    OpenAIModel(
                        self._rules.model,
                        api="chat" if os.environ.get("OPENAI_BASE_URL") else "responses",
                    )
                )
            terms = ReplayTerms(
                budget=self._budget,
                tokenizer=self._tokenizer,
                counts=self._counts,
                tools=self._recording.tools,
                system=self._recording.system,
                request_tokens=self._request_tokens,
                rng=random.Random(  # noqa: S311  # jitter that must be the same in every run, not a secret
                    hashlib.sha256(f"{seed}\0{policy.name}".encode()).digest()
                ).random,
                clock=lambda: now,
                summary_tokens=self._rules.summary_tokens,
                model=model,
            )
            run = policy.start(terms)
            stack.push_async_callback(run.close)
            recorder = _RequestRecorder(run, terms, rules=self._rules, uses=self._uses)
            for at, message in enumerate(self._recording.messages):
                now = known[at]
                if message.role != "assistant" or at == 0:
                    await run.add(message)
                    continue
                request = recorder.on_request(await run.request(), reply=at, missed=at in misses)
                on_request(request)
                await run.add_reply(message, request.usage)
                now = known[at + 1]
                recorder.bill_summaries()
        return SimulationResult(totals=recorder.totals, timeline=tuple(recorder.timeline))


class _RequestRecorder:
    """Counts the requests of one policy, and bills them and their summaries."""

    def __init__(
        self, run: PolicyRun, terms: ReplayTerms, *, rules: ReplayRules, uses: RecordingUses
    ) -> None:
        self.totals = ReplayTotals()
        self.timeline: list[TimelineRequest] = []
        self._run = run
        self._terms = terms
        self._rules = rules
        self._minimum = describe_model(rules.model).cache_minimum
        self._cache = PromptCache(rules.cache, rules.cache_lifetime, minimum=self._minimum)
        self._uses = uses
        self._retention = RetentionTracker(uses, transcript_path=run.transcript_path)
        self._system = terms.counts.count_messages(terms.system)
        self._first_message = uses.messages[0].number if uses.messages else None
        self._last_request: list[MessageCount] = []
        self._checkpoints = self._waits = self._billed_summaries = 0
        self._counts_requests = True
        """False while the reply to the last request is one that an earlier branch of the recording
        has, too."""

    def on_request(self, messages: Sequence[Message], *, reply: int, missed: bool) -> SentRequest:
        """Count a request whose reply is at this place of the recording. `missed`: the provider's cache does not serve it."""
        self._counts_requests = reply >= self._uses.shared
        # the request waited for these summaries, so they were requested before it
        self.bill_summaries()
        terms, run = self._terms, self._run
        counts = [*self._system, *terms.counts.count_messages(messages)]
        billed = attrs.evolve(
            self._cache.send(terms.request_tokens, counts, terms.clock(), missed=missed),
            output_tokens=self._uses.output_tokens[reply],
        )
        limit = terms.budget.limit
        overflows = limit is not None and billed.input_tokens > limit
        fault = find_fault(counts, first_message=self._first_message)
        last_request, self._last_request = self._last_request, counts
        lacks_line = self._retention.on_request(counts, reply)
        checkpoints, self._checkpoints = run.checkpoints - self._checkpoints, run.checkpoints
        waits, self._waits = run.waits - self._waits, run.waits
        if self._counts_requests:
            self.totals = attrs.evolve(
                self.totals
                + ReplayTotals(
                    requests=1,
                    checkpoints=checkpoints,
                    foreground_waits=waits,
                    overflows=overflows,
                    invalid_requests=fault is not None,
                    cuts=counts[: len(last_request)] != last_request,
                    longest_request=billed.input_tokens,
                    requests_billed=billed,
                    lookups_billed=self._bill_lookup(billed.input_tokens)
                    if lacks_line
                    else BilledTokens(),
                ),
                retention=self._retention.counts,
            )
            self.timeline.append(
                TimelineRequest(
                    tokens=billed.input_tokens,
                    cached=billed.cached_tokens,
                    checkpoint=checkpoints > 0,
                )
            )
        return SentRequest(
            reply=reply,
            messages=counts,
            billed=billed,
            summaries_billed=self.totals.summaries_billed,
            checkpoint=checkpoints > 0,
            usage=None
            if overflows
            else Usage(
                input_tokens=billed.input_tokens,
                output_tokens=billed.output_tokens,
                cached_tokens=billed.cached_tokens,
            ),
        )

    def _bill_lookup(self, tokens: int) -> BilledTokens:
        """Return the tokens of a look-up: the request once more, from the cache, then the call, and its result behind the request."""
        return attrs.evolve(
            bill_prefix(
                self._rules.cache,
                tokens + LOOKUP_CALL_TOKENS + LOOKUP_RESULT_TOKENS,
                tokens,
                minimum=self._minimum,
            ),
            output_tokens=LOOKUP_CALL_TOKENS,
        )

    def bill_summaries(self) -> None:
        """Bill the summaries that were made since the last call."""
        for call in self._run.summary_calls[self._billed_summaries :]:
            if (billed := call.billed) is None:
                request = self._terms.counts.count_messages(call.request)
                billed = (
                    self._cache.send(self._terms.request_tokens, request, self._terms.clock())
                    if request
                    else BilledTokens()
                )
                billed = attrs.evolve(
                    billed,
                    input_tokens=billed.input_tokens + call.uncached_tokens,
                    output_tokens=max(call.output_tokens, self._rules.summary_tokens),
                )
            if self._counts_requests:
                self.totals = attrs.evolve(
                    self.totals, summaries_billed=self.totals.summaries_billed + billed
                )
        self._billed_summaries = len(self._run.summary_calls)


def find_fault(messages: Sequence[MessageCount], *, first_message: int | None = None) -> str | None:
    """Return why a provider would reject a request as invalid, or None.

    A valid request has a message besides system messages. It starts with a user message, or with
    the message with which the recording starts. Each tool call is followed by exactly one result,
    in any order, and there are no other results.

    Args:
        messages: The messages of the request.
        first_message: The number of the message with which the recording starts; None: only a user
            message may be first.
    """
    at = next(
        (at for at, message in enumerate(messages) if message.role != "system"), len(messages)
    )
    if at == len(messages):
        return "it has no message but the system's"
    if messages[at].role != "user" and messages[at].number != first_message:
        return f"it begins with a message of the role {messages[at].role!r}"
    pending: set[str] = set()
    for message in messages[at:]:
        if message.role == "tool":
            call = message.message.tool_call_id or ""
            if call not in pending:
                return f"the result of {call!r} answers no call before it"
            pending.remove(call)
        elif pending:
            return f"the call {min(pending)!r} is not answered"
        elif message.call_ids:
            pending = set(message.call_ids)
    return f"the call {min(pending)!r} is not answered" if pending else None


def _with_sizes_of(
    conversation: PricedConversation, result: SimulationResult
) -> PricedConversation:
    """Give a conversation the sizes of a policy's own summaries, and of what stood beside them, on average."""
    requests = conversation.requests
    kept = [
        sent.tokens
        - conversation.fixed_tokens
        - (requests[at].tokens - requests[at - 1].tokens)
        - requests[at - 1].user_tokens
        for at, sent in zip(
            [at for at, each in enumerate(requests) if each.counted], result.timeline, strict=True
        )
        if sent.checkpoint and at
    ]
    if not kept or not (made := result.totals.checkpoints):
        return conversation
    summary = round(result.totals.summaries_billed.output_tokens / made)
    return attrs.evolve(
        conversation,
        summary_tokens=summary,
        beside_tokens=max(0, round(sum(kept) / len(kept)) - summary),
    )


LOST_WORKER = "the process that worked on it died each time that it was tried, as one does that the system ends because it needs too much memory."
"""Why a file has no result, if its worker died."""


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """The policies to replay, the simulated model, and its price."""

    policies: tuple[str, ...]
    """Names of policies, as `parse_policy_names` returns them."""
    rules: ReplayRules
    price: Price
    prices: Prices | None = None
    """The prices of the models that recordings name, for what their providers billed. None: bills are
    not compared."""
    timeline: bool = False
    """Whether results contain the figures of every request."""
    oracle: bool = False
    """Whether results contain what each conversation costs at least, and each policy's planned
    optimum."""
    lookups: int = 0
    """Look-ups for each answer that lacks a line, in the price with look-ups."""
    summarize_with_model: bool = False
    """Let the model of the rules write the summaries, through OpenAI's API. By default they are
    extracted from the conversation."""

    def price_totals(
        self, name: str, totals: ReplayTotals, timeline: Iterable[TimelineRequest] = ()
    ) -> PolicyResult:
        """Compute the result of a policy from its counts.

        Args:
            name: The policy's name.
            totals: The policy's counts.
            timeline: All requests in order. By default none.
        """
        cost = self.price.cost
        summaries = cost(totals.summaries_billed)
        total = cost(totals.requests_billed) + summaries
        return PolicyResult(
            policy=name,
            totals=totals,
            price=total,
            price_summaries=summaries,
            price_with_lookups=total + self.lookups * cost(totals.lookups_billed),
            timeline=tuple(timeline) if self.timeline else (),
        )


def replay(
    files: Sequence[Path | str],
    options: ReplayOptions,
    *,
    executor: Executor | None = None,
    on_file_done: Callable[[Path | str], object] | None = None,
) -> list[FileResult | FailedFile]:
    """Replay recordings under each policy, and return the results in the order of the files.

    All results are in memory at the end. For more files than that allows, `promptkit.lab.corpus` writes
    rows to a file.

    >>> rules = ReplayRules(model="gpt-5", window=32_000, cache="openai")
    >>> options = ReplayOptions(policies=("vscode", "drop_oldest"), rules=rules, price=read_prices().for_model("gpt-5"))
    >>> results = replay([Path("session.jsonl")], options)

    Args:
        files: Recordings in any format that promptkit can import, as paths or URLs, and URLs of
            transcripts.
        options: The policies, the simulated model, and its price.
        executor: Replays the files, for example an engine of `promptkit.lab.engines`. It is left
            open. None: they are replayed in this process, one after the other.
        on_file_done: Called with each file after it was replayed, in any order.

    Returns:
        A FileResult for each file, or a FailedFile for one that could not be replayed.
    """
    results: dict[int, FileResult | FailedFile] = {}
    with open_engine(workers=1) if executor is None else nullcontext(executor) as engine:
        for index, result in run_each(engine, partial(_replay_files, options), files):
            results[index] = (
                FailedFile(file=str(result.item), reason=LOST_WORKER)
                if isinstance(result, LostItem)
                else result
            )
            if on_file_done:
                on_file_done(files[index])
    return [results[index] for index in range(len(files))]


def _replay_files(
    options: ReplayOptions, files: tuple[Path | str, ...]
) -> list[FileResult | FailedFile]:
    return [_replay_or_fail(file, options) for file in files]


def _replay_or_fail(file: Path | str, options: ReplayOptions) -> FileResult | FailedFile:
    try:
        return replay_file(file, options)
    except PromptKitError as error:
        return FailedFile(file=str(file), reason=str(error))


def replay_file(file: Path | str, options: ReplayOptions) -> FileResult:
    """Replay one recording under each policy.

    Raises:
        TranscriptError: The file cannot be read.
        ToolsFillBudgetError: The window is too small for the recorded tool definitions.
        UnknownPolicyError: There is no policy with one of the names.
    """
    return sum_results(list(replay_conversations(file, options)), options, file=str(file))


def replay_conversations(file: Path | str, options: ReplayOptions) -> Iterator[FileResult]:
    """Replay one recording under each policy, and yield a result for each conversation in it.

    Raises what `replay_file` raises.
    """
    policies = [find_policy(name) for name in options.policies]
    with fetch_file(file) as place:
        seed = hash_recording(place)
        for recording in read_recordings(place, address=str(file)):
            simulation = Simulation(recording, options.rules)
            played = [
                simulation.run(
                    policy,
                    seed=f"{seed}:{recording.conversation}",
                    summarize_with_model=options.summarize_with_model,
                )
                for policy in policies
            ]
            yield FileResult(
                file=str(file),
                conversations=1,
                messages=len(recording.messages)
                - recording.shared
                + (0 if recording.shared else len(recording.system)),
                lower_bound=find_lower_bound(simulation.measure(options.price))
                if options.oracle
                else None,
                window=options.rules.window,
                model=options.rules.model,
                bill=simulation.bill.add_up(
                    options.prices, model=options.rules.model, price=options.price
                )
                if options.prices and simulation.bill
                else None,
                policies=tuple(
                    attrs.evolve(
                        options.price_totals(name, result.totals, result.timeline),
                        planned_optimum=find_optimum(simulation.measure(options.price, result))[0]
                        if options.oracle
                        else None,
                    )
                    for name, result in zip(options.policies, played, strict=True)
                ),
            )


def sum_results(results: Sequence[FileResult], options: ReplayOptions, *, file: str) -> FileResult:
    """Add up the results of conversations or files. `file` is the name of the whole."""
    columns = [[result.policies[at] for result in results] for at in range(len(options.policies))]
    return FileResult(
        file=file,
        conversations=sum(result.conversations for result in results),
        messages=sum(result.messages for result in results),
        lower_bound=_sum_known([result.lower_bound for result in results]),
        window=options.rules.window,
        model=options.rules.model,
        bill=sum_bills([result.bill for result in results]),
        policies=tuple(
            attrs.evolve(
                options.price_totals(
                    name,
                    sum((each.totals for each in column), ReplayTotals()),
                    chain.from_iterable(each.timeline for each in column),
                ),
                planned_optimum=_sum_known([each.planned_optimum for each in column]),
            )
            for name, column in zip(options.policies, columns, strict=True)
        ),
    )


def _sum_known(prices: Sequence[float | None]) -> float | None:
    """Return the sum of prices; None if none is known."""
    known = [price for price in prices if price is not None]
    return sum(known) if known else None


def hash_recording(file: Path | str) -> str:
    """Return the SHA-256 of a recording's content, so that it has the same random numbers wherever it is and whatever its name is.

    `file` is a path, or the URL of a conversation.
    """
    if isinstance(file, str) and is_conversation(file):
        digest = hashlib.sha256()
        for item in open_reader(file):
            if isinstance(item, StoredEntry):
                digest.update(encode_batch([item.entry]))
        return digest.hexdigest()
    try:
        with Path(file).open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return ""  # the function that reads the recording reports the error
