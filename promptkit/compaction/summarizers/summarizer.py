"""The summarizer protocol, what summarizers share, the headings that summaries are asked for, and the checks that every model's summary must pass."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import filterfalse
from pathlib import Path
from threading import current_thread
from typing import Protocol

import attrs

from promptkit.compaction.planning.blocks import is_summary
from promptkit.compaction.planning.breadcrumb import strip_breadcrumb
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import CarriedContext, Plan, Summary, SummaryTask
from promptkit.compaction.summarizers.facts import extend_facts
from promptkit.errors import SummaryError
from promptkit.messages import Message, Usage
from promptkit.providers import Model, Reply, with_options
from promptkit.providers.anthropic.api import default_output_tokens
from promptkit.providers.model import COMPACTION
from promptkit.providers.openai.api import may_reason
from promptkit.tokens import Tokenizer
from promptkit.tokens.models import find_model
from promptkit.transcript import Redactor, ViewItem, redact_message

MIN_SUMMARY_TOKENS, SHORTEST_SHARE = 20, 200
"""A summary of fewer tokens is not one, as "ok" or a refusal. Of a short conversation it may have a
two-hundredth of the tokens."""


TEMPLATE = Path(__file__).with_name("summary.md.j2")
"""The template of the instructions for a summary."""


SECTIONS = (
    "Conversation Overview",
    "Technical Foundation",
    "Codebase Status",
    "Problem Resolution",
    "Progress Tracking",
    "Active Work State",
    "Recent Operations",
    "Continuation Plan",
)
"""The headings of a summary, in order."""


HANDOFF_TEMPLATE = Path(__file__).with_name("handoff.md.j2")
"""The template for a summarizer that writes handoffs:
`InlineSummarizer(model=model, template=HANDOFF_TEMPLATE)`. The task's instructions are the goal."""


HANDOFF_SECTIONS = (
    "Goal and Wishes",
    "Decisions and Reasons",
    "Files That Matter",
    "Tried and Failed",
    "Commands That Work",
    "Remaining Steps",
)
"""The headings of a handoff's document, in order."""


_TEMPLATES = {TEMPLATE: SECTIONS, HANDOFF_TEMPLATE: HANDOFF_SECTIONS}


def find_sections(template: str | os.PathLike[str]) -> Sequence[str]:
    """Return the headings that a template asks for: those of promptkit's own templates, none of another."""
    return _TEMPLATES.get(Path(template), ())


_HEADINGS = "|".join(re.escape(heading) for headings in _TEMPLATES.values() for heading in headings)
_HEADING = re.compile(
    rf"(?:[#*_>]{{1,6}}[ \t]{{0,8}})?(?:\d{{1,2}}[.)][ \t]{{0,8}})?[*_]{{0,3}}(?:{_HEADINGS})\b[*_]{{0,3}}:?[*_]{{0,3}}",
    re.IGNORECASE,
)
_MARKUP = " \t*_-#`"
_BRACKETED = re.compile(r"[\[<{(]{1,2}[^\[\]<>{}()]*[\])>}]{1,2}\W*")
_NOTHING = re.compile(
    r"(?:n/?a|no|yes|ok|okay|sure|done|none|nothing|nil|empty|unknown|tbd|todo|to do|not applicable|see above|same as above)\W*|[\W_]*",
    re.IGNORECASE,
)


def find_own_text(text: str) -> str:
    r"""Return the lines of a summary without its headings, the words of the template, and lines that stand for nothing.

    Lines that stand for nothing are "N/A", "none", "ok", or words in brackets that are to be
    replaced.

    >>> find_own_text("1. Conversation Overview: N/A\n2. Technical Foundation\n[describe here]\n3. Codebase Status: a.py scatters.")
    'a.py scatters.'
    """
    lines = (_HEADING.sub("", line).strip(_MARKUP) for line in text.splitlines())
    asked = _read_descriptions()
    return "\n".join(
        line
        for line in lines
        if line not in asked and not _BRACKETED.fullmatch(line) and not _NOTHING.fullmatch(line)
    )


