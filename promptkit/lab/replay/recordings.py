"""Read recorded conversations for a replay: a recording for each branch of a transcript, with times and tool definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from promptkit.lab.recordings import read_recording
from promptkit.lab.recordings.reading.values import as_object, as_text
from promptkit.lab.replay.prompt_cache import (
    MessageCount,
    MessageCounts,
    PromptCache,
    cache_rule_for,
    count_overhead,
)
from promptkit.messages import Json, Message, OpaquePart, Part, ToolDefinition
from promptkit.pairing import pair_tool_calls
from promptkit.reprs import describe_fields
from promptkit.tokens import BilledTokens, Price, PriceError, Prices, tokenizer_for
from promptkit.tokens.models import describe_model
from promptkit.transcript import (
    Checkpoint,
    CustomEntry,
    Entry,
    EntryPayload,
    MessageEntry,
    Observation,
    Setting,
    ViewItem,
)
from promptkit.transcript.log.statistics import read_bill, read_usage
from promptkit.transcript.log.view import ViewBuilder

TOOLS = "tools"


@attrs.frozen(kw_only=True)
class Recording:
    """One conversation, from its first message to its last.

    Each assistant message is the reply to a request of the replay.
    """

    system: tuple[Message, ...] = ()
    """The system messages at the beginning of the conversation. Every request starts with them."""
    messages: tuple[Message, ...] = ()
    """The messages after them. Each tool call is followed by its result, and each result has a
    call."""
    times: tuple[float | None, ...] = ()
    """For each message the time at which it was written, in seconds since 1970; None if it was not
    recorded."""
    reported: tuple[int, ...] = ()
    """For each message the output tokens that its provider reported, if it has thinking whose text
    was not recorded; else 0."""
    entry_ids: tuple[str, ...] = ()
    """For each message the id of its entry. Empty: it was not read from entries."""
    path: tuple[Entry, ...] = ()
    """The entries of the branch, from which it is known what was sent and billed."""
    tools: tuple[ToolDefinition, ...] = ()
    """The recorded tool definitions. Their tokens count in every request."""
    conversation: int = 0
    """The number of the conversation in its file. The branches of a conversation have the same
    number."""
    shared: int = 0
    """The number of leading messages that an earlier branch of the conversation has, too. A replay
    plays them, and counts nothing for them."""

    __repr__ = describe_fields


def read_recordings(file: Path | str, *, address: str | None = None) -> Iterator[Recording]:
    """Read the conversations of a file in any format that promptkit can import, or of a transcript by its URL.

    `address` is how errors name the file, if it is a copy of another one.

    Raises:
        TranscriptError: The file cannot be read.
    """
    return recordings_from_entries(
        entry for _, batch in read_recording(file, address=address) for entry in batch.entries
    )


def recordings_from_entries(entries: Iterable[Entry]) -> Iterator[Recording]:
    """Yield a recording for each branch of a transcript, in the order in which the branches ended.

    A branch that is only the beginning of another one is not yielded. Messages that were compacted,
    edited or reset in the recording are part of it, as they were said. An entry's time of 0 counts
    as unknown. What an earlier branch has, too, is the `shared` part of a branch.
    """
    # What a replay does not need is not kept in memory.
    dropped = CustomEntry(name="", data=None)
    tree = Branches(
        attrs.evolve(entry, payload=dropped)
        if isinstance(entry.payload, CustomEntry | Observation)
        else entry
        for entry in entries
    )
    yielded: set[str] = set()
    for leaf in tree.leaves:
        path = tree.path_to(leaf)
        said = [(each, each.message) for each in path if each.message is not None]
        yield recording_from_path(
            said,
            path=path,
            tools=tree.tools_of(leaf),
            conversation=tree.number_of(leaf),
            shared=sum(entry.id in yielded for entry, _ in said),
        )
        yielded.update(entry.id for entry, _ in said)


class Branches:
    """The branches of a transcript, in the order in which they ended.

    One that is only the beginning of another does not count.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[str, Entry] = {}
        self._roots: dict[str, str] = {}
        self._tools: dict[str, tuple[ToolDefinition, ...]] = {}
        last: dict[str, str | None] = {}
        leaves: dict[str, None] = {}
        for entry in entries:
            parent = entry.parent_id if entry.parent_id in self._entries else None
            if entry.id in self._entries:
                continue
            self._entries[entry.id] = entry
            root = self._roots[entry.id] = entry.id if parent is None else self._roots[parent]
            if tools := _tools_from_entry(entry):
                self._tools[root] = tools
            last[entry.id] = before = None if parent is None else last[parent]
            if entry.message is not None:
                last[entry.id] = entry.id
                leaves[entry.id] = None
                if before is not None:
                    leaves.pop(before, None)
        self.leaves = list(leaves)
        """The ids of their last messages."""
        self._numbers = {
            root: number
            for number, root in enumerate(dict.fromkeys(self._roots[leaf] for leaf in leaves))
        }

    def number_of(self, leaf: str) -> int:
        """Return the number of a branch's conversation, as `Recording.conversation`."""
        return self._numbers[self._roots[leaf]]

    def path_to(self, leaf: str) -> list[Entry]:
        """Return the entries from the first one to a leaf."""
        path: list[Entry] = []
        at: str | None = leaf
        while at in self._entries:
            path.append(self._entries[at])
            at = self._entries[at].parent_id
        return path[::-1]

    def tools_of(self, leaf: str) -> tuple[ToolDefinition, ...]:
        """Return the tool definitions that were recorded for a branch's conversation."""
        return self._tools.get(self._roots[leaf], ())


