"""The plan of a compaction, the task of a summarizer and its result, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.tool_calls import FILE_RULES, FileRule
from promptkit.messages import Json, Message, ToolDefinition, Usage
from promptkit.providers import Model
from promptkit.rendering import Rendered
from promptkit.reprs import describe_fields
from promptkit.transcript import Redactor, ViewItem
from promptkit.transcript.log.entries import Author

TARGET_SHARE = 4
"""The target length of a summary is its maximum divided by this."""

MIN_TARGET_TOKENS = 500
MAX_TARGET_TOKENS = 2_000


@attrs.frozen(kw_only=True)
class Plan:
    """A partition of a view: every message is in exactly one of five parts.

    Tool calls and their results are in the same part.
    """

    leaf: str
    """The last entry at planning time. The plan is valid while it is on the path and nothing before
    it has changed."""
    previous: str | None = None
    """The text of the summary that the view starts with. The next summary updates it with the new
    messages in `dropped`."""
    dropped: tuple[ViewItem, ...] = ()
    """The messages that the summary replaces. The message of the previous summary is the first of
    them."""
    prefix: tuple[ViewItem, ...] = ()
    """The first messages of a turn that is split. They are summarized as well."""
    kept: tuple[ViewItem, ...] = ()
    """The messages that stay, after the summary."""
    pinned: tuple[ViewItem, ...] = ()
    """Messages that stay although newer ones are dropped, such as system messages."""
    replayed: tuple[ViewItem, ...] = ()
    """Messages that are repeated after the summary, such as the user request that a long turn works
    on."""

    oversized_tokens: int | None = None
    """The tokens of `kept` if they exceed the tokens to keep, as a single block is never cut. None:
    `kept` fits, or is not limited."""

    __repr__ = describe_fields

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to summarize, so that no model is asked."""
        return not self.dropped and not self.prefix

    @property
    def first_kept(self) -> str | None:
        """The id of the first entry that stays. None: no entry stays."""
        return self.kept[0].entry_id if self.kept else None


@attrs.frozen(kw_only=True)
class LastRequest:
    """The last request as it was sent.

    A summary requested after the same bytes uses the provider's prompt cache.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class KnownFacts:
    """The facts of what a plan drops, the earlier ones among them. They are found once for all summarizers."""

    plan: Plan
    facts: Facts

    def belong_to(self, plan: Plan) -> bool:
        """Return whether they are the facts of what this plan drops."""
        return self.plan.dropped is plan.dropped and self.plan.prefix is plan.prefix


class AskedRequest:
    """Holds the request that a summarizer rendered for a task, for its next attempt."""

    def __init__(self) -> None:
        self._last: tuple[object, SummaryTask, Rendered] | None = None

    def find(self, summarizer: object, task: SummaryTask) -> Rendered | None:
        """Return the request of the same summarizer for an equal task. None: another one was rendered last, or none."""
        if self._last is None or self._last[0] is not summarizer or self._last[1] != task:
            return None
        return self._last[2]

    def keep(self, summarizer: object, task: SummaryTask, rendered: Rendered) -> None:
        """Keep a request in place of the one before."""
        self._last = summarizer, task, rendered


@attrs.frozen(kw_only=True)
class SummaryTask:
    """The input of a summarizer."""

    plan: Plan
    max_tokens: int
    """Maximum length of the summary."""
    instructions: str | None = None
    """Instructions of the user for the summary."""
    complaint: str | None = attrs.field(default=None, eq=False)
    """A sentence on what was wrong with the summary that was written before. It follows the same request as a message of its own."""
    asked: AskedRequest = attrs.field(factory=AskedRequest, repr=False, eq=False)
    """The request that was sent last for this task, which a complaint follows as it is."""
    last_request: LastRequest | None = None
    tools: Sequence[ToolDefinition] = ()
    """The tools of the conversation."""
    facts: Facts = attrs.field(factory=Facts)
    """The facts that the earlier checkpoint recorded."""
    known_facts: KnownFacts | None = attrs.field(default=None, repr=False, eq=False)
    """The facts of what is dropped, with the earlier ones, where they were found already."""
    headings: bool = True
    """The summary has the headings of the template. False: the instructions ask for something
    else."""
    memories: bool = False
    """The answer also lists what should be remembered in other conversations. The list becomes the
    fact `memories`."""
    known_memories: Sequence[str] = ()
    """Memories that are written down already, oldest first. The list leaves them out."""
    requests_beside: bool = False
    """The user's messages stand beside the summary, which need not repeat them."""
    file_rules: Sequence[FileRule] = FILE_RULES
    """The rules that tell which files a tool call reads or changes."""
    redactor: Redactor | None = None
    """The redactor that removed secrets from the plan, the instructions and the facts. The last
    request is as it was sent."""
    seconds: float | None = None
    """The longest time that one summarizer may take, in seconds. Then the next one is tried. None:
    no limit."""
    require_model: bool = False
    """Only a model may write the summary, where the conversation has a summarizing model."""
    report: Callable[[FailedAttempt], object] | None = attrs.field(
        default=None, repr=False, eq=False
    )
    """Called with each attempt that failed."""
    observe: Callable[[Model], Model] | None = attrs.field(default=None, repr=False, eq=False)
    """Returns a model whose requests are reported as events. None: they are not."""
    check: Callable[[Summary], object] | None = attrs.field(default=None, repr=False, eq=False)
    """Raises SummaryError for a summary that would not be applied, such as one that is no smaller
    than the messages it replaces."""

    __repr__ = describe_fields

    @property
    def target_tokens(self) -> int:
        """Target length of the summary in tokens: a quarter of the maximum, from 500 to 2,000.

        Output tokens cost many times as much as cached input, and the summary is paid for again as
        input. What it leaves out is in the transcript. Longer summaries did not retain more of what
        later turns needed (docs/economics.md).
        """
        return compute_target_tokens(self.max_tokens)


