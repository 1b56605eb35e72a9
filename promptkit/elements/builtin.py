"""The built-in elements: messages, text, layout, media, and the rounds of a recorded conversation.

Behind them are shorter ways to write what prompts are full of (tags, lines, conditions), and the
element of a given message.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NoReturn, cast

import attrs

from promptkit.elements.component import component
from promptkit.elements.element import Child, Opening, PromptElement, Sizing, flatten
from promptkit.errors import BadPropError, TreeError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    Role,
    ToolCall,
)
from promptkit.sizes import read_tokens


def _check_name(element: object, _attribute: attrs.Attribute[str | None], name: str | None) -> None:
    # callers without a type checker pass anything
    if name is not None and not (isinstance(cast("object", name), str) and name):
        raise BadPropError(
            f"name must be a text that is not empty, or None, not {name!r:.80}.",
            path=type(element).__name__,
        )


@component
class MessageElement(PromptElement):
    """The base of the message elements."""

    name: str | None = attrs.field(default=None, validator=_check_name)
    """The participant's name, which is sent to the provider and costs tokens. For a name in
    receipts alone, use `label`."""


@component
class SystemMessage(MessageElement):
    """A message with the developer's instructions.

    Without a priority, of its own or of an element around it, the message is never removed, nor is
    the last one without a priority of its own. Its children with priorities are pruned.

    >>> SystemMessage()["You are terse."]
    """


@component
class UserMessage(MessageElement):
    """A message of the user.

    A render that would remove the last one of a prompt raises BudgetExceededError.

    >>> UserMessage(priority=900, flex_grow=2)["Fix the parser."]
    """


def _freeze_calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple(calls)


@component
class AssistantMessage(MessageElement):
    """A message of the model: text, tool calls or both.

    When the result of a tool call is pruned, the call is removed from the message. A message
    without text is removed with its last call.

    >>> AssistantMessage(tool_calls=[ToolCall(id="c1", name="read", arguments='{"path": "a.py"}')])
    """

    tool_calls: Sequence[ToolCall] = attrs.field(default=(), converter=_freeze_calls)
    """The tool calls, in the order in which the model made them."""

    keep_with: Mapping[str, Hashable] = attrs.field(factory=dict[str, Hashable])
    """Call id → `KeepWith` group. The call is pruned together with the group."""


@component
class ToolMessage(MessageElement):
    """The result of one tool call.

    The result and its call are pruned together. Without children it is sent as an empty result.

    >>> ToolMessage(tool_call_id="c1")["def parse(): ..."]
    """

    tool_call_id: str
    """The id of the tool call that this message answers. The call must come before the result."""


ROLES: Mapping[type[PromptElement], Role] = {
    SystemMessage: "system",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}
"""The roles of the message elements."""


@component
class ToolRound(PromptElement):
    """One step of the model: its text, its tool calls and all their results, kept or pruned as a whole.

    >>> ToolRound(
    ...     calls=[ToolCall(id="c1", name="read", arguments="{}")],
    ...     results={"c1": "def parse(): ..."},
    ...     text="I look at the parser.",
    ... )
    """

    calls: Sequence[ToolCall]
    """The tool calls, at least one, in the order in which the model made them."""

    results: Mapping[str, Child] = attrs.field(factory=dict[str, Child])
    """Call id → result of the tool. Every call needs one; None is an empty result."""

    text: Child = None
    """The text that the model wrote with its calls."""


@component
class Text(PromptElement):
    """Text within a line, with a priority of its own.

    Its children are strings, References and Metadata.

    >>> UserMessage()["Fix it", Text(priority=1)[" (the one from yesterday)"], "."]
    """


@component
class TextChunk(PromptElement):
    r"""A paragraph that starts on a new line. Its children are strings, References and Metadata.

    With `break_on` or `break_on_whitespace` it is truncated to its share of the budget: pieces are
    added as long as the text fits. If not even the first piece fits, it renders nothing.

    >>> TextChunk(priority=10, break_on="\n")[log]
    """

    break_on: str | re.Pattern[str] | None = None
    """The separator or pattern where the text may be truncated. The separator belongs to the piece
    that follows it."""

    break_on_whitespace: bool = False
    """Whether the text may be truncated between words."""


def _read_name(name: str) -> str:
    """Return a name of a tag or attribute."""
    if _NAME.fullmatch(name) is None:
        raise BadPropError(
            f"{name!r} is no name of a tag or attribute: write letters, digits, _, -, . and :, beginning with a letter or _."
        )
    return name


_NAME = re.compile(r"[^\W\d][\w.:-]*")


def _read_attributes(attributes: Mapping[str, str]) -> Mapping[str, str]:
    for name in attributes:
        _read_name(name)
    return attributes


@component
class Tag(PromptElement):
    """A section between `<tag>` and `</tag>`, each on a line of its own.

    The tags are pruned when all their content is pruned.

    Without children it is an empty-element tag. Attribute values are escaped as in XML; the content
    is not.

    >>> Tag(tag="file", attributes={"path": "a.py"})["print(1)"]
    """

    tag: str = attrs.field(converter=_read_name)
    """The name of the tag, such as `file`: letters, digits, `_`, `-`, `.` and `:`, beginning with a
    letter or `_`."""

    attributes: Mapping[str, str] = attrs.field(factory=dict[str, str], converter=_read_attributes)
    """Attribute name → value, written in this order."""


@component
class Truncate(PromptElement):
    r"""Text truncated to its share of the budget, or to `max_tokens`.

    The cut is at the end of a line if that costs at most 15 % of the text that stays, otherwise within
    a line, and never inside a character as users see it. The marker is counted. Pruning cuts the text further, down to the marker, before it removes the
    element.

    >>> Truncate(keep="middle", ratio=0.4, marker="\n[… output cut …]\n")[output]
    """

    keep: Literal["head", "tail", "middle"] = "head"
    """The part that stays. `middle` keeps head and tail and removes the text between them."""

    ratio: float = 0.4
    """For `middle`: the share of the head in the text that stays, from 0 to 1."""

    marker: str = "[…]"
    """The text that replaces the removed text."""

    max_tokens: int | str | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens that may stay. None: the element's share of the budget."""


