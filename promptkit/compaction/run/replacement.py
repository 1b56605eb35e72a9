"""Build the messages that a checkpoint shows instead of those that it covers.

They are the summary, the carried context (plan, todos, skills, agent), the user's own messages and,
where a program reads them, the newest files. They are built once, when the checkpoint is written,
and read from the transcript afterwards.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Literal

import attrs

from promptkit.compaction.planning.blocks import is_summary, mark_request
from promptkit.compaction.planning.facts import Facts, Name, Pin
from promptkit.compaction.planning.names import NAMES_TAG, find_names, iter_texts
from promptkit.compaction.planning.plan import CarriedContext, Plan, Summary
from promptkit.compaction.planning.tool_calls import FileRule
from promptkit.compaction.planning.user_messages import (
    HISTORY_SHARE,
    UserMessageHistory,
    VerbatimUserMessages,
    find_constraints,
    has_history,
)
from promptkit.compaction.summarizers.extractive import EXTRACTIVE
from promptkit.compaction.summarizers.facts import extend_facts, rate_name
from promptkit.compaction.summarizers.file_lists import has_file_lists, strip_line_range
from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.fitting.shorten import find_level
from promptkit.messages import Message, OpaquePart
from promptkit.rendering.expand.sizing import Sizer
from promptkit.sizes import AtLeast, read_tokens
from promptkit.tokens import Tokenizer
from promptkit.tokens.truncation import truncate_text
from promptkit.transcript import Redactor, ViewItem, build_summary_message
from promptkit.transcript.log.view import escape_block_tags, escape_closing_tag

CARRIED_SHARE = 30
"""Each block of carried context takes at most a thirtieth of what a conversation may have."""

NAMES_SHARE = 48
"""The list of names takes at most a forty-eighth: in a small window, more of them made requests
wait more often than names were used."""

CARRIED_FILES, CARRIED_ERRORS = 20, 5
"""The most paths of changed files, and of read ones, and the most lines of errors that are
carried."""

NEAR_WEIGHT = 3
"""The weight of a name all of whose words stand in the messages that stay: `session.agent` beside
`agent` and `session`. The work goes on there."""

LEAST_RATING = 0.42
"""Names that are rated lower are not listed. A name that a tool printed once is not listed, one
that two tools printed for 4 messages, one that the model wrote once and a tool printed for 17, and
one that the model wrote ten times for 50: for 23, 63 and 160 if it is near."""

BINDING_SHARE = 16
"""What is pinned takes at most a sixteenth of what a conversation may have, and so do constraints."""

UNCONFIRMED = "(to be confirmed)"
"""Follows a todo whose list a compaction dropped."""

CONSTRAINTS_TITLE = "What the user ruled out, word for word. Each still binds whoever goes on, unless the user allowed it later:"
PINNED_TITLE = "Kept word for word, with who wrote it:"

FILES_SHARE = 8
"""Files that are shown again take at most an eighth of what a conversation may have."""

_LOGGER = logging.getLogger("promptkit")

FILES_TAG = "recent-files"
FILES_TITLE = "The files that were used last, with the text that they had when the summary above was put in place:"
FILE_MARKER = "\n[The middle of this file is left out here.]\n"

NAMES_TITLE = "Spelled as in the messages that are summarized, the likeliest first. Look one up before you rely on what it stands for:"

MOST_FILES = 4
"""Times `max_files`: so many files are asked for at most, as some may be gone."""

_WORD = re.compile(r"\w+")
_OMITTED = re.compile(r"\[(\d[\d,]*) earlier messages? of the person (?:is|are) left out here\]")


def carry_from_facts(_: Plan, summary: Summary) -> CarriedContext:
    """Carry what the summary's facts record: the plan, the open todos, the loaded skills, rules that were read, the newest files and errors.

    Todos are to be confirmed: what tells how far they are is summarized. Files and errors that the summary itself lists are not repeated.
    """
    facts = summary.facts
    extracted = summary.mode == EXTRACTIVE
    files = () if extracted or has_file_lists(summary.text) else tuple(_label_files(facts))
    errors = () if extracted else facts.errors[-CARRIED_ERRORS:]
    skills, rules = (
        tuple(f"{each.name}\n{each.text}".rstrip() for each in loaded)
        for loaded in (facts.skills, facts.rules)
    )
    return CarriedContext(
        plan=facts.plan or None,
        todos=tuple(f"{todo} {UNCONFIRMED}" for todo in facts.todos),
        skills=skills,
        rules=rules,
        files=files,
        errors=errors,
    )


@attrs.frozen(kw_only=True)
class RecentFiles:
    """The files that a checkpoint shows after its summary.

    They are read once, when the checkpoint is written.

    Changed files come before files that were only read, the newest first. A file that a message
    still shows is left out.

    >>> Replacement(files=RecentFiles(read=lambda path: Path(path).read_text() if Path(path).is_file() else None))
    """

    read: Callable[[str], str | Awaitable[str | None] | None]
    """Returns the present text of a file, or None if the model shall not see it. May be async. What
    it raises is logged."""
    max_files: int = attrs.field(default=5, validator=AtLeast(0))
    max_tokens: int = attrs.field(default=25_000, converter=read_tokens, validator=AtLeast(0))
    """The most tokens of all files together. A session takes at most an eighth of what a
    conversation may have."""
    max_file_tokens: int = attrs.field(default=5_000, converter=read_tokens, validator=AtLeast(0))
    """The most tokens of one file. The middle of a longer one is left out."""
    seconds: float = attrs.field(default=10.0, validator=AtLeast(0))
    """The longest time of all reads together. Then the files that were read are shown."""

    async def load(  # noqa: PLR0913  # keywords
        self,
        plan: Plan,
        summary: Summary,
        *,
        room: int,
        rules: Sequence[FileRule],
        tokenizer: Tokenizer,
        redactor: Redactor | None,
    ) -> tuple[Message, ...]:
        """Read the files and return the message that shows them, or nothing.

        Args:
            plan: What is dropped and kept.
            summary: The checked summary, whose facts name the files.
            room: The most tokens of the message.
            rules: Tell which files the tool calls of kept messages read.
            tokenizer: Counts the tokens.
            redactor: Removes secrets; None: nothing is removed.
        """
        left = (
            min(room, self.max_tokens)
            - tokenizer.count(_format_files([]))
            - tokenizer.count_framing("user").tokens
        )
        blocks: list[str] = []
        try:
            async with asyncio.timeout(self.seconds):
                for path in self._select(plan, summary.facts, rules):
                    if len(blocks) == self.max_files or left <= 0:
                        break
                    text = await self._read(path)
                    if text is None:
                        continue
                    block = _fit_file(
                        path,
                        text if redactor is None else redactor(text),
                        min(left, self.max_file_tokens),
                        tokenizer,
                    )
                    left -= tokenizer.count(block)
                    blocks += [block] if block else []
        except TimeoutError:
            _LOGGER.warning(
                "the newest files were not all read within %g seconds; %d are shown",
                self.seconds,
                len(blocks),
            )
        return (Message(role="user", content=(_format_files(blocks[::-1]),)),) if blocks else ()

    def _select(self, plan: Plan, facts: Facts, rules: Sequence[FileRule]) -> Iterator[str]:
        """Yield the paths of the newest files that no kept message shows, the newest first."""
        shown = {
            strip_line_range(path) for path in extend_facts(Facts(), plan.kept, rules=rules).read
        }
        newest = dict.fromkeys(
            map(strip_line_range, (*reversed(facts.changed), *reversed(facts.read)))
        )
        yield from [path for path in newest if path and path not in shown][
            : MOST_FILES * self.max_files
        ]

    async def _read(self, path: str) -> str | None:
        try:
            text = self.read(path)
            if inspect.isawaitable(text):
                text = await text
        except TimeoutError:
            raise
        except Exception as error:
            _LOGGER.warning(
                "the file %s is left out after a compaction: reading it raised %r",
                path,
                error,
                exc_info=True,
            )
            return None
        if text is not None and not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a host's function
            _LOGGER.warning(
                "the file %s is left out after a compaction: read() returned %s and not a text",
                path,
                type(text).__name__,
            )
            return None
        return text


@attrs.frozen(kw_only=True)
class ReplacementMessages:
    """The messages that replace what a checkpoint covers."""

    messages: tuple[Message, ...]
    generated: tuple[int, ...]
    """The indexes of messages that neither the user nor the model wrote: the summary, carried
    context, the note about omitted messages."""
    portable: tuple[Message, ...] | None = None
    """The messages for all other providers, if `messages` contain parts that only one provider can
    read."""


@attrs.frozen(kw_only=True)
class Replacement:
    """Builds the messages that replace what a checkpoint covers.

    By default: pinned messages; the summary in its tags, with the open todos, the skills and the
    user's earlier messages after it; and the messages that are replayed.

    >>> Replacement(originals=VerbatimUserMessages(max_tokens=20_000), place="last", preface="A model before you wrote this: ")  # Codex
    """

    place: Literal["first", "last"] = "first"
    """The place of the summary: before the user's messages, or after them, next to the messages
    that are kept."""
    role: Literal["user", "system"] = "user"
    """The role of the summary message. Some providers accept system messages only at the
    beginning."""
    preface: str | None = None
    """Text before the summary, instead of the tags around it."""
    originals: UserMessageHistory | VerbatimUserMessages | None = attrs.field(
        factory=UserMessageHistory
    )
    """The form in which the user's messages stay: one text after the summary, or messages. None:
    only those stay that are replayed."""
    carry: Callable[[Plan, Summary], CarriedContext] | None = carry_from_facts
    """Returns the carried context. It is called once for each summary, when it is checked.
    `carry_from_facts` takes the context from the conversation itself."""
    live: Callable[[], CarriedContext] | None = None
    """Returns values of the program that replace those of `carry`, where they are not empty."""
    carry_tokens: int | None = attrs.field(
        default=4_000, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens of each block of the carried context; None: no limit."""
    names_tokens: int = attrs.field(default=0, converter=read_tokens)
    """The most tokens of a list of names: the identifiers and paths that are likely to be used
    again, as far as nothing else shows them. It tells the model how they are spelled, and so what
    it can look up; no model writes it, so it costs no output tokens."""
    binding_tokens: int = attrs.field(default=2_000, converter=read_tokens)
    """The most tokens of what is pinned, and of the constraints in the user's messages."""
    files: RecentFiles | None = None
    """Reads the newest files, whose present text follows the summary; None: no file is read."""
    _history_of: list[tuple[tuple[object, ...], str]] = attrs.field(
        factory=list[tuple[tuple[object, ...], str]], init=False, repr=False, eq=False
    )
    """The text of the user's earlier messages that was written last, and what it was written from.
    A summary is measured and checked with the same text that its checkpoint shows."""

    @property
    def keeps_user_messages(self) -> bool:
        """Whether user messages that are dropped stand beside the summary."""
        return self.originals is not None and self.originals.max_tokens > 0

    @property
    def tokens_beside(self) -> int:
        """The tokens of the user's earlier messages and of a carried block, at most.

        User messages that may take a larger share than an eighth, or stay as messages, do not
        count.
        """
        history = (
            self.originals.max_tokens
            if isinstance(self.originals, UserMessageHistory)
            and self.originals.share >= HISTORY_SHARE
            else 0
        )
        return history + self.names_tokens + (0 if self.carry is None else self.carry_tokens or 0)

    def limited_to(self, base: int | None) -> Replacement:
        """Return the replacement with limits that suit a conversation of at most `base` tokens; None: unknown.

        User messages that stay as messages get at most half of that. The text of the earlier ones
        gets its share, and so does each carried block.
        """
        if base is None:
            return self
        originals, share = self.originals, base // CARRIED_SHARE
        if originals is not None:
            most = base // (originals.share if isinstance(originals, UserMessageHistory) else 2)
            originals = attrs.evolve(originals, max_tokens=min(originals.max_tokens, most))
        files = self.files and attrs.evolve(
            self.files, max_tokens=min(self.files.max_tokens, base // FILES_SHARE)
        )
        carry_tokens = share if self.carry_tokens is None else min(self.carry_tokens, share)
        names_tokens = min(self.names_tokens, base // NAMES_SHARE)
        binding_tokens = min(self.binding_tokens, base // BINDING_SHARE)
        return attrs.evolve(
            self,
            originals=originals,
            carry_tokens=carry_tokens,
            names_tokens=names_tokens,
            binding_tokens=binding_tokens,
            files=files,
        )

    def add_carried(self, plan: Plan, summary: Summary) -> Summary:
        """Return a summary with the context that is carried beside it."""
        if self.carry is None and self.live is None:
            return summary
        carried = CarriedContext() if self.carry is None else self.carry(plan, summary)
        live = self._read_live()
        carried = CarriedContext(
            plan=live.plan or carried.plan,
            todos=live.todos or carried.todos,
            skills=live.skills or carried.skills,
            rules=live.rules or carried.rules,
            agent=live.agent or carried.agent,
            files=live.files or carried.files,
            errors=live.errors or carried.errors,
        )
        return attrs.evolve(summary, carried=carried)

    def _read_live(self) -> CarriedContext:
        """Return the values that the program gives. An error of the program is logged."""
        try:
            live = CarriedContext() if self.live is None else self.live()
        except Exception:
            _LOGGER.exception("carry= raised, and what the conversation recorded is carried")
            return CarriedContext()
        if isinstance(live, CarriedContext):  # pyright: ignore[reportUnnecessaryIsInstance]  # a function of the program
            return live
        _LOGGER.error(
            "carry= returned %s and not a CarriedContext, and what the conversation recorded is carried",
            type(live).__name__,
        )
        return CarriedContext()

    def build(
        self, plan: Plan, summary: Summary, tokenizer: Tokenizer, *, files: Sequence[Message] = ()
    ) -> ReplacementMessages:
        """Build the messages for a plan and its checked summary.

        `files` are the messages with the newest files.
        """
        if summary.replacement is not None:
            portable = self._summary_message(plan, summary, tokenizer)
            if binding := self._binding(summary.facts, tokenizer):
                files = (Message(role="user", content=(binding,)), *files)
            return _place_native(plan, summary.replacement, files, portable)
        generated = [self._summary_message(plan, summary, tokenizer), *files]
        verbatim, noted = self._originals(plan, tokenizer)
        user_messages = [*verbatim, *self._replayed(plan)]
        placed = [(message, False) for message in (item.message for item in plan.pinned)]
        if self.place == "first":
            placed += [(message, True) for message in (*generated, *noted)]
            placed += [(message, False) for message in user_messages]
        else:
            placed += [(message, True) for message in noted]
            placed += [(message, False) for message in user_messages]
            placed += [(message, True) for message in generated]
        generated_at = tuple(at for at, (_, is_generated) in enumerate(placed) if is_generated)
        return ReplacementMessages(
            messages=tuple(message for message, _ in placed), generated=generated_at
        )

    def count_tokens(self, plan: Plan, summary: Summary, tokenizer: Tokenizer) -> int:
        """Count the tokens of the messages that replace what is dropped, without pinned and replayed messages, which were in the view before."""
        built = self.build(plan, attrs.evolve(summary, replacement=None), tokenizer)
        there = (item.message for item in (*plan.pinned, *plan.replayed))
        count = Sizer(tokenizer).count_message
        return sum(map(count, built.messages)) - sum(map(count, there))

    def describe_live(self, summary: Summary, tokenizer: Tokenizer) -> str:
        """Return a sentence about the size of what is carried, or an empty text if the program carries nothing."""
        if self.live is None or summary.carried is None:
            return ""
        tokens = tokenizer.count(format_carried(summary.carried, tokenizer, each=self.carry_tokens))
        return f" What is carried takes {tokens:,} tokens: let carry= return less."

    def _summary_message(self, plan: Plan, summary: Summary, tokenizer: Tokenizer) -> Message:
        """Build the message that shows a summary and what is carried beside it."""
        tagged = build_summary_message(summary.text)
        carried = self._carried(plan, summary, tokenizer)
        if self.preface is None and self.role == "user" and not carried:
            return tagged
        shown = tagged.text if self.preface is None else f"{self.preface}{summary.text}"
        return Message(role=self.role, content=("\n\n".join(filter(None, (shown, carried))),))

    def _originals(self, plan: Plan, tokenizer: Tokenizer) -> tuple[list[Message], list[Message]]:
        """Return the user's messages that are still shown, and the note about those that are not.

        What is replayed takes of the same limit, the newest one aside: that one may be of any size.
        """
        if not isinstance(self.originals, VerbatimUserMessages):
            return [], []
        covered, sizer = (*plan.dropped, *plan.prefix), Sizer(tokenizer)
        left = self.originals.max_tokens - sum(
            sizer.count_message(item.message) for item in plan.replayed[:-1]
        )
        said, omitted = attrs.evolve(self.originals, max_tokens=max(0, left)).select(
            covered, tokenizer, kept=plan.kept
        )
        note = _build_note(omitted + _count_omitted_before(covered))
        return [item.message for item in said], [] if note is None else [note]

    def _replayed(self, plan: Plan) -> list[Message]:
        """Return the messages that are repeated, the older ones marked as open where others are marked."""
        messages = [item.message for item in plan.replayed]
        if not isinstance(self.originals, VerbatimUserMessages):
            return messages
        return [*(mark_request(each, is_open=True) for each in messages[:-1]), *messages[-1:]]

    def _carried(self, plan: Plan, summary: Summary, tokenizer: Tokenizer) -> str:
        """Return the carried context and the user's earlier messages, or an empty text."""
        carried = summary.carried or CarriedContext()
        context = format_carried(carried, tokenizer, each=self.carry_tokens)
        facts = summary.facts
        binding = self._binding(facts, tokenizer)
        history = self._history(plan, facts, tokenizer)
        shown = "\n\n".join(filter(None, (binding, context, history)))
        return "\n\n".join(
            filter(None, (shown, self._names(plan, summary.text, facts, shown, tokenizer)))
        )

    def _binding(self, facts: Facts, tokenizer: Tokenizer) -> str:
        """Return the constraints in the user's messages, and what is pinned."""
        constraints = [
            f"CONSTRAINT (still binding): {_escape(each)}"
            for each in find_constraints(facts.requests)
        ]
        pins = [_format_pin(pin) for pin in facts.pins]
        room = self.binding_tokens
        lines = keep_newest_lines(constraints, room, tokenizer)
        shortened = _shorten_texts(pins, room, tokenizer) if pins else ()
        return "\n\n".join(
            "\n".join((f"<{tag}>", title, *texts, f"</{tag}>"))
            for tag, title, texts in (
                ("constraints", CONSTRAINTS_TITLE, lines),
                ("pinned", PINNED_TITLE, shortened),
            )
            if texts
        )

    def _names(
        self, plan: Plan, summary: str, facts: Facts, shown: str, tokenizer: Tokenizer
    ) -> str:
        """Return the list of names, without those that the summary, the messages that stay or the text `shown` contain."""
        if not self.names_tokens:
            return ""
        seen = find_names(summary) | find_names(shown)
        for item in (*plan.kept, *plan.pinned, *plan.replayed):
            seen.update(*map(find_names, iter_texts(item.message)))
        kept = (text for item in plan.kept for text in iter_texts(item.message))
        words = set[str]().union(*map(_WORD.findall, kept))

        def rate(name: Name) -> float:
            is_near = words.issuperset(_WORD.findall(name.text))
            return rate_name(name, messages=facts.messages) * (NEAR_WEIGHT if is_near else 1)

        names = [
            name for name in facts.names if name.text not in seen and rate(name) >= LEAST_RATING
        ]
        names.sort(key=rate, reverse=True)
        text = _join_names((name.text for name in names), self.names_tokens, tokenizer)
        return text and f"<{NAMES_TAG}>\n{NAMES_TITLE}\n{text}\n</{NAMES_TAG}>"

    def _history(self, plan: Plan, facts: Facts, tokenizer: Tokenizer) -> str:
        """Return the user's messages that this checkpoint and earlier ones drop.

        The first time they get at most a third of the tokens that it replaces, so that a short
        conversation gets shorter.
        """
        if not isinstance(self.originals, UserMessageHistory) or not facts.requests:
            return ""
        most = self.originals.max_tokens
        if not any(
            item.kind == "summary" and has_history(item.message.text) for item in plan.dropped
        ):
            most = min(most, _count_up_to(3 * most, plan, tokenizer) // 3)
        is_answered = any(
            item.message.role == "assistant" and not item.message.tool_calls for item in plan.kept
        )
        unanswered = 0 if is_answered else facts.unanswered
        key = facts.requests, unanswered, most, tokenizer
        for known, text in self._history_of:
            if known == key:
                return text
        text = attrs.evolve(self.originals, max_tokens=most).format(
            facts.requests, unanswered=unanswered, tokenizer=tokenizer
        )
        self._history_of[:] = [(key, text)]
        return text


def _place_native(
    plan: Plan, native: Sequence[Message], files: Sequence[Message], summary: Message
) -> ReplacementMessages:
    """Place a provider's own messages and the files between pinned and replayed ones.

    `summary` is for all other providers.

    Messages with opaque parts and the files are not part of the conversation.
    """
    pinned, replayed = (
        tuple(item.message for item in items) for items in (plan.pinned, plan.replayed)
    )
    sealed = [any(isinstance(part, OpaquePart) for part in message.content) for message in native]
    generated = (
        at
        for at, is_generated in enumerate([*sealed, *(True for _ in files)], len(pinned))
        if is_generated
    )
    return ReplacementMessages(
        messages=(*pinned, *native, *files, *replayed),
        generated=tuple(generated),
        portable=(*pinned, summary, *replayed),
    )


def _count_up_to(limit: int, plan: Plan, tokenizer: Tokenizer) -> int:
    """Count the tokens of the messages that a plan drops, as far as a limit."""
    sizer, total = Sizer(tokenizer), 0
    for item in (*plan.dropped, *plan.prefix):
        total += sizer.count_message(item.message)
        if total >= limit:
            return limit
    return total


def _build_note(omitted: int) -> Message | None:
    if not omitted:
        return None
    what = "message of the person is" if omitted == 1 else "messages of the person are"
    return Message(role="user", content=(f"[{omitted:,} earlier {what} left out here]",))


def _count_omitted_before(items: Sequence[ViewItem]) -> int:
    """Return how many messages the previous checkpoint has omitted, by its note."""
    for item in items:
        if (
            is_summary(item)
            and item.kind == "summary"
            and (match := _OMITTED.fullmatch(item.message.text))
        ):
            return int(match[1].replace(",", ""))
    return 0


def _label_files(facts: Facts) -> Iterator[str]:
    yield from (f"changed: {path}" for path in facts.changed[-CARRIED_FILES:])
    yield from (f"read: {path}" for path in facts.read[-CARRIED_FILES:])


def _shorten_texts(texts: Sequence[str], tokens: int, tokenizer: Tokenizer) -> tuple[str, ...]:
    """Cut the middle out of the longest texts until all, in lines of their own, have at most so many tokens together."""
    level = find_level([tokenizer.count(text) for text in texts], tokens - len(texts))
    return tuple(truncate_text(text, level, head=0.5, tokenizer=tokenizer) for text in texts)


def count_pins(pins: Iterable[Pin], tokenizer: Tokenizer) -> int:
    """Count the tokens of pins as a summary shows them."""
    return sum(tokenizer.count(_format_pin(pin)) + 1 for pin in pins)


def _format_pin(pin: Pin) -> str:
    """Format a pin so that no line but its first begins at the margin, where the author is named."""
    return f"[{pin.by}] {_indent(_escape(pin.text))}"


def keep_newest_lines(lines: Sequence[str], tokens: int, tokenizer: Tokenizer) -> Sequence[str]:
    """Return the newest lines that have together at most so many tokens."""
    start = len(lines)
    while start and (tokens := tokens - tokenizer.count(lines[start - 1]) - 1) >= 0:
        start -= 1
    return lines[start:]


def _escape(text: str) -> str:
    return escape_block_tags(neutralize_tags(text.strip()))


def _join_names(names: Iterable[str], tokens: int, tokenizer: Tokenizer) -> str:
    """Join the first names that have together at most so many tokens."""
    shown: list[str] = []
    left = tokens
    for name in names:
        left -= tokenizer.count(f" {name}") + 1
        if left < 0:
            break
        shown.append(name)
    return escape_block_tags(neutralize_tags(", ".join(shown)))


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _indent(text: str) -> str:
    return "\n  ".join(text.strip().splitlines())


def _fit_file(path: str, text: str, tokens: int, tokenizer: Tokenizer) -> str:
    """Return the block of a file in at most `tokens`, or an empty text if not even the marker fits."""
    name = path.replace('"', "&quot;").replace("\n", " ")
    safe = escape_closing_tag(escape_closing_tag(text, "file"), FILES_TAG).rstrip("\n")
    frame = tokenizer.count(f'<file path="{name}">\n\n</file>\n')
    shown = truncate_text(safe, tokens - frame, head=0.5, marker=FILE_MARKER, tokenizer=tokenizer)
    return f'<file path="{name}">\n{shown}\n</file>' if shown and shown != FILE_MARKER else ""


def _format_files(blocks: Sequence[str]) -> str:
    return "\n".join([f"<{FILES_TAG}>", FILES_TITLE, *blocks, f"</{FILES_TAG}>"])


def format_carried(
    context: CarriedContext, tokenizer: Tokenizer, *, each: int | None = None
) -> str:
    """Format carried context as tagged blocks, or as an empty text if there is none.

    The middle of a block above `each` tokens is cut out. Of the skills each gets an equal share
    of them, and what short ones leave.
    """
    blocks: list[str] = []
    skills, rules = (
        tuple(f"- {_indent(text)}" for text in texts) for texts in (context.skills, context.rules)
    )
    if each is not None:
        skills, rules = (_shorten_texts(texts, each, tokenizer) for texts in (skills, rules))
    for tag, text in _list_blocks(context, skills, rules):
        shown = text if each is None else truncate_text(text, each, head=0.5, tokenizer=tokenizer)
        if shown:
            blocks.append(f"<{tag}>\n{shown}\n</{tag}>")
    return "\n\n".join(blocks)


def _list_blocks(
    context: CarriedContext, skills: Sequence[str], rules: Sequence[str]
) -> Iterator[tuple[str, str]]:
    todos = "\n".join(f"- [ ] {_join_lines(todo)}" for todo in context.todos)
    files = "\n".join(map(_join_lines, context.files))
    errors = "\n".join(f"- {_join_lines(error)}" for error in context.errors)
    blocks = {
        "plan": context.plan,
        "todos": todos,
        "skills": "\n".join(skills),
        "rules": "\n".join(rules),
        "agent": context.agent,
        "files": files,
        "errors-seen": errors,
        "extract": "\n".join(f"- {_join_lines(line)}" for line in context.extract),
    }
    for tag, text in blocks.items():
        if text and text.strip():
            yield tag, _escape(text)
