"""The work of `promptkit compact`: plan the compaction of a transcript, write the summary, append the checkpoint, print the result."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import click

from promptkit import ContextBudget, JsonlStore, Transcript
from promptkit.cli.input.params import open_model
from promptkit.cli.output.terminal import (
    clip,
    count_nouns,
    echo_wrapped,
    escape_control_chars,
    print_json,
    read_width,
    show_spinner,
    usage_error,
)
from promptkit.cli.output.transcript import entry_role, first_line, short_id
from promptkit.compaction import (
    ChunkedSummarizer,
    ExtractiveSummarizer,
    FallbackSummarizer,
    FullSummarizer,
    Plan,
    Replacement,
    SimpleSummarizer,
    Summarizer,
)
from promptkit.compaction.planning.selection import select
from promptkit.compaction.run.compactor import Compactor, DraftSummary
from promptkit.errors import SummaryError
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import Tokenizer, tokenizer_for
from promptkit.transcript import Entry, build_summary_message, build_view, entry_to_json

DEFAULT_WINDOW = 128_000
"""Context window in tokens, if none is given and that of the model is unknown."""

EXTRACTIVE_DIVISOR = 2
"""An extractive summary has at most half of the tokens that it replaces."""

MARGIN = 4_000
"""Tokens for instructions and counting errors: dropped messages that fill the window up to this
margin are summarized in chunks."""

UNLIMITED = 1_000
"""Columns of an output that is not a terminal."""

TEXT_WIDTH = 50
"""Columns of the text of a dropped message, in a terminal that is wide enough."""

LISTED_FIRST, LISTED_LAST = 10, 10
"""Dropped messages that are listed: so many at the beginning, so many at the end."""


@attrs.frozen(kw_only=True)
class CompactOptions:
    """Arguments of `promptkit compact`."""

    file: Path
    instructions: str | None
    model: str | None
    """None: extract the summary from the transcript, without a model."""
    note: str | None
    """A sentence about the arguments that is printed with the result."""
    window: int | None
    dry_run: bool
    as_json: bool


@attrs.frozen(kw_only=True)
class Outcome:
    """The result of a compaction. Sizes are tokens of the messages that a model receives."""

    plan: Plan
    draft: DraftSummary | None
    """None: there was nothing to summarize."""
    entry: Entry | None
    """The checkpoint. None: nothing was written."""
    before: int
    after: int
    beside: str = ""
    """The text after the summary: the user's earlier messages, the open todos."""
    limit: int | None = None
    """The tokens that a request may have. None: unknown."""


def compact_file(options: CompactOptions) -> None:
    """Compact a transcript and print the result.

    Raises SummaryError, and TranscriptError for a file that cannot be read as a transcript.
    """
    transcript = Transcript(JsonlStore(options.file))
    name = escape_control_chars(str(options.file))
    with show_spinner(f"Summarizing {name}"):
        outcome = asyncio.run(_compact(options, transcript))
    if options.as_json:
        print_json(_outcome_to_json(options, outcome))
        return
    if options.note:
        echo_wrapped(options.note, err=True)
    if outcome.draft is None:
        echo_wrapped(
            f"{name}: {outcome.before:,} tokens, nothing to summarize: all messages are recent."
        )
    else:
        _print_outcome(options, transcript, outcome, outcome.draft)


async def _compact(options: CompactOptions, transcript: Transcript) -> Outcome:
    tokenizer = tokenizer_for(options.model)
    count = Sizer(tokenizer).count_message
    view = build_view(transcript.path())
    before = sum(map(count, view.messages))
    plan = select(view, leaf=transcript.leaf or "", tokenizer=tokenizer)
    nothing = Outcome(plan=plan, draft=None, entry=None, before=before, after=before)
    if plan.is_empty:
        return nothing
    dropped_tokens = sum(count(item.message) for item in (*plan.dropped, *plan.prefix))
    budget = ContextBudget.for_model(
        options.model or "", tokenizer=tokenizer, window=options.window
    )
    replacement = Replacement().limited_to(budget.base)
    async with AsyncExitStack() as stack:
        summarizer, max_tokens = _make_summarizer(options, budget, tokenizer, dropped_tokens, stack)
        compactor = Compactor(
            transcript,
            summarizer=summarizer,
            replacement=replacement,
            tokenizer=tokenizer,
            max_summary_tokens=max_tokens,
        )
        try:
            draft = await compactor.draft(plan, trigger="manual", instructions=options.instructions)
        except SummaryError as error:
            usage_error(
                f"{error} The file was not changed{'' if options.model is None else '; --extractive needs no model'}."
            )
        if draft is None:
            return nothing
        entry = None if options.dry_run else await compactor.commit(draft)
    built = replacement.build(plan, draft.summary, tokenizer)
    _, _, beside = built.messages[built.generated[0]].text.partition(
        build_summary_message(draft.summary.text).text
    )
    return Outcome(
        plan=plan,
        draft=draft,
        entry=entry,
        before=before,
        after=sum(
            map(
                count,
                build_view(transcript.path()).messages
                if entry
                else (*built.messages, *(item.message for item in plan.kept)),
            )
        ),
        beside=beside.strip(),
        limit=budget.limit,
    )


