"""What the four kinds of snapshots contain: the prompt as Markdown, its receipt as text, the messages as JSON, and a whole request as Markdown; and the placeholders for what differs from run to run and from machine to machine: ids, dates, folders.

In a request, whichever API it is for, nothing of its JSON is left out. Values are shown in the order
in which they are sent. Each item of a list of objects, such as a message, a part or a tool, has a
heading of its own, and each text of several lines a fence, so that a difference names the item that
changed.

Strings get their placeholders one by one, before they are shortened or laid out, so that no half of
an id is left over. The tokenizer counts the placeholders too. Otherwise a prompt with a new uuid in
each run would have other figures in each run, and would lose other elements at the edge of a budget.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeGuard

import attrs

from promptkit import (
    BudgetExceededError,
    Child,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    PromptElement,
    Rendered,
    ToolCall,
    ToolDefinition,
    render,
)
from promptkit.messages import Json, Role, as_mapping, as_sequence, copy_json
from promptkit.providers.model import PURPOSE_HEADER
from promptkit.rendering.renderer import Defaults
from promptkit.rendering.tree import format_priority
from promptkit.testing.server.journal import Exchange
from promptkit.testing.snapshots.markdown import (
    describe_base64,
    escape_json,
    fence_json,
    fence_text,
    fold_lines,
    format_headline,
    format_listing,
    format_markdown,
    format_section,
    format_title,
    list_content,
    map_tool_names,
    quote_inline,
)
from promptkit.tokens import Count, Tokenizer, tokenizer_for
from promptkit.transcript import Redactor, redact_json, redact_secrets
from promptkit.wire import to_anthropic, to_chat, to_responses
from promptkit.wire.parts import WireFormat, parse_data_url


def format_prompt(levels: Sequence[BudgetLevel]) -> str:
    """Format a prompt as Markdown, with a line break at the end.

    All messages of the largest budget are listed. Each smaller one is compared with the budget above
    it: how many messages stay, which are gone, and what is new or changed. So a new wording appears
    once in a diff, and a new loss at the budget where it happens. What is left out of long texts has
    a hash, so that every change of a prompt changes the document.

    Args:
        levels: The prompt at each budget, largest first.
    """
    if not levels[0].label:
        return f"{format_markdown(levels[0].messages)}\n"
    sections: list[str] = []
    above: BudgetLevel | None = None
    for level in levels:
        sections.append(f"# {level.label}\n\n{_format_level(level, above)}")
        above = level if level.rendered else above
    return "{}\n".format("\n\n".join(sections))


def format_receipt(levels: Sequence[BudgetLevel], stabilizer: Stabilizer) -> str:
    """Format the receipts of a prompt: what it cost and what was removed, with promptkit's version in the first line.

    Columns have fixed widths and lines no numbers, so that one more removal is one more line in a
    diff.

    Args:
        levels: The prompt at each budget, largest first.
        stabilizer: Replaces what varies in paths and repairs.
    """
    sections = [f"promptkit {version('promptkit')}"]
    for level in levels:
        lines = _list_receipt_lines(level.rendered, stabilizer) if level.rendered else [level.error]
        sections.append(
            "\n".join(
                [
                    *([f"== {level.label} =="] if level.label else []),
                    *(escape_json(re.sub("[\n\t]", " ", line)).rstrip(" ") for line in lines),
                ]
            )
        )
    return "{}\n".format("\n\n".join(sections))


def build_wire_json(levels: Sequence[BudgetLevel], wire_format: WireFormat) -> object:
    """Build the messages as they are sent, with keys in the order in which they are sent.

    Long base64 data is replaced by its size and a hash.

    Args:
        levels: The prompt at each budget, largest first. Several budgets become an object from
            label to messages; a budget that is too small becomes an object with the `error`.
        wire_format: `chat`, `responses` or `anthropic`.

    Raises:
        EmitError: A part of a message has no form in the format.
    """
    return (
        OrderedDict(
            (
                level.label,
                _build_payload(level.messages, wire_format)
                if level.rendered
                else {"error": level.error},
            )
            for level in levels
        )
        if levels[0].label
        else _build_payload(levels[0].messages, wire_format)
    )


# The prompt: what a smaller budget loses.

MAX_RUN = 2
"""A longer run of removed messages is shown by its first one, and one of removed lines by its place:
the larger budget shows them."""


@attrs.frozen
class _ShownMessage:
    """A message of one level.

    `text` is all that a reader sees of it, `paths` are the elements that wrote it.
    """

    title: str
    text: str
    message: Message
    paths: frozenset[str]


def _format_level(level: BudgetLevel, above: BudgetLevel | None) -> str:
    rendered = level.rendered
    if rendered is None:
        return f"> {escape_json(' '.join(level.error.split()))}"
    reserved = f", {rendered.reserved:,} reserved" if rendered.reserved else ""
    usage = f"{rendered.tokens:,} of {level.budget:,} tokens{reserved}; {_format_count(len(level.messages))}."
    if above is None:
        return f"{usage}\n\n{format_listing(level.messages)}"
    larger, smaller = _list_shown_messages(above), _list_shown_messages(level)
    if [shown.text for shown in larger] == [shown.text for shown in smaller]:
        return f"{usage} The same as at {above.label}."
    compared = fence_text("\n".join(_compare_levels(larger, smaller)), "diff")
    return f"{usage} Compared with {above.label}:\n\n{compared}"


def _format_count(number: int, noun: str = "message") -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _list_shown_messages(level: BudgetLevel) -> list[_ShownMessage]:
    names = map_tool_names(level.messages)
    paths: list[set[str]] = [set() for _ in level.messages]
    for span in level.rendered.source_map if level.rendered else ():
        paths[span.message].add(span.path)
    return [
        _ShownMessage(
            title := format_title(message, names),
            format_section(title, message),
            message,
            frozenset(path),
        )
        for message, path in zip(level.messages, paths, strict=True)
    ]


def _compare_levels(
    larger: Sequence[_ShownMessage], smaller: Sequence[_ShownMessage]
) -> Iterator[str]:
    """Yield lines that say which messages stay, and which are gone, changed or new."""
    for mark, pairs in groupby(_pair_messages(larger, smaller), key=_mark_pair):
        run = list(pairs)
        names = [
            f"{shown.title}: {format_headline(shown.message)}"
            for old, new in run
            if (shown := new or old)
        ]
        if mark == " ":
            yield f"  {_format_count(len(run))} stay{'s' if len(run) == 1 else ''}"
        elif mark == "-" and len(run) > MAX_RUN:
            yield f"- {_format_count(len(run))}, from {names[0]}"
        else:
            for name, (old, new) in zip(names, run, strict=True):
                yield f"{mark} {name}"
                if new and new.message.content != (format_headline(new.message),):
                    yield from _diff_messages(old.message if old else None, new.message)


def _mark_pair(pair: tuple[_ShownMessage | None, _ShownMessage | None]) -> str:
    """Return the mark of a message in the comparison of two levels, as in a diff."""
    old, new = pair
    if old is None or new is None:
        return "+" if new else "-"
    return " " if old.text == new.text else "!"


def _pair_messages(
    larger: Sequence[_ShownMessage], smaller: Sequence[_ShownMessage]
) -> Iterator[tuple[_ShownMessage | None, _ShownMessage | None]]:
    """Pair the messages of two levels in order: unchanged with itself, changed with what it was, removed or new with None."""
    at = start = 0
    for place, index in [*_find_unchanged(larger, smaller), (len(larger), len(smaller))]:
        yield from _pair_between(larger[at:place], smaller[start:index])
        if place < len(larger):
            yield larger[place], smaller[index]
        at, start = place + 1, index + 1


def _find_unchanged(
    larger: Sequence[_ShownMessage], smaller: Sequence[_ShownMessage]
) -> list[tuple[int, int]]:
    """Find the indices of messages that both levels have in the same order: their longest common subsequence.

    Equal messages are told apart by their number, counted from the end, because pruning removes the
    oldest first.
    """
    places = {key: back for back, key in enumerate(_number_from_the_end(larger))}
    ends: list[int] = []  # for each length, the smallest place at which a subsequence of it ends
    pairs: list[tuple[int, int]] = []  # of these places and what has them in the smaller level
    before: dict[tuple[int, int], tuple[int, int] | None] = {}
    for back, key in enumerate(_number_from_the_end(smaller)):
        if key in places:
            pair = len(larger) - 1 - places[key], len(smaller) - 1 - back
            length = bisect_left(ends, places[key])
            before[pair] = pairs[length - 1] if length else None
            ends[length : length + 1] = [places[key]]
            pairs[length : length + 1] = [pair]
    unchanged = list[tuple[int, int]]()
    last = pairs[-1] if pairs else None
    while last is not None:
        unchanged.append(last)
        last = before[last]
    return unchanged


def _number_from_the_end(messages: Sequence[_ShownMessage]) -> Iterator[tuple[str, int]]:
    seen: Counter[str] = Counter()
    for shown in reversed(messages):
        seen[shown.text] += 1
        yield shown.text, seen[shown.text]


def _pair_between(
    removed: Sequence[_ShownMessage], new: Sequence[_ShownMessage]
) -> Iterator[tuple[_ShownMessage | None, _ShownMessage | None]]:
    """Pair the messages between two unchanged ones: those that the same element wrote belong together."""
    indices: dict[tuple[str, str], list[int]] = {}
    for index, shown in enumerate(removed):
        for key in _list_keys(shown):
            indices.setdefault(key, []).append(index)
    at = 0
    unpaired: list[_ShownMessage] = []
    for shown in new:
        rows = [indices.get(key, []) for key in _list_keys(shown)]
        places = [row[place] for row in rows if (place := bisect_left(row, at)) < len(row)]
        if not places:
            unpaired.append(shown)
            continue
        yield from _leave_unpaired(removed[at : min(places)], unpaired)
        yield removed[min(places)], shown
        at, unpaired = min(places) + 1, []
    yield from _leave_unpaired(removed[at:], unpaired)


def _leave_unpaired(
    removed: Sequence[_ShownMessage], new: Sequence[_ShownMessage]
) -> Iterator[tuple[_ShownMessage | None, _ShownMessage | None]]:
    yield from ((shown, None) for shown in removed)
    yield from ((None, shown) for shown in new)


def _list_keys(shown: _ShownMessage) -> Iterator[tuple[str, str]]:
    yield from ((shown.message.role, path) for path in sorted(shown.paths))
    yield from (("call", call.id) for call in shown.message.tool_calls)
    if shown.message.tool_call_id:
        yield "result", shown.message.tool_call_id


def _diff_messages(old: Message | None, new: Message) -> Iterator[str]:
    """Yield the lines of a message that are gone or new, each with its number in the old message.

    A run of several removed lines is one line, as the larger budget shows them.
    """
    before, after = ([] if old is None else list_content(old)), list_content(new)
    for kind, start, end, first, last in SequenceMatcher(None, before, after).get_opcodes():
        if kind == "equal":
            continue
        if end - start > MAX_RUN:
            yield f"-{start + 1} to {end}: {end - start:,} lines"
        else:
            yield from (f"-{at + 1}: {before[at]}" for at in range(start, end))
        yield from (f"+{start + 1}: {line}" for line in fold_lines(after[first:last]))


# The receipt.


def _list_receipt_lines(rendered: Rendered, stabilizer: Stabilizer) -> Iterator[str]:
    exact = "" if rendered.exact else ", estimated"
    yield f"{rendered.tokens:,} of {rendered.budget:,} tokens{exact} in {_format_count(len(rendered.messages))}"
    if rendered.context is not None:
        yield f"budget: {rendered.context.explain()}"
    if rendered.reserved:
        yield f"reserved: {rendered.reserved:,} tokens"
    yield from (
        f"repaired: {repair.kind}: {stabilizer.stabilize_text(repair.detail)}"
        for repair in rendered.repairs
    )
    yield from (
        f"reference left out: {stabilizer.stabilize_text(str(reference.to))}"
        for reference in rendered.omitted_references
    )
    if not rendered.removals:
        yield "removed: nothing"
        return
    yield f"removed: {_format_count(len(rendered.removals), 'piece')}, first to last"
    yield _format_row("tokens", "priority", "reason", "element")
    for removal in rendered.removals:
        partner = removal.partner_label
        yield _format_row(
            f"{removal.tokens:,}",
            format_priority(removal.priority),
            removal.reason,
            stabilizer.stabilize_text(removal.label)
            + (f" (with {stabilizer.stabilize_text(partner)})" if partner else ""),
        )


def _format_row(tokens: str, priority: str, reason: str, element: str) -> str:
    return f"{tokens:>9}  {priority:>8}  {reason:<9}  {element}"


# The wire format.

MEDIA_KEYS = ("data", "file_data", "image_url", "url")
"""The keys that hold images and documents."""

MAX_BASE64 = 200
"""Characters of base64 data above which a snapshot shows its size and hash."""

_BASE64 = re.compile("((?:data:[^,]*,)?)([A-Za-z0-9+/]+={0,2})")


def _build_payload(messages: Sequence[Message], wire_format: WireFormat) -> object:
    emitters: Mapping[str, Callable[[Sequence[Message]], object]] = {
        "chat": to_chat,
        "responses": to_responses,
        "anthropic": to_anthropic,
    }
    # syrupy sorts the keys of a dict, but not those of an OrderedDict.
    return json.loads(json.dumps(emitters[wire_format](messages)), object_pairs_hook=shorten_media)


def shorten_media(pairs: list[tuple[str, object]]) -> OrderedDict[str, object]:
    """Build a JSON object of its pairs, in their order, with long base64 data replaced by its size and a hash."""
    return OrderedDict(
        (key, _shorten_base64(value) if key in MEDIA_KEYS and isinstance(value, str) else value)
        for key, value in pairs
    )


def _shorten_base64(text: str) -> str:
    match = _BASE64.fullmatch(text) if len(text) > MAX_BASE64 else None
    return f"{match[1]}<{describe_base64(match[2])}>" if match else text


@attrs.frozen(kw_only=True)
class SnapshotOptions:
    """How to render a prompt for a snapshot."""

    budgets: tuple[int | str, ...] | None = None
    """Tokens, or the names of models whose windows are the budgets; None renders once, with the
    default budget."""

    tokenizer: Tokenizer | None = None
    """Counts tokens; None takes the model's tokenizer, or the default."""

    tools: tuple[ToolDefinition, ...] = ()
    """Definitions that take room beside the messages."""

    defaults: Defaults = "promptkit"
    """What is removed where nothing has a priority, as in `render`."""