@component
class Expandable(PromptElement):
    """Text that is generated a second time, longer, if budget is left over at the end.

    It respects the TokenLimits around it.

    >>> Expandable(value=lambda sizing: outline(module, sizing.token_budget))
    """

    value: Callable[[Sizing], str | Awaitable[str]]
    """Generates the text. Called with the element's share as budget, and again with what is left
    over."""


@component
class Group(PromptElement):
    """A container with a priority scope of its own: its children compete with each other, and it competes with its siblings.

    >>> Group(priority=5)[TextChunk(priority=1)["a"], TextChunk(priority=2)["b"]]
    """


@component
class Chunk(PromptElement):
    """Children that are kept or pruned as a whole.

    >>> Chunk(priority=5)[TextChunk()["question"], TextChunk()["answer"]]
    """


@component
class PrioritizedList(PromptElement):
    """Children with priorities by position: the last child is kept longest.

    Strings become TextChunks.

    >>> PrioritizedList(priority=10)["oldest", "older", "newest"]
    """

    descending: bool = False
    """Whether the first child is kept longest instead of the last."""


@component
class LegacyPrioritization(PromptElement):
    """A subtree whose texts compete only by their own priorities, regardless of the containers and Chunks around them.

    >>> LegacyPrioritization()[UserMessage(priority=1)[TextChunk(priority=9)["a"], TextChunk(priority=2)["b"]]]
    """


@component
class TokenLimit(PromptElement):
    """A hard limit on the tokens of a subtree.

    The subtree is pruned to the limit before the prompt is pruned to the budget, in the same
    removal order.

    >>> TokenLimit(max_tokens=2_000)[FileTree(root=".")]
    """

    max_tokens: int | str = attrs.field(converter=read_tokens)
    """The tokens that may stay in this subtree, including the framing of whole messages."""


class KeepGroup:
    """A group of `KeepWith.group()`. It equals only itself."""


