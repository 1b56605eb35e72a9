"""A handoff: the work goes on in a new conversation, which begins with what serves its goal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.compactor import redact_summary, redact_task
from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.planning.selection import is_system
from promptkit.errors import SummaryError, TranscriptConflictError, TranscriptError
from promptkit.messages import Message
from promptkit.transcript.entries import CustomMessage, MessageEntry, Observation, Setting
from promptkit.transcript.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptkit.compaction.planning.plan import LastRequest, Summary
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.store import TranscriptStore
    from promptkit.transcript.view import TranscriptView

__all__ = ["HANDOFF_TEMPLATE", "PARENT_SETTING", "Handoff", "handoff"]

HANDOFF_TEMPLATE = Path(__file__).with_name("handoff.md.j2")
"""The template for a summarizer that writes handoffs: `InlineSummarizer(model=model, template=HANDOFF_TEMPLATE)`. Its instructions are the goal."""

HANDOFF = "handoff"
PARENT_SETTING = "parent"
"""The name of the setting that says which conversation a new one comes from."""


@attrs.frozen(kw_only=True)
class Handoff:
    """What became of it: a new conversation, or the old one, made smaller."""

    transcript: Transcript | None = None
    """The new conversation; None where there was no document."""
    document: str | None = None
    """What it begins with."""
    checkpoint: Entry | None = None
    """The checkpoint that was made instead."""


async def handoff(  # noqa: PLR0913  # what can be said of it
    transcript: Transcript,
    view: TranscriptView,
    *,
    goal: str,
    summarizer: Summarizer,
    store: TranscriptStore,
    max_tokens: int,
    last_request: LastRequest | None = None,
    fallback: Callable[[], Awaitable[Entry | None]] | None = None,
    redactor: Redactor | None = None,
) -> Handoff:
    """Go on in another store, an empty one, towards a goal.

    The writer is asked for a document of at most `max_tokens`: a InlineSummarizer asks behind the last request, which the prompt cache pays
    for. The new conversation holds a link to where this one is, the system messages of the view, and the document as a message that is
    seen; in this one it is noted. Where the writer has nothing, `fallback` compacts this conversation instead.

    Raises SummaryError where there is neither, TranscriptConflictError if this conversation goes on meanwhile, and TranscriptError for
    a store that holds something, before anybody is asked.
    """
    new = Transcript(store)
    leaf = transcript.leaf
    if new.leaf is not None:
        problem = "the store that a conversation is handed to holds one already: give it an empty one."
        raise TranscriptError(problem)
    if leaf is None:
        raise SummaryError(reason="nothing", detail="nothing was said that could be handed on.")
    pinned = tuple(item for item in view.items if is_system(item))
    rest = tuple(item for item in view.items if not is_system(item))
    task = SummaryTask(
        plan=Plan(leaf=leaf, previous=view.summary, dropped=rest, pinned=pinned),
        max_tokens=max_tokens,
        instructions=goal,
        last_request=last_request,
        tools=() if last_request is None else last_request.tools,
    )
    try:
        document = await _document(task, summarizer, redactor)
    except Exception:
        if fallback is None:
            raise
        return Handoff(checkpoint=await fallback())
    if transcript.leaf != leaf:
        raise TranscriptConflictError(leaf, transcript.branch_entries(transcript.leaf, leaf) if transcript.leaf else ())
    link = {"transcript": transcript.store.file_path, "leaf": leaf, "goal": goal}
    system = (MessageEntry(message=item.message) for item in pinned)
    message = Message(role="user", content=(document.text,))
    new.append(Setting(name=PARENT_SETTING, value=link), *system, CustomMessage(name=HANDOFF, message=message), expect="")
    transcript.append(Observation(name=HANDOFF, data={"transcript": store.file_path, "goal": goal}))
    return Handoff(transcript=new, document=document.text)


async def _document(task: SummaryTask, writer: Summarizer, redactor: Redactor | None) -> Summary:
    made = await writer.summarize(task if redactor is None else redact_task(task, redactor))
    if redactor is not None:
        made = redact_summary(made, redactor)
    if not made.text.strip():
        raise SummaryError(reason="empty", detail="the document is blank.", usage=made.usage)
    return made
