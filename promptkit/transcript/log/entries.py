"""The entries of a transcript: frozen values that are written once and never changed.

Every entry names its parent, so a transcript is a tree. The path from the root to a leaf is one
conversation. Checkpoints, edits and resets change how earlier entries are viewed; each of them is
an entry itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from promptkit.messages import Json, Message, Part, ToolDefinition, Usage
from promptkit.reprs import describe, describe_fields

EntryKind = Literal[
    "message",
    "checkpoint",
    "branch_summary",
    "edit",
    "reset",
    "custom",
    "custom_message",
    "setting",
    "label",
    "observation",
    "unknown",
]
"""The kind of an entry, as the transcript file names it."""


@attrs.frozen(kw_only=True)
class Quote:
    """A passage of an earlier entry that a tool result repeats. It is stored as a reference."""

    at: int = 0
    """The place in the stored text, in characters."""
    entry: str
    """The id of the earlier entry."""
    start: int
    """The first character of the passage in the earlier entry's text, whose lines end with line
    feeds."""
    end: int
    """The character after the passage."""
    of: Literal["text", "line"] = "text"
    """What the passage is a part of: the entry's text, or its line in the transcript's file, for a
    model that reads the file with another tool."""


@attrs.frozen(kw_only=True)
class RequestBudget:
    """The budget that a request had, in tokens. None: there was no limit."""

    window: int | None = None
    """The context window, input and output together."""
    limit: int | None = None
    """The most tokens of the input."""


@attrs.frozen(kw_only=True)
class CacheMissed:
    """A request read less from the provider's prompt cache than the request before it could have left there.

    It is an event of a session or window, and a part of the reply's entry. Of the causes only those are
    named that the requests themselves, the clock or the provider's figures show.
    """

    reason: Literal["changed", "model", "expired", "provider"]
    """Why it missed.

    - `changed`: the request does not begin with all of the request before it.
    - `model`: another model answered the request before it.
    - `expired`: more time has passed than the provider keeps a prompt.
    - `provider`: the request begins with all of the request before it, in time, and the provider
      read less all the same.
    """
    expected: int
    """Tokens of the request before, which the cache could have held."""
    common: int
    """Tokens with which both requests begin."""
    cached: int | None = None
    """Tokens that the provider read from its cache. None: it reported nothing."""
    seconds: float | None = None
    """Seconds since the reply before. None: unknown."""
    block: str | None = None
    """The first block that differs: `tools`, or a message such as `messages[0] (system)`. None:
    nothing differs, or the request before is not known."""
    path: str | None = None
    """The path of the element that wrote the block, as receipts show it."""
    change: str | None = None
    """The cause of the difference: `compaction`, `pruning`, `undo`, `edit`, `reset`, `branch`, `hook`,
    `limit` (the request was pruned to fit), the names of the preset's processors, `prompt` (the prompt
    rendered it differently), or for tools which were added, removed, changed or moved. A compaction beside them
    comes first: `compaction; added search`. None: unknown."""

    @property
    def cause(self) -> str:
        """The reason in a word, or for a difference what caused it, such as `compaction`."""
        return (self.change or "unknown") if self.reason == "changed" else self.reason

    def describe(self) -> str:
        """Describe the cause in one line.

        >>> CacheMissed(reason="changed", expected=9_000, common=0, block="tools", change="added search").describe()
        'tools differ: added search'
        """
        seconds = "" if self.seconds is None else f" after {self.seconds:,.0f} seconds"
        causes = {
            "changed": f"{self.block} differ{'' if self.block == 'tools' else 's'}",
            "model": "another model answered the request before",
            "expired": f"the cache had expired{seconds}",
            "provider": "the provider did not keep what it was sent",
        }
        named = ": ".join(filter(None, (causes[self.reason], self.change)))
        return f"{named}, at {self.path}" if self.path else named


@attrs.frozen(kw_only=True)
class MessageEntry:
    """A message of the conversation: a system, user or assistant message, or a tool result."""

    message: Message
    """The message. A tool result that repeats earlier entries has the mark `[…]` in place of each
    of its quotes."""
    quotes: tuple[Quote, ...] = ()
    """The passages of earlier entries that the message repeats, in order. The view shows their
    text."""
    usage: Usage | None = None
    """The usage of the request that this message answered. Only assistant messages have it."""
    model: str | None = None
    """The model that wrote the message."""
    finish: str | None = None
    """The finish reason: `stop`, `tool_calls`, `length`, `content_filter`, `error` or `aborted`;
    None if it is unknown."""
    budget: RequestBudget | None = attrs.field(default=None, repr=False)
    """The budget of the request that this reply answered. None: that of the reply before it."""
    tools: tuple[ToolDefinition, ...] | None = attrs.field(default=None, repr=False)
    """The tools that the request offered, in their order. None: those of the reply before it."""
    cache_miss: CacheMissed | None = attrs.field(default=None, repr=False)
    """Why the provider's prompt cache served less of the request than it could have. None: it did
    not, as far as is known."""

    def __repr__(self) -> str:
        return describe(
            self,
            role=self.message.role,
            text=self.message.text,
            tool_calls=self.message.tool_calls,
            model=self.model,
        )


Author: TypeAlias = Literal["model", "hook", "extract"]
"""Who wrote a summary: a model or a hook of the program. An `extract` is taken from the conversation
without either."""


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A compaction: from here on, the view shows the summary instead of the entries before `first_kept`.

    The summary text is final: the breadcrumb and the file lists are part of it and are not computed
    again.
    """

    summary: str
    """The summary as the model is shown it, without the tags around it."""
    first_kept: str | None = None
    """The id of the first entry that the view keeps unchanged; None if it keeps no entry before
    this checkpoint."""
    replacement: tuple[Message, ...] | None = None
    """The messages that replace the earlier ones, if they are not just one summary message."""
    own: tuple[int, ...] = ()
    """Indices in `replacement` of the generated messages: the summary, carried-over facts, notes.

    The next compaction generates them again instead of summarizing them.
    """
    portable: tuple[Message, ...] | None = None
    """A form of `replacement` for every provider, if `replacement` contains parts that only one
    provider can read."""
    trigger: str = "manual"
    """Why the compaction ran: `manual`, `foreground`, `background`, or the word of another
    policy."""
    instructions: str | None = None
    """The user's instructions for the summary."""
    tokens_before: int | None = None
    """Tokens of the view before the compaction."""
    tokens_after: int | None = None
    """Tokens of the view after the compaction."""
    model: str | None = None
    """The model that wrote the summary; None if no model was used."""
    author: Author | None = None
    """Who wrote the summary; None if that is not known, as for imported ones."""
    usage: Usage | None = None
    """The usage of the summary requests."""
    data: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """What hooks attached. The model is never shown it."""
    facts: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """Data that each checkpoint hands to the next one, such as the files that were read and
    changed."""
    losses: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """What is left of the facts that the conversation showed: their number by kind and level, and
    the newest that are no longer shown."""
    dropped: int | None = None
    """The number of messages that the summary replaces, the previous summary aside."""
    shown: int | None = None
    """The number of those messages that the summarizer was shown, at least in part."""

    def __repr__(self) -> str:
        return describe(
            self,
            trigger=self.trigger,
            dropped=self.dropped,
            tokens_before=self.tokens_before,
            tokens_after=self.tokens_after,
            model=self.model,
            summary=self.summary,
        )


