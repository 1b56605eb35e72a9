"""The requests of a conversation, one by one: what each showed the model, its size by part, what it cost, and what was dropped.

A log has the conversation's messages once, and for each request references to them. The requests of
one conversation can come from its recording (what was sent then) and from replays of it under
policies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from pathlib import Path

import attrs

from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.errors import TranscriptError
from promptkit.lab.recordings import read_recording
from promptkit.lab.replay.policies import find_policy
from promptkit.lab.replay.prompt_cache import (
    MessageCount,
    MessageCounts,
    PromptCache,
    cache_rule_for,
    count_overhead,
    is_claude,
)
from promptkit.lab.replay.recordings import (
    BillTotals,
    Branches,
    RecordedViews,
    is_reply,
    is_shown,
    is_unrecorded,
    measure_bill,
    recording_from_path,
)
from promptkit.lab.replay.runner import ReplayRules, SentRequest, Simulation, hash_recording
from promptkit.messages import Message, ToolDefinition
from promptkit.pairing import pair_tool_calls
from promptkit.reprs import describe, describe_fields
from promptkit.tokens import BilledTokens, ContextBudget, Price, PriceError, Prices, tokenizer_for
from promptkit.tokens.models import describe_model
from promptkit.transcript import (
    Checkpoint,
    Entry,
    MessageEntry,
    RequestBudget,
    Reset,
    ViewItem,
)
from promptkit.transcript.log.statistics import read_bill
from promptkit.wire.first_difference import FirstDifference, find_first_difference

PARTS: tuple[str, ...] = (
    "system",
    "tools",
    "summary",
    "user",
    "assistant",
    "results",
    "unrecorded",
)
"""The parts of a request. `unrecorded` is what the provider counted and the recording does not
contain, such as instructions."""

_PART_OF_ROLE = {"system": "system", "user": "user", "assistant": "assistant", "tool": "results"}


@attrs.frozen(kw_only=True)
class LoggedMessage:
    """A message of the conversation, or one that a request shows in place of messages of it."""

    message: Message
    tokens: int
    kind: str = "recorded"
    """`recorded`: a message of the conversation. `changed`: a shortened or edited form of one.
    `summary`. `added`: any other."""
    entry_id: str | None = None
    """The id of its entry."""
    time: float | None = None
    """When it was written, in seconds since 1970; None if it was not recorded."""
    original: int | None = None
    """The number of the message that a changed one is a form of."""
    covers: tuple[int, int] | None = None
    """For a summary: the numbers of the first message that it stands for, and of the one after the
    last."""

    missed: str | None = None
    """Why the provider's cache served less of the request that it answers, as its session noted it."""

    def __repr__(self) -> str:
        return describe(self, role=self.message.role, text=self.message.text)

    @property
    def part(self) -> str:
        """The part of a request that its tokens belong to."""
        return (
            "summary"
            if self.kind == "summary"
            else "unrecorded"
            if is_unrecorded(self.message)
            else _PART_OF_ROLE[self.message.role]
        )


@attrs.frozen(kw_only=True)
class LoggedRequest:
    """One request."""

    reply: int
    """The number of the message that answered it. All messages before it were written when it was
    sent."""
    time: float | None
    """When it was sent, in seconds since 1970; None if it was not recorded."""
    billed: BilledTokens
    parts: tuple[int, ...]
    """The tokens of the request by part, in the order of PARTS."""
    price: float | None
    """US dollars for all requests up to this one, its reply and the summaries so far; None without
    prices."""
    checkpoint: bool
    """Whether a summary replaced messages since the request before."""
    simulated: bool
    """True: the cached tokens are those of a simulated prompt cache, because no provider's figures
    were recorded."""
    change: tuple[int, ...]
    """The messages that it shows, as a change of those of the request before: pairs of a start and a
    length. A start from 0 on is a place in the request before; a negative one, -1 - n, begins with
    the message of the number n."""
    difference: FirstDifference | None = None
    """The first block that differs from the request before. None: it begins with all of that
    request, or it is the first one."""

    __repr__ = describe_fields

    @property
    def tokens(self) -> int:
        """The sum of the input tokens."""
        return self.billed.input_tokens