def recording_from_path(
    said: Sequence[tuple[Entry, Message]],
    *,
    path: Sequence[Entry],
    tools: Sequence[ToolDefinition],
    conversation: int = 0,
    shared: int = 0,
) -> Recording:
    """Build a recording from the entries of a branch that have a message, each with it.

    `path` is all entries of the branch. The other arguments are those of
    `recording_from_messages`.
    """
    return attrs.evolve(
        recording_from_messages(
            [(message, entry.time if entry.time > 0 else None) for entry, message in said],
            entries=[entry for entry, _ in said],
            tools=tools,
            conversation=conversation,
            shared=shared,
        ),
        path=tuple(path),
    )


def _read_reported_tokens(payload: EntryPayload) -> int:
    """Return the output tokens that were reported for a reply with thinking whose text is missing; 0 for any other entry.

    Such thinking is encrypted, or redacted, or there is only a digest of it. Of any other reply the
    text is counted: the figure of another model's tokenizer says nothing about the tokens of the
    model that is simulated.
    """
    usage = (
        read_usage(payload)
        if isinstance(payload, MessageEntry)
        and payload.usage is not None
        and any(map(_is_hidden_thinking, payload.message.content))
        else None
    )
    return 0 if usage is None else usage.output_tokens


def _is_hidden_thinking(part: Part) -> bool:
    value: Mapping[str, Json] = as_object(part.value) if isinstance(part, OpaquePart) else {}
    match value.get("type"):
        case "redacted_thinking" | "thought":
            # Gemini CLI records a subject and a digest of a thought
            return True
        case "thinking":
            # pi keeps OpenAI's reasoning, of which there is only a digest, in the signature
            return not value.get("thinking") or "encrypted_content" in str(
                value.get("thinkingSignature")
            )
        case "reasoning":
            return not (value.get("text") or value.get("content"))
        case _:
            return False


def _tools_from_entry(entry: Entry) -> tuple[ToolDefinition, ...]:
    """Return the tool definitions of a setting named `tools`, or with a field of that name, in OpenAI's format or Anthropic's."""
    if not isinstance(payload := entry.payload, Setting):
        return ()
    value = payload.value
    if isinstance(value, Mapping):
        value = value.get(TOOLS)
    elif payload.name.rpartition(".")[2] != TOOLS:
        return ()
    return tuple(_iter_definitions(value)) if isinstance(value, list) else ()


def _iter_definitions(tools: list[Json]) -> Iterator[ToolDefinition]:
    for tool in map(as_object, tools):
        function = as_object(tool.get("function", tool))
        parameters = function.get("parameters", function.get("input_schema"))
        if (name := as_text(function.get("name"))) is not None:
            yield ToolDefinition(
                name=name,
                description=as_text(function.get("description")),
                parameters=parameters if isinstance(parameters, Mapping) else None,
            )