@attrs.frozen(kw_only=True)
class BudgetLevel:
    """A prompt at one budget."""

    label: str
    """`8,000 tokens` or a model's name; empty if no budget was set."""

    budget: int
    """Tokens."""

    rendered: Rendered | None = None
    """None if the required parts do not fit."""

    messages: tuple[Message, ...] = ()
    """The rendered messages, with placeholders for what varies."""

    error: str = ""
    """Why the prompt does not fit, in a sentence."""


def render_levels(
    prompt: object, options: SnapshotOptions, stabilizer: Stabilizer
) -> list[BudgetLevel]:
    """Render a prompt at each budget, largest first, each budget once.

    A budget that is too small becomes a level with an error.

    Args:
        prompt: An element, a tuple or list of elements, or a Rendered, which is not rendered again.
        options: Budgets, tokenizer and tools.
        stabilizer: Replaces what varies from run to run.

    Raises:
        TypeError: The value is no prompt, or a Rendered was combined with options.
    """
    if isinstance(prompt, Rendered):
        if options != SnapshotOptions():
            raise TypeError(
                "a Rendered has its budget already: compare the element itself with a snapshot at other budgets."
            )
        return [_make_level("", prompt, stabilizer)]
    if not _is_prompt(prompt):
        raise TypeError(
            f"a snapshot compares with a prompt: an element, a tuple of elements or a Rendered, not a {type(prompt).__name__}."
        )
    if options.budgets is None:
        return [_make_level("", _render_at(prompt, None, options, stabilizer), stabilizer)]
    results: list[tuple[str, Rendered | BudgetExceededError]] = []
    for budget in dict.fromkeys(options.budgets):
        label = budget if isinstance(budget, str) else f"{budget:,} tokens"
        try:
            results.append((label, _render_at(prompt, budget, options, stabilizer)))
        except BudgetExceededError as error:
            results.append((label, error))
    results.sort(key=lambda item: -item[1].budget)
    return [_make_level(label, result, stabilizer) for label, result in results]


