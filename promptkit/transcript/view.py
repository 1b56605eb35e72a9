"""What the model is shown of a transcript: a pure function of a path, with no clock, no model and no store.

The latest checkpoint on the path wins. What it summarized is shown as its summary, what it kept as it was written, and what came
after it likewise. The same path gives the same messages, byte for byte, for as long as a provider's prompt cache lives and longer.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.messages import Message, Repair
from promptkit.tool_pairing import ToolCallPairer
from promptkit.transcript.entries import BranchSummary, Checkpoint, CustomMessage, Edit, MessageEntry, Reset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from promptkit.transcript.entries import Entry

__all__ = ["UNREPLAYABLE_FINISHES", "TranscriptView", "ViewBuilder", "ViewItem", "build_view", "build_summary_message"]

UNREPLAYABLE_FINISHES = frozenset({"error", "aborted"})
"""How a model's turn ended that is not shown again where it asks for tools: nobody will answer it."""


@attrs.frozen(kw_only=True)
class ViewItem:
    """A message, and the entry that it comes from."""

    message: Message
    entry_id: str
    kind: Literal["message", "summary", "replacement", "branch_summary", "custom_message"] = "message"


@attrs.frozen(kw_only=True)
class TranscriptView:
    """The messages that the model is shown, oldest first."""

    items: tuple[ViewItem, ...] = ()
    checkpoint_id: str | None = None
    """The id of the checkpoint that this view starts with."""
    summary: str | None = None
    """The text of its summary, without what stands around it."""
    repairs: tuple[Repair, ...] = ()
    """What was mended so that every call is answered and every result answers a call."""

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages alone."""
        return tuple(item.message for item in self.items)


def build_summary_message(summary: str) -> Message:
    """A summary as the model is shown it. What it says cannot end the tags around it."""
    return _tagged("conversation-summary", summary)


def build_view(path: Sequence[Entry]) -> TranscriptView:
    """The view of a path, root first. Linear in its length."""
    return _View(path).projection()


class ViewBuilder:
    """Projects the path of a conversation that grows: what was only appended is added to the view that there was.

    For the paths of one transcript, which their last entry determines. Gives what `project` gives.
    """

    def __init__(self) -> None:
        self._view = _View(())
        self._length = 0
        self._ends: tuple[Entry, ...] = ()
        self._shown = TranscriptView()

    def build(self, path: Sequence[Entry]) -> TranscriptView:
        """The view of a path, root first. Linear in what is new, but for the tuple of items; in all of it after a checkpoint or an edit."""
        length = self._length
        known = path[: min(length, 1)], path[length - 1 : length] if length else path[:0]
        if known != (self._ends[:1], self._ends[1:]):
            self._view = _View(path)
        elif len(path) == length:
            return self._shown
        elif not self._view.extend(path[length:]):
            self._view = _View(path)
        self._length = len(path)
        self._ends = (*path[:1], *path[-1:])
        self._shown = self._view.projection()
        return self._shown


class _View:
    """What is shown of a path, and what has to be known to show more of it."""

    def __init__(self, path: Sequence[Entry]) -> None:
        self._edits = _edits(path)
        self._void: set[str] = set()  # calls that are not shown, and whose results are not, either
        self._drafts: list[ViewItem] = []
        self._items: list[ViewItem] = []
        self._repairs: tuple[Repair, ...] = ()
        self._pairer = ToolCallPairer(allow_early_results=False, describe_turn=self._name)
        start = self._latest(path, Reset, 0)
        mark = self._latest(path, Checkpoint, start) - 1
        self._checkpoint = path[mark] if mark >= start else None
        if self._checkpoint is None:
            self._show(path[start:])
            return
        for draft in self._opening(self._checkpoint):
            self._add(draft)
        self._show(self._kept(path, start, mark))
        self._show(path[mark + 1 :])

    def extend(self, entries: Sequence[Entry]) -> bool:
        """Add entries; False, and nothing is added, if they change how those before them are seen."""
        if any(isinstance(entry.payload, Checkpoint | Reset | Edit) for entry in entries):
            return False
        self._show(entries)
        return True

    def projection(self) -> TranscriptView:
        pairer = self._pairer
        first = pairer.settle()
        del self._items[first:]
        for message, source in zip(pairer.messages[first:], pairer.sources[first:], strict=True):
            draft = self._drafts[source]
            self._items.append(draft if message is draft.message else attrs.evolve(draft, message=message))
        entry = self._checkpoint
        summary = _text(entry.payload.summary, self._edits.get(entry.id)) if entry and isinstance(entry.payload, Checkpoint) else ""
        repairs = (*self._repairs, *pairer.repairs)
        return TranscriptView(items=tuple(self._items), checkpoint_id=entry.id if entry else None, summary=summary or None, repairs=repairs)

    def _name(self, draft: int) -> str:
        return f"entry {self._drafts[draft].entry_id}"

    def _hidden(self, entry: Entry) -> bool:
        edit = self._edits.get(entry.id)
        return edit is not None and edit.content is None

    def _latest(self, path: Sequence[Entry], kind: type[Checkpoint | Reset], start: int) -> int:
        """The place behind the last entry of a kind that is not hidden; `start` if there is none from there on."""
        for at in range(len(path) - 1, start - 1, -1):
            if isinstance(path[at].payload, kind) and not self._hidden(path[at]):
                return at + 1
        return start

    def _opening(self, entry: Entry) -> Iterator[ViewItem]:
        """What stands for all that a checkpoint covers."""
        checkpoint = entry.payload
        edit = self._edits.get(entry.id)
        if not isinstance(checkpoint, Checkpoint):
            return
        if checkpoint.replacement is not None and edit is None:
            for place, message in enumerate(checkpoint.replacement):
                yield ViewItem(message=message, entry_id=entry.id, kind="summary" if place in checkpoint.own else "replacement")
        elif summary := _text(checkpoint.summary, edit):
            yield ViewItem(message=build_summary_message(summary), entry_id=entry.id, kind="summary")

    def _kept(self, path: Sequence[Entry], start: int, mark: int) -> Sequence[Entry]:
        """What a checkpoint keeps of what was before it."""
        checkpoint = path[mark].payload
        first = checkpoint.first_kept if isinstance(checkpoint, Checkpoint) else None
        if first is None:
            return ()
        for at in range(mark - 1, start - 1, -1):
            if path[at].id == first:
                return path[at:mark]
        detail = f"checkpoint {path[mark].id}: its first kept entry {first!r} is not before it in this view; nothing before it is kept."
        self._repairs = (Repair(kind="unknown first kept", detail=detail),)
        return ()

    def _show(self, entries: Iterable[Entry]) -> None:
        """Add the messages of entries, edited."""
        for entry in entries:
            edit = self._edits.get(entry.id)
            match entry.payload:
                case MessageEntry(message=message, finish=finish):
                    self._say(entry, message, edit, aborted=finish in UNREPLAYABLE_FINISHES)
                case CustomMessage(message=message):
                    self._say(entry, message, edit, aborted=False)
                case BranchSummary(summary=summary) if shown := _text(summary, edit):
                    self._add(ViewItem(message=_tagged("branch-summary", shown), entry_id=entry.id, kind="branch_summary"))
                case _:
                    continue

    def _say(self, entry: Entry, message: Message, edit: Edit | None, *, aborted: bool) -> None:
        calls = {call.id for call in message.tool_calls}
        if (edit is not None and edit.content is None) or (aborted and calls):
            self._void |= calls
            return
        if message.role == "tool" and message.tool_call_id in self._void:
            return
        self._void -= calls
        if edit is not None and edit.content is not None:
            message = attrs.evolve(message, content=edit.content)
        if message.role == "assistant" and not message.content and not calls:
            return  # providers refuse a message without anything in it
        kind: Literal["message", "custom_message"] = "message" if isinstance(entry.payload, MessageEntry) else "custom_message"
        self._add(ViewItem(message=message, entry_id=entry.id, kind=kind))

    def _add(self, draft: ViewItem) -> None:
        self._drafts.append(draft)
        self._pairer.add(draft.message)


def _edits(path: Sequence[Entry]) -> dict[str, Edit]:
    """For each entry that was edited the edit that holds: the latest that was not itself taken back."""
    edits: dict[str, Edit] = {}
    for entry in reversed(path):
        payload = entry.payload
        if isinstance(payload, Edit):
            own = edits.get(entry.id)
            if own is None or own.content is not None:
                edits.setdefault(payload.target, payload)
    return edits


def _text(text: str, edit: Edit | None) -> str:
    """A summary, or what an edit made of it."""
    if edit is None:
        return text
    return "".join(part for part in edit.content or () if isinstance(part, str))


def _tagged(tag: str, text: str) -> Message:
    inside = text.replace(f"</{tag}", f"<\\/{tag}")
    return Message(role="user", content=(f"<{tag}>\n{inside}\n</{tag}>",))