def recording_from_messages(
    messages: Sequence[tuple[Message, float | None]],
    *,
    entries: Sequence[Entry] = (),
    tools: Sequence[ToolDefinition] = (),
    conversation: int = 0,
    shared: int = 0,
) -> Recording:
    """Build a recording from messages with their times. Messages without content are left out.

    Args:
        messages: The messages of a conversation with their times.
        entries: For each message its entry, which may have its provider's figures.
        tools: The tool definitions of the conversation.
        conversation: The number of the conversation in its file.
        shared: How many of the first messages an earlier recording of the conversation has, too.
    """
    kept = [
        place
        for place, (message, _) in enumerate(messages)
        if message.content or message.tool_calls or message.role == "tool"
    ]
    paired = pair_tool_calls([messages[place][0] for place in kept])
    places = [kept[source] for source in paired.sources]
    head = next(
        (at for at, message in enumerate(paired.messages) if message.role != "system"),
        len(paired.messages),
    )
    return Recording(
        system=paired.messages[:head],
        messages=paired.messages[head:],
        times=tuple(messages[place][1] for place in places[head:]),
        reported=tuple(
            _read_reported_tokens(entries[place].payload) for place in places[head:] if entries
        ),
        entry_ids=tuple(entries[place].id for place in places[head:] if entries),
        tools=tuple(tools),
        conversation=conversation,
        shared=next(
            (at for at, place in enumerate(places[head:]) if place >= shared), len(places) - head
        ),
    )


UNRECORDED = "promptkit.unrecorded"
"""The provider of a part with the tokens that every request had and the recording does not have."""

MISS_SHARE = 0.5
"""A provider's cache missed a request if it read less than this share of what it should have held."""


def make_unrecorded(tokens: int) -> Message:
    """Return a system message that stands for so many tokens of instructions and tools."""
    return Message(
        role="system",
        content=(OpaquePart(value={"type": UNRECORDED}, provider=UNRECORDED, tokens=tokens),),
    )


def is_unrecorded(message: Message) -> bool:
    """Return whether a message has the tokens that the recording does not have."""
    return any(
        isinstance(part, OpaquePart) and part.provider == UNRECORDED for part in message.content
    )


def is_shown(message: Message) -> bool:
    """Return whether a message has something that a model can be shown."""
    return bool(message.content or message.tool_calls) or message.role == "tool"


def is_reply(entry: Entry) -> bool:
    """Return whether an entry is a reply of the model."""
    message = entry.message
    return message is not None and message.role == "assistant" and is_shown(message)


class RecordedViews:
    """What the requests of a transcript showed, one after the other, and their tokens."""

    def __init__(self, path: Sequence[Entry], counts: MessageCounts) -> None:
        self._path = path
        self._counter = counts
        self._views = ViewBuilder()
        self.items: tuple[ViewItem, ...] = ()
        """The items of the last view."""
        self.counts: list[MessageCount] = []
        """Their counts."""

    def show(self, place: int) -> int:
        """Build what was shown before the entry at a place of the path. Returns the number of leading items that are those of the last view."""
        self.items = self._views.build(self._path[:place]).items
        start = self._views.kept
        self.counts[start:] = self._counter.count_messages(
            [item.message for item in self.items[start:]]
        )
        return start


@attrs.frozen(kw_only=True)
class BilledRequest:
    """One request as its provider billed it, and as the replay of it is billed."""

    entry_id: str
    """The id of its reply."""
    model: str
    billed: BilledTokens
    replayed: BilledTokens
    simulated: BilledTokens
    """As `replayed`, with the cached tokens of the simulated cache where that missed alone."""
    missed: bool = False
    """Whether the provider's cache missed it although the prefix was sent within the lifetime."""
    repeated: bool = False
    """Whether its prefix was sent within the lifetime of the cache."""


