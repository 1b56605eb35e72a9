"""Build the messages that a checkpoint shows instead of those that it covers.

They are the summary and, depending on the preset, the user's own messages and carried context (plan, todos, skills, agent). They are
built once, when the checkpoint is written, and read from the transcript afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.compaction.planning.blocks import is_summary
from promptkit.compaction.planning.user_messages import VerbatimUserMessages  # noqa: TC001  # a field's type, which settings resolve
from promptkit.compaction.summarizers.facts import Facts
from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.messages import Message, OpaquePart
from promptkit.rendering.sizing import Sizer
from promptkit.tokens.truncation import truncate_text
from promptkit.transcript.view import build_summary_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from promptkit.compaction.planning.plan import Plan, Summary
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.view import ViewItem

__all__ = ["CarriedContext", "Replacement", "ReplacementMessages", "carry_from_facts"]


_OMITTED = re.compile(r"\[(\d[\d,]*) earlier messages? of the person (?:is|are) left out here\]")


@attrs.frozen(kw_only=True)
class ReplacementMessages:
    """The messages that replace what a checkpoint covers."""

    messages: tuple[Message, ...]
    generated: tuple[int, ...]
    """The indexes of messages that neither the user nor the model wrote: the summary, carried context, the note about omitted messages."""
    portable: tuple[Message, ...] | None = None
    """The messages for all other providers, if `messages` contain parts that only one provider can read."""


@attrs.frozen(kw_only=True)
class Replacement:
    """How the messages are built. By default: pinned messages, the summary in its tags, and the messages that are replayed.

    >>> Replacement(originals=VerbatimUserMessages(tokens=20_000), place="last", preface="A model before you wrote this: ")  # Codex
    """

    place: Literal["first", "last"] = "first"
    """The place of the summary: before the user's messages, or after them, next to the messages that are kept."""
    role: Literal["user", "system"] = "user"
    """The role of the summary message. Some providers accept system messages only at the beginning."""
    preface: str | None = None
    """Text before the summary, instead of the tags around it."""
    originals: VerbatimUserMessages | None = None
    """Which of the user's messages stay verbatim; None: only those that are replayed."""
    carry: Callable[[Plan, Summary], CarriedContext] | None = None
    """Returns the carried context when the checkpoint is written. `carry_from_facts` takes it from the conversation itself."""
    carry_tokens: int | None = None
    """The most tokens of each block of the carried context."""

    def build(self, plan: Plan, summary: Summary, tokenizer: Tokenizer) -> ReplacementMessages:
        """Build the messages for a plan and its checked summary."""
        if summary.replacement is not None:
            return self._native(plan, summary.text, summary.replacement)
        generated = [self.summary_message(summary.text), *self._carried(plan, summary, tokenizer)]
        verbatim, noted = self._originals((*plan.dropped, *plan.prefix), tokenizer)
        user_messages = [*verbatim, *(item.message for item in plan.replayed)]
        placed = [(message, False) for message in (item.message for item in plan.pinned)]
        if self.place == "first":
            placed += [(message, True) for message in (*generated, *noted)]
            placed += [(message, False) for message in user_messages]
        else:
            placed += [(message, True) for message in noted]
            placed += [(message, False) for message in user_messages]
            placed += [(message, True) for message in generated]
        generated_at = tuple(at for at, (_, is_generated) in enumerate(placed) if is_generated)
        return ReplacementMessages(messages=tuple(message for message, _ in placed), generated=generated_at)

    def count_tokens(self, plan: Plan, summary: Summary, tokenizer: Tokenizer) -> int:
        """Count the tokens of the messages that replace what is dropped, without pinned and replayed messages, which were in the view before."""
        built = self.build(plan, attrs.evolve(summary, replacement=None), tokenizer)
        there = {id(item.message) for item in (*plan.pinned, *plan.replayed)}
        return sum(Sizer(tokenizer).count_message(message) for message in built.messages if id(message) not in there)

    def summary_message(self, text: str) -> Message:
        """Build the message that shows a summary."""
        if self.preface is None and self.role == "user":
            return build_summary_message(text)
        shown = build_summary_message(text).text if self.preface is None else f"{self.preface}{text}"
        return Message(role=self.role, content=(shown,))

    def _native(self, plan: Plan, text: str, native: tuple[Message, ...]) -> ReplacementMessages:
        """Place a provider's own messages between pinned and replayed ones. Those with opaque parts are not part of the conversation."""
        pinned, replayed = (tuple(item.message for item in items) for items in (plan.pinned, plan.replayed))
        own = (at for at, message in enumerate(native, len(pinned)) if any(isinstance(part, OpaquePart) for part in message.content))
        portable = (*pinned, build_summary_message(text), *replayed)
        return ReplacementMessages(messages=(*pinned, *native, *replayed), generated=tuple(own), portable=portable)

    def _originals(self, covered: Sequence[ViewItem], tokenizer: Tokenizer) -> tuple[list[Message], list[Message]]:
        """Return the user's messages that are still shown, and the note about those that are not."""
        if self.originals is None:
            return [], []
        said, omitted = self.originals.select(covered, tokenizer)
        note = _build_note(omitted + _count_omitted_before(covered))
        return [item.message for item in said], [] if note is None else [note]

    def _carried(self, plan: Plan, summary: Summary, tokenizer: Tokenizer) -> Iterator[Message]:
        if self.carry is None:
            return
        text = self.carry(plan, summary).format(tokenizer, each=self.carry_tokens)
        if text:
            yield Message(role=self.role, content=(text,))