def _is_prompt(value: object) -> TypeGuard[PromptElement | Sequence[Child]]:
    return isinstance(value, PromptElement | tuple | list)


def _render_at(
    prompt: Child, budget: int | str | None, options: SnapshotOptions, stabilizer: Stabilizer
) -> Rendered:
    tokens, model = (None, budget) if isinstance(budget, str) else (budget, None)
    return render(
        prompt,
        budget=tokens,
        model=model,
        tokenizer=stabilize_tokenizer(
            options.tokenizer or tokenizer_for(model), stabilizer.options
        ),
        tools=options.tools,
        defaults=options.defaults,
    )


def _make_level(
    label: str, result: Rendered | BudgetExceededError, stabilizer: Stabilizer
) -> BudgetLevel:
    return (
        BudgetLevel(label=label, budget=result.budget, error=stabilizer.stabilize_text(str(result)))
        if isinstance(result, BudgetExceededError)
        else BudgetLevel(
            label=label,
            budget=result.budget,
            rendered=result,
            messages=stabilizer.stabilize_messages(result.messages),
        )
    )


# The whole request.

SHOWN_HEADERS = ("anthropic-", "openai-beta", PURPOSE_HEADER.lower())
"""How the names of headers begin that change what a request means. No other header is shown: keys
are in some, and versions of SDKs in others."""

