"""Handoff: the work continues in a new conversation, which starts with what serves its goal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.planning.selection import is_system
from promptkit.compaction.policy.decisions import WAIT_SECONDS
from promptkit.compaction.run.redaction import redact_summary, redact_task
from promptkit.compaction.summarizers.defaults import UNLIMITED
from promptkit.compaction.summarizers.fallback import FallbackSummarizer, summarize_within_limits
from promptkit.compaction.summarizers.model_summarizers import InlineSummarizer, SimpleSummarizer
from promptkit.compaction.summarizers.sections import HANDOFF_TEMPLATE, check_length
from promptkit.errors import SummaryError, TranscriptConflictError, TranscriptError
from promptkit.messages import Message
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens.estimates import HeuristicTokenizer
from promptkit.transcript.log.entries import CustomMessage, MessageEntry, Observation, Setting
from promptkit.transcript.log.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptkit.compaction.planning.plan import LastRequest, Summary
    from promptkit.compaction.summarizers.defaults import SummarizerContext
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.providers.model import Model
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.redaction import Redactor
    from promptkit.transcript.log.view import TranscriptView
    from promptkit.transcript.stores.store import TranscriptStore

HANDOFF = "handoff"
"""Name of the document's message in the new conversation, and of the observation in the old one."""

PARENT_SETTING = "parent"
"""Name of the setting that says which conversation a new one comes from."""


async def handoff(  # noqa: PLR0913  # keywords
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
    tokenizer: Tokenizer | None = None,
    seconds: float | None = WAIT_SECONDS,
) -> Handoff:
    """Continue the work in a new conversation with a goal.

    The new conversation gets a link to the old one, the view's system messages, and the document as
    a visible message. The old conversation gets a note.

    Args:
        transcript: The conversation to hand off.
        view: Its view.
        goal: What the new conversation is for.
        summarizer: Writes the document. An `InlineSummarizer` asks after the last request, which
            the prompt cache pays for.
        store: An empty store for the new conversation.
        max_tokens: Token limit of the document.
        last_request: The last request of the conversation.
        fallback: Compacts the old conversation if the document could not be written. None: the
            error is raised.
        redactor: Removes secrets from what the summarizer gets and from the document.
        tokenizer: Counts the conversation and the document, which must not be too short for it.
            None: the tokens are estimated.
        seconds: The longest time that one summarizer may take; None: no limit.

    Returns:
        The new conversation, or the checkpoint of the fallback.

    Raises:
        TranscriptError: The store is not empty. Checked before any request.
        SummaryError: No document was written in time, or none that can stand for the conversation,
            and there is no fallback.
        TranscriptConflictError: The conversation continued in the meantime.
    """
    new = Transcript(store)
    leaf = transcript.leaf
    if new.leaf is not None:
        problem = "the store for the new conversation is not empty: pass an empty store."
        raise TranscriptError(problem)
    if leaf is None:
        raise SummaryError(reason="nothing", detail="the conversation has no messages to hand off.")
    pinned = tuple(item for item in view.items if is_system(item))
    rest = tuple(item for item in view.items if not is_system(item))
    counting = tokenizer or HeuristicTokenizer()
    replaced = sum(map(Sizer(counting).count_message, (item.message for item in rest)))
    task = SummaryTask(
        plan=Plan(leaf=leaf, previous=view.summary, dropped=rest, pinned=pinned),
        max_tokens=max_tokens,
        instructions=goal,
        last_request=last_request,
        tools=() if last_request is None else last_request.tools,
        seconds=seconds,
        check=lambda summary: check_length(summary, replaced=replaced, tokenizer=counting),
    )
    try:
        document = await _write_document(task, summarizer, redactor)
    except Exception:
        if fallback is None:
            raise
        return Handoff(checkpoint=await fallback())
    if transcript.leaf != leaf:
        raise TranscriptConflictError(
            leaf, transcript.branch_entries(transcript.leaf, leaf) if transcript.leaf else ()
        )
    link = {"transcript": transcript.store.address, "leaf": leaf, "goal": goal}
    system = (MessageEntry(message=item.message) for item in pinned)
    message = Message(role="user", content=(document.text,))
    new.append(
        Setting(name=PARENT_SETTING, value=link),
        *system,
        CustomMessage(name=HANDOFF, message=message),
        expect="",
    )
    transcript.append(Observation(name=HANDOFF, data={"transcript": store.address, "goal": goal}))
    return Handoff(transcript=new, document=document.text)


@attrs.frozen(kw_only=True)
class Handoff:
    """The result of a handoff: a new conversation, or the old one after a compaction."""

    transcript: Transcript | None = None
    """The new conversation. None if no document was written."""
    document: str | None = None
    """The document that the new conversation starts with."""
    checkpoint: Entry | None = None
    """The checkpoint of the old conversation, if the fallback ran."""


def make_handoff_summarizer(context: SummarizerContext, model: Model) -> Summarizer:
    """Make a summarizer that writes handoffs: after the last request, or of the conversation as text."""
    inline = InlineSummarizer(
        model=model, window=context.window, tokenizer=context.tokenizer, template=HANDOFF_TEMPLATE
    )
    simple = SimpleSummarizer(
        model=model,
        window=context.window or UNLIMITED,
        tokenizer=context.tokenizer,
        template=HANDOFF_TEMPLATE,
    )
    return FallbackSummarizer([inline, simple])


async def _write_document(
    task: SummaryTask, summarizer: Summarizer, redactor: Redactor | None
) -> Summary:
    summary = await summarize_within_limits(
        summarizer, task if redactor is None else redact_task(task, redactor)
    )
    if redactor is not None:
        summary = redact_summary(summary, redactor)
    if not summary.text.strip():
        raise SummaryError(reason="empty", detail="the document is blank.", usage=summary.usage)
    return summary
