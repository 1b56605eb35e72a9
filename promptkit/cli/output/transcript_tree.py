"""Show a conversation and those that came of it: its sub-agents and its handoffs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import click

from promptkit.agent.session.subagents import SUBAGENT
from promptkit.cli.output.terminal import clip, count_nouns, escape_control_chars, print_json
from promptkit.compaction.policy.state import HANDOFF
from promptkit.compaction.run.branches import PARENT_SETTING
from promptkit.errors import TranscriptError
from promptkit.messages import as_mapping
from promptkit.transcript import MessageEntry, Observation, Setting
from promptkit.transcript.stores.addresses import is_url, open_reader
from promptkit.transcript.stores.jsonl.reader import StoredEntry


@attrs.define(kw_only=True)
class Conversation:
    """A conversation, and those that came of it."""

    transcript: str | None
    """Its address. None: it was in memory alone."""
    mode: str | None = None
    """What it was given of the conversation that it comes from: `isolated`, `forked` or `handoff`."""
    task: str | None = None
    messages: int | None = None
    """None: the transcript cannot be read."""
    children: list[Conversation] = attrs.field(factory=list["Conversation"])


def show_tree(address: str, *, as_json: bool) -> None:
    """Print a conversation and those that came of it, one line each, or as one JSON object."""
    root = Conversation(transcript=address)
    _read(root, set())
    if as_json:
        print_json(attrs.asdict(root))
        return
    click.echo("\n".join(_format(root, "")))


def _read(conversation: Conversation, seen: set[str]) -> None:
    """Read the size of a conversation, and the conversations that came of it.

    A copy begins with the entries of the other conversation; the links among these are not its own.
    """
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
                child = Conversation(
                    transcript=None if place is None else _find_moved(str(place), address),
                    mode=str(about.get("mode", name)),
                    task=str(about.get("task", about.get("goal", ""))),
                )
                conversation.children.append(child)
            case _:
                continue
    for child in conversation.children:
        _read(child, seen)


def _find_moved(address: str, parent: str) -> str:
    """Return the address of a file, beside its parent's if it is no longer where it was."""
    if is_url(address) or Path(address).exists() or not Path(address).name:
        return address
    beside = Path(parent).with_name(Path(address).name)
    return str(beside) if beside.exists() else address


def _format(conversation: Conversation, indent: str) -> Iterator[str]:
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
        yield from _format(child, f"{indent}  ")
