"""The view of a transcript: the messages that the model is shown.

A view is a pure function of a path; it uses no clock, no model and no store. The latest checkpoint
on the path applies: its summary replaces what it summarized, and the entries that it kept and all
later ones are shown as they were written. The same path always gives the same messages, byte for
byte, so that the provider's prompt cache applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from operator import attrgetter
from typing import Literal

import attrs

from promptkit.messages import Message, Repair
from promptkit.pairing import ToolCallPairer
from promptkit.reprs import describe, describe_fields
from promptkit.transcript.log.entries import (
    PRUNED_REASON,
    SUPERSEDED_REASON,
    BranchSummary,
    Checkpoint,
    CustomMessage,
    Edit,
    Entry,
    MessageEntry,
    Reset,
    Setting,
)
from promptkit.transcript.log.quotes import find_sources, restore_quotes
from promptkit.wire.parts import have_media

UNREPLAYABLE_FINISHES = frozenset({"error", "aborted"})
"""Finish reasons of assistant messages that are not shown again if they contain tool calls: the
calls will never be answered."""

MODEL_SETTING = "model"
"""The setting that records a change of the model in a transcript."""

CUT_FINISH = "length"
"""The finish reason of a reply that was cut off. It is shown without the tool calls that have no
result: any of them may be cut in two."""

INCOMPLETE_FINISHES = frozenset({CUT_FINISH, "content_filter"})
"""The finish reasons of replies whose tool calls may be cut in two: they are not run, and not shown
again."""

BLOCK_TAGS = (
    "conversation-summary",
    "branch-summary",
    "plan",
    "todos",
    "skills",
    "rules",
    "agent",
    "files",
    "errors-seen",
    "extract",
    "constraints",
    "pinned",
    "recalled",
    "names-seen",
    "user-messages",
    "recent-files",
    "reminder",
)
"""The tags of the blocks that promptkit itself writes into conversations."""

INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
"""Characters that are not seen, as a part of a regular expression: a model reads on over them."""

_SPACE = rf"[\s{INVISIBLE}]*+"


def spell_tags(tags: Iterable[str]) -> str:
    """Return a regular expression for one of these tags, with invisible characters between the letters."""
    return f"(?:{'|'.join(f'[{INVISIBLE}]*+'.join(map(re.escape, tag)) for tag in tags)})"


@cache
def compile_tags(tags: tuple[str, ...], end: str) -> re.Pattern[str]:
    """Return the pattern of the bracket of an opening or closing tag, with spaces and invisible characters behind it.

    `end` is a regular expression for the end of the tag's name. The pattern is compiled when a text is
    first searched, since this takes some 20 ms.
    """
    return re.compile(rf"<(?={_SPACE}/?{_SPACE}{spell_tags(tags)}{end})", re.IGNORECASE)


# Not frozen: views are long, and a frozen item takes three times as long to make.
@attrs.define(unsafe_hash=True)
class ViewItem:
    """A message of a view and the entry that it comes from. It must not be changed."""

    message: Message
    """The message as the model is shown it."""
    entry_id: str
    """The id of the entry."""
    kind: Literal["message", "summary", "replacement", "branch_summary", "custom_message"] = (
        "message"
    )
    """What the message is. The messages of a checkpoint are `summary` or `replacement`."""
    model: str | None = attrs.field(default=None, eq=False)
    """The model that wrote the message. None: that is not known, and the model was not changed since.
    Empty: one that a later change of the model replaced."""
    recorded: Message | None = None
    """The message as it is stored, if it repeats earlier entries: with marks in place of its
    quotes."""
    unpruned: Message | None = None
    """The message as it was before its text gave way to a placeholder, if it is a tool result that
    was pruned. None if a program edited it."""

    def __repr__(self) -> str:
        return describe(
            self,
            kind=self.kind,
            role=self.message.role,
            text=self.message.text,
            tool_calls=self.message.tool_calls,
        )


@attrs.frozen(kw_only=True)
class TranscriptView:
    """The messages that the model is shown, oldest first."""

    items: tuple[ViewItem, ...] = ()
    """The messages with their entries."""
    checkpoint_id: str | None = None
    """The id of the checkpoint that this view starts with."""
    summary: str | None = None
    """The text of the checkpoint's summary, without the tags around it."""
    repairs: tuple[Repair, ...] = ()
    """What was changed so that every tool call has a result and every tool result has a call."""
    has_media: bool = attrs.field(default=False, eq=False, repr=False)
    """True: a message that is shown has an image or a document."""
    models: frozenset[str | None] = attrs.field(
        default=attrs.Factory(
            lambda self: frozenset(item.model for item in self.items), takes_self=True
        ),
        eq=False,
        repr=False,
    )
    """The models that wrote the messages, or those of a view from which this one was made."""

    __repr__ = describe_fields

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages alone."""
        # faster than a loop: views are long, and there is one for each new message
        return tuple(map(attrgetter("message"), self.items))


def build_view(path: Sequence[Entry]) -> TranscriptView:
    """Build the view of a path, root first. Takes time linear in the length of the path."""
    return _View(path).snapshot()[1]


def build_summary_message(summary: str) -> Message:
    """Build the message in which the model is shown a summary.

    The tags around it are escaped in the summary itself.
    """
    return _tag_message("conversation-summary", summary)


class ViewBuilder:
    """Build the views of a path that grows: entries that were appended are added to the previous view.

    A builder serves the paths of one transcript, where the last entry determines the path. It
    returns what `build_view` returns.
    """

    def __init__(self) -> None:
        self._view = _View(())
        self._length = 0
        self._ends: tuple[Entry, ...] = ()
        self._snapshot = TranscriptView()
        self.kept = 0
        """The number of items at the start of the newest view that are those of the view before."""

    def __len__(self) -> int:
        """Return the number of entries of the path that was built last."""
        return self._length

    def build(self, path: Sequence[Entry]) -> TranscriptView:
        """Build the view of a path, root first.

        Takes time linear in the number of new entries, apart from copying the tuple of items. After
        a checkpoint or an edit, the whole path is read again.
        """
        length = self._length
        ends = (path[0], path[length - 1]) if 0 < length <= len(path) else ()
        if ends != self._ends:
            self._view = _View(path)
        elif len(path) == length:
            self.kept = len(self._snapshot.items)
            return self._snapshot
        elif not self._view.extend(path, length):
            self._view = _View(path)
        self._length = len(path)
        self._ends = (path[0], path[-1]) if path else ()
        self.kept, self._snapshot = self._view.snapshot()
        return self._snapshot


_CHANGES_EARLIER = frozenset({Checkpoint, Reset, Edit})
"""The entries that change how earlier ones are viewed."""


class _View:
    """A view that can be extended."""

    def __init__(self, path: Sequence[Entry]) -> None:
        self._path = path
        # the edit that applies to an entry, by its id
        self._edits: dict[str, Edit] = {}
        # ids of the entries that an edit changed in another way than by pruning
        self._rewritten: set[str] = set()
        self._checkpoint: Entry | None = None
        # ids of tool calls that are hidden together with their results
        self._hidden_calls: set[str] = set()
        # ids of the calls that the newest reply, which was cut off, is shown without
        self._omitted_calls: frozenset[str] = frozenset()
        self._answers: dict[str, set[str]] = {}
        self._unpaired: list[ViewItem] = []
        self._items: list[ViewItem] = []
        self._repairs: tuple[Repair, ...] = ()
        self._has_media = False
        self._models = frozenset[str | None]()
        self._pairer = ToolCallPairer(
            allow_early_results=False,
            describe_turn=lambda at: f"entry {self._unpaired[at].entry_id}",
        )
        shown = self._find_shown()
        if self._checkpoint is not None:
            self._add(list(self._checkpoint_items(self._checkpoint)))
        self._model: str | None = "" if any(map(_reads_model, shown)) else None
        self._add_entries(shown)

    def _find_shown(self) -> Sequence[Entry]:
        """Return the entries that may be shown, oldest first, and find the checkpoint and the edits that apply.

        Reads the path from its end, and only as far back as the view reaches.

        The latest checkpoint or reset that no edit hides applies. A checkpoint keeps entries back to
        its `first_kept`, but not beyond a reset.
        """
        edits, checkpoint = self._edits, self._checkpoint
        kept: str | None = None
        shown: list[Entry] = []
        newest = 0  # entries from the checkpoint on
        for entry in reversed(self._path):
            payload = entry.payload
            if type(payload) is MessageEntry and entry.id != kept:  # as most are
                shown.append(entry)
                continue
            undo = edits.get(entry.id)
            is_undone = undo is not None and undo.content is None
            if isinstance(payload, Reset) and not is_undone:
                break
            shown.append(entry)
            if isinstance(payload, Edit):
                if not is_undone:
                    edits.setdefault(payload.target, payload)
                self._rewritten.update(() if _prunes(payload) else (payload.target,))
            elif isinstance(payload, Checkpoint) and checkpoint is None and not is_undone:
                checkpoint, kept, newest = entry, payload.first_kept, len(shown)
                if kept is None:
                    break
                continue
            if entry.id == kept:
                kept = None
                break
        if checkpoint is not None and kept is not None:
            del shown[newest:]
            self._repairs = (
                Repair(
                    kind="unknown first kept",
                    detail=f"checkpoint {checkpoint.id}: its first kept entry {kept!r} is not before it in this view; nothing before it is kept.",
                ),
            )
        self._checkpoint = checkpoint
        return shown[::-1]

    def extend(self, path: Sequence[Entry], length: int) -> bool:
        """Add the entries after the first `length`.

        Returns False and adds nothing if one changes how earlier entries are viewed.
        """
        entries = tuple(path[length:])
        self._path = path
        kinds = set(map(type, map(attrgetter("payload"), entries)))
        if (
            kinds & _CHANGES_EARLIER
            or (Setting in kinds and any(map(_reads_model, entries)))
            or (
                self._omitted_calls
                and any(
                    entry.message and entry.message.tool_call_id in self._omitted_calls
                    for entry in entries
                )
            )
        ):
            return False
        self._add_entries(entries)
        return True

    def snapshot(self) -> tuple[int, TranscriptView]:
        """Return the number of items that did not change since the last snapshot, and the view."""
        pairer = self._pairer
        first, unpaired = pairer.settle(), self._unpaired
        messages = pairer.messages[first:]
        items = [
            item
            if message is (item := unpaired[source]).message
            else attrs.evolve(item, message=message)
            for message, source in zip(messages, pairer.sources[first:], strict=True)
        ]
        self._items[first:] = items
        self._models |= {item.model for item in items}
        self._has_media = self._has_media or have_media(messages)
        entry = self._checkpoint
        summary = (
            _edited_text(entry.payload.summary, self._edits.get(entry.id))
            if entry and isinstance(entry.payload, Checkpoint)
            else ""
        )
        return first, TranscriptView(
            items=tuple(self._items),
            checkpoint_id=entry.id if entry else None,
            summary=summary or None,
            repairs=(*self._repairs, *pairer.repairs),
            has_media=self._has_media,
            models=self._models,
        )

    def _checkpoint_items(self, entry: Entry) -> Iterator[ViewItem]:
        """Yield the messages that replace what a checkpoint summarized."""
        checkpoint = entry.payload
        edit = self._edits.get(entry.id)
        if not isinstance(checkpoint, Checkpoint):
            return
        if checkpoint.replacement is not None and edit is None:
            own = checkpoint.own or _find_recorded_summary(checkpoint, checkpoint.replacement)
            yield from (
                ViewItem(
                    message=message,
                    entry_id=entry.id,
                    kind="summary" if index in own else "replacement",
                )
                for index, message in enumerate(checkpoint.replacement)
            )
        elif summary := _edited_text(checkpoint.summary, edit):
            yield ViewItem(
                message=build_summary_message(summary), entry_id=entry.id, kind="summary"
            )

    def _add_entries(self, entries: Sequence[Entry]) -> None:
        """Add the messages of entries, edited."""
        find: Callable[[str], Entry | None] | None = None
        is_searched, edits = False, self._edits
        items: list[ViewItem | None] = []
        for entry in entries:
            payload, edit = entry.payload, edits.get(entry.id) if edits else None
            if isinstance(payload, MessageEntry):
                message = payload.message
                if payload.finish in INCOMPLETE_FINISHES and not is_searched:
                    is_searched = True
                    self._answers |= _find_answers_to_cut_replies(entries)
                if payload.quotes and edit is None:
                    find = find or find_sources(self._path)
                    message = restore_quotes(payload, find)
                elif self._answers or self._omitted_calls:
                    message = self._without_cut_calls(entry, message)
                items.append(self._show_message(entry, message, edit, payload))
            elif isinstance(payload, CustomMessage):
                items.append(self._show_message(entry, payload.message, edit))
            elif isinstance(payload, BranchSummary):
                if text := _edited_text(payload.summary, edit):
                    message = _tag_message("branch-summary", text)
                    items.append(
                        ViewItem(message=message, entry_id=entry.id, kind="branch_summary")
                    )
            elif (
                isinstance(payload, Setting)
                and payload.name == MODEL_SETTING
                and isinstance(payload.value, str)
            ):
                self._model = payload.value
        self._add(list(filter(None, items)))

    def _without_cut_calls(self, entry: Entry, message: Message) -> Message:
        """Return a message without tool calls that were cut off: those of a cut reply that have no result.

        Without text nothing is left.
        """
        if message.role == "assistant":
            self._omitted_calls = frozenset()
        answered = self._answers.get(entry.id)
        if answered is None or all(call.id in answered for call in message.tool_calls):
            return message
        self._omitted_calls = frozenset(call.id for call in message.tool_calls) - answered
        calls = tuple(call for call in message.tool_calls if call.id in answered)
        return attrs.evolve(
            message,
            tool_calls=calls,
            content=message.content if calls or message.text.strip() else (),
        )

    def _show_message(
        self, entry: Entry, message: Message, edit: Edit | None, own: MessageEntry | None = None
    ) -> ViewItem | None:
        """Return the item of a message, edited. None: it is not shown."""
        calls, hidden = message.tool_calls, self._hidden_calls
        if calls and (
            (edit is not None and edit.content is None)
            or (own is not None and own.finish in UNREPLAYABLE_FINISHES)
        ):
            hidden.update(call.id for call in calls)
            return None
        if hidden:
            if message.role == "tool" and message.tool_call_id in hidden:
                return None
            hidden.difference_update(call.id for call in calls)
        unpruned = None
        if edit is not None:
            if edit.content is None:
                return None
            if message.role == "tool" and _prunes(edit) and entry.id not in self._rewritten:
                unpruned = message
            message = attrs.evolve(message, content=edit.content)
        model, recorded = None, None
        if message.role == "assistant":
            if not (message.content or calls):
                return None  # providers refuse a message without content
            model = (own.model or self._model) if own else None
        if own and own.quotes and edit is None:
            recorded = own.message
        # without keywords, which would take a third of the time: views are long
        return ViewItem(
            message,
            entry.id,
            "message" if own else "custom_message",
            model,
            recorded,
            unpruned,
        )

    def _add(self, items: Sequence[ViewItem]) -> None:
        self._unpaired += items
        self._pairer.extend([item.message for item in items])


def _reads_model(entry: Entry) -> bool:
    """Return whether an entry records a change of the model."""
    return isinstance(entry.payload, Setting) and entry.payload.name == MODEL_SETTING


def _find_answers_to_cut_replies(entries: Sequence[Entry]) -> dict[str, set[str]]:
    """Return for each reply with tool calls that was cut off the ids of its calls that have a result before the next reply."""
    found: dict[str, set[str]] = {}
    answered: set[str] | None = None
    for entry in entries:
        match entry.payload:
            case MessageEntry(message=message, finish=finish) if message.role == "assistant":
                answered = (
                    found.setdefault(entry.id, set())
                    if finish in INCOMPLETE_FINISHES and message.tool_calls
                    else None
                )
            case MessageEntry(message=message) if answered is not None and message.tool_call_id:
                answered.add(message.tool_call_id)
            case _:
                continue
    return found


def _prunes(edit: Edit) -> bool:
    return edit.reason in {PRUNED_REASON, SUPERSEDED_REASON}


def _find_recorded_summary(checkpoint: Checkpoint, messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the index of the first message that begins with a checkpoint's summary in its tags, for one that does not record its own."""
    tagged = build_summary_message(checkpoint.summary).text
    return next(
        (
            (at,)
            for at, message in enumerate(messages)
            if message.role == "user" and message.text.startswith(tagged)
        ),
        (),
    )