@component
class KeepWith(PromptElement):
    """A member of a group that is pruned together: when one member is pruned completely, so are the others.

    >>> KeepWith(group="q1", priority=1)[UserMessage()["Why?"]], KeepWith(group="q1")[AssistantMessage()["Because."]]
    """

    key: Hashable = attrs.field(alias="group")
    """The group: any hashable value. Equal values that one component writes are the same group, and
    each instance of the component has its own. A group of `KeepWith.group()` may be passed on: it is
    one group in the whole prompt."""

    @staticmethod
    def group() -> KeepGroup:
        """Return a new group, for members that several components write.

        Wherever a prompt contains this object, it is the same group. A component that makes one in
        its `render` makes another one at each place where it is rendered.
        """
        return KeepGroup()


@component
class IfEmpty(PromptElement):
    """The children, or `alt` if the children render nothing.

    The choice is made once, before pruning.

    >>> IfEmpty(alt="No open files.")[OpenFiles()]
    """

    alt: Child = None
    """The alternative. It is rendered first, so it is counted before the children are sized."""


@component
class First(PromptElement):
    """The first child that fits its share, or the last child if none fits.

    End with None to render nothing in that case.

    >>> First()[whole_file, outline, file_name]
    """


@component
class Reserve(PromptElement):
    """Tokens that stay free, for the reply or for later messages.

    Never pruned; reported in `rendered.reserved`.

    In a message it is no content: when all else in the message is pruned, the message is, too, and
    the tokens stay free.

    >>> Reserve(tokens=1_000)
    """

    tokens: int | str = attrs.field(converter=read_tokens)
    """The number of tokens."""


@component
class Isolate(PromptElement):
    """A subtree with a budget of its own: pruned to that budget separately, and then kept or pruned as a whole.

    >>> Isolate(tokens=1_500, priority=50)[Examples(query=query)]
    """

    tokens: int | str = attrs.field(converter=read_tokens)
    """The budget of the subtree."""


@component
class CacheBreakpoint(PromptElement):
    """The end of a prefix that the provider should put into its prompt cache.

    It must be a direct child of a message.

    Nothing before the last cache breakpoint is pruned.

    >>> SystemMessage()["Long instructions", CacheBreakpoint(kind="ephemeral")]
    """

    kind: str | None = None
    """The provider's cache type, such as `ephemeral`."""

    ttl: str | None = None
    """The time to live in the cache, such as `5m` or `1h`."""


@component
class Image(PromptElement):
    """An image in a message.

    >>> Image(url="data:image/png;base64,iVBORw0KGgo…", detail="low")
    """

    url: str
    """A URL, a `data:` URL, or base64 of a PNG, JPEG, GIF or WebP."""

    detail: str | None = None
    """The resolution hint for the provider: `low`, `high` or `auto`."""

    media_type: str | None = None
    """The media type, such as `image/png`. It is detected for base64."""

    width: int | None = None
    """The width in pixels, needed for an exact token count of an image behind an http URL."""

    height: int | None = None
    """The height in pixels, see `width`."""


@component
class Document(PromptElement):
    """A document in a message, such as a PDF.

    >>> Document(data=base64_pdf, media_type="application/pdf", name="report.pdf", tokens=2_400)
    """

    data: str
    """The bytes of the document, in base64."""

    media_type: str
    """The media type, such as `application/pdf`."""

    name: str | None = None
    """The file name that the model sees."""

    tokens: int | None = None
    """The cost in tokens, as the caller knows it: providers publish no formula for documents."""


@component
class Opaque(PromptElement):
    """A provider's own content part, sent unchanged.

    >>> Opaque(value={"type": "thinking", "thinking": "…", "signature": "…"}, tokens=80, provider="anthropic")
    """

    value: Json
    """The part in the provider's wire format."""

    tokens: int | None = None
    """The cost in tokens. None counts the text in the part (a refusal, thinking, a summary), and
    marks the count as inexact."""

    provider: str | None = None
    """The only wire format that gets the part: `chat`, `responses` or `anthropic`. None sends it in
    every format."""


@component
class Reference(PromptElement):
    """A source of the element around it. `rendered.references` lists it if that element is kept.

    >>> TextChunk()[source, Reference(to="src/parser.py")]
    """

    to: str
    """The source: a URI, a path, the name of a variable."""

    detail: Json = None
    """Further information, as JSON."""