def _make_summarizer(
    options: CompactOptions,
    budget: ContextBudget,
    tokenizer: Tokenizer,
    dropped_tokens: int,
    stack: AsyncExitStack,
) -> tuple[Summarizer, int]:
    """Return the summarizer for one compaction, and the most tokens of its summary. The stack closes the model's connections."""
    if budget.limit is None:
        budget = attrs.evolve(budget, window=DEFAULT_WINDOW)
    max_tokens = budget.summary_tokens
    if options.model is None:
        return ExtractiveSummarizer(tokenizer=tokenizer), min(
            max_tokens, max(1, dropped_tokens // EXTRACTIVE_DIVISOR)
        )
    model, close = open_model(options.model)
    stack.push_async_callback(close)
    window = (budget.limit or DEFAULT_WINDOW) + (budget.output_reserve or 0)
    fits = dropped_tokens + max_tokens + MARGIN <= window
    return FallbackSummarizer(
        [
            kind(model=model, window=window, tokenizer=tokenizer)
            for kind in (FullSummarizer if fits else ChunkedSummarizer, SimpleSummarizer)
        ]
    ), max_tokens


def _print_outcome(
    options: CompactOptions, transcript: Transcript, outcome: Outcome, draft: DraftSummary
) -> None:
    plan, summary = outcome.plan, draft.summary
    dropped = (*plan.dropped, *plan.prefix)
    sizer = Sizer(tokenizer_for(options.model))
    kept = len(plan.pinned) + len(plan.replayed) + len(plan.kept)
    echo_wrapped(
        f"{count_nouns(len(dropped), 'message')} {'would be ' if options.dry_run else ''}replaced by a summary, {kept:,} kept. Each with its id, role, tokens and text:"
    )
    width = read_width(UNLIMITED)
    for index, item in enumerate(dropped):
        if LISTED_FIRST <= index < len(dropped) - LISTED_LAST:
            if index == LISTED_FIRST:
                click.echo(f"  …  {len(dropped) - LISTED_FIRST - LISTED_LAST:,} more")
            continue
        entry = transcript.get(item.entry_id)
        start = f"  {short_id(item.entry_id):<8}  {entry_role(entry):<10}  {sizer.count_message(item.message):>7,}  "
        click.echo(start + clip(first_line(entry), max(min(width - len(start), TEXT_WIDTH), 1)))
    cost = (
        ""
        if summary.usage is None
        else f", {summary.usage.input_tokens:,} input and {summary.usage.output_tokens:,} output tokens"
    )
    click.echo()
    echo_wrapped(
        f"Summary ({summary.mode}{f' by {escape_control_chars(summary.model)}' if summary.model else ''}{cost}):"
    )
    text = escape_control_chars("\n\n".join(filter(None, (summary.text, outcome.beside))))
    click.echo(f"\n{text}\n\n{outcome.before:,} → {outcome.after:,} tokens")
    if outcome.limit is not None and outcome.after > outcome.limit:
        echo_wrapped(
            f"A request may have {outcome.limit:,} tokens: the messages that are kept are too large by themselves."
        )
    if outcome.entry is not None:
        click.echo(
            f"entry {escape_control_chars(outcome.entry.id)} written to {escape_control_chars(str(options.file))}"
        )
    elif options.dry_run:
        click.echo("nothing was written (--dry-run)")
    else:
        echo_wrapped("nothing was written: messages were added to the transcript in the meantime")


def _outcome_to_json(options: CompactOptions, outcome: Outcome) -> dict[str, object]:
    plan, summary = outcome.plan, outcome.draft.summary if outcome.draft else None
    return {
        "file": str(options.file),
        "dry_run": options.dry_run,
        "note": options.note,
        "tokens_before": outcome.before,
        "tokens_after": outcome.after,
        "dropped": [item.entry_id for item in (*plan.dropped, *plan.prefix)],
        "kept": [item.entry_id for item in (*plan.pinned, *plan.replayed, *plan.kept)],
        "mode": summary.mode if summary else None,
        "model": summary.model if summary else None,
        "usage": attrs.asdict(summary.usage) if summary and summary.usage else None,
        "summary": summary.text if summary else None,
        "beside": outcome.beside if summary else None,
        "entry": entry_to_json(outcome.entry) if outcome.entry else None,
    }
