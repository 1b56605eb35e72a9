"""The entries of a transcript: frozen values that are written once and never changed.

An entry stands behind its parent, so that a transcript is a tree; the path from the root to a leaf is one conversation. What
changes the view of earlier entries (a checkpoint, an edit, a reset) is an entry of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from promptkit.messages import Json, Message, Part, Usage

__all__ = [
    "KINDS",
    "BranchSummary",
    "Checkpoint",
    "Custom",
    "CustomMessage",
    "Edit",
    "Entry",
    "Kind",
    "Label",
    "MessageEntry",
    "Observation",
    "Payload",
    "Reset",
    "Setting",
    "Unknown",
]

Kind = Literal[
    "message", "checkpoint", "branch_summary", "edit", "reset", "custom", "custom_message", "setting", "label", "observation", "unknown"
]


@attrs.frozen(kw_only=True)
class MessageEntry:
    """A message of the conversation: what was asked, answered, called, returned."""

    message: Message
    usage: Usage | None = None
    """What the request cost that this message answered; only of assistant messages."""
    model: str | None = None
    """The model that wrote it."""
    finish: str | None = None
    """Why the model ended: `stop`, `tool_calls`, `length`, `content_filter`, `error` or `aborted`; None where nobody said."""


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A compaction: what stands before `first_kept` is shown as the summary from here on.

    The text is baked: breadcrumb and file lists are part of it, worked out once when it was made.
    """

    summary: str
    """What the model is shown, without the tags around it."""
    first_kept: str | None = None
    """The id of the first entry that stays as it is; None: nothing before this checkpoint does."""
    replacement: tuple[Message, ...] | None = None
    """The messages that stand for what was before, where that is more than one summary message, or another form of it."""
    own: tuple[int, ...] = ()
    """The places in `replacement` of what nobody said: the summary, what is carried over, notes. They are made anew, not summarized."""
    portable: tuple[Message, ...] | None = None
    """What stands in the place of `replacement` at any provider, where that holds what only one of them can read."""
    trigger: str = "manual"
    """Why it was made: `manual`, `foreground`, `background`, or another policy's word."""
    instructions: str | None = None
    """What the person asked the summary to heed."""
    tokens_before: int | None = None
    tokens_after: int | None = None
    model: str | None = None
    """The model that wrote the summary; None for one made without a model."""
    usage: Usage | None = None
    """What the summary cost."""
    facts: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """What is carried over from checkpoint to checkpoint, such as the files that were read and changed."""


@attrs.frozen(kw_only=True)
class BranchSummary:
    """What happened on a branch that was left, told where the conversation goes on."""

    summary: str
    leaf: str
    """The id of the entry that the branch ended with."""
    facts: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])


@attrs.frozen(kw_only=True)
class Edit:
    """Another view of an earlier entry: with other content, or not shown at all. The entry itself stays as it was written."""

    target: str
    """The id of the entry, on the same path."""
    content: tuple[Part, ...] | None
    """What its message holds from now on; None: it is not shown. A checkpoint, a reset or an edit that is not shown is undone."""
    reason: str
    """In a word: `pruned`, `undone`, `redacted`."""


@attrs.frozen(kw_only=True)
class Reset:
    """Nothing before this is shown, or summarized, any more."""

    reason: str = "manual"


@attrs.frozen(kw_only=True)
class Custom:
    """Something that a program keeps for itself: never shown to the model."""

    name: str
    data: Json = None


@attrs.frozen(kw_only=True)
class CustomMessage:
    """A message that a program put into the conversation, such as a reminder or what a hook found."""

    name: str
    """Whose it is."""
    message: Message


@attrs.frozen(kw_only=True)
class Setting:
    """A setting that holds from here on, such as the model. Never shown."""

    name: str
    value: Json


@attrs.frozen(kw_only=True)
class Label:
    """A name for an entry, so that people find it again. Never shown."""

    target: str
    label: str


@attrs.frozen(kw_only=True)
class Observation:
    """Something that was measured or that happened around a request, such as a truncation. Never shown."""

    name: str
    data: Json = None


@attrs.frozen(kw_only=True)
class Unknown:
    """An entry of a kind that this version does not know: kept as it was read."""

    kind: str
    data: Mapping[str, Json]


Payload: TypeAlias = (
    MessageEntry | Checkpoint | BranchSummary | Edit | Reset | Custom | CustomMessage | Setting | Label | Observation | Unknown
)

KINDS: dict[type[Payload], Kind] = {
    MessageEntry: "message",
    Checkpoint: "checkpoint",
    BranchSummary: "branch_summary",
    Edit: "edit",
    Reset: "reset",
    Custom: "custom",
    CustomMessage: "custom_message",
    Setting: "setting",
    Label: "label",
    Observation: "observation",
    Unknown: "unknown",
}
"""The word for each payload, as it is written."""


@attrs.frozen(kw_only=True)
class Entry:
    """One entry. `time` is in seconds since 1970 (UTC)."""

    id: str
    parent_id: str | None
    time: float
    payload: Payload

    @property
    def kind(self) -> Kind:
        """The word for what it is."""
        return KINDS[type(self.payload)]

    @property
    def message(self) -> Message | None:
        """The message of an entry that has one."""
        return self.payload.message if isinstance(self.payload, MessageEntry | CustomMessage) else None