MAX_LEVEL = 6
"""The levels of headings that Markdown has."""


@attrs.frozen(kw_only=True)
class HttpRequest:
    """A request to be written down."""

    body: Json
    """The body's JSON; a text for any other body."""
    title: str = "Request"
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


def read_request(value: object) -> HttpRequest:
    """Read a request of the test server or of an HTTP client, or the arguments of an SDK's call.

    What an SDK leaves out of its request (`NOT_GIVEN`, `omit`) is left out. Raises TypeError for
    anything else, and for arguments that are not JSON.
    """
    arguments = as_mapping(value)
    if isinstance(value, Exchange):
        title, headers, content = f"{value.method} {value.path}", value.headers, value.raw
    elif all(hasattr(value, name) for name in ("method", "url", "headers", "read")):
        request: Any = value  # Any: of httpx or httpx2, whose requests have the same form
        title, headers = f"{request.method} {request.url.path}", request.headers
        try:
            content = request.read()
        except (AssertionError, RuntimeError) as error:
            # of an asynchronous stream, or one that was sent and is gone
            raise TypeError(
                f"the body of {title} is a stream that cannot be read here: give the request after read() or aread()."
            ) from error
    elif isinstance(value, dict):
        given = {
            name: each
            for name, each in arguments.items()
            if type(each).__name__ not in {"NotGiven", "Omit"}
        }
        try:
            text = json.dumps(given, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"the arguments of a wire snapshot must be JSON, such as the result of a model_dump(): {error}."
            ) from error
        return HttpRequest(body=json.loads(text, object_pairs_hook=shorten_media))
    else:
        raise TypeError(
            f"a wire snapshot compares with a request: one of server.requests, one of an HTTP client, or an SDK's arguments, not a {type(value).__name__}."
        )
    if boundary := headers.get("content-type", "").partition("boundary=")[2]:
        # of a form, random each time
        content = content.replace(boundary.encode(), b"boundary")
    shown = {name: text for name, text in headers.items() if name.startswith(SHOWN_HEADERS)}
    try:
        body = json.loads(content, object_pairs_hook=shorten_media)
    except (ValueError, RecursionError):
        body = content.decode(errors="replace")
    return HttpRequest(title=title, headers=shown, body=body)