def _edited_text(text: str, edit: Edit | None) -> str:
    """Return a summary, or the content that an edit gave it."""
    return (
        text
        if edit is None
        else "".join(part for part in edit.content or () if isinstance(part, str))
    )


def escape_closing_tag(text: str, tag: str) -> str:
    r"""Escape what a model may read as the end of a block with this tag: any spelling in capitals, with spaces and with invisible characters.

    >>> print(escape_closing_tag("</plan> </ PLAN>", "plan"))
    <\/plan> <\/ PLAN>
    """
    return re.sub(
        rf"<({_SPACE})/(?={_SPACE}{spell_tags([tag])})", r"<\1\\/", text, flags=re.IGNORECASE
    )


def escape_block_tags(text: str) -> str:
    r"""Escape what a model may read as the beginning or the end of a block of `BLOCK_TAGS`, in any spelling, so that a text imitates none.

    >>> print(escape_block_tags("<plan> </ PLAN> <div>"))
    <\plan> <\/ PLAN> <div>
    """
    # a template would be looked up by the hash of the pattern, which takes longer than the search
    return compile_tags(BLOCK_TAGS, r"(?![\w-])").sub(lambda _: "<\\", text)


def _tag_message(tag: str, text: str) -> Message:
    return Message(role="user", content=(f"<{tag}>\n{escape_closing_tag(text, tag)}\n</{tag}>",))
