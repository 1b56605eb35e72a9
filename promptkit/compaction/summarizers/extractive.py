"""Summaries without a model: the transcript's own words and facts under the eight headings, or a note of what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import attrs

from promptkit.compaction.planning.facts import Command, Facts
from promptkit.compaction.planning.plan import Summary, SummaryTask
from promptkit.compaction.planning.user_messages import forbids, rank_requests
from promptkit.compaction.planning.worker import run_beside
from promptkit.compaction.summarizers.facts import extend_facts
from promptkit.compaction.summarizers.losses import MeasuredFact
from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.compaction.summarizers.summarizer import (
    SECTIONS,
    collect_dropped_items,
    get_previous_summary,
    updated_facts,
)
from promptkit.elements import Chunk, Isolate, TextChunk, TokenLimit, Truncate, UserMessage
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.errors import BudgetExceededError, SummaryError
from promptkit.messages import ImagePart
from promptkit.rendering import render
from promptkit.tokens import Tokenizer, tokenizer_for

EXTRACTIVE = "extractive"
"""The mode of a summary that was extracted from the conversation."""


@attrs.frozen(kw_only=True)
class ExtractiveSummarizer:
    """Writes the summary from the transcript's own facts.

    Needs no model and is deterministic. The last summarizer of every fallback.
    """

    tokenizer: Tokenizer | None = None
    """None: the tokenizer of gpt-4o."""
    without_model: ClassVar[bool] = True
    """Not used where only a model may write the summary."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Write the summary within the task's target size.

        Raises:
            SummaryError: There is nothing to summarize, or not even the headings fit.
        """
        tokenizer = self.tokenizer or tokenizer_for(None)
        items, facts = collect_dropped_items(task), task.facts
        facts = (
            extend_facts(facts, items, rules=task.file_rules)
            if any(item.recorded is not None for item in items)
            else attrs.evolve(updated_facts(task), earlier=facts.earlier)
        )
        if facts.earlier is None:
            facts = attrs.evolve(facts, earlier=get_previous_summary(task) or "")
        frame = tokenizer.count_framing("user").tokens
        summary = ExtractiveSummary(
            facts=facts, max_tokens=task.target_tokens, requests_beside=task.requests_beside
        )
        try:
            rendered = await run_beside(
                items,
                render,
                TokenLimit(max_tokens=task.target_tokens + frame)[summary],
                tokenizer=tokenizer,
            )
        except BudgetExceededError as error:
            raise SummaryError(
                reason="does_not_fit",
                detail=f"{task.target_tokens:,} tokens are too few even for the headings.",
            ) from error
        text = "".join(message.text for message in rendered.messages)
        return Summary(text=text, mode=EXTRACTIVE, author="extract", facts=facts)


@attrs.frozen(kw_only=True)
class PlaceholderSummarizer:
    """Writes a note of how many messages and images are missing, after the previous summary if that fits.

    The last tier of GSV.

    The note says nothing about the content, so this summarizer must be the last of a
    `FallbackSummarizer`, and is only used where a program or preset names it.
    `ExtractiveSummarizer` needs no model either, and reports what happened.
    """

    tokenizer: Tokenizer
    without_model: ClassVar[bool] = True
    must_be_last: ClassVar[bool] = True
    """`FallbackSummarizer` rejects this summarizer in any other position."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Write the note.

        Raises:
            SummaryError: There is nothing to summarize, or not even the note fits.
        """
        items = collect_dropped_items(task)
        images = sum(isinstance(part, ImagePart) for item in items for part in item.message.content)
        among = f", with {images:,} image{'' if images == 1 else 's'}" if images else ""
        several = "message is" if len(items) == 1 else "messages are"
        note = f"[{len(items):,} earlier {several} left out here{among}. They could not be summarized.]"
        before = get_previous_summary(task)
        for text in (f"{before}\n\n{note}" if before else note, note):
            if self.tokenizer.count(text) <= task.max_tokens:
                return Summary(text=text, mode="placeholder", author="extract")
        raise SummaryError(
            reason="does_not_fit", detail=f"{task.max_tokens:,} tokens are too few even for a note."
        )


def format_left_out(
    facts: Iterable[MeasuredFact], known: Facts, max_tokens: int, tokenizer: Tokenizer
) -> tuple[str, ...]:
    """Format facts as the lines that an extract has for them, as many of the first as fit."""
    commands = {command.what: command for command in known.commands}
    lines: list[str] = []
    for fact in facts:
        match fact.kind:
            case "paths":
                use = "Changed" if fact.text in known.changed else "Read"
                line = f"{use}: {fact.text}"
            case "commands":
                (line,) = _describe_commands([commands[fact.text]])
            case _:
                line = fact.text
        max_tokens -= tokenizer.count(f"- {line}\n")
        if max_tokens < 0:
            break
        lines.append(line)
    return tuple(lines)


RECENT_COMMANDS = 12
"""Number of commands listed as the last operations."""


LAST_REQUEST_CHARACTERS = 300
"""Characters of the last request that are repeated as the next step."""


EARLIER_SHARE = 3
"""The previous summary, if a model wrote it, takes at most a third."""


@component
class ExtractiveSummary(PromptElement):
    """Eight sections of facts, as one user message.

    Within a section the newest lines are removed last. Sections have weights: the more a section
    matters, the more of its lines are kept compared with other sections.
    """

    facts: Facts
    max_tokens: int
    """Token limit of the whole summary. No line takes more than about an eighth of it."""
    requests_beside: bool = False
    """The user's messages stand beside the summary, and are not repeated in it."""

    def render(self, sizing: Sizing) -> Child:
        """Return the numbered sections, each with its lines or with a note that it is empty."""
        facts = attrs.evolve(self.facts, requests=()) if self.requests_beside else self.facts
        requests = [f"({number}) {request}" for number, request in enumerate(facts.requests, 1)]
        several = (
            f"{facts.messages:,} message is"
            if facts.messages == 1
            else f"{facts.messages:,} messages are"
        )
        beside, inside = (
            "What the person said stands after this summary, word for word.",
            "What the person said, word for word:",
        )
        count = f"{several} summarized here. {beside if self.requests_beside else inside}"
        tools = (
            [f"Tools: {', '.join(f'{name} ({times})' for name, times in facts.tools)}"]
            if facts.tools
            else []
        )
        recent, older = facts.commands[-RECENT_COMMANDS:], facts.commands[:-RECENT_COMMANDS]
        last = [
            f"Last request: {request[:LAST_REQUEST_CHARACTERS]}" for request in facts.requests[-1:]
        ]
        return UserMessage()[
            self._section(
                1,
                requests,
                10,
                self._previous_summary(),
                TextChunk(priority=12)[count] if self.facts.requests else None,
            ),
            self._section(2, tools, 2),
            self._section(
                3, [*_label_lines("Read", facts.read), *_label_lines("Changed", facts.changed)], 8
            ),
            self._section(4, _label_lines("Seen", facts.errors), 5),
            self._section(5, _describe_commands(older), 2),
            self._section(
                6, [f"The model's last words: {facts.last_reply}"] if facts.last_reply else [], 9
            ),
            self._section(7, _describe_commands(recent), 6),
            self._section(8, [*_label_lines("Open", facts.todos), *last], 11),
        ]

    def _section(self, number: int, lines: Sequence[str], weight: float, *before: Child) -> Child:
        """Return a required heading and its lines.

        The oldest lines are removed first, and requests in the order of `rank_requests`.
        """
        heading = TextChunk(required=True)[f"{number}. {SECTIONS[number - 1]}"]
        if not lines and not any(before):
            return heading, TextChunk(priority=0)["- nothing"]
        ranks = [float(age) for age in range(len(lines) - 1, -1, -1)]
        if number == 1:
            # as many as stay longer than the newest of the middle, between it and the last
            late = [at for at in rank_requests(lines)[:-1] if at == 0 or forbids(lines[at])]
            for place, at in enumerate(late):
                ranks[at] = (len(late) - place) / (len(late) + 1)
        return (
            heading,
            before,
            [
                TextChunk(priority=weight / (1 + rank))[self._line(line)]
                for line, rank in zip(lines, ranks, strict=True)
            ],
        )

    def _line(self, text: str) -> str:
        """Format a line.

        Continuation lines are indented and tags are neutralized, so that quoted text cannot look
        like a heading or a tag.
        """
        limit = max(40, self.max_tokens // 2)  # characters
        shown = text if len(text) <= limit else f"{text[: limit - 1]}…"
        return "- " + neutralize_tags("\n  ".join(shown.splitlines()))

    def _previous_summary(self) -> Child:
        if not self.facts.earlier:
            return None
        text = "\n".join(f"  {line}" for line in neutralize_tags(self.facts.earlier).splitlines())
        return Chunk(priority=9.5)[
            TextChunk()["- The summary before, as it was written:"],
            Isolate(tokens=max(1, self.max_tokens // EARLIER_SHARE))[
                Truncate(keep="middle", ratio=0.6)[text]
            ],
        ]


def _label_lines(title: str, lines: Iterable[str]) -> list[str]:
    return [f"{title}: {line}" for line in lines]


def _describe_commands(commands: Sequence[Command]) -> list[str]:
    return [f"{command.name}: {command.what} → {command.outcome}" for command in commands]
