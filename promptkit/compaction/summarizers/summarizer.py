"""What writes summaries: the protocol, what every summary of a model is held to, and the chain that tries one after the other.

The summary in what a model answered: it may think aloud first, and forget to close what it opened.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.compaction.planning.blocks import is_summary
from promptkit.compaction.planning.plan import Summary
from promptkit.compaction.summarizers.breadcrumb import strip_breadcrumb
from promptkit.compaction.summarizers.facts import Facts, extend_facts
from promptkit.errors import CarriedUsage, InvalidArgumentError, SummaryError
from promptkit.messages import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from promptkit.compaction.planning.plan import SummaryTask
    from promptkit.messages import Json, Message
    from promptkit.providers.model import Reply
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.view import ViewItem

__all__ = [
    "FallbackSummarizer",
    "Summarizer",
    "collect_dropped_items",
    "collect_dropped_messages",
    "get_previous_summary",
    "extract_summary",
    "sum_usage",
    "summary_from_reply",
    "updated_facts",
    "strip_analysis",
]


_OPEN = re.compile(r"<summary>", re.IGNORECASE)
_CLOSE = re.compile(r"</summary>", re.IGNORECASE)
_THINKING = re.compile(r"<analysis>", re.IGNORECASE)
_THOUGHT = re.compile(r"</analysis>", re.IGNORECASE)
_BOTH = re.compile(r"</analysis>\s*+(?=<summary>)", re.IGNORECASE)


def extract_summary(text: str) -> str | None:
    """What stands between the summary tags, without the white space around it; None where nothing was tagged.

    A summary that is mentioned while the model thinks is none: the block right behind `</analysis>` counts, else the first one behind
    the last `</analysis>` that has one behind it, else the first of all. A block that is not closed ends with the text; one that is
    opened in thoughts that do not end is no block. Linear.

    >>> extract_summary("<analysis>A <summary> is due.</analysis><summary> Done. </summary>")
    'Done.'
    """
    opened = _OPEN.search(text, _thought(text))
    if opened is None:
        return None
    closed = _CLOSE.search(text, opened.end())
    if closed is None and _THINKING.search(text, 0, opened.start()) and not _THOUGHT.search(text):
        return None
    return text[opened.end() : closed.start() if closed else len(text)].strip()


def strip_analysis(text: str) -> str:
    """The text without thoughts between analysis tags, without white space around it; thoughts that do not end go to the end."""
    kept: list[str] = []
    at = 0
    while opened := _THINKING.search(text, at):
        kept.append(text[at : opened.start()])
        closed = _THOUGHT.search(text, opened.end())
        at = closed.end() if closed else len(text)
    return "".join([*kept, text[at:]]).strip()


def _thought(text: str) -> int:
    """Where the thoughts end that the model has before it writes the summary; 0 where it has none."""
    both = _BOTH.search(text)
    if both is not None:
        return both.end()
    last = max((match.start() for match in _OPEN.finditer(text)), default=0)
    return max((match.end() for match in _THOUGHT.finditer(text, 0, last)), default=0)


class Summarizer(Protocol):
    """Writes a summary of what a plan drops."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """The summary. Raises SummaryError if there is none to be had; what cancels it passes through."""
        ...


@attrs.frozen
class FallbackSummarizer:
    """Tries summarizers one after the other until one has a summary that the task's check lets pass.

    The last is best one that needs no model, so that a conversation is never lost to a failing provider.
    """

    summarizers: Sequence[Summarizer]

    def __attrs_post_init__(self) -> None:
        if any(getattr(link, "must_be_last", False) for link in self.summarizers[:-1]):
            problem = "a summarizer that always has something to say can only be the last of a chain: nobody behind it is ever asked."
            raise InvalidArgumentError(problem)

    async def summarize(self, task: SummaryTask) -> Summary:
        """The first summary that is accepted; it costs what those that were not accepted cost, too.

        Raises SummaryError with what every link failed of.
        """
        failures: list[str] = []
        usages: list[CarriedUsage | None] = []
        for link in self.summarizers:
            try:
                summary = await link.summarize(task)
                if task.check is not None:
                    task.check(summary)
            except Exception as error:  # noqa: BLE001  # whatever a provider's client raises: the next link is there for that
                failures.append(f"{type(link).__name__}: {error}")
                usages.append(error.usage if isinstance(error, SummaryError) else None)
                continue
            return attrs.evolve(summary, usage=sum_usage([*usages, summary.usage]))
        detail = "; ".join(failures) or "there is nothing in the chain."
        raise SummaryError(reason="every", detail=detail, usage=sum_usage(usages))


def collect_dropped_items(task: SummaryTask) -> list[ViewItem]:
    """What the summary stands for, without the summary before it. Raises SummaryError if that is nothing: no model is asked then."""
    items = [item for item in (*task.plan.dropped, *task.plan.prefix) if not is_summary(item)]
    if not items:
        raise SummaryError(reason="nothing", detail="nothing was said that no summary stands for yet.")
    return items


def collect_dropped_messages(task: SummaryTask) -> list[Message]:
    """The messages of `collect_dropped_items`."""
    return [item.message for item in collect_dropped_items(task)]


def get_previous_summary(task: SummaryTask) -> str | None:
    """The summary before this one, without its breadcrumb; None where this is the first."""
    return None if task.plan.previous is None else strip_breadcrumb(task.plan.previous)


def updated_facts(task: SummaryTask) -> Mapping[str, Json]:
    """The facts for the next checkpoint, if a model writes its summary: those of the one before, with those of what is dropped now."""
    return attrs.evolve(extend_facts(Facts.from_json(task.facts), collect_dropped_items(task)), earlier=None).to_json()


def summary_from_reply(reply: Reply, task: SummaryTask, *, mode: str, model: str, tokenizer: Tokenizer, require_tags: bool) -> Summary:  # noqa: PLR0913  # keywords
    """The summary in a model's reply, if it is one.

    `tagged`: it must stand between summary tags; otherwise a reply without them is taken as it is, but for its thoughts. Raises
    SummaryError for a reply that calls tools, was withheld, is empty, or is larger than the task allows.
    """
    usage = reply.usage
    if reply.message.tool_calls:
        names = ", ".join(call.name for call in reply.message.tool_calls)
        raise SummaryError(reason="tool_call", detail=f"the model called {names} where a summary was asked for.", usage=usage)
    if reply.finish == "content_filter":
        raise SummaryError(reason="withheld", detail="the provider withheld the reply.", usage=usage)
    text = extract_summary(reply.message.text)
    if text is None:
        if require_tags:
            raise SummaryError(reason="untagged", detail="the model answered without summary tags.", usage=usage)
        text = strip_analysis(reply.message.text)
    if not text:
        raise SummaryError(reason="empty", detail="the model answered with an empty summary.", usage=usage)
    tokens = tokenizer.count(text)
    if tokens > task.max_tokens:
        raise SummaryError(
            reason="too_large",
            detail=f"the summary has {tokens:,} tokens, and {task.max_tokens:,} is the most that it may have.",
            usage=usage,
        )
    return Summary(text=text, mode=mode, model=model, usage=reply.usage, facts=updated_facts(task))


def sum_usage(usages: Iterable[CarriedUsage | None]) -> Usage | None:
    """What several requests cost together; None if none said."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    return Usage(
        input_tokens=sum(usage.input_tokens for usage in known),
        output_tokens=sum(usage.output_tokens for usage in known),
        cached_tokens=sum(usage.cached_tokens for usage in known),
    )
