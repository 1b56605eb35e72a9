"""`fit`: the messages of a conversation that fit a token budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, Literal, TypeVar, cast, get_args

import attrs

from promptkit.errors import BudgetExceededError, InvalidArgumentError
from promptkit.fitting.choose import fit_history
from promptkit.messages import (
    CacheBreakpointPart,
    Json,
    Message,
    OpaquePart,
    Repair,
    as_wire_object,
)
from promptkit.pairing import pair_tool_calls
from promptkit.reprs import describe_fields
from promptkit.tokens import ContextBudget, Count, NamedModel, Tokenizer, tokenizer_for
from promptkit.tokens.budget import resolve_render_budget
from promptkit.tokens.models import model_name
from promptkit.tokens.tokenizer import count_message, is_exact
from promptkit.tools import AnyTool, tool_definitions
from promptkit.wire import (
    messages_from_anthropic,
    messages_from_chat,
    messages_from_responses,
    to_anthropic,
    to_chat,
    to_responses,
)
from promptkit.wire.parts import WireFormat, WireMessage, find_format

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Fitted(Generic[T]):
    """Messages that fit a budget, and the indices of the messages that were kept, changed and removed."""

    messages: tuple[T, ...]
    """The messages that fit, in order and in the format that was given. A message that did not
    change is the object that was given."""
    tokens: int
    """The size of the request in tokens: messages, framing and tool definitions."""
    exact: bool
    """True if `tokens` is the number that the provider bills: without a model, that of gpt-4o. False if
    it is an estimate."""
    budget: int
    """The most tokens that the request may have."""
    kept: tuple[int, ...]
    """The indices of the given messages that stay as they are."""
    changed: tuple[int, ...]
    """The indices of the given messages that are shortened, or repaired (see `repairs`)."""
    removed: tuple[int, ...]
    """The indices of the given messages that are removed."""
    repairs: tuple[Repair, ...] = ()
    """The repairs that gave each tool call exactly one result. See `pair_tool_calls`."""

    __repr__ = describe_fields

    def explain(self) -> str:
        """Describe the result as text for a terminal: tokens, budget, and the indices of kept, changed and removed messages."""
        share = f" ({self.tokens / self.budget:.0%})" if self.budget else ""
        named = {"kept": self.kept, "changed": self.changed, "removed": self.removed}
        return "\n".join(
            [
                f"{self.tokens:,} of {self.budget:,} tokens{share}{'' if self.exact else ', estimated'} in {_count(len(self.messages))}",
                *(
                    f"{name} {_count(len(indices))}: {format_ranges(indices)}"
                    for name, indices in named.items()
                    if indices
                ),
                *(f"repaired: {repair.kind}: {repair.detail}" for repair in self.repairs),
            ]
        )


def fit(  # noqa: PLR0913  # keywords
    messages: Iterable[T],
    *,
    budget: int | str | ContextBudget | None = None,
    model: str | NamedModel | None = None,
    tools: Sequence[AnyTool] = (),
    tokenizer: Tokenizer | None = None,
    keep: Literal["newest", "oldest"] = "newest",
    shorten: bool = True,
    system: str | None = None,
    format: WireFormat | None = None,  # noqa: A002  # what it is, for callers
    convert: Callable[[T], Message | WireMessage] | None = None,
    # Any: a Message or a dict, as `convert` returns it
    rebuild: Callable[[T, Any], T] | None = None,
) -> Fitted[T]:
    """Make messages fit a budget: long tool results and messages are shortened, then the oldest rounds are removed.

    System messages stay as they are. The last user message and the newest round always stay; they
    are shortened if they must be, the user message last. Tool calls and their results stay
    together. User and assistant messages without content are removed. Messages that did not change
    are the objects that were given.

    Args:
        messages: The messages of a request, oldest first: `Message` values, dicts or SDK objects of
            one provider, or with `convert` the messages of a framework.
        budget: The most tokens that the request may have: a number, a text such as `"8k"`, or a
            ContextBudget. Default: the model's context window less the tokens reserved for the
            reply; 128,000 tokens without a model.
        model: The model's name, or a model object. It decides the tokenizer and the default budget.
        tools: The tools of the request. Their definitions count against the budget.
        tokenizer: Counts the tokens. Default: the tokenizer of the model.
        keep: Which of the older rounds stay longest.
        shorten: Whether messages may be shortened. Otherwise rounds are kept whole, or removed.
        system: The system prompt, where the request has it beside the messages (Anthropic's
            `system`, the Responses API's `instructions`). It counts against the budget, and is not
            among the messages that are returned.
        format: The format of dicts and SDK objects. By default it is told from their content;
            messages of plain text are the same in all three.
        convert: Converts a message of a framework to a `Message`, or to a dict of a provider.
        rebuild: Makes a shortened message of the framework from the message that was given and its
            shortened form, as `convert` returns it. Without it the shortened forms stand among the
            framework's own messages.

    Returns:
        The messages, with what was kept, changed and removed.

    Raises:
        BudgetExceededError: The messages that always stay do not fit.
        InvalidArgumentError: An argument has a value that it cannot have, or a message is of no
            known form.
        TypeError: A message is neither a Message, nor a dict or SDK object.

    >>> fitted = fit(messages, budget="8k", model="gpt-5")
    """
    if keep not in ("newest", "oldest"):
        raise InvalidArgumentError(f'keep is {keep!r}: write "newest" or "oldest".')
    definitions = tool_definitions(tools)
    counter = tokenizer or tokenizer_for(None if model is None else model_name(model))
    limit = resolve_render_budget(budget, model=model, tokenizer=counter, tools=definitions).tokens
    given = messages if isinstance(messages, Sequence) else tuple(messages)
    read, emit = _read(
        given if convert is None else [convert(message) for message in given], format
    )
    read = [
        _Group(group.indices, [message for message in group.messages if not _is_blank(message)])
        for group in read
    ]
    instructions = [] if system is None else [Message(role="system", content=(system,))]
    flat = [*instructions, *(message for group in read for message in group.messages)]
    owners = [-1] * len(instructions) + [
        at for at, group in enumerate(read) for _ in group.messages
    ]
    # No system prompt has anything to repair.
    paired = pair_tool_calls(flat, describe_turn=lambda at: f"turns[{read[owners[at]].indices[0]}]")
    first = next((message.text for message in paired.messages if message.role == "system"), False)
    overhead, exact = (
        counter.count_overhead(definitions, system=first) if flat or definitions else Count(0)
    )
    fitted = fit_history(
        paired.messages,
        limit,
        tokenizer=counter,
        overhead=overhead,
        keep=keep,
        shorten="any" if shorten else "none",
    )
    if fitted.tokens + overhead > limit:
        sizes: Counter[str] = Counter()
        for at, message in zip(fitted.sources, fitted.messages, strict=True):
            owner = owners[paired.sources[at]]
            sizes["system" if owner < 0 else read[owner].label] += count_message(message, counter)
        raise BudgetExceededError(
            budget=limit,
            required=fitted.tokens + overhead,
            largest=dict(sizes.most_common(3)),
            messages=paired.messages,
            metadata=(),
            removed=(),
            advice="Raise the budget, or shorten these yourself."
            if shorten
            else "Raise the budget, or allow shorten=True.",
        )
    shown: list[T] = []
    kept: set[int] = set()
    changed: set[int] = set()
    parts = zip(fitted.sources, fitted.messages, strict=True)
    for owner, run in groupby(parts, key=lambda part: owners[paired.sources[part[0]]]):
        if owner < 0:
            continue  # the instructions
        group, left = read[owner], [message for _, message in run]
        whole = len(group.messages)
        if len(left) >= whole and all(
            one is other for one, other in zip(left, group.messages, strict=False)
        ):
            kept |= set(group.indices)
            shown += [given[at] for at in group.indices]
            left = left[whole:]  # results that were missing
        else:
            changed |= set(group.indices)
        written = cast("list[T]", emit(left))  # in the format that was given
        if (
            rebuild is not None
            and written
            and len(group.indices) == 1
            and group.indices[0] in changed
        ):
            written[0] = rebuild(given[group.indices[0]], written[0])
        shown += written
    return Fitted(
        messages=tuple(shown),
        tokens=fitted.tokens + overhead,
        exact=exact and all(is_exact(message, counter) for message in fitted.messages),
        budget=limit,
        kept=tuple(sorted(kept)),
        changed=tuple(sorted(changed - kept)),
        removed=tuple(at for at in range(len(given)) if at not in kept and at not in changed),
        repairs=paired.repairs,
    )


@attrs.frozen
class _Group:
    """Given messages that are read together, and what they are as messages."""

    indices: Sequence[int]
    messages: Sequence[Message]

    @property
    def label(self) -> str:
        """The given messages as an error names them."""
        first, last = self.indices[0], self.indices[-1]
        return f"messages[{first}]" if first == last else f"messages[{first}:{last + 1}]"


def _is_blank(message: Message) -> bool:
    """Return whether a message says nothing, so that a request need not have it.

    Instructions and tool results always stay.
    """
    return (
        message.role in ("user", "assistant")
        and not message.tool_calls
        and not message.text.strip()
        and all(
            isinstance(part, str | CacheBreakpointPart)
            # the border between two texts
            or (isinstance(part, OpaquePart) and (part.provider or "").endswith(".part"))
            for part in message.content
        )
    )


def _read(
    messages: Sequence[object], form: WireFormat | None
) -> tuple[list[_Group], Callable[[Sequence[Message]], Sequence[object]]]:
    """Read given messages, and return how to write messages in their format."""
    if form is not None and form not in get_args(WireFormat):
        raise InvalidArgumentError(f'format is {form!r}: write "chat", "responses" or "anthropic".')
    if all(isinstance(message, Message) for message in messages):
        own = cast("Sequence[Message]", messages)  # all of them are
        return [_Group([at], [message]) for at, message in enumerate(own)], lambda left: left
    records = [_read_record(at, message) for at, message in enumerate(messages)]
    form = form or _find_format(records)
    if form == "chat":
        return [
            _Group([at], messages_from_chat([record])) for at, record in enumerate(records)
        ], to_chat
    if form == "anthropic":
        return [
            _Group([at], messages_from_anthropic([record])) for at, record in enumerate(records)
        ], lambda left: to_anthropic(left)["messages"] if left else []
    runs = [
        list(run)
        for _, run in groupby(
            range(len(records)), key=lambda at: at if _is_input(records[at]) else -1
        )
    ]
    return [
        _Group(run, messages_from_responses([records[at] for at in run])) for run in runs
    ], to_responses


def _find_format(records: Sequence[Mapping[str, Json]]) -> WireFormat:
    """Return the format of the first message that only one format has.

    Plain messages are Chat Completions'.
    """
    for record in records:
        if (form := find_format(record)) is not None:
            return form
    return "chat"


def _read_record(index: int, message: object) -> Mapping[str, Json]:
    record = as_wire_object(message)
    if record is None:
        raise TypeError(
            f"messages[{index}] must be a Message, or like all others a dict or an SDK object, not {message!r:.80}."
        )
    return record


def _is_input(item: Mapping[str, Json]) -> bool:
    """Return whether an item of the Responses API is not the model's, so that it is read on its own."""
    return item.get("role") in ("user", "system", "developer") or str(
        item.get("type", "")
    ).endswith("_output")


def _count(messages: int) -> str:
    return f"{messages:,} message{'' if messages == 1 else 's'}"


def format_ranges(indices: Sequence[int]) -> str:
    """Format sorted indices as ranges: `0, 3-7`."""
    # neighbours are equally far from their places
    runs = groupby(enumerate(indices), key=lambda placed: placed[1] - placed[0])
    ranges = [[at for _, at in run] for _, run in runs]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges)