@attrs.frozen(kw_only=True)
class BranchSummary:
    """The summary of an abandoned branch, shown on the branch where the conversation continues."""

    summary: str
    """The summary, without the tags around it."""
    leaf: str
    """The id of the last entry of the abandoned branch."""
    facts: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """Data about the branch, such as the files that were read and changed on it."""
    model: str | None = None
    """The model that wrote the summary; None if no model was used."""
    author: Author | None = None
    """Who wrote the summary; None if that is not known."""
    usage: Usage | None = None
    """The usage of the summary requests."""
    data: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """What hooks attached. The model is never shown it."""

    __repr__ = describe_fields


PRUNED_REASON = "pruned"
"""The reason in the edits that replace old tool outputs by a placeholder."""

REASONING_REASON = "reasoning"
"""The reason in the edits that take old reasoning out of replies."""

SUPERSEDED_REASON = "superseded"
"""The reason in the edits that replace superseded tool outputs by a placeholder."""


@attrs.frozen(kw_only=True)
class Edit:
    """A change of how an earlier entry is viewed: with other content, or hidden.

    The entry itself is not changed.
    """

    target: str
    """The id of the entry. It must be on the same path."""
    content: tuple[Part, ...] | None
    """The content that the view shows from here on; None hides the entry. Hiding a checkpoint, a
    reset or an edit undoes it."""
    reason: str
    """Why the edit was made, in one word: `pruned`, `undone`, `redacted`."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class Reset:
    """A new start: the view shows no entry before this one, and no summary covers them."""

    reason: str = "manual"
    """Why the conversation was reset, in one word."""


@attrs.frozen(kw_only=True)
class CustomEntry:
    """Data that a program stores in the transcript. The model is never shown it."""

    name: str
    """The name of the program's entry, such as `my_app.bookmark`."""
    data: Json = None
    """Any JSON value."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class CustomMessage:
    """A message that a program added to the conversation, such as a reminder or the output of a hook."""

    name: str
    """The name of the program or the hook."""
    message: Message
    """The message as the model is shown it."""
    model: str | None = None
    """The model that wrote it, such as the document of a handoff; None if no model did."""
    usage: Usage | None = None
    """The usage of the requests for it."""
    tools: tuple[ToolDefinition, ...] | None = None
    """The tools of the conversation from here on, if the message tells the model of them."""

    def __repr__(self) -> str:
        return describe(self, name=self.name, role=self.message.role, text=self.message.text)


@attrs.frozen(kw_only=True)
class Setting:
    """A setting that applies from here on, such as the model. The model is never shown it."""

    name: str
    """The name of the setting."""
    value: Json
    """The new value."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class Label:
    """A name for an entry, so that users can find it. The model is never shown it."""

    target: str
    """The id of the entry."""
    label: str
    """The name. If two entries have the same label, the later label applies."""


