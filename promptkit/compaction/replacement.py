"""What a checkpoint puts in the place of what it covers: the summary alone, or with it what the person wrote and what is carried over.

It is worked out once, when the checkpoint is written. Whoever reads the transcript later is shown the same messages again.

What is carried over beside a summary: the plan, the open points, the skills that were invoked, whose part the model plays.
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
from promptkit.transcript.view import summary_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from promptkit.compaction.planning.plan import Plan, Summary
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.view import ViewItem

__all__ = ["Carried", "Replaced", "Replacement", "carried_over"]


_OMITTED = re.compile(r"\[(\d[\d,]*) earlier messages? of the person (?:is|are) left out here\]")


@attrs.frozen(kw_only=True)
class Replaced:
    """The messages, and which of them nobody said."""

    messages: tuple[Message, ...]
    own: tuple[int, ...]
    """Their places: the summary, what is carried over, the note of what is left out."""
    portable: tuple[Message, ...] | None = None
    """What stands for them at any provider, where they hold what only one can read."""


@attrs.frozen(kw_only=True)
class Replacement:
    """How the messages are built. By default: what is pinned, the summary in its tags, and what is still worked on.

    >>> Replacement(originals=VerbatimUserMessages(tokens=20_000), place="last", preface="A model before you wrote this: ")  # Codex
    """

    place: Literal["first", "last"] = "first"
    """Where the summary stands: before what the person wrote, or behind it, next to what is kept."""
    role: Literal["user", "system"] = "user"
    """Who says the summary. Some providers take system messages only at the beginning."""
    preface: str | None = None
    """Said before the summary in the place of the tags around it."""
    originals: VerbatimUserMessages | None = None
    """What stays of what the person wrote; None: nothing but what is still worked on."""
    carry: Callable[[Plan, Summary], Carried] | None = None
    """What is carried over, asked when the checkpoint is written; `carried_over` goes by the conversation itself."""
    carry_tokens: int | None = None
    """The most that each block of it may have."""

    def build(self, plan: Plan, summary: Summary, tokenizer: Tokenizer) -> Replaced:
        """The messages for a plan and its summary, whose text is baked."""
        if summary.replacement is not None:
            return self._native(plan, summary.text, summary.replacement)
        told = [self.summary(summary.text), *self._carried(plan, summary, tokenizer)]
        said, noted = self._originals((*plan.dropped, *plan.prefix), tokenizer)
        theirs = [*said, *(item.message for item in plan.replayed)]
        made = [(message, False) for message in (item.message for item in plan.pinned)]
        if self.place == "first":
            made += [(message, True) for message in (*told, *noted)]
            made += [(message, False) for message in theirs]
        else:
            made += [(message, True) for message in noted]
            made += [(message, False) for message in theirs]
            made += [(message, True) for message in told]
        own = tuple(at for at, (_, mine) in enumerate(made) if mine)
        return Replaced(messages=tuple(message for message, _ in made), own=own)

    def cost(self, plan: Plan, summary: Summary, tokenizer: Tokenizer) -> int:
        """The tokens of what stands in the place of what is dropped: without what is pinned and said again, which was there before."""
        built = self.build(plan, attrs.evolve(summary, replacement=None), tokenizer)
        there = {id(item.message) for item in (*plan.pinned, *plan.replayed)}
        return sum(Sizer(tokenizer).message(message) for message in built.messages if id(message) not in there)

    def summary(self, text: str) -> Message:
        """The message that shows a summary."""
        if self.preface is None and self.role == "user":
            return summary_message(text)
        shown = summary_message(text).text if self.preface is None else f"{self.preface}{text}"
        return Message(role=self.role, content=(shown,))

    def _native(self, plan: Plan, text: str, native: tuple[Message, ...]) -> Replaced:
        """A provider's own messages between what is pinned and what is said again. What only it can read is none of the conversation's."""
        pinned, replayed = (tuple(item.message for item in items) for items in (plan.pinned, plan.replayed))
        own = (at for at, message in enumerate(native, len(pinned)) if any(isinstance(part, OpaquePart) for part in message.content))
        portable = (*pinned, summary_message(text), *replayed)
        return Replaced(messages=(*pinned, *native, *replayed), own=tuple(own), portable=portable)

    def _originals(self, covered: Sequence[ViewItem], tokenizer: Tokenizer) -> tuple[list[Message], list[Message]]:
        """What the person wrote and is still shown, and the note of what is not."""
        if self.originals is None:
            return [], []
        said, omitted = self.originals.of(covered, tokenizer)
        note = _note(omitted + _omitted_before(covered))
        return [item.message for item in said], [] if note is None else [note]

    def _carried(self, plan: Plan, summary: Summary, tokenizer: Tokenizer) -> Iterator[Message]:
        if self.carry is None:
            return
        text = self.carry(plan, summary).text(tokenizer, each=self.carry_tokens)
        if text:
            yield Message(role=self.role, content=(text,))


def _note(omitted: int) -> Message | None:
    if not omitted:
        return None
    what = "message of the person is" if omitted == 1 else "messages of the person are"
    return Message(role="user", content=(f"[{omitted:,} earlier {what} left out here]",))


def _omitted_before(items: Sequence[ViewItem]) -> int:
    """How many messages the checkpoint before has left out, by its note."""
    for item in items:
        if is_summary(item) and item.kind == "summary" and (match := _OMITTED.fullmatch(item.message.text)):
            return int(match[1].replace(",", ""))
    return 0


@attrs.frozen(kw_only=True)
class Carried:
    """What holds now, in the host's words. It is said anew at every checkpoint, and never summarized."""

    plan: str | None = None
    todos: Sequence[str] = ()
    """The open points."""
    skills: Sequence[str] = ()
    """Each as its name, or as its text where the model needs it again."""
    agent: str | None = None
    """What a custom agent says of itself, where one is at work."""

    def text(self, tokenizer: Tokenizer, *, each: int | None = None) -> str:
        """All of it in tagged blocks, of at most `each` tokens, whose middle is cut out where they have more; empty where there is nothing."""
        blocks: list[str] = []
        for tag, text in self._blocks():
            shown = text if each is None else truncate_text(text, each, keep="middle", ratio=0.5, tokenizer=tokenizer)
            if shown:
                blocks.append(f"<{tag}>\n{shown}\n</{tag}>")
        return "\n\n".join(blocks)

    def _blocks(self) -> Iterator[tuple[str, str]]:
        todos = "\n".join(f"- [ ] {_line(todo)}" for todo in self.todos)
        skills = "\n".join(f"- {_indented(skill)}" for skill in self.skills)
        for tag, text in (("plan", self.plan), ("todos", todos), ("skills", skills), ("agent", self.agent)):
            if text and text.strip():
                yield tag, _within(text.strip(), tag)


def carried_over(plan: Plan, summary: Summary) -> Carried:
    """What the conversation itself tells, by the summary's facts: the open points, and the skills that were invoked."""
    _ = plan
    facts = Facts.from_json(summary.facts)
    return Carried(todos=facts.todos, skills=facts.skills)


def _line(text: str) -> str:
    return " ".join(text.split())


def _indented(text: str) -> str:
    return "\n  ".join(text.strip().splitlines())


def _within(text: str, tag: str) -> str:
    """Text that ends neither its own block nor that of a summary."""
    return neutralize_tags(text).replace(f"</{tag}", f"<\\/{tag}")
