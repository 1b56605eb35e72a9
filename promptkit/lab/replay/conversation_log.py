"""Read a recording and log its requests: those that were sent, or those of replays under policies."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptError
from promptkit.lab.recordings import read_recording
from promptkit.lab.replay.message_counts import MessageCount, MessageCounts
from promptkit.lab.replay.policies.registry import find_policy
from promptkit.lab.replay.prompt_cache import PromptCache, cache_rule_for, is_claude
from promptkit.lab.replay.recorded import (
    RecordedViews,
    is_reply,
    is_shown,
    measure_bill,
)
from promptkit.lab.replay.recordings import Branches, recording_from_path
from promptkit.lab.replay.request_log import (
    ConversationLog,
    CountedMessageFinder,
    LoggedMessage,
    LogMessages,
    RequestLog,
    RequestLogger,
)
from promptkit.lab.replay.runner import hash_recording
from promptkit.lab.replay.simulate import ReplayRules, SentRequest, Simulation
from promptkit.pairing import pair_tool_calls
from promptkit.tokens import BilledTokens, ContextBudget, Price, PriceError, Prices, tokenizer_for
from promptkit.tokens.models import cache_minimum
from promptkit.transcript import Checkpoint, Entry, MessageEntry, Reset, ViewItem
from promptkit.transcript.log.entries import RequestBudget
from promptkit.transcript.log.usage import read_bill

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit.messages import Message, ToolDefinition

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
    log = log_path(
        tree.path_to(leaf),
        options,
        tools=tree.tools_of(leaf),
        seed=f"{hash_recording(file)}:{tree.number_of(leaf)}",
    )
    return attrs.evolve(log, branch=branch, branches=len(tree.leaves))


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
    model = options.model or _find_model(path, options.prices)
    return _Logger(path, model, options, tools, seed).log()


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


def _describe_miss(entry: Entry) -> str | None:
    payload = entry.payload
    missed = payload.cache_miss if isinstance(payload, MessageEntry) else None
    return None if missed is None else missed.describe()


def find_budget(path: Sequence[Entry]) -> RequestBudget:
    """Return the budget that the last requests of a transcript had, as far as it was recorded."""
    budgets = (
        entry.payload.budget
        for entry in reversed(path)
        if isinstance(entry.payload, MessageEntry) and entry.payload.budget
    )
    return next(budgets, RequestBudget())


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
        self._tokenizer = tokenizer_for(model, mean=True)
        self._counts = MessageCounts(self._tokenizer, shows_thinking=is_claude(model))
        self._price = _find_price(options.prices, model)
        self._cache_rule = cache_rule_for(model)
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
                    missed=_describe_miss(entry),
                )
                for (entry, message), count in zip(self._said, counted, strict=True)
            ]
        )
        recorded = RequestBudget(window=options.window) if options.window else find_budget(path)
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

    def _count_overhead(self, system: Sequence[Message]) -> int:
        text = system[0].text if system else False
        return self._tokenizer.count_overhead(self._tools, system=text).tokens

    def _price_of(self, model: str | None) -> Price | None:
        """Return the prices of a recorded model; those of the log if it has none, or if a model was chosen."""
        own = None if self._options.model or model is None else model
        return (own and _find_price(self._options.prices, own)) or self._price

    def _log_replay(self, name: str) -> RequestLog:
        """Log what a policy would have sent."""
        policy = find_policy(name)
        recording = recording_from_path(self._said, path=self._path, tools=self._tools)
        places = pair_tool_calls([message for _, message in self._said]).sources
        window = self._budget.window
        rules = ReplayRules(
            model=self._model,
            window=UNLIMITED if window is None else window,
            cache=self._cache_rule,
            max_tokens=self._most_tokens,
            fixed_tokens=None,
            cache_misses=None,
        )
        overhead = self._count_overhead(recording.system)
        logger = RequestLogger(
            self._messages, request_tokens=overhead, has_tools=bool(self._tools), price=self._price
        )
        finder = CountedMessageFinder(self._messages, self._numbers)

        def on_request(request: SentRequest) -> None:
            reply = places[len(recording.system) + request.reply]
            shown = finder.find(request.messages, reply, checkpoint=request.checkpoint)
            logger.add(shown, attrs.evolve(request, reply=reply), simulated=True)

        result = Simulation(recording, rules, counts=self._counts).run(
            policy, seed=self._seed, on_request=on_request
        )
        return logger.finish(name, result.totals.summaries_billed)

    def _log_recorded(self) -> RequestLog:
        """Log what was sent when the conversation was recorded: the view of the transcript at each reply."""
        system = [message for _, message in self._said if message.role == "system"]
        overhead = self._count_overhead(system)
        logger = RequestLogger(
            self._messages, request_tokens=overhead, has_tools=bool(self._tools), price=self._price
        )
        recorded = _RecordedRequests(self._messages, self._counts, self._path)
        cache = PromptCache(self._cache_rule, minimum=cache_minimum(self._model))
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
                request = SentRequest(
                    reply=reply,
                    billed=billed if bill is None else bill,
                    checkpoint=checkpoint,
                )
                model, usage = (
                    (payload.model, payload.usage)
                    if isinstance(payload, MessageEntry)
                    else (None, None)
                )
                failed = is_billed and bill is None and usage is not None
                price = FREE if failed else self._price_of(model)
                logger.add(shown, request, simulated=bill is None, price=price)
                checkpoint = False
        return logger.finish(RECORDED, BilledTokens())


FREE = Price(input=0.0, output=0.0)
"""The prices of a request that its provider did not bill."""

UNLIMITED = 100_000_000
"""Tokens of the window of a replay with a model whose window is not known."""


class _RecordedRequests:
    """What the requests of a transcript showed, one after the other."""

    def __init__(self, messages: LogMessages, counts: MessageCounts, path: Sequence[Entry]) -> None:
        self._messages = messages
        self._path = path
        self._views = RecordedViews(path, counts)
        self._by_entry = {message.entry_id: number for number, message in enumerate(messages.all)}
        self._places = {entry.id: at for at, entry in enumerate(path)}
        self._said_before = _count_before(path)
        self._others: dict[tuple[str, int], int] = {}
        self._shown: list[int] = []

    def at(self, place: int) -> tuple[list[int], list[MessageCount]]:
        """Return the numbers and the counts of the messages that were shown before the entry at a place of the path."""
        views = self._views
        start = views.show(place)
        new = zip(views.items[start:], views.counts[start:], strict=True)
        self._shown[start:] = [self._find(item, count) for item, count in new]
        return self._shown, views.counts

    def _find(self, item: ViewItem, count: MessageCount) -> int:
        original = self._by_entry.get(item.entry_id)
        if original is not None and self._messages.all[original].message == item.message:
            return original
        key = item.entry_id, count.number
        number = self._others.get(key)
        if number is None:
            number = self._others[key] = self._messages.add(self._describe(item, count, original))
        return number

    def _describe(self, item: ViewItem, count: MessageCount, original: int | None) -> LoggedMessage:
        changed = LoggedMessage(
            message=item.message, tokens=count.tokens, kind="added", entry_id=item.entry_id
        )
        if original is not None:
            same_role = self._messages.all[original].message.role == item.message.role
            return (
                attrs.evolve(changed, kind="changed", original=original) if same_role else changed
            )
        entry = self._path[self._places[item.entry_id]]
        if item.kind == "summary":
            return attrs.evolve(
                changed, kind="summary", time=entry.time or None, covers=self._covered(entry)
            )
        return attrs.evolve(changed, kind="summary") if item.kind == "branch_summary" else changed

    def _covered(self, entry: Entry) -> tuple[int, int]:
        """Return the numbers of the messages that a checkpoint stands for: those since the last reset, before those that it keeps."""
        place = self._places[entry.id]
        first_kept = entry.payload.first_kept if isinstance(entry.payload, Checkpoint) else None
        end = self._places.get(first_kept, place) if first_kept is not None else place
        resets = (at for at in range(end - 1, -1, -1) if isinstance(self._path[at].payload, Reset))
        return self._said_before[next(resets, 0)], self._said_before[end]


def _count_before(path: Sequence[Entry]) -> list[int]:
    """Return for each entry the number of messages before it."""
    counts = [0]
    for entry in path:
        counts.append(counts[-1] + (entry.message is not None and is_shown(entry.message)))
    return counts