def format_request(
    request: HttpRequest, stabilizer: Stabilizer, *, redactor: Redactor = redact_secrets
) -> str:
    """Format a request as Markdown, with a line break at the end.

    Args:
        request: The request.
        stabilizer: Replaces what varies from run to run.
        redactor: Removes secrets.
    """
    body = stabilizer.stabilize_json(redact_json(request.body, redactor))
    headers = "\n".join(f"{name}: {redactor(text)}" for name, text in request.headers.items())
    return "{}\n".format(
        "\n\n".join(
            [
                f"# {request.title}",
                *([fence_text(headers)] if headers else []),
                *_format_value(body, "body", 1),
            ]
        )
    )


def _format_value(value: object, name: str, level: int) -> Iterator[str]:
    """Yield the blocks below the heading of a value: first what is short, as JSON, then each other value under a heading."""
    fields = as_mapping(value)
    if isinstance(value, str):
        yield fence_text(value)
    elif level >= MAX_LEVEL or not (fields or _has_items(value)):
        yield fence_json(value)
    else:
        if not fields:
            fields = {name: value}
        short = {key: each for key, each in fields.items() if not _is_long(each)}
        if short:
            yield fence_json(short)
        for key, each in fields.items():
            if key not in short:
                yield from _format_long(each, key, level + 1)