@attrs.frozen(kw_only=True)
class Observation:
    """A measurement or an event around a request, such as a truncation.

    The model is never shown it.
    """

    name: str
    """What was measured or what happened."""
    data: Json = None
    """Any JSON value."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class UnknownEntry:
    """An entry of a kind that this version does not know. It is kept unchanged."""

    kind: str
    """The kind as it is written in the file."""
    data: Mapping[str, Json]
    """The data of the entry."""

    __repr__ = describe_fields


EntryPayload: TypeAlias = (
    MessageEntry
    | Checkpoint
    | BranchSummary
    | Edit
    | Reset
    | CustomEntry
    | CustomMessage
    | Setting
    | Label
    | Observation
    | UnknownEntry
)
"""The content of an entry: a message, a checkpoint, an edit or another record."""

KINDS: dict[type[EntryPayload], EntryKind] = {
    MessageEntry: "message",
    Checkpoint: "checkpoint",
    BranchSummary: "branch_summary",
    Edit: "edit",
    Reset: "reset",
    CustomEntry: "custom",
    CustomMessage: "custom_message",
    Setting: "setting",
    Label: "label",
    Observation: "observation",
    UnknownEntry: "unknown",
}
"""The kind of each payload class, as transcript files name it."""


@attrs.frozen(kw_only=True)
class Entry:
    """One entry of a transcript."""

    id: str
    """The id, unique in the transcript."""
    parent_id: str | None
    """The id of the entry that this one follows; None for a root."""
    time: float
    """When the entry was written, in seconds since 1970 (UTC)."""
    payload: EntryPayload
    """What the entry holds."""

    def __repr__(self) -> str:
        return describe(self, id=self.id, payload=self.payload)

    @property
    def kind(self) -> EntryKind:
        """The kind of the payload."""
        return KINDS[type(self.payload)]

    @property
    def message(self) -> Message | None:
        """The message of a `MessageEntry` or a `CustomMessage`; None for every other kind."""
        payload = self.payload
        # a tuple, as a union would be made anew for each of very many calls
        return payload.message if isinstance(payload, (MessageEntry, CustomMessage)) else None