def _build_note(omitted: int) -> Message | None:
    if not omitted:
        return None
    what = "message of the person is" if omitted == 1 else "messages of the person are"
    return Message(role="user", content=(f"[{omitted:,} earlier {what} left out here]",))


def _count_omitted_before(items: Sequence[ViewItem]) -> int:
    """Return how many messages the previous checkpoint has omitted, by its note."""
    for item in items:
        if is_summary(item) and item.kind == "summary" and (match := _OMITTED.fullmatch(item.message.text)):
            return int(match[1].replace(",", ""))
    return 0


@attrs.frozen(kw_only=True)
class CarriedContext:
    """Context that the host program carries past every checkpoint. It is repeated verbatim, and never summarized."""

    plan: str | None = None
    todos: Sequence[str] = ()
    """The open todos."""
    skills: Sequence[str] = ()
    """The name of each invoked skill, or its text if the model needs it again."""
    agent: str | None = None
    """The description of the custom agent that is active."""

    def format(self, tokenizer: Tokenizer, *, each: int | None = None) -> str:
        """Format the context as tagged blocks, or as an empty text if there is none. The middle of a block above `each` tokens is cut out."""
        blocks: list[str] = []
        for tag, text in self._blocks():
            shown = text if each is None else truncate_text(text, each, keep="middle", ratio=0.5, tokenizer=tokenizer)
            if shown:
                blocks.append(f"<{tag}>\n{shown}\n</{tag}>")
        return "\n\n".join(blocks)

    def _blocks(self) -> Iterator[tuple[str, str]]:
        todos = "\n".join(f"- [ ] {_join_lines(todo)}" for todo in self.todos)
        skills = "\n".join(f"- {_indent(skill)}" for skill in self.skills)
        for tag, text in (("plan", self.plan), ("todos", todos), ("skills", skills), ("agent", self.agent)):
            if text and text.strip():
                yield tag, _neutralize(text.strip(), tag)


def carry_from_facts(plan: Plan, summary: Summary) -> CarriedContext:
    """Carry the open todos and the invoked skills, as the summary's facts record them."""
    _ = plan
    facts = Facts.from_json(summary.facts)
    return CarriedContext(todos=facts.todos, skills=facts.skills)


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _indent(text: str) -> str:
    return "\n  ".join(text.strip().splitlines())


def _neutralize(text: str, tag: str) -> str:
    """Neutralize tags in a text, so that it ends neither its own block nor that of a summary."""
    return neutralize_tags(text).replace(f"</{tag}", f"<\\/{tag}")