@cache
def _read_descriptions() -> frozenset[str]:
    """Return what promptkit's templates say about each heading, as `find_own_text` sees it."""
    return frozenset(
        _HEADING.sub("", line).strip(_MARKUP)
        for template in _TEMPLATES
        for line in template.read_text(encoding="utf-8").splitlines()
        if _HEADING.match(line)
    )


def check_length(summary: Summary, *, replaced: int, tokenizer: Tokenizer) -> None:
    """Raise SummaryError if a summary is too short to stand for `replaced` tokens, or has nothing besides its headings.

    A placeholder says that it is no summary, and may be short.
    """
    if summary.mode == "placeholder":
        return
    least = min(MIN_SUMMARY_TOKENS, replaced // SHORTEST_SHARE)
    tokens, own = tokenizer.count(summary.text), find_own_text(summary.text)
    if tokens < least or not own:
        problem = (
            f"a summary of {tokens:,} tokens cannot replace {replaced:,}"
            if tokens < least
            else f"a summary with nothing of its own cannot replace {replaced:,} tokens"
        )
        raise SummaryError(
            reason="too_short",
            detail=f"{problem}: {summary.text.strip()[:80]!r}.",
            usage=summary.usage,
        )


ANALYSIS_TOKENS = 2_000
"""Output tokens of a summary request for the analysis before the summary, besides as many as the
summary may have."""

ANTHROPIC = "anthropic"
"""The provider of models that refuse an output limit above what they can write."""

REASONING_TOKENS = 8_000
"""Output tokens of a summary request for reasoning."""


PARTIAL = "partial"
"""The mode of a summary by a model that was not shown all of the messages that it replaces."""


class Summarizer(Protocol):
    """Writes a summary of the messages that a plan drops."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Write the summary. Cancellation passes through.

        Raises:
            SummaryError: No summary was made.
        """
        ...


def collect_dropped_items(task: SummaryTask) -> list[ViewItem]:
    """Return the view items that the summary will replace, without the previous summary.

    What the model has read back from the transcript is left out of them: the earlier entries were
    summarized, and stay where they are.

    Raises:
        SummaryError: There are none, so no model needs to be asked.
    """
    items = [
        item if item.recorded is None else attrs.evolve(item, message=item.recorded)
        for item in (*task.plan.dropped, *task.plan.prefix)
        if not is_summary(item)
    ]
    if not items:
        raise SummaryError(reason="nothing", detail="there are no messages to summarize.")
    return items


def collect_dropped_messages(task: SummaryTask) -> list[Message]:
    """Return the messages of `collect_dropped_items`."""
    return [item.message for item in collect_dropped_items(task)]


def get_previous_summary(task: SummaryTask) -> str | None:
    """Return the text of the previous summary without its breadcrumb, or None if there was none."""
    return None if task.plan.previous is None else strip_breadcrumb(task.plan.previous)


KEPT, PAUSE = 0.001, 0.00005
"""Seconds for which the worker keeps the interpreter in `give_way`, and for which it pauses then: a
thread that waits needs some to wake up."""


def give_way(items: Iterable[ViewItem]) -> Iterator[ViewItem]:
    """Yield the items of work in the worker, and let go of the interpreter every millisecond.

    Another thread gets it after five otherwise, and the event loop asks for it again after each text
    that it has tokenized. In any other thread there is no pause: an event loop would stand still for
    a busy thread each time.
    """
    turn_ends = time.perf_counter() + KEPT
    for item in items:
        yield item
        if time.perf_counter() > turn_ends and current_thread().name.startswith("promptkit worker"):
            time.sleep(PAUSE)
            turn_ends = time.perf_counter() + KEPT


def updated_facts(task: SummaryTask) -> Facts:
    """Return the facts for the next checkpoint: those of the previous one, extended by what is dropped now.

    For summaries that a model wrote. `Facts.earlier` is cleared, because the model has read the
    previous summary.
    """
    known = task.known_facts
    if known is not None and known.belong_to(task.plan):
        return known.facts
    items = filterfalse(is_summary, (*task.plan.dropped, *task.plan.prefix))
    facts = extend_facts(task.facts, give_way(items), rules=task.file_rules)
    return attrs.evolve(facts, earlier=None)


def add_facts(summary: Summary, task: SummaryTask) -> Summary:
    """Add the facts of what is dropped to a summary, whoever wrote it.

    The summary's own facts win.
    """
    return attrs.evolve(summary, facts=updated_facts(task).merge(summary.facts))


def limit_output(model: Model, task: SummaryTask, *, room: int | None = None) -> Model:
    """Return the model with the options of a summary request: its purpose, the most likely words, and an output limit.

    Its requests are reported as events if the task asks for that. The limit allows for the analysis
    that precedes the summary, and for the reasoning of a model that may reason.

    Args:
        model: The summarizing model.
        task: Its summary may have `max_tokens`.
        room: The tokens of the context window that the request leaves, by the count made here. A
            provider may count more, so that the limit takes three quarters of it. None: the window
            is unknown.
    """
    reasoning = REASONING_TOKENS if may_reason(model.name) else 0
    limits = [
        2 * task.max_tokens + ANALYSIS_TOKENS + reasoning,
        max(room * 3 // 4, task.max_tokens) if room is not None else None,
    ]
    known = find_model(model.name)
    if known is not None:
        limits.append(known.max_output_tokens)
    elif getattr(model, "provider", None) == ANTHROPIC:
        limits.append(default_output_tokens(model.name))  # as its replies ask for
    most = min(limit for limit in limits if limit is not None)
    return with_options(
        model if task.observe is None else task.observe(model),
        purpose=COMPACTION,
        temperature=0,
        max_output_tokens=most,
    )


def summary_from_reply(  # noqa: PLR0913  # keywords
    reply: Reply,
    task: SummaryTask,
    *,
    mode: str,
    model: str,
    tokenizer: Tokenizer,
    require_tags: bool,
    sections: Sequence[str] = (),
    missed: int = 0,
) -> Summary:
    """Take the summary from a model's reply.

    Args:
        reply: The model's reply.
        task: The task that the reply answers.
        mode: Recorded in the summary: how it was made.
        model: The model's name.
        tokenizer: Counts the tokens of the summary.
        require_tags: Reject a reply without summary tags. Otherwise such a reply is taken whole,
            without its analysis.
        sections: The headings that the template asks for. A summary with less than half of them is
            rejected, unless the task asks for none.
        missed: The number of messages to be summarized that the request did not show. With any, the
            mode is `partial`.

    Returns:
        The summary.

    Raises:
        SummaryError: The reply calls tools, was withheld by the provider, is cut, is empty, lacks
            the tags or the headings that were asked for, has nothing under them, or is larger than
            the task allows.
    """
    usage = reply.usage
    if reply.message.tool_calls:
        names = ", ".join(call.name for call in reply.message.tool_calls)
        raise SummaryError(
            reason="tool_call",
            detail=f"the model called {names} instead of writing a summary.",
            usage=usage,
        )
    if reply.finish == "content_filter":
        raise SummaryError(
            reason="withheld", detail="the provider withheld the reply.", usage=usage
        )
    if reply.finish == "length" and not _SUMMARY_CLOSE.search(reply.message.text):
        raise SummaryError(
            reason="cut",
            detail="the reply reached its output limit before the summary was complete.",
            usage=usage,
        )
    text = extract_summary(reply.message.text)
    if text is None:
        if require_tags and strip_analysis(reply.message.text):
            raise SummaryError(
                reason="untagged", detail="the reply has no <summary> tags.", usage=usage
            )
        text = strip_analysis(reply.message.text)
    memories = None
    if task.memories:
        memories, text = split_memories(reply.message.text, text)
    if not text:
        raise SummaryError(reason="empty", detail="the model wrote an empty summary.", usage=usage)
    _check_sections(text, sections if task.headings else (), usage)
    tokens = tokenizer.count(text)
    if tokens > task.max_tokens:
        raise SummaryError(
            reason="too_large",
            detail=f"the summary has {tokens:,} tokens; the limit is {task.max_tokens:,}.",
            usage=usage,
        )
    return Summary(
        text=text,
        mode=PARTIAL if missed else mode,
        model=model,
        usage=reply.usage,
        request_id=reply.request_id,
        facts=Facts(memories=memories),
        missed=missed,
    )


def _check_sections(text: str, sections: Sequence[str], usage: Usage | None) -> None:
    """Raise SummaryError if a summary lacks more than half of its headings, or says nothing under them."""
    missing = [name for name in sections if name.casefold() not in text.casefold()]
    if 2 * len(missing) > len(sections):
        raise SummaryError(
            reason="no_sections",
            detail=f"the summary lacks {len(missing)} of the {len(sections)} headings that were asked for, such as {missing[0]!r}.",
            usage=usage,
        )
    if sections and not find_own_text(text):
        raise SummaryError(
            reason="no_sections",
            detail=f"the summary says nothing under its headings: {text[:80]!r}.",
            usage=usage,
        )


def split_memories(reply: str, summary: str) -> tuple[str, str]:
    """Return the list of memories of a reply, and its summary without it.

    The list is the last block of the reply, or stands in the summary.
    """
    closed = max((match.end() for match in _SUMMARY_CLOSE.finditer(reply)), default=None)
    found = None if closed is None else _MEMORIES.search(reply, closed)
    if found is not None:
        return found[1].strip(), summary
    found = _MEMORIES.search(summary)
    return (
        ("", summary)
        if found is None
        else (found[1].strip(), f"{summary[: found.start()]}{summary[found.end() :]}".strip())
    )


def sum_usage(usages: Iterable[Usage | None]) -> Usage | None:
    """Add up the usage of several requests. None if none of them reported any."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    return Usage(
        input_tokens=sum(usage.input_tokens for usage in known),
        output_tokens=sum(usage.output_tokens for usage in known),
        cached_tokens=sum(usage.cached_tokens for usage in known),
        written_tokens=sum(usage.written_tokens for usage in known),
        written_1h_tokens=sum(usage.written_1h_tokens for usage in known),
    )


_MEMORIES = re.compile(
    r"<memories>([^<]*+(?:<(?!/?memories>)[^<]*+)*+)(?:</memories>|\Z)", re.IGNORECASE
)
_SUMMARY_OPEN = re.compile(r"<summary>", re.IGNORECASE)
_SUMMARY_CLOSE = re.compile(r"</summary>", re.IGNORECASE)
_ANALYSIS_OPEN = re.compile(r"<analysis>", re.IGNORECASE)
_ANALYSIS_CLOSE = re.compile(r"</analysis>", re.IGNORECASE)
_SUMMARY_AFTER_ANALYSIS = re.compile(r"</analysis>\s*+(?=<summary>)", re.IGNORECASE)


def extract_summary(text: str) -> str | None:
    """Return the text between the summary tags, without surrounding white space, or None if the text has no summary block.

    A `<summary>` that the model merely mentions inside its analysis does not count. The function
    takes the block right after `</analysis>`; else the first block after the last `</analysis>`
    that has a block after it; else the first block. A block that is not closed ends with the text.
    A block that was opened inside an unclosed analysis is ignored. Runs in linear time.

    >>> extract_summary("<analysis>A <summary> is due.</analysis><summary> Done. </summary>")
    'Done.'
    """
    opened = _SUMMARY_OPEN.search(text, _find_analysis_end(text))
    if opened is None:
        return None
    closed = _SUMMARY_CLOSE.search(text, opened.end())
    if (
        closed is None
        and _ANALYSIS_OPEN.search(text, 0, opened.start())
        and not _ANALYSIS_CLOSE.search(text)
    ):
        return None
    return text[opened.end() : closed.start() if closed else len(text)].strip()


def _find_analysis_end(text: str) -> int:
    """Return the position after the analysis that precedes the summary, or 0 if there is none."""
    both = _SUMMARY_AFTER_ANALYSIS.search(text)
    if both is not None:
        return both.end()
    last = max((match.start() for match in _SUMMARY_OPEN.finditer(text)), default=0)
    return max((match.end() for match in _ANALYSIS_CLOSE.finditer(text, 0, last)), default=0)


def strip_analysis(text: str) -> str:
    """Remove everything between analysis tags, and surrounding white space.

    An analysis that is not closed ends with the text.
    """
    kept: list[str] = []
    at = 0
    while opened := _ANALYSIS_OPEN.search(text, at):
        kept.append(text[at : opened.start()])
        closed = _ANALYSIS_CLOSE.search(text, opened.end())
        at = closed.end() if closed else len(text)
    return "".join([*kept, text[at:]]).strip()


def redact_task(task: SummaryTask, redactor: Redactor | None) -> SummaryTask:
    """Remove secrets from a task: from its plan, its facts, its memories and the user's instructions.

    The last request is unchanged: the model has seen it, and the provider's prompt cache holds
    exactly these bytes. Without a redactor the task is returned as it is.
    """
    return (
        task
        if redactor is None
        else attrs.evolve(
            task,
            plan=attrs.evolve(
                redact_plan(task.plan, redactor),
                kept=_redact_items(task.plan.kept, redactor),
                pinned=_redact_items(task.plan.pinned, redactor),
                replayed=_redact_items(task.plan.replayed, redactor),
            ),
            instructions=None if task.instructions is None else redactor(task.instructions),
            known_memories=tuple(map(redactor, task.known_memories)),
            facts=task.facts.redact(redactor),
            redactor=redactor,
        )
    )


def redact_summary(summary: Summary, redactor: Redactor | None) -> Summary:
    """Remove secrets from a summary and its facts, if there is a redactor."""
    return (
        summary
        if redactor is None
        else attrs.evolve(
            summary, text=redactor(summary.text), facts=summary.facts.redact(redactor)
        )
    )


def redact_carried(
    carried: CarriedContext | None, redactor: Redactor | None
) -> CarriedContext | None:
    """Remove secrets from what is carried beside a summary (None: nothing is), if there is a redactor."""
    return (
        carried
        if carried is None or redactor is None
        else CarriedContext(
            plan=carried.plan and redactor(carried.plan),
            todos=tuple(map(redactor, carried.todos)),
            skills=tuple(map(redactor, carried.skills)),
            rules=tuple(map(redactor, carried.rules)),
            agent=carried.agent and redactor(carried.agent),
            files=tuple(map(redactor, carried.files)),
            errors=tuple(map(redactor, carried.errors)),
            extract=tuple(map(redactor, carried.extract)),
        )
    )


def redact_plan(plan: Plan, redactor: Redactor | None) -> Plan:
    """Remove secrets from the messages that a plan drops, if there is a redactor.

    A checkpoint may show some of them again next to the summary.
    """
    return (
        plan
        if redactor is None
        else attrs.evolve(
            plan,
            previous=None if plan.previous is None else redactor(plan.previous),
            dropped=_redact_items(plan.dropped, redactor),
            prefix=_redact_items(plan.prefix, redactor),
        )
    )


def _redact_items(items: Iterable[ViewItem], redactor: Redactor) -> tuple[ViewItem, ...]:
    return tuple(
        attrs.evolve(
            item,
            message=redact_message(item.message, redactor),
            recorded=None if item.recorded is None else redact_message(item.recorded, redactor),
            unpruned=None if item.unpruned is None else redact_message(item.unpruned, redactor),
        )
        for item in items
    )