@attrs.frozen(kw_only=True)
class RecordedBill:
    """What providers billed for recorded requests, and what the replay of what was done says."""

    requests: tuple[BilledRequest, ...] = ()
    summaries: tuple[tuple[str, BilledTokens], ...] = ()
    """The models of summaries whose requests were billed, and the tokens. The replay has the same."""
    fixed_tokens: int = 0
    """Tokens of each request that the recording does not have, on average, as the models of the
    recording count."""

    @property
    def misses(self) -> frozenset[str]:
        """The ids of the replies to requests that the provider's cache missed."""
        return frozenset(each.entry_id for each in self.requests if each.missed)

    @property
    def main_model(self) -> str:
        """The model that answered most of the requests."""
        return Counter(each.model for each in self.requests).most_common(1)[0][0]

    def add_up(self, prices: Prices, *, model: str, price: Price) -> BillTotals | None:
        """Add up all requests, each at the prices of its model; None if a model has no price.

        Args:
            prices: The prices of the recorded models.
            model: The model that is simulated, for `BillTotals.model_price`.
            price: Its prices.
        """
        try:
            by_model = {
                name: prices.for_model(name)
                for name in {each.model for each in self.requests}.union(dict(self.summaries))
            }
        except PriceError:
            return None
        requests = self.requests
        summaries = sum((tokens for _, tokens in self.summaries), BilledTokens())
        summaries_price = sum(by_model[name].cost(tokens) for name, tokens in self.summaries)
        replayed = sum((each.replayed for each in requests), summaries)
        replayed_price = sum(by_model[each.model].cost(each.replayed) for each in requests)
        return BillTotals(
            requests=len(requests),
            billed=sum((each.billed for each in requests), summaries),
            replayed=replayed,
            billed_price=summaries_price
            + sum(by_model[each.model].cost(each.billed) for each in requests),
            replayed_price=summaries_price + replayed_price,
            model_price=describe_model(model).mean
            / describe_model(self.main_model).mean
            * price.cost(replayed),
            misses=len(self.misses),
            repeated=sum(each.repeated for each in requests),
            own_misses=sum(each.simulated != each.replayed for each in requests),
            own_misses_price=sum(by_model[each.model].cost(each.simulated) for each in requests)
            - replayed_price,
            fixed_tokens=self.fixed_tokens * len(requests),
        )