def _format_long(value: object, key: str, level: int) -> Iterator[str]:
    mark = "#" * level
    if not _has_items(value):
        yield f"{mark} {quote_inline(key)}"
        yield from _format_value(value, key, level)
        return
    for at, item in enumerate(as_sequence(value)):
        yield " ".join((mark, f"{quote_inline(key)}[{at}]", *_list_names(item)))
        yield from _format_value(item, f"{key}[{at}]", level)


def _list_names(item: object) -> Iterator[str]:
    """Yield the words by which a reader recognizes an item: its role, its type, its name."""
    fields = as_mapping(item)
    for each in (fields, as_mapping(fields.get("function"))):
        yield from (
            quote_inline(name)
            for key in ("role", "type", "name")
            if isinstance(name := each.get(key), str)
        )


def _has_items(value: object) -> bool:
    """Return whether a value is a list of which an item has a heading of its own."""
    return any(as_mapping(item) or _is_long(item) for item in as_sequence(value))


def _is_long(value: object) -> bool:
    return _has_items(value) or any(
        isinstance(each, str) and "\n" in each for each in (value, *as_mapping(value).values())
    )


# Placeholders.

ReplaceText: TypeAlias = Callable[[str], str]
"""Takes one string of the prompt (a text, an id, a path in the receipt) and returns it changed."""


@attrs.frozen(kw_only=True)
class MachineFolders:
    """The folders of this machine and of this run."""

    root: Path
    """The project's folder, which becomes `<root>`."""

    home: Path
    """The user's home, which becomes `<home>`."""

    temporary: Path
    """The system's folder for temporary files. Folders that `tempfile` creates in it become
    `<tmp 1>`, `<tmp 2>`, …."""

    pytest: Path | None = None
    """pytest's folder for temporary files. All folders in it become `<tmp 1>`, `<tmp 2>`, …."""


@attrs.frozen(kw_only=True)
class StabilizeOptions:
    """What to replace; nothing by default."""

    functions: tuple[ReplaceText, ...] = ()
    """Functions that are applied first, in order."""

    ids: bool | str = False
    """Whether to replace ids of tool calls, uuids and providers' ids. A regular expression replaces
    its matches as well."""

    dates: bool = False
    """Whether to replace dates and times in the form of ISO 8601."""

    find_folders: Callable[[], MachineFolders] | None = None
    """Finds the folders to replace; None keeps paths as they are."""


