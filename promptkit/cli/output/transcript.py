"""Print the entries of a transcript, one line each or in full, or the conversations that came of it: its sub-agents and its handoffs.

A file is read twice and never held in memory: once for the tree of its entries, once to print them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterator
from pathlib import Path

import attrs
import click

from promptkit import Message, OpaquePart, Part
from promptkit.cli.output.terminal import (
    clip,
    count_nouns,
    describe_part,
    escape_control_chars,
    print_json,
    read_width,
    usage_error,
)
from promptkit.errors import TranscriptError
from promptkit.messages import Json, as_mapping
from promptkit.transcript import (
    BranchSummary,
    Checkpoint,
    CustomEntry,
    CustomMessage,
    Edit,
    Entry,
    Label,
    MessageEntry,
    Observation,
    Reset,
    Setting,
    UnknownEntry,
    entry_to_json,
)
from promptkit.transcript.log.transcript import EntryTree
from promptkit.transcript.stores.addresses import is_url, open_reader
from promptkit.transcript.stores.jsonl.reader import StoredEntry

STYLES = {
    "system": "magenta",
    "user": "cyan",
    "assistant": "green",
    "tool": "yellow",
    "checkpoint": "red",
    "branch_summary": "red",
}

ID_CHARACTERS = 8
"""Characters of an id that are printed. They are enough to tell the entries of a file apart."""

MAX_LINE_CHARACTERS = 2_000
"""Characters of a text that can be visible in one line."""

FIRST_ENTRIES, LAST_ENTRIES = 10, 20
"""Entries of a longer conversation that are printed at its beginning and at its end."""


@attrs.define
class _FileOutline:
    """What must be known of a file before any of it is printed."""

    tree: EntryTree = attrs.field(factory=EntryTree)
    labels: dict[str, str] = attrs.field(factory=dict[str, str])
    """Label → entry id."""
    problems: int = 0


def show_entries(
    file: Path | str, *, leaf: str | None, everything: bool, full: bool, as_json: bool
) -> None:
    """Print the branch that ends with a leaf, or all branches.

    Args:
        file: The transcript's file, or its URL.
        leaf: An entry id, the beginning of one, or a label. None: the last entry written.
        everything: Print all branches; the entries of the branch above are marked with `*`.
        full: Print the full text of all entries. By default long lists and long texts are
            shortened.
        as_json: Print one JSON object per entry.

    Raises:
        click.UsageError: There is no such leaf.
    """
    outline = _read_outline(file)
    tree = outline.tree
    end = _find_leaf(outline, leaf, file)
    path = set(tree.walk_to_root(end)) if end else set[str]()
    shown = tree if everything else path
    items = read_entries(file, shown)
    if as_json:
        for item in items:
            where = {"line": item.line} | ({"archive": item.archive} if item.archive else {})
            click.echo(json.dumps(where | entry_to_json(item.entry)))
        return
    name = escape_control_chars(str(file))
    click.echo(
        f"{name}: {len(tree):,} entries, {count_nouns(len(tree.leaves()), 'branch', 'branches')}, leaf {short_id(end)}{' (its entries are marked with *)' if everything else ''}"
    )
    click.echo(f"{'line':>6}  {'id':<8}  {'role':<10}  text")
    _print_entries(items, outline, path if everything else None, fold=None if full else len(shown))
    if outline.problems:
        click.echo(
            f"problems: {outline.problems:,}; list them with: promptkit transcript validate {name}"
        )


def _read_outline(file: Path | str) -> _FileOutline:
    outline = _FileOutline()
    reader = open_reader(file)
    for item in reader:
        outline.tree.partial = reader.partial
        if not isinstance(item, StoredEntry) or item.entry.id in outline.tree:
            outline.problems += 1
            continue
        outline.problems += outline.tree.add(item.entry.id, item.entry.parent_id) is not None
        if isinstance(item.entry.payload, Label):
            outline.labels[item.entry.payload.label] = item.entry.payload.target
    return outline


def _find_leaf(outline: _FileOutline, leaf: str | None, file: Path | str) -> str | None:
    """Return the id of the entry that an id, a label or the beginning of an id names."""
    if leaf is None:
        return outline.tree.last_id
    if leaf in outline.tree:
        return leaf
    if outline.labels.get(leaf) in outline.tree:
        return outline.labels[leaf]
    found = [entry_id for entry_id in outline.tree.parents if entry_id.startswith(leaf)]
    if len(found) != 1:
        usage_error(
            f"--leaf {leaf!r} matches {f'{len(found):,} entries' if found else 'no entry and no label'} of {file}."
        )
    return found[0]


def read_entries(file: Path | str, wanted: Container[str]) -> Iterator[StoredEntry]:
    """Yield the entries of a transcript that have one of these ids, each once, in the order of the file."""
    seen: set[str] = set()
    for item in open_reader(file):
        if isinstance(item, StoredEntry) and item.entry.id in wanted and item.entry.id not in seen:
            seen.add(item.entry.id)
            yield item


def _print_entries(
    items: Iterator[StoredEntry], outline: _FileOutline, path: set[str] | None, *, fold: int | None
) -> None:
    width = read_width(160)
    labels: defaultdict[str, str] = defaultdict(str)
    for label, target in outline.labels.items():
        labels[target] += f"[{escape_control_chars(label)}] "
    hidden = (
        range(FIRST_ENTRIES, fold - LAST_ENTRIES)
        if fold is not None and fold > FIRST_ENTRIES + LAST_ENTRIES + 1
        else range(0)
    )
    archive: str | None = None
    before: str | None = None
    for at, item in enumerate(items):
        entry = item.entry
        previous, before = before, entry.id
        if at in hidden:
            if at == hidden[-1]:
                click.echo(f"{'…':>7}  {len(hidden):,} more entries; --full shows them")
            continue
        if item.archive != archive:
            archive = item.archive
            click.echo(f"{'':7}  {f'in {archive}' if archive else 'in the file itself'}:")
        parent = outline.tree.parents[entry.id]
        if parent != previous:
            click.echo(
                f"{'':7}  after {short_id(parent)}:" if parent else f"{'':7}  a new conversation:"
            )
        mark = "*" if path is not None and entry.id in path else " "
        start = f"{item.line:>6}{mark} {short_id(entry.id):<8}  {entry_role(entry):<10}  "
        if fold is not None:
            text = clip(labels[entry.id] + first_line(entry), max(width - len(start), 20))
        else:
            lines = (line for text in entry_texts(entry) for line in text.split("\n"))
            text = "\n         ".join([labels[entry.id], *map(escape_control_chars, lines)])
        click.echo(click.style(start, fg=STYLES.get(entry_role(entry))) + text)


def short_id(entry_id: str | None) -> str:
    """Return the beginning of an id, as it is printed."""
    return escape_control_chars(entry_id or "-")[:ID_CHARACTERS]


def entry_role(entry: Entry) -> str:
    """Return the role of a message, or the kind of any other entry."""
    payload = entry.payload
    if isinstance(payload, MessageEntry):
        return payload.message.role
    return escape_control_chars(payload.kind) if isinstance(payload, UnknownEntry) else entry.kind


def first_line(entry: Entry) -> str:
    """Return the text of an entry in one line."""
    parts = (text[:MAX_LINE_CHARACTERS] for text in entry_texts(entry))
    return escape_control_chars(" ".join(" ".join(parts).split())) or "(empty)"


def entry_texts(entry: Entry) -> Iterator[str]:
    """Yield all text of an entry, part by part."""
    match entry.payload:
        case MessageEntry(message=message, finish=finish):
            yield from _message(message)
            if finish in {"error", "aborted", "length", "content_filter"}:
                yield f"({finish})"
        case CustomMessage(name=name, message=message):
            yield f"{name}:"
            yield from _message(message)
        case Checkpoint() as checkpoint:
            yield _heading(checkpoint)
            yield checkpoint.summary
            for message in checkpoint.replacement or ():
                yield from _message(message)
        case _:
            yield from _other_texts(entry)


def _other_texts(entry: Entry) -> Iterator[str]:
    match entry.payload:
        case BranchSummary(summary=summary, leaf=leaf):
            yield f"summary of the branch that ends with {short_id(leaf)}:"
            yield summary
        case Edit(target=target, content=content, reason=reason):
            yield f"{reason}: {short_id(target)} {'is hidden' if content is None else 'is replaced by'}"
            yield from map(_part, content or ())
        case Reset(reason=reason):
            yield reason
        case Label(target=target, label=label):
            yield f"{label} = {short_id(target)}"
        case (
            Setting(name=name, value=value)
            | CustomEntry(name=name, data=value)
            | Observation(name=name, data=value)
        ):
            yield name if value is None else f"{name} = {_json(value)}"
        case UnknownEntry(data=data):
            yield _json(data)
        case _:
            return


def _heading(checkpoint: Checkpoint) -> str:
    before, after = checkpoint.tokens_before, checkpoint.tokens_after
    sizes = f", {before:,} → {after:,} tokens" if before is not None and after is not None else ""
    kept = (
        f", messages kept from {short_id(checkpoint.first_kept)}" if checkpoint.first_kept else ""
    )
    authors = {"hook": ", written by a hook", "extract": ", extracted without a model"}
    by = f", written by {checkpoint.model}" if checkpoint.model else ""
    return f"({checkpoint.trigger}{authors.get(checkpoint.author or '', by)}{sizes}{kept})"


def _message(message: Message) -> Iterator[str]:
    yield from map(_part, message.content)
    yield from (f"→ {call.name} {call.arguments}" for call in message.tool_calls)


def _part(part: Part) -> str:
    return _json(part.value) if isinstance(part, OpaquePart) else describe_part(part)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


@attrs.define(kw_only=True)
class Conversation:
    """A conversation, and those that came of it."""

    transcript: str | None
    """The address of the transcript. None: it was in memory alone."""
    mode: str | None = None
    """The relation to the conversation that it comes from: `isolated`, `forked` or `handoff`."""
    task: str | None = None
    messages: int | None = None
    """None: the transcript cannot be read."""
    children: list[Conversation] = attrs.field(factory=list["Conversation"])


def show_tree(address: str, *, as_json: bool) -> None:
    """Print a conversation and those that came of it, one line each, or as one JSON object."""
    root = Conversation(transcript=address)
    _read_conversation(root, set())
    if as_json:
        print_json(attrs.asdict(root))
    else:
        click.echo("\n".join(_format_conversation(root, "")))


def _read_conversation(conversation: Conversation, seen: set[str]) -> None:
    """Read the size of a conversation, and the conversations that came of it.

    A copy begins with the entries of the other conversation; the links among these are not its own.
    """
    # not for those who only print entries
    from promptkit.agent.session.subagents import SUBAGENT
    from promptkit.compaction.policy.state import HANDOFF
    from promptkit.compaction.run.branches import PARENT_SETTING

    address = conversation.transcript
    if address is None or address in seen or not (is_url(address) or Path(address).exists()):
        return
    seen.add(address)
    try:
        entries = [item.entry for item in open_reader(address) if isinstance(item, StoredEntry)]
    except TranscriptError:
        return
    conversation.messages = sum(isinstance(entry.payload, MessageEntry) for entry in entries)
    for entry in entries:
        match entry.payload:
            case Setting(name=name) if name == PARENT_SETTING:
                conversation.children.clear()
            case Observation(name=name, data=data) if name in {SUBAGENT, HANDOFF}:
                about = {key: value for key, value in as_mapping(data).items() if value is not None}
                place = about.get("transcript")
                conversation.children.append(
                    Conversation(
                        transcript=None if place is None else _find_moved(str(place), address),
                        mode=str(about.get("mode", name)),
                        task=str(about.get("task", about.get("goal", ""))),
                    )
                )
            case _:
                continue
    for child in conversation.children:
        _read_conversation(child, seen)


def _find_moved(address: str, parent: str) -> str:
    """Return the address of a file, beside its parent's if it is no longer where it was."""
    if is_url(address) or Path(address).exists() or not Path(address).name:
        return address
    beside = Path(parent).with_name(Path(address).name)
    return str(beside) if beside.exists() else address


def _format_conversation(conversation: Conversation, indent: str) -> Iterator[str]:
    """Yield the lines of a conversation and of those below it."""
    where = (
        "in memory"
        if conversation.transcript is None
        else f"{conversation.transcript}: cannot be read"
        if conversation.messages is None
        else f"{conversation.transcript}: {count_nouns(conversation.messages, 'message')}"
    )
    task = clip(" ".join((conversation.task or "").split()), 60)
    what = f"{conversation.mode} {task!r}, " if conversation.mode else ""
    yield escape_control_chars(f"{indent}{what}{where}")
    for child in conversation.children:
        yield from _format_conversation(child, f"{indent}  ")