def compute_target_tokens(max_tokens: int) -> int:
    """Return the target length of a summary that may have at most `max_tokens` tokens, as `SummaryTask.target_tokens`."""
    return min(
        max_tokens, max(MIN_TARGET_TOKENS, min(MAX_TARGET_TOKENS, max_tokens // TARGET_SHARE))
    )


@attrs.frozen(kw_only=True)
class FailedAttempt:
    """A summarizer that was asked and made no summary."""

    summarizer: str
    """The name of its class."""
    reason: str
    """A word, such as `too_large` or `timeout`, or the name of the error's class."""
    detail: str
    """The error's text."""
    seconds: float
    """The duration of the attempt."""
    usage: Usage | None = None
    """The cost in tokens, as far as the provider reported it."""

    __repr__ = describe_fields


def _check_text(_: object, field: attrs.Attribute[str | None], value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{field.name} must be a text or None, not {value!r:.80}.")


def _check_texts(_: object, field: attrs.Attribute[Sequence[str]], value: Sequence[object]) -> None:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise TypeError(f"{field.name} must be a list or tuple of texts, not {value!r:.80}.")


@attrs.frozen(kw_only=True)
class CarriedContext:
    """Context that the host program carries past every checkpoint.

    It is repeated verbatim, and never summarized.

    Tags in it that promptkit itself uses are escaped, so that it can neither end its own block nor
    imitate another one.
    """

    plan: str | None = attrs.field(default=None, validator=_check_text)
    todos: Sequence[str] = attrs.field(default=(), validator=_check_texts)
    """The open todos."""
    skills: Sequence[str] = attrs.field(default=(), validator=_check_texts)
    """The loaded skills: of each one its name, and in the next lines its text if the model needs it
    again."""
    rules: Sequence[str] = attrs.field(default=(), validator=_check_texts)
    """The rules for agents that were read: of each file its path, and in the next lines its text."""
    agent: str | None = attrs.field(default=None, validator=_check_text)
    """The description of the custom agent that is active."""
    files: Sequence[str] = attrs.field(default=(), validator=_check_texts)
    """The files that were changed and read, a line for each."""
    errors: Sequence[str] = attrs.field(default=(), validator=_check_texts)
    """The lines that reported the newest errors."""
    extract: Sequence[str] = attrs.field(default=(), validator=_check_texts)
    """What a summary that left out too much is completed with."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class Summary:
    """The output of a summarizer."""

    text: str
    """The summary; never blank."""
    mode: str
    """The kind of summarizer: `live`, `full`, `simple`, `chunked`, `remote`, `native`, `extractive`
    or `placeholder`; `partial` for one of a model that was not shown all of the messages."""
    model: str | None = None
    """The model that wrote it. None: no model was asked."""
    usage: Usage | None = None
    """The usage of all requests together. None: no model was asked."""
    replacement: tuple[Message, ...] | None = None
    """Messages of the provider's own compaction that replace the dropped ones. `text` is used where
    these cannot be read."""
    facts: Facts = attrs.field(factory=Facts)
    """Facts for the next checkpoint. Those that have a value replace the ones of the messages."""
    author: Author = "model"
    """Who wrote it. Of a summary that a hook gives it becomes `hook`."""
    data: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """The data that hooks attached. It is stored in the entry of the summary."""
    carried: CarriedContext | None = None
    """The context that the checkpoint carries beside the text. It is set when the summary is checked."""
    losses: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """What it left of the facts of the conversation. It is set when the summary was checked."""
    missed: int = 0
    """The number of messages that the summary replaces and the summarizer was not shown, not even in
    part."""
    request_id: str | None = attrs.field(default=None, eq=False)
    """The provider's name for the request that wrote it. None: it gave none, or no model was
    asked."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class SentRequest:
    """A request that was sent, and the part of the view that it contained."""

    request: LastRequest
    leaf: str
    """The last entry of the path when the request was sent."""
    items: int
    """The number of items of the view, from its start, that the request contains."""

    def with_reply(self, reply: Message, view: Sequence[ViewItem]) -> SentRequest:
        """Append the reply, if it is the next item of the view.

        A reply with tool calls is not appended: calls cannot be sent without results.
        """
        if reply.tool_calls or not view[self.items :] or view[self.items].message != reply:
            return self
        request = attrs.evolve(self.request, messages=(*self.request.messages, reply))
        return attrs.evolve(self, request=request, items=self.items + 1)

    def shows(self, plan: Plan, view: Sequence[ViewItem]) -> bool:
        """Return whether the request contains every message that a plan for the view drops."""
        stay = set(map(id, (*plan.kept, *plan.pinned, *plan.replayed)))
        return all(id(item) in stay for item in view[self.items :])