class Stabilizer:
    """The replacements of one snapshot.

    Args:
        options: What to replace.
        numbered: Whether placeholders have numbers, so that the same id has the same number in the
            whole snapshot. Otherwise all ids look alike.
    """

    def __init__(self, options: StabilizeOptions, *, numbered: bool = True) -> None:
        self.options = options
        self._numbered = numbered
        self._numbers: dict[str, dict[str, int]] = {}
        self._call_ids: set[str] = set()
        self._steps: list[ReplaceText] = list(options.functions)
        if options.ids:
            forms = _IDS if options.ids is True else compile_id_pattern(options.ids)
            self._steps.append(
                lambda text: _WORD.sub(
                    self._replace_call_id, forms.sub(lambda match: self._replace_id(match[0]), text)
                )
            )
        if options.find_folders:
            self._steps += _make_folder_steps(options.find_folders(), self._make_placeholder)
        if options.dates:
            self._steps.append(lambda text: _DATES.sub(_replace_date, text))

    def stabilize_text(self, text: str) -> str:
        """Replace what varies in one string."""
        for step in self._steps:
            text = step(text)
        return text

    def stabilize_messages(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Replace what varies in all strings of these messages."""
        if not self._steps:
            return tuple(messages)
        messages = tuple(messages)
        self._call_ids.update(call.id for message in messages for call in message.tool_calls)
        return tuple(map(self._stabilize_message, messages))

    def _stabilize_message(self, message: Message) -> Message:
        return attrs.evolve(
            message,
            content=tuple(map(self._stabilize_part, message.content)),
            name=None if message.name is None else self.stabilize_text(message.name),
            tool_calls=tuple(map(self.stabilize_call, message.tool_calls)),
            tool_call_id=None
            if message.tool_call_id is None
            else self.stabilize_call_id(message.tool_call_id),
        )

    def _stabilize_part(self, part: Part) -> Part:
        match part:
            case str():
                return self.stabilize_text(part)
            case ImagePart() if parse_data_url(part.url) is None:
                return attrs.evolve(part, url=self.stabilize_text(part.url))
            case DocumentPart(name=str(name)):
                return attrs.evolve(part, name=self.stabilize_text(name))
            case OpaquePart():
                return attrs.evolve(part, value=self.stabilize_json(part.value))
            case _:
                return part

    def stabilize_json(self, value: Json) -> Json:
        """Replace what varies in the strings of a copy of a JSON value."""
        copied: Json = copy_json(value, self.stabilize_text)
        return copied

    def stabilize_call(self, call: ToolCall) -> ToolCall:
        """Replace what varies in the id and the arguments of a tool call."""
        return attrs.evolve(
            call, id=self.stabilize_call_id(call.id), arguments=self.stabilize_text(call.arguments)
        )

    def stabilize_call_id(self, call_id: str) -> str:
        """Replace the id of a tool call, which is an id whatever its form."""
        replaced = self.stabilize_text(call_id)
        return self._replace_id(call_id) if self.options.ids and replaced == call_id else replaced

    def _replace_call_id(self, match: re.Match[str]) -> str:
        return (
            self._replace_id(match[0])
            if len(match[0]) >= _MIN_CALL_ID and match[0] in self._call_ids
            else match[0]
        )

    def _replace_id(self, found: str) -> str:
        return self._make_placeholder("id", found.lower())

    def _make_placeholder(self, kind: str, found: str) -> str:
        if not self._numbered:
            return f"<{kind}>"
        numbers = self._numbers.setdefault(kind, {})
        return f"<{kind} {numbers.setdefault(found, len(numbers) + 1)}>"


_EDGE = "(?<![A-Za-z0-9_]){}(?![A-Za-z0-9_])"
_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_UUID_HEX = "[0-9a-f]{12}[1-8][0-9a-f]{3}[89ab][0-9a-f]{15}"
_ULID = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
_PROVIDERS = "(?:asst|call|chatcmpl|fc|msg|req|resp|rs|run|srvtoolu|thread|toolu)[_-](?=[A-Za-z]*[0-9])[A-Za-z0-9]{8,}"
_IDS = re.compile("|".join(_EDGE.format(form) for form in (_UUID, _UUID_HEX, _ULID, _PROVIDERS)))
_WORD = re.compile("[A-Za-z0-9_-]+")
# characters; a shorter id, such as "c1", may be anything in a text and is not searched there
_MIN_CALL_ID = 5


def compile_id_pattern(id_form: str) -> re.Pattern[str]:
    """Compile a pattern for a further form of ids and for the known ones.

    Raises re.error if `id_form` is no regular expression.
    """
    flags, pattern = (
        match.groups()
        if (match := re.fullmatch(r"\(\?(\w+)\)(.*)", id_form, re.DOTALL))
        else ("", id_form)
    )
    return re.compile(f"(?{flags}:{pattern})|{_IDS.pattern}")


_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d+)?(?: ?Z| ?[+-][01]\d:?[0-5]\d)?"
_MINUTES = r"(?:[01]\d|2[0-3]):[0-5]\d(?: ?Z| ?[+-][01]\d:?[0-5]\d)?"
_DAY = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_BASIC = r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])T[0-2]\d[0-5]\d(?:[0-5]\d)?(?:Z|[+-][01]\d(?:[0-5]\d)?)?"
_DATES = re.compile(
    # Not behind a letter and a hyphen: the date in a model's name is part of it.
    rf"(?<![A-Za-z0-9:-])(?:(?P<day>{_DAY})(?:(?P<separator>[T ])(?:{_CLOCK}|{_MINUTES})(?!\w))?(?!\d|-\d)|(?P<basic>{_BASIC})(?!\w)|{_CLOCK}(?![\w:]))"
)


def _replace_date(match: re.Match[str]) -> str:
    # Dates have no numbers, because two of them are often equal by chance.
    if match["day"]:
        return f"<date>{match['separator']}<time>" if match["separator"] else "<date>"
    return "<date>T<time>" if match["basic"] else "<time>"


def _make_folder_steps(
    folders: MachineFolders, make_placeholder: Callable[[str, str], str]
) -> list[ReplaceText]:
    """Replace temporary folders, then the project, then the home, because the first may be inside the second, and that inside the third."""
    steps: list[ReplaceText] = []
    for folder, inside in (
        (folders.pytest, r"[\w.@+~%-]*\w"),
        (folders.temporary, r"tmp[a-z0-9_]{8}(?!\w)"),
    ):
        if folder is not None:
            steps.append(
                _make_folder_step(folder, lambda name: make_placeholder("tmp", name), inside)
            )
    return steps + [
        # nothing is matched inside these folders, so that the name is added to an empty text
        _make_folder_step(folder, name.__add__)
        for folder, name in ((folders.root, "<root>"), (folders.home, "<home>"))
        if len(folder.parts) > 1  # the root of the file system is in every path
    ]


def _make_folder_step(folder: Path, name_folder: ReplaceText, inside: str = "") -> ReplaceText:
    """Make a function that replaces a folder, or the folders `inside` it, and writes the separators behind it as slashes."""
    spellings = "|".join(
        re.escape(form)
        for form in sorted(
            {
                form
                for path in (folder, folder.resolve())
                for form in (str(path), path.as_posix(), json.dumps(str(path))[1:-1])
            },
            key=lambda form: (-len(form), form),
        )
    )
    # on other systems a backslash begins an escape
    separator = r"[\\/]+" if "\\" in str(folder) else "/+"
    ending = f"{separator}(?P<inside>{inside})" if inside else r"(?P<inside>)(?![\w-]|\.\w)"
    pattern = re.compile(
        rf"(?<![\w.~-])(?:{spellings}){ending}(?P<rest>(?:{separator}[\w.@+~%-]+)*)"
    )
    return lambda text: pattern.sub(
        lambda match: name_folder(match["inside"]) + re.sub(separator, "/", match["rest"]), text
    )


def stabilize_tokenizer(tokenizer: Tokenizer, options: StabilizeOptions) -> Tokenizer:
    """Return a tokenizer that counts text as the snapshot shows it; the tokenizer itself if nothing is replaced."""
    return (
        _StableTokenizer(tokenizer, Stabilizer(options, numbered=False))
        if options != StabilizeOptions()
        else tokenizer
    )


@attrs.frozen
class _StableTokenizer(Tokenizer):
    """A tokenizer that replaces what varies before another one counts.

    It declares no safe cut, because a replaced text may lie across any cut, and no bound of a
    count.
    """

    _tokenizer: Tokenizer
    _stabilizer: Stabilizer

    @property
    def name(self) -> str:
        return self._tokenizer.name

    def count(self, text: str) -> int:
        return self._tokenizer.count(self._stabilizer.stabilize_text(text))

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        return self._tokenizer.count_framing(
            role,
            name=name and self._stabilizer.stabilize_text(name),
            tool_calls=[self._stabilizer.stabilize_call(call) for call in tool_calls],
            tool_call_id=tool_call_id and self._stabilizer.stabilize_call_id(tool_call_id),
            text=text,
        )

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        return self._tokenizer.count_part(part)

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        return self._tokenizer.count_overhead(tools, system=system)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        # Cut between words, so that no half of an id is counted; cut inside a word only if not even
        # the first one fits.
        places = {
            0,
            len(text),
            *(place.start() for place in re.finditer(r"(?<=\s)(?=\S)|(?<=\S)(?=\s)", text)),
        }
        lengths = sorted(place if keep == "head" else len(text) - place for place in places)
        fitting = bisect_right(
            lengths, tokens, key=lambda length: self.count(_take_end(text, length, keep))
        )
        return (
            _take_end(text, lengths[fitting - 1], keep)
            if fitting > 1 or not text
            else super().truncate(_take_end(text, lengths[1], keep), tokens, keep=keep)
        )


def _take_end(text: str, characters: int, keep: Literal["head", "tail"]) -> str:
    return text[:characters] if keep == "head" else text[len(text) - characters :]