@attrs.frozen(kw_only=True)
class BillTotals:
    """The sums of what providers billed and of what the replay of it says. Prices are US dollars."""

    requests: int = 0
    """Recorded requests with a bill."""
    billed: BilledTokens = attrs.field(factory=BilledTokens)
    """What was billed."""
    replayed: BilledTokens = attrs.field(factory=BilledTokens)
    """What the replay of what was done is billed."""
    billed_price: float = 0.0
    replayed_price: float = 0.0
    model_price: float = 0.0
    """The replay of what was done with the tokens and at the prices of the simulated model."""
    repeated: int = 0
    """Requests whose prefix had been sent within the lifetime of the provider's cache."""
    misses: int = 0
    """Of these, requests that the provider's cache missed."""
    own_misses: int = 0
    """Requests that the simulated cache alone missed. `replayed` has the provider's figures of them."""
    own_misses_price: float = 0.0
    """What these would cost more."""
    fixed_tokens: int = 0
    """Tokens of all requests that the recordings do not have."""

    def __add__(self, other: BillTotals) -> BillTotals:
        return BillTotals(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in attrs.fields(BillTotals)
            }
        )

    def describe(self) -> str:
        """Return sentences: what was billed, and what the replay of what was done says."""
        billed, replayed, requests = self.billed, self.replayed, max(1, self.requests)
        missed = f"{self.misses / self.repeated:.1%}" if self.repeated else "none"
        more = (
            f" The simulated cache alone would miss {self.own_misses:,} more, for ${self.own_misses_price:,.2f}."
            if self.own_misses
            else ""
        )
        return (
            f"The provider billed ${self.billed_price:,.2f} for {self.requests:,} requests of {billed.input_tokens:,} input and "
            f"{billed.output_tokens:,} output tokens; this replay of what was done says ${self.replayed_price:,.2f} for "
            f"{replayed.input_tokens:,} and {replayed.output_tokens:,}. From the bill it has {round(self.fixed_tokens / requests):,} tokens of each "
            f"request that are not in the recording, and {self.misses:,} cache misses ({missed} of the requests soon after another).{more}"
        )

    def to_json(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return {
            "requests": self.requests,
            "input_tokens": self.billed.input_tokens,
            "output_tokens": self.billed.output_tokens,
            "price": round(self.billed_price, 6),
            "replayed_input_tokens": self.replayed.input_tokens,
            "replayed_output_tokens": self.replayed.output_tokens,
            "replayed_price": round(self.replayed_price, 6),
            "replayed_model_price": round(self.model_price, 6),
            "fixed_tokens": round(self.fixed_tokens / max(1, self.requests)),
            "repeated": self.repeated,
            "misses": self.misses,
            "own_misses": self.own_misses,
            "own_misses_price": round(self.own_misses_price, 6),
        }


def measure_bill(
    path: Sequence[Entry], *, tools: Sequence[ToolDefinition], skipped: Iterable[str] = ()
) -> RecordedBill | None:
    """Compare what a provider billed for the requests of a branch with a replay of them.

    Tokens are counted by the mean of the model's family, and the cache is simulated by its
    provider's rules. Where the provider's cache missed or hit otherwise, its own figure is taken.

    Args:
        path: The entries of the branch, the first one first.
        tools: The recorded tool definitions.
        skipped: The ids of entries whose requests belong to another branch.

    Returns:
        None if no request has a bill.
    """
    bills = {
        entry.id: bill
        for entry in path
        if is_reply(entry) and (bill := read_bill(entry.payload)) is not None
    }
    skip = frozenset(skipped)
    if not bills.keys() - skip:
        return None
    models = {
        entry.id: (isinstance(entry.payload, MessageEntry) and entry.payload.model) or ""
        for entry in path
        if entry.id in bills
    }
    model = Counter(models.values()).most_common(1)[0][0]
    counter = MessageCounts(tokenizer_for(model, mean=True))
    overhead = count_overhead(
        counter.tokenizer, tools, (each.message for each in path if each.message)
    )
    # The requests are built twice, because together they are as large as the square of the path.
    unrecorded = [
        bills[id_].input_tokens - overhead - sum(each.tokens for each in counts)
        for id_, _, counts in _iter_sent(path, counter)
        if id_ in bills
    ]
    fixed = max(0, round(sum(unrecorded) / max(1, len(unrecorded))))
    caches = _Caches(model, bills.values())
    requests: list[BilledRequest] = []
    head = counter.count_messages([make_unrecorded(fixed)]) if fixed else []
    for id_, now, counts in _iter_sent(path, counter):
        start = next((at for at, each in enumerate(counts) if each.role != "system"), len(counts))
        request = caches.send(
            overhead, [*counts[:start], *head, *counts[start:]], now, bills.get(id_)
        )
        if request is not None and id_ not in skip:
            requests.append(attrs.evolve(request, entry_id=id_, model=models[id_]))
    if not requests:
        return None
    return RecordedBill(
        requests=tuple(requests),
        summaries=tuple(
            (entry.payload.model or model, bill)
            for entry in path
            if isinstance(entry.payload, Checkpoint)
            and entry.id not in skip
            and (bill := read_bill(entry.payload)) is not None
        ),
        fixed_tokens=fixed,
    )


def _iter_sent(
    path: Sequence[Entry], counter: MessageCounts
) -> Iterator[tuple[str, float, list[MessageCount]]]:
    """Yield the id of each reply, the time of its request, and the messages of the request."""
    views = RecordedViews(path, counter)
    now, before = 0.0, 0
    for at, entry in enumerate(path):
        if before and is_reply(entry):
            views.show(at)
            yield entry.id, now, views.counts
        if entry.message is not None and is_shown(entry.message):
            now, before = max(now, entry.time), before + 1


class _Caches:
    """The simulated cache of a provider, and one that forgets nothing: what the provider's should hold at most."""

    def __init__(self, model: str, bills: Iterable[BilledTokens]) -> None:
        self._rule = cache_rule_for(model)
        if self._rule == "anthropic" and any(bill.written_1h_tokens for bill in bills):
            self._rule = "anthropic-1h"
        minimum = describe_model(model).cache_minimum
        self._cache = PromptCache(self._rule, minimum=minimum)
        self._eternal = PromptCache(self._rule, float("inf"), minimum=minimum)

    def send(
        self, overhead: int, shown: Sequence[MessageCount], now: float, bill: BilledTokens | None
    ) -> BilledRequest | None:
        """Send a request. Returns what it is billed; None if its provider's bill is not known."""
        simulated = self._cache.send(overhead, shown, now)
        held = self._eternal.send(overhead, shown, now).cached_tokens
        if bill is None:
            return None
        simulated = attrs.evolve(simulated, output_tokens=bill.output_tokens)
        hit = bill.cached_tokens > MISS_SHARE * held
        repeated = simulated.cached_tokens > MISS_SHARE * held
        replayed = simulated
        if not (hit and repeated):
            cached = min(bill.cached_tokens, simulated.input_tokens)
            written = min(
                simulated.input_tokens - cached, simulated.cached_tokens + simulated.written_tokens
            )
            replayed = attrs.evolve(
                simulated,
                cached_tokens=cached,
                written_tokens=written,
                written_1h_tokens=written if self._rule == "anthropic-1h" else 0,
            )
        return BilledRequest(
            entry_id="",
            model="",
            billed=bill,
            replayed=replayed,
            simulated=simulated if hit and not repeated else replayed,
            missed=repeated and not hit,
            repeated=repeated,
        )
