"""A summary without a model: the transcript's own words and facts under the eight headings, laid out to fit.

A note in the place of a summary: that something was here, and how much. It keeps a conversation going that nothing else can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from promptkit.compaction.planning.plan import Summary
from promptkit.compaction.summarizers.facts import Command, Facts, extend_facts
from promptkit.compaction.summarizers.prompts import SECTIONS, neutralize_tags
from promptkit.compaction.summarizers.summarizer import collect_dropped_items, get_previous_summary, updated_facts
from promptkit.element import Child, PromptElement, Sizing, component
from promptkit.elements.chat import UserMessage
from promptkit.elements.layout import Chunk, Isolate, TokenLimit
from promptkit.elements.text import TextChunk, Truncate
from promptkit.errors import BudgetExceededError, SummaryError
from promptkit.messages import ImagePart
from promptkit.rendering.renderer import render
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from promptkit.compaction.planning.plan import SummaryTask
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["ExtractiveSummarizer", "ExtractiveSummary", "PlaceholderSummarizer"]


RECENT = 12
"""Commands that are told as the last operations."""

LAST_REQUEST = 300
"""Characters of the last request that are told once more, as what is next."""

EARLIER_SHARE = 3
"""The summary that a model wrote before has at most a third."""


@component
class ExtractiveSummary(PromptElement):
    """Eight sections of facts, as one user message.

    Of each section the newest line stays longest; the more a section matters, the more of its lines stay beside those of others.
    """

    facts: Facts
    max_tokens: int
    """The most that all of it may have: no line takes more than about an eighth."""

    def render(self, sizing: Sizing) -> Child:
        """The sections, numbered, each with its own lines or a word that there is nothing."""
        _ = sizing
        facts = self.facts
        requests = [f"({number}) {request}" for number, request in enumerate(facts.requests, 1)]
        count = f"{facts.messages:,} message{'' if facts.messages == 1 else 's'} are summarized here. What the person said, word for word:"
        tools = [f"Tools: {', '.join(f'{name} ({times})' for name, times in facts.tools)}"] if facts.tools else []
        told = facts.commands[-RECENT:], facts.commands[:-RECENT]
        last = [f"Last request: {request[:LAST_REQUEST]}" for request in facts.requests[-1:]]
        return UserMessage()[
            self._section(1, requests, 10, self._earlier(), TextChunk(priority=12)[count] if requests else None),
            self._section(2, tools, 2),
            self._section(3, [*_listed("Read", facts.read), *_listed("Changed", facts.changed)], 8),
            self._section(4, _listed("Seen", facts.errors), 5),
            self._section(5, _commands(told[1]), 2),
            self._section(6, [f"The model's last words: {facts.last_reply}"] if facts.last_reply else [], 9),
            self._section(7, _commands(told[0]), 6),
            self._section(8, [*_listed("Open", facts.todos), *last], 11),
        ]

    def _section(self, number: int, lines: Sequence[str], weight: float, *before: Child) -> Child:
        """A heading that stays, and lines that leave, the oldest first; but the first request stays longer than the last but one."""
        heading = TextChunk(required=True)[f"{number}. {SECTIONS[number - 1]}"]
        if not lines and not any(before):
            return heading, TextChunk(priority=0)["- nothing"]
        ages = range(len(lines) - 1, -1, -1)
        ranks = [min(age, 0.5) if number == 1 and at == 0 else age for at, age in enumerate(ages)]
        return heading, before, [TextChunk(priority=weight / (1 + rank))[self._line(line)] for line, rank in zip(lines, ranks, strict=True)]

    def _line(self, text: str) -> str:
        """A line with what follows it indented, so that nothing that somebody said looks like a heading, and no tag is one."""
        most = max(40, self.max_tokens // 2)  # characters
        shown = text if len(text) <= most else f"{text[: most - 1]}…"
        return "- " + neutralize_tags("\n  ".join(shown.splitlines()))

    def _earlier(self) -> Child:
        if not self.facts.earlier:
            return None
        most = max(1, self.max_tokens // EARLIER_SHARE)
        text = "\n".join(f"  {line}" for line in neutralize_tags(self.facts.earlier).splitlines())
        cut = Isolate(tokens=most)[Truncate(keep="middle", ratio=0.6)[text]]
        return Chunk(priority=9.5)[TextChunk()["- The summary before, as it was written:"], cut]


@attrs.frozen(kw_only=True)
class ExtractiveSummarizer:
    """Writes the summary from the transcript's own facts, the same for the same transcript. The last link of every chain."""

    tokenizer: Tokenizer | None = None
    """None: that of gpt-4o."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """The summary, within the task's tokens. Raises SummaryError if not even the headings fit."""
        tokenizer = self.tokenizer or tokenizer_for(None)
        facts = extend_facts(Facts.from_json(task.facts), collect_dropped_items(task))
        if facts.earlier is None:
            facts = attrs.evolve(facts, earlier=get_previous_summary(task) or "")
        frame = tokenizer.frame("user").tokens
        summary = ExtractiveSummary(facts=facts, max_tokens=task.target_tokens)
        try:
            rendered = render(TokenLimit(max_tokens=task.target_tokens + frame)[summary], tokenizer=tokenizer)
        except BudgetExceededError as error:
            raise SummaryError(reason="does_not_fit", detail=f"{task.target_tokens:,} tokens hold not even the headings.") from error
        text = "".join(message.text for message in rendered.messages)
        return Summary(text=text, mode="extractive", facts=facts.to_json())


def _listed(title: str, lines: Iterable[str]) -> list[str]:
    return [f"{title}: {line}" for line in lines]


def _commands(commands: Sequence[Command]) -> list[str]:
    return [f"{command.name}: {command.what} → {command.outcome}" for command in commands]


@attrs.frozen(kw_only=True)
class PlaceholderSummarizer:
    """Says how many messages and images are missing, behind the summary before, if that still has room: the last tier of GSV.

    It tells nothing of what was said, so it is only ever the last link of a Chain, and only where somebody put it there:
    ExtractiveSummarizer asks no model either, and tells what happened.
    """

    tokenizer: Tokenizer
    must_be_last: ClassVar[bool] = True

    async def summarize(self, task: SummaryTask) -> Summary:
        """The note. Raises SummaryError where not even that has room."""
        items = collect_dropped_items(task)
        images = sum(isinstance(part, ImagePart) for item in items for part in item.message.content)
        among = f", with {images:,} image{'' if images == 1 else 's'}" if images else ""
        several = "message is" if len(items) == 1 else "messages are"
        note = f"[{len(items):,} earlier {several} left out here{among}. They could not be summarized.]"
        before = get_previous_summary(task)
        for text in (f"{before}\n\n{note}" if before else note, note):
            if self.tokenizer.count(text) <= task.max_tokens:
                return Summary(text=text, mode="placeholder", facts=updated_facts(task))
        raise SummaryError(reason="does_not_fit", detail=f"{task.max_tokens:,} tokens hold not even a note.")