@component
class Metadata(PromptElement):
    """A value that is passed on to `rendered.metadata`.

    >>> UserMessage()[query, Metadata(value=Intent("fix"))]
    """

    value: object
    """Any value."""

    local: bool = False
    """Whether the value is dropped when the element around it is pruned."""


@component
class Rounds(PromptElement):
    """Rounds of a recorded conversation.

    Each is kept or pruned as a whole, in an order that is given.

    A round is a message, or a message with tool calls and the results of these calls.
    `RecordedMessages` divides a conversation into rounds.

    >>> Rounds(rounds=[Message(role="user", content=("Hello",))], order=[0], priorities=[0])
    """

    rounds: Sequence[Message | Sequence[Message]]
    """The rounds, oldest first. A round of one message may be that message itself."""

    order: Sequence[int] = ()
    """The indices of the rounds that may be pruned, the first to be pruned first. The others are
    required."""

    priorities: Sequence[float] = ()
    """For each index in `order`, the priority of the round. It ascends."""

    marker: Callable[[int], str] | None = None
    """Returns the text of a user message that replaces pruned messages, given their number. It
    stands where the last round was pruned. It leaves before the last round that may be pruned, and
    takes the place of that one. None: nothing replaces them."""

    dropped: int = 0
    """The number of rounds, from the start of `order`, that did not fit when the messages were
    shortened."""

    unspent: int = 0
    """The tokens that shortened messages leave. They are not for these rounds: with a larger budget
    the messages would take them, and a round that had used them would leave again."""

    is_shown: bool = False
    """True: the messages are already as a prompt shows them. False: the render leaves out blank
    messages and cache breakpoints, and joins neighbouring texts."""


def iter_rounds(rounds: Sequence[Message | Sequence[Message]]) -> Iterator[tuple[Message, ...]]:
    """Iterate over rounds, each as a tuple of messages."""
    return ((each,) if isinstance(each, Message) else tuple(each) for each in rounds)


def describe_rounds(rounds: Sequence[Message | Sequence[Message]]) -> list[str]:
    """Return the labels of rounds: `turn 3 · run_tests result`. A turn starts at a user message."""
    labels: list[str] = []
    turn = 0
    for messages in iter_rounds(rounds):
        first = messages[0]
        turn += first.role == "user" or not turn
        names = ", ".join(dict.fromkeys(call.name for call in first.tool_calls))
        is_pinned = first.role == "user" and "\n</pinned>" in first.text
        kind = {
            "user": "summary and pins" if is_pinned else "request",
            "assistant": "reply",
            "system": "system message",
            "tool": "result",
        }[first.role]
        labels.append(
            f"turn {turn} · {names} result{'' if len(first.tool_calls) == 1 else 's'}"
            if names
            else f"turn {turn} · {kind}"
        )
    return labels


@attrs.frozen
class TagMaker:
    """Makes the elements of one tag: `tag.file`, or `tag("file")`."""

    name: str

    def __call__(self, /, **attributes: str) -> Tag:
        """Return the element with these attributes, in this order."""
        return Tag(tag=self.name, attributes=attributes)

    def __getitem__(self, children: object) -> NoReturn:
        """Report children that stand beside the name."""
        raise TreeError(
            f"children of a tag stand behind its attributes: write tag.{self.name}()[…]."
        )


class _Tags:
    """The type of `tag`."""

    def __getattr__(self, name: str) -> TagMaker:
        if name.startswith("__"):  # copy, pickle and inspect ask for such names
            raise AttributeError(name)
        return TagMaker(name)

    def __call__(self, name: str, /, **attributes: str) -> Tag:
        """Return the element of a tag with a name that Python cannot write."""
        return Tag(tag=name, attributes=attributes)


tag = _Tags()
"""Makes tags: `tag.file(path="a.py")[code]`, or `tag("file-part", path="a.py")[code]`.

Keywords are attributes; `.layout(…)` sets layout props.
"""


