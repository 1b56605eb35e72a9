"""`promptkit transcript show`: a file is gone through twice, and never held in memory: once for its shape, once to print it.

Entries of a transcript as people read them: one line each, or in full.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import attrs
import click
from rich.console import Console

from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.terminal import clip, escape_control_chars
from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.transcript.entries import (
    BranchSummary,
    Checkpoint,
    CustomEntry,
    CustomMessage,
    Edit,
    Label,
    MessageEntry,
    Observation,
    Reset,
    Setting,
    UnknownEntry,
)
from promptkit.transcript.jsonl.reader import StoredEntry, TranscriptReader
from promptkit.transcript.jsonl.records import entry_to_json
from promptkit.transcript.transcript import EntryTree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from promptkit.messages import Json, Message, Part
    from promptkit.transcript.entries import Entry

__all__ = ["STYLES", "first_line", "short_id", "show_entries", "entry_texts", "entry_role"]


STYLES = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow", "checkpoint": "red", "branch_summary": "red"}

SHORT = 8
"""Characters of an id that tell it from the others of a file."""

LONGEST = 2_000
"""Characters of a piece of text that can be of use in one line."""


def short_id(entry_id: str | None) -> str:
    """An id as it is shown."""
    return escape_control_chars(entry_id or "-")[:SHORT]


def entry_role(entry: Entry) -> str:
    """Who says it, or what it is."""
    payload = entry.payload
    if isinstance(payload, MessageEntry):
        return payload.message.role
    return escape_control_chars(payload.kind) if isinstance(payload, UnknownEntry) else entry.kind


def first_line(entry: Entry) -> str:
    """What an entry says, in one line."""
    parts = (" ".join(text[:LONGEST].split()) for text in entry_texts(entry))
    return escape_control_chars(" ".join(part for part in parts if part)) or "(empty)"


def entry_texts(entry: Entry) -> Iterator[str]:
    """All the text of an entry, piece by piece."""
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
            yield from _noted(entry)


def _noted(entry: Entry) -> Iterator[str]:
    match entry.payload:
        case BranchSummary(summary=summary, leaf=leaf):
            yield f"of the branch to {short_id(leaf)}:"
            yield summary
        case Edit(target=target, content=content, reason=reason):
            yield f"{reason}: {short_id(target)} {'is not shown' if content is None else 'is shown as'}"
            yield from map(_part, content or ())
        case Reset(reason=reason):
            yield reason
        case Label(target=target, label=label):
            yield f"{label} = {short_id(target)}"
        case Setting(name=name, value=value) | CustomEntry(name=name, data=value) | Observation(name=name, data=value):
            yield name if value is None else f"{name} = {_json(value)}"
        case UnknownEntry(data=data):
            yield _json(data)
        case _:
            return


def _heading(checkpoint: Checkpoint) -> str:
    before, after = checkpoint.tokens_before, checkpoint.tokens_after
    sizes = f", {before:,} → {after:,} tokens" if before is not None and after is not None else ""
    kept = f", keeps from {short_id(checkpoint.first_kept)}" if checkpoint.first_kept else ""
    return f"({checkpoint.trigger}{sizes}{kept})"


def _message(message: Message) -> Iterator[str]:
    yield from map(_part, message.content)
    for call in message.tool_calls:
        yield f"→ {call.name} {call.arguments}"


def _part(part: Part) -> str:
    match part:
        case str(text):
            return text
        case ImagePart(url=url):
            return f"[image {url[:60]}]"
        case DocumentPart(name=name, media_type=kind):
            return f"[document {name or kind}]"
        case OpaquePart(value=value):
            return _json(value)
        case _:
            return ""


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


HEAD, TAIL = 10, 20
"""Entries that are shown at the beginning and at the end of a longer conversation."""


@attrs.define
class _Shape:
    """What has to be known of a file before any of it is shown."""

    tree: EntryTree = attrs.field(factory=EntryTree)
    labels: dict[str, str] = attrs.field(factory=dict[str, str])
    problems: int = 0

    def labels_of(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for label, target in self.labels.items():
            found[target].append(label)
        return found


def show_entries(file: Path, *, leaf: str | None, everything: bool, full: bool, as_json: bool) -> None:
    """Print the path to a leaf, or everything. Raises click.UsageError for a leaf that is not there."""
    shape = _look(file)
    tree = shape.tree
    end = _leaf(shape, leaf, file)
    path = set(tree.walk_to_root(end)) if end else set[str]()
    shown = len(tree) if everything else len(path)
    if as_json:
        for item in _entries(file, tree, None if everything else path):
            where = {"line": item.line} if item.archive is None else {"line": item.line, "archive": item.archive}
            click.echo(json.dumps(where | entry_to_json(item.entry)))
        return
    branches = len(tree.leaves())
    name = escape_control_chars(str(file))
    click.echo(f"{name}: {len(tree):,} entries, {branches:,} {'branch' if branches == 1 else 'branches'}, leaf {short_id(end)}")
    _print(_entries(file, tree, None if everything else path), shape, path if everything else None, fold=None if full else shown)
    if shape.problems:
        click.echo(f"problems: {shape.problems:,}; to see them: promptkit transcript validate {name}")


def _look(file: Path) -> _Shape:
    shape = _Shape()
    going = TranscriptReader(file)
    for item in going:
        shape.tree.partial = going.partial
        if not isinstance(item, StoredEntry) or item.entry.id in shape.tree:
            shape.problems += 1
            continue
        shape.problems += shape.tree.add(item.entry.id, item.entry.parent_id) is not None
        if isinstance(item.entry.payload, Label):
            shape.labels[item.entry.payload.label] = item.entry.payload.target
    return shape


def _leaf(shape: _Shape, wanted: str | None, file: Path) -> str | None:
    """The entry that is meant: by its id, by a label, by the beginning of its id."""
    if wanted is None:
        return shape.tree.last_id
    if wanted in shape.tree:
        return wanted
    if shape.labels.get(wanted) in shape.tree:
        return shape.labels[wanted]
    found = [entry_id for entry_id in shape.tree.parents if entry_id.startswith(wanted)]
    if len(found) != 1:
        usage_error(f"{file} has {f'{len(found):,} entries' if found else 'no entry and no label'} {wanted!r}.")
    return found[0]


def _entries(file: Path, tree: EntryTree, path: set[str] | None) -> Iterator[StoredEntry]:
    """The entries that are to be shown. What was appended since the file's shape was looked at is not."""
    seen: set[str] = set()
    for item in TranscriptReader(file):
        if isinstance(item, StoredEntry) and item.entry.id in (tree if path is None else path) and item.entry.id not in seen:
            seen.add(item.entry.id)
            yield item