@attrs.frozen(kw_only=True)
class RequestLog:
    """The requests of one conversation, as they were recorded or under one policy."""

    name: str
    """`recorded`, or the name of the policy."""
    requests: tuple[LoggedRequest, ...]
    price: float | None
    """US dollars for everything, summaries after the last request included; None without prices."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class ConversationLog:
    """A conversation and its requests, from one source or from several."""

    messages: tuple[LoggedMessage, ...]
    """The messages of the conversation in order, and after them those that requests show in place
    of them."""
    length: int
    """The number of messages of the conversation."""
    logs: tuple[RequestLog, ...]
    model: str
    """The model whose tokenizer counted, and whose prices hold."""
    window: int | None
    """The context window in tokens that held for the requests; None if it was neither recorded nor
    chosen."""
    limit: int | None
    """The most tokens that a request may have: the window without what is reserved for the reply;
    None as for the window."""
    bill: BillTotals | None = None
    """The provider's bills for the recorded requests, and the prices that the replay gives. None:
    there are no bills, or no prices."""
    branch: int = 1
    """The number of this conversation in its file, from 1."""
    branches: int = 1
    """The conversations in the file. A transcript has one for each branch."""

    __repr__ = describe_fields


class LogMessages:
    """The messages of a log, numbered. Those of the conversation come first."""

    def __init__(self, conversation: Sequence[LoggedMessage]) -> None:
        self.all = list(conversation)
        self.length = len(self.all)
        self._calls: dict[tuple[str, str], list[int]] = {}
        for number, each in enumerate(conversation):
            for key in _call_keys(each.message):
                self._calls.setdefault(key, []).append(number)

    def add(self, message: LoggedMessage) -> int:
        """Add a message that is not part of the conversation, and return its number."""
        self.all.append(message)
        return len(self.all) - 1

    def find_original(self, message: Message, reply: int) -> int | None:
        """Return the number of the message that another one is a form of, because it answers or makes the same calls; None: of no one."""
        for key in _call_keys(message):
            places = self._calls.get(key, [])
            at = bisect_left(places, reply)
            if at and self.all[places[at - 1]].message.role == message.role:
                return places[at - 1]
        return None


def _call_keys(message: Message) -> list[tuple[str, str]]:
    return (
        [("tool", message.tool_call_id or "")]
        if message.role == "tool"
        else [("assistant", call.id) for call in message.tool_calls]
    )


class RequestLogger:
    """Logs the requests of one source, each as a change of the one before.

    Takes time linear in what changes, unless messages were dropped.

    Args:
        messages: The messages of the log.
        request_tokens: Tokens of every request besides its messages: tool definitions and framing.
        has_tools: Whether there are tool definitions. The framing of a request without any belongs
            to the part of its first message.
        price: The prices; None: unknown.
    """

    def __init__(
        self, messages: LogMessages, *, request_tokens: int, has_tools: bool, price: Price | None
    ) -> None:
        self._requests: list[LoggedRequest] = []
        self._messages = messages
        self._request_tokens = request_tokens
        self._has_tools = has_tools
        self._price = price
        self._shown: list[int] = []
        self._sums = dict.fromkeys(PARTS, 0)
        self._spent = 0.0

    def spend(self, billed: BilledTokens, price: Price | None) -> None:
        """Add the price of tokens to that of all requests."""
        if price:
            self._spent += price.cost(billed)

    def add(
        self,
        shown: Sequence[int],
        request: SentRequest,
        *,
        simulated: bool,
        price: Price | None = None,
    ) -> None:
        """Log a request.

        Args:
            shown: The numbers of the messages that it shows, in order.
            request: The request; its `reply` is the number of the message that answered it.
            simulated: Whether what it was billed comes from a simulated prompt cache.
            price: Its prices. None: those of the log.
        """
        before = self._shown
        appended = shown[: len(before)] == before
        if not appended:
            self._sums = dict.fromkeys(PARTS, 0)
        for number in shown[len(before) :] if appended else shown:
            message = self._messages.all[number]
            self._sums[message.part] += message.tokens
        self._shown = list(shown)
        sums = dict(self._sums)
        first = self._messages.all[shown[0]].part if shown else "unrecorded"
        sums["tools" if self._has_tools else first] += self._request_tokens
        sums["unrecorded"] += max(0, request.billed.input_tokens - sum(sums.values()))
        self.spend(request.billed, price or self._price)
        self._requests.append(
            LoggedRequest(
                reply=request.reply,
                time=self._messages.all[request.reply - 1].time if request.reply else None,
                billed=request.billed,
                parts=tuple(sums[part] for part in PARTS),
                price=self._price_so_far(request.summaries_billed),
                checkpoint=request.checkpoint,
                simulated=simulated,
                change=_find_change(before, shown, appended=appended),
                difference=None
                if appended
                else find_first_difference(
                    *(
                        [self._messages.all[number].message for number in numbers]
                        for numbers in (before, shown)
                    )
                ),
            )
        )

    def finish(self, name: str, summaries_billed: BilledTokens) -> RequestLog:
        """Return the log. `summaries_billed` is what all summaries were billed."""
        return RequestLog(
            name=name,
            requests=tuple(self._requests),
            price=self._price_so_far(summaries_billed),
        )

    def _price_so_far(self, summaries_billed: BilledTokens) -> float | None:
        return None if self._price is None else self._spent + self._price.cost(summaries_billed)


def _find_change(before: Sequence[int], shown: Sequence[int], *, appended: bool) -> tuple[int, ...]:
    """Return the messages of a request as runs of the request before, and runs of consecutive numbers.

    `appended`: it begins with all of the request before.
    """
    if appended and before:
        return (0, len(before), *_new_runs(shown, len(before), len(shown)))
    places = {number: at for at, number in enumerate(before)}
    change: list[int] = []
    at = new = 0
    while at < len(shown):
        if (place := places.get(shown[at])) is None:
            at += 1
            continue
        change += _new_runs(shown, new, at)
        start = at
        while (
            at < len(shown)
            and place + at - start < len(before)
            and before[place + at - start] == shown[at]
        ):
            at += 1
        change += (place, at - start)
        new = at
    return (*change, *_new_runs(shown, new, at))


def _new_runs(shown: Sequence[int], start: int, end: int) -> Iterator[int]:
    for _, run in groupby(enumerate(shown[start:end]), lambda each: each[1] - each[0]):
        numbers = [number for _, number in run]
        yield from (-1 - numbers[0], len(numbers))


class CountedMessageFinder:
    """Finds the numbers of the messages of replayed requests.

    Equal messages share a count, so the places in the request tell them apart.

    Args:
        messages: The messages of the log.
        numbers: For each count the numbers of the messages of the conversation that have it, in
            order.
    """

    def __init__(self, messages: LogMessages, numbers: Mapping[int, Sequence[int]]) -> None:
        self._messages = messages
        self._numbers = numbers
        self._others: dict[int, int] = {}
        """The numbers of the messages that are not part of the conversation, by their counts."""
        self._counts: list[MessageCount] = []
        self._found: list[int] = []

    def find(self, counts: Sequence[MessageCount], reply: int, *, checkpoint: bool) -> list[int]:
        """Return the numbers of the messages of a request.

        Args:
            counts: The messages.
            reply: The number of the message that answered the request.
            checkpoint: Whether a summary replaced messages since the request before.
        """
        known = len(self._counts)
        start = known if counts[:known] == self._counts else 0
        found = [*self._found[:start], *([-1] * (len(counts) - start))]
        # The newest messages are a tail of the conversation, so each place is found from the end.
        next_number = reply
        for at in range(len(counts) - 1, start - 1, -1):
            if places := self._numbers.get(counts[at].number):
                index = bisect_left(places, next_number)
                found[at] = next_number = places[index - 1] if index else places[-1]
        others = [at for at in range(start, len(counts)) if found[at] < 0]
        for at in others:
            known_number = self._others.get(counts[at].number)
            found[at] = (
                self._add_changed(counts[at], reply) if known_number is None else known_number
            )
        covers = (
            _find_covered(self._messages, found, reply)
            if any(found[at] < 0 for at in others)
            else (0, 0)
        )
        for at in others:
            if found[at] < 0:
                found[at] = self._others[counts[at].number] = self._messages.add(
                    _describe(counts[at], covers, checkpoint=checkpoint)
                )
        self._counts = list(counts)
        self._found = found
        return found

    def _add_changed(self, count: MessageCount, reply: int) -> int:
        """Add a message that is a form of an earlier one, and return its number; -1 if it is none."""
        if (original := self._messages.find_original(count.message, reply)) is None:
            return -1
        number = self._others[count.number] = self._messages.add(
            LoggedMessage(
                message=count.message, tokens=count.tokens, kind="changed", original=original
            )
        )
        return number


def _describe(count: MessageCount, covers: tuple[int, int], *, checkpoint: bool) -> LoggedMessage:
    """Describe a message that is not part of the conversation: a summary of the messages that the request lacks, or any other."""
    other = LoggedMessage(message=count.message, tokens=count.tokens, kind="added")
    return (
        attrs.evolve(other, kind="summary", covers=covers)
        if extract_summary_text(count.message) is not None
        or (checkpoint and count.message.role == "user")
        else other
    )


def _find_covered(messages: LogMessages, shown: Sequence[int], reply: int) -> tuple[int, int]:
    """Return the numbers of the first message and of the one after the last message before a reply that a request does not show."""
    present = {
        messages.all[number].original if number >= messages.length else number
        for number in shown
        if number >= 0
    }
    return 0, next((number for number in range(reply - 1, -1, -1) if number not in present), -1) + 1


RECORDED = "recorded"
"""The name of the log of what was sent when the conversation was recorded."""

DEFAULT_MODEL = "gpt-5"
"""The model whose tokenizer and prices are used if the recording names none that has prices."""


@attrs.frozen(kw_only=True)
class LogOptions:
    """The sources of the requests, and the model that counts and prices them."""

    prices: Prices
    sources: tuple[str, ...] = (RECORDED,)
    """`recorded`, and names of policies."""
    model: str | None = None
    """The model whose tokenizer, prices and prompt cache are used. None: that of the recording."""
    window: int | None = None
    """The context window in tokens. None: that of the model."""
    branch: int | None = None
    """The number of the conversation in its file, from 1. None: the one that was written last."""


def log_conversation(file: Path | str, options: LogOptions) -> ConversationLog:
    """Log the requests of a conversation in a file.

    Args:
        file: A recording in any format that promptkit can import, or the URL of a transcript.
        options: The sources of the requests, and the model.

    Returns:
        The log. Requests are the same in every run.

    Raises:
        TranscriptError: The file cannot be read, or has no such conversation.
        ToolsFillBudgetError: The window is too small for the recorded tool definitions.
        UnknownPolicyError: There is no policy with one of the names.
    """
    tree = Branches([entry for _, batch in read_recording(file) for entry in batch.entries])
    branch = len(tree.leaves) if options.branch is None else options.branch
    if not tree.leaves:
        raise TranscriptError(f"{file}: there is no message in it.")
    if not 1 <= branch <= len(tree.leaves):
        raise TranscriptError(
            f"{file}: there is no conversation {branch}. The file has {len(tree.leaves):,}, counted from 1."
        )
    leaf = tree.leaves[branch - 1]
    return attrs.evolve(
        log_path(
            tree.path_to(leaf),
            options,
            tools=tree.tools_of(leaf),
            seed=f"{hash_recording(file)}:{tree.number_of(leaf)}",
        ),
        branch=branch,
        branches=len(tree.leaves),
    )


def log_path(
    path: Sequence[Entry],
    options: LogOptions,
    *,
    tools: Sequence[ToolDefinition] = (),
    seed: str = "",
) -> ConversationLog:
    """Log the requests of one branch of a transcript.

    Args:
        path: Its entries, the first one first.
        options: The sources of the requests, and the model.
        tools: The recorded tool definitions.
        seed: The seed of the random numbers that policies get.

    Raises:
        ToolsFillBudgetError: The window is too small for the tool definitions.
        UnknownPolicyError: There is no policy with one of the names.
    """
    return _Logger(
        path, options.model or _find_model(path, options.prices), options, tools, seed
    ).log()


def _find_model(path: Sequence[Entry], prices: Prices) -> str:
    """Return the model that answered most of the requests of a recording, of those that have a price."""
    names = Counter(
        entry.payload.model
        for entry in path
        if isinstance(entry.payload, MessageEntry) and entry.payload.model
    )
    return next(
        (name for name, _ in names.most_common() if _find_price(prices, name)), DEFAULT_MODEL
    )


def _find_price(prices: Prices, model: str) -> Price | None:
    try:
        return prices.for_model(model)
    except PriceError:
        return None


class _Logger:
    """The log of one branch."""

    def __init__(
        self,
        path: Sequence[Entry],
        model: str,
        options: LogOptions,
        tools: Sequence[ToolDefinition],
        seed: str,
    ) -> None:  # one conversation and how to count it
        self._path = path
        self._seed = seed
        self._model = model
        self._options = options
        self._tools = tuple(tools)
        self._counts = MessageCounts(
            tokenizer_for(model, mean=True), shows_thinking=is_claude(model)
        )
        self._price = _find_price(options.prices, model)
        self._said = [
            (entry, entry.message)
            for entry in path
            if entry.message is not None and is_shown(entry.message)
        ]
        counted = self._counts.count_messages([message for _, message in self._said])
        self._numbers: dict[int, list[int]] = {}
        for number, count in enumerate(counted):
            self._numbers.setdefault(count.number, []).append(number)
        self._messages = LogMessages(
            [
                LoggedMessage(
                    message=message,
                    tokens=count.tokens,
                    entry_id=entry.id,
                    time=entry.time if entry.time > 0 else None,
                    missed=entry.payload.cache_miss.describe()
                    if isinstance(entry.payload, MessageEntry) and entry.payload.cache_miss
                    else None,
                )
                for (entry, message), count in zip(self._said, counted, strict=True)
            ]
        )
        recorded = next(
            (
                entry.payload.budget
                for entry in (() if options.window else reversed(path))
                if isinstance(entry.payload, MessageEntry) and entry.payload.budget
            ),
            RequestBudget(window=options.window or None),
        )
        self._most_tokens = recorded.limit
        self._budget = ContextBudget.for_model(
            model, tools=self._tools, window=recorded.window, max_tokens=recorded.limit
        )
        # The window of the model is a guess where nothing was recorded, unless a replay kept to it.
        self._has_limit = recorded != RequestBudget() or options.sources != (RECORDED,)

    def log(self) -> ConversationLog:
        """Log the requests of all sources."""
        logs = tuple(
            self._log_recorded() if name == RECORDED else self._log_replay(name)
            for name in self._options.sources
        )
        bill = measure_bill(self._path, tools=self._tools)
        return ConversationLog(
            messages=tuple(self._messages.all),
            length=self._messages.length,
            logs=logs,
            bill=bill.add_up(self._options.prices, model=self._model, price=self._price)
            if bill and self._price
            else None,
            model=self._model,
            window=self._budget.window if self._has_limit else None,
            limit=self._budget.limit if self._has_limit else None,
        )

    def _price_of(self, model: str | None) -> Price | None:
        """Return the prices of a recorded model; those of the log if it has none, or if a model was chosen."""
        own = None if self._options.model or model is None else model
        return (own and _find_price(self._options.prices, own)) or self._price

    def _log_replay(self, name: str) -> RequestLog:
        """Log what a policy would have sent."""
        policy = find_policy(name)
        recording = recording_from_path(self._said, path=self._path, tools=self._tools)
        places = pair_tool_calls([message for _, message in self._said]).sources
        rules = ReplayRules(
            model=self._model,
            window=self._budget.window or UNLIMITED,
            cache=cache_rule_for(self._model),
            max_tokens=self._most_tokens,
            fixed_tokens=None,
            cache_misses=None,
        )
        logger = RequestLogger(
            self._messages,
            request_tokens=count_overhead(self._counts.tokenizer, self._tools, recording.system),
            has_tools=bool(self._tools),
            price=self._price,
        )
        finder = CountedMessageFinder(self._messages, self._numbers)

        def on_request(request: SentRequest) -> None:
            reply = places[len(recording.system) + request.reply]
            logger.add(
                finder.find(request.messages, reply, checkpoint=request.checkpoint),
                attrs.evolve(request, reply=reply),
                simulated=True,
            )

        result = Simulation(recording, rules, counts=self._counts).run(
            policy, seed=self._seed, on_request=on_request
        )
        return logger.finish(name, result.totals.summaries_billed)

    def _log_recorded(self) -> RequestLog:
        """Log what was sent when the conversation was recorded: the view of the transcript at each reply."""
        overhead = count_overhead(
            self._counts.tokenizer, self._tools, (message for _, message in self._said)
        )
        logger = RequestLogger(
            self._messages, request_tokens=overhead, has_tools=bool(self._tools), price=self._price
        )
        recorded = _RecordedRequests(self._messages, self._counts, self._path)
        cache = PromptCache(
            cache_rule_for(self._model), minimum=describe_model(self._model).cache_minimum
        )
        bills = [read_bill(entry.payload) for entry in self._path if is_reply(entry)]
        simulates = None in bills
        # Beside requests with a bill, one whose usage is nothing was billed nothing: it failed.
        is_billed = any(bills)
        checkpoint = False
        number = 0
        now = 0.0
        for at, entry in enumerate(self._path):
            payload = entry.payload
            if isinstance(payload, Checkpoint):
                checkpoint = True
                logger.spend(read_bill(payload) or BilledTokens(), self._price_of(payload.model))
            if entry.message is None or not is_shown(entry.message):
                continue
            reply, number = number, number + 1
            if reply and is_reply(entry):
                shown, counts = recorded.at(at)
                bill = read_bill(entry.payload)
                now = max(now, self._messages.all[reply - 1].time or 0.0)
                billed = attrs.evolve(
                    cache.send(overhead, counts, now) if simulates else BilledTokens(),
                    output_tokens=self._counts.count_messages([entry.message])[0].output_tokens,
                )
                model, usage = (
                    (payload.model, payload.usage)
                    if isinstance(payload, MessageEntry)
                    else (None, None)
                )
                logger.add(
                    shown,
                    SentRequest(
                        reply=reply,
                        billed=billed if bill is None else bill,
                        checkpoint=checkpoint,
                    ),
                    simulated=bill is None,
                    price=FREE
                    if (is_billed and bill is None and usage is not None)
                    else self._price_of(model),
                )
                checkpoint = False
        return logger.finish(RECORDED, BilledTokens())


FREE = Price(input=0.0, output=0.0)
"""The prices of a request that its provider did not bill."""

UNLIMITED = 100_000_000
"""Tokens of the window of a replay with a model whose window is not known."""


class _RecordedRequests(RecordedViews):
    """The messages that the requests of a transcript showed, as those of a log."""

    def __init__(self, messages: LogMessages, counts: MessageCounts, path: Sequence[Entry]) -> None:
        super().__init__(path, counts)
        self._messages = messages
        self._by_entry = {message.entry_id: number for number, message in enumerate(messages.all)}
        self._places = {entry.id: at for at, entry in enumerate(path)}
        # for each entry the number of messages before it
        self._said_before = list(
            accumulate(
                (entry.message is not None and is_shown(entry.message) for entry in path), initial=0
            )
        )
        self._others: dict[tuple[str, int], int] = {}
        self._shown: list[int] = []

    def at(self, place: int) -> tuple[list[int], list[MessageCount]]:
        """Return the numbers and the counts of the messages that were shown before the entry at a place of the path."""
        start = self.show(place)
        self._shown[start:] = [
            self._find(item, count)
            for item, count in zip(self.items[start:], self.counts[start:], strict=True)
        ]
        return self._shown, self.counts

    def _find(self, item: ViewItem, count: MessageCount) -> int:
        original = self._by_entry.get(item.entry_id)
        if original is not None and self._messages.all[original].message == item.message:
            return original
        key = item.entry_id, count.number
        if (number := self._others.get(key)) is None:
            number = self._others[key] = self._messages.add(self._describe(item, count, original))
        return number

    def _describe(self, item: ViewItem, count: MessageCount, original: int | None) -> LoggedMessage:
        changed = LoggedMessage(
            message=item.message, tokens=count.tokens, kind="added", entry_id=item.entry_id
        )
        if original is not None:
            return (
                attrs.evolve(changed, kind="changed", original=original)
                if self._messages.all[original].message.role == item.message.role
                else changed
            )
        entry = self._path[self._places[item.entry_id]]
        return (
            attrs.evolve(
                changed, kind="summary", time=entry.time or None, covers=self._covered(entry)
            )
            if item.kind == "summary"
            else attrs.evolve(changed, kind="summary")
            if item.kind == "branch_summary"
            else changed
        )

    def _covered(self, entry: Entry) -> tuple[int, int]:
        """Return the numbers of the messages that a checkpoint stands for: those since the last reset, before those that it keeps."""
        place = self._places[entry.id]
        first_kept = entry.payload.first_kept if isinstance(entry.payload, Checkpoint) else None
        end = self._places.get(first_kept, place) if first_kept is not None else place
        resets = (at for at in range(end - 1, -1, -1) if isinstance(self._path[at].payload, Reset))
        return self._said_before[next(resets, 0)], self._said_before[end]