def lines(*children: Child) -> Child:
    """Join children by line breaks, leaving out what is false: None, booleans, empty texts and empty sequences.

    Each item of a sequence is a line, too. A text that ends with a line break is followed by an
    empty line. Tags and TextChunks begin and end their own lines, so that no line break stays
    behind when one of them is pruned. Behind a TextChunk that comes first, write texts, not
    elements: the line break before an element stays.

    >>> UserMessage()[lines("Folders:", (f"- {folder}" for folder in folders), truncated and "(more)")]
    """
    shown = [child for child in flatten(children, "lines") if child not in (None, "")]
    texts = [at for at, child in enumerate(shown) if not isinstance(child, Tag | TextChunk)]
    # The line break between two texts stands where nothing of it shows if what is between them is
    # pruned: a TextChunk begins a line but does not end it, a Tag does both.
    breaks_before = {
        after if isinstance(shown[after - 1], TextChunk) else before + 1
        for before, after in pairwise(texts)
    }
    first = texts[0] if texts else 0
    if first and isinstance(shown[first - 1], TextChunk):
        # no text is before it, so that a line break would stay as an empty first line
        text = shown[first]
        if isinstance(text, str):
            shown[first] = TextChunk()[text]
        else:
            breaks_before.add(first)
    return [
        item
        for at, child in enumerate(shown)
        for item in (("\n", child) if at in breaks_before else (child,))
    ]


class If(Opening):
    r"""Children that are shown if a condition holds. The condition is any value, such as a list, a number or a mapping.

    `files and X()` fails for an empty mapping or a 0, which is no child; this does not.

    Both sides are plain Python: the children are made in either case.

    >>> UserMessage()[If(files)["Files:\\n", ", ".join(files)]]
    """

    def __init__(self, condition: object) -> None:
        self._holds = bool(condition)

    def __getitem__(self, children: Child) -> Child:
        """Return the children, or None if the condition does not hold."""
        return children if self._holds else None


@component
class Provided(PromptElement):
    """Children below which `sizing.get` finds a value. `Provide(value)[…]` makes it."""

    value: object
    """The value."""


class Provide(Opening):
    """A service, or settings, for the components inside: `sizing.get(Type)` returns the value there.

    The innermost value of the type is found, so that a part of a prompt may have another one.
    Nothing is found outside of the brackets.

    >>> Provide(workspace)[SystemMessage()[Folders()], UserMessage()[question]]
    """

    def __init__(self, value: object) -> None:
        self._value = value

    def __getitem__(self, children: Child) -> Provided:
        """Return an element with these children, which compete with its siblings."""
        return Provided(value=self._value, pass_priority=True)[children]


def element_from_message(
    message: Message,
    *,
    priority: float | None = None,
    required: bool = False,
    fallback: Child = None,
    text: Callable[[str], Child] | None = None,
) -> PromptElement:
    """Return the element that renders as a message.

    Cache breakpoints of the message are dropped: the prompt sets its own.

    Args:
        message: The message.
        priority: The priority of the element.
        required: Whether the element is never pruned.
        fallback: The replacement of the element once it is pruned.
        text: Returns what to show for the message's text, for example a truncated text. The text
            parts are then joined and come before the other parts. None shows all parts as they are.

    >>> element_from_message(Message(role="user", content=("Fix the parser.",)), priority=5)
    """
    content = _build_content(message, text)
    name = message.name or None
    match message.role:
        case "system":
            element: PromptElement = SystemMessage(name=name)
        case "user":
            element = UserMessage(name=name)
        case "assistant":
            element = AssistantMessage(name=name, tool_calls=message.tool_calls)
        case "tool":
            element = ToolMessage(name=name, tool_call_id=message.tool_call_id or "")
    return element.layout(priority=priority, required=required, fallback=fallback)[content]


def _build_content(message: Message, text: Callable[[str], Child] | None) -> Child:
    parts = [_build_part(part) for part in message.content]
    others = [part for part in parts if not isinstance(part, str)]
    return parts if text is None else (text(message.text) if message.text else None, others)


def _build_part(part: Part) -> str | PromptElement | None:
    match part:
        case str():
            return part
        case ImagePart():
            return Image(
                url=part.url,
                detail=part.detail,
                media_type=part.media_type,
                width=part.width,
                height=part.height,
            )
        case DocumentPart():
            return Document(
                data=part.data, media_type=part.media_type, name=part.name, tokens=part.tokens
            )
        case OpaquePart():
            return Opaque(value=part.value, tokens=part.tokens, provider=part.provider)
        case CacheBreakpointPart():
            return None