def _print(items: Iterator[StoredEntry], shape: _Shape, path: set[str] | None, *, fold: int | None) -> None:
    width = Console().width if sys.stdout.isatty() else 160
    labels = shape.labels_of()
    hidden = range(HEAD, fold - TAIL) if fold is not None and fold > HEAD + TAIL + 1 else range(0)
    archive: str | None = None
    before: str | None = None
    for at, item in enumerate(items):
        entry = item.entry
        if at in hidden:
            if at == hidden[-1]:
                click.echo(f"{'…':>7}  {len(hidden):,} more entries; --full shows them")
            before = entry.id
            continue
        if item.archive != archive:
            archive = item.archive
            click.echo(f"{'':7}  {f'in {archive}' if archive else 'in the file itself'}:")
        parent = shape.tree.parents[entry.id]
        if parent != before:
            click.echo(f"{'':7}  behind {short_id(parent)}:" if parent else f"{'':7}  a new beginning:")
        before = entry.id
        mark = "*" if path is not None and entry.id in path else " "
        names = "".join(f"[{escape_control_chars(label)}] " for label in labels.get(entry.id, ()))
        start = f"{item.line:>6}{mark} {short_id(entry.id):<8}  {entry_role(entry):<10}  "
        if fold is not None:
            click.echo(click.style(start, fg=STYLES.get(entry_role(entry))) + clip(names + first_line(entry), max(width - len(start), 20)))
            continue
        click.echo(click.style(start, fg=STYLES.get(entry_role(entry))) + names)
        for text in entry_texts(entry):
            for line in text.split("\n"):
                click.echo(f"{'':9}{escape_control_chars(line)}")
