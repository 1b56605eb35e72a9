"""The work of `promptkit compact`: plan, summary, checkpoint, and what is printed of them.

`promptkit compact`: put a summary in the place of what a transcript's model would be shown, in the file itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs
import click

from promptkit.cli.input.model import is_keyless, open_model
from promptkit.cli.input.params import SIZE
from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.messages import print_json
from promptkit.cli.output.terminal import clip, escape_control_chars, show_spinner
from promptkit.cli.output.transcript import entry_role, first_line, short_id
from promptkit.compaction.compactor import Compactor
from promptkit.compaction.planning.selection import select
from promptkit.compaction.summarizers.chunked import ChunkedSummarizer
from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.full import FullSummarizer
from promptkit.compaction.summarizers.simple import SimpleSummarizer
from promptkit.compaction.summarizers.summarizer import FallbackSummarizer
from promptkit.errors import SummaryError
from promptkit.rendering.sizing import Sizer
from promptkit.tokens.budget import ContextBudget
from promptkit.tokens.models import tokenizer_for
from promptkit.transcript.jsonl.records import entry_to_json
from promptkit.transcript.jsonl.store import JsonlStore
from promptkit.transcript.transcript import Transcript
from promptkit.transcript.view import build_summary_message, build_view

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from promptkit.compaction.compactor import DraftSummary
    from promptkit.compaction.planning.plan import Plan
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import Message
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry

__all__ = ["CompactOptions", "compact", "run"]


WINDOW = 128_000
"""Tokens, where no window is given and none is known of the model."""

GAIN = 2
"""A summary without a model has at most half of what it stands for."""

MARGIN = 4_000
"""Tokens of instructions and of what a count may be wrong: what is larger than the window less this is summarized in stretches."""

HEAD, TAIL = 10, 10
"""Messages that are listed at the beginning and at the end of what is left out."""


@attrs.frozen(kw_only=True)
class CompactOptions:
    """What was asked for. `note` is what is to be said beside what came of it."""

    file: Path
    instructions: str | None
    model: str | None
    note: str | None
    window: int | None
    dry_run: bool
    as_json: bool


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of it. Figures are tokens of the messages that a model is shown."""

    plan: Plan
    draft: DraftSummary | None
    entry: Entry | None
    before: int
    after: int
    limit: int | None = None
    """The most that a request may have, where it was asked for or is known."""


def run(order: CompactOptions) -> None:
    """Compact a transcript and print what came of it. Raises SummaryError, and TranscriptError for a file that is none."""
    transcript = Transcript(JsonlStore(order.file))
    name = escape_control_chars(str(order.file))
    with show_spinner(f"Summarizing {name}"):
        outcome = asyncio.run(_compacted(order, transcript))
    if order.as_json:
        print_json(_as_json(order, outcome))
        return
    if order.note:
        click.echo(order.note, err=True)
    if outcome.draft is None:
        click.echo(f"{name}: {outcome.before:,} tokens, and nothing to summarize: all of it is recent.")
        return
    _print(order, transcript, outcome, outcome.draft)


async def _compacted(order: CompactOptions, transcript: Transcript) -> Outcome:
    tokenizer = tokenizer_for(order.model)
    sizer = Sizer(tokenizer)

    def size(messages: Iterable[Message]) -> int:
        return sum(map(sizer.count_message, messages))

    view = build_view(transcript.path())
    before = size(view.messages)
    plan = select(view, leaf=transcript.leaf or "", tokenizer=tokenizer)
    if plan.is_empty:
        return Outcome(plan=plan, draft=None, entry=None, before=before, after=before)
    dropped = size(item.message for item in (*plan.dropped, *plan.prefix))
    async with _Writer(order, tokenizer, dropped) as writer:
        compactor = Compactor(transcript, summarizer=writer.chain, tokenizer=tokenizer, max_summary_tokens=writer.most)
        try:
            draft = await compactor.draft(plan, trigger="manual", instructions=order.instructions)
        except SummaryError as error:
            usage_error(f"{error} The file is as it was{'' if order.model is None else '; --extractive asks no model'}.")
        if draft is None:
            return Outcome(plan=plan, draft=None, entry=None, before=before, after=before)
        entry = None if order.dry_run else await compactor.commit(draft)
    if entry is None:
        stays = [item.message for item in (*plan.pinned, *plan.replayed, *plan.kept)]
        return Outcome(
            plan=plan, draft=draft, entry=None, before=before, after=size([build_summary_message(draft.summary.text), *stays]), limit=writer.limit
        )
    return Outcome(
        plan=plan, draft=draft, entry=entry, before=before, after=size(build_view(transcript.path()).messages), limit=writer.limit
    )


class _Writer:
    """Who writes the summary, and how long it may be: a model while the block runs, or nobody but the transcript itself."""

    def __init__(self, order: CompactOptions, tokenizer: Tokenizer, dropped: int) -> None:
        budget = ContextBudget.for_model(order.model or "", tokenizer=tokenizer, window=order.window)
        self.limit = budget.limit
        if budget.limit is None:
            budget = attrs.evolve(budget, window=WINDOW)
        self.most = budget.summary_tokens
        self._close: Callable[[], Awaitable[object]] | None = None
        self.chain: Summarizer = ExtractiveSummarizer(tokenizer=tokenizer)
        if order.model is None:
            self.most = min(self.most, max(1, dropped // GAIN))
            return
        model, self._close = open_model(order.model)
        window = (budget.limit or WINDOW) + (budget.output_reserve or 0)
        simple = SimpleSummarizer(model=model, window=window, tokenizer=tokenizer)
        if dropped + self.most + MARGIN <= window:
            self.chain = FallbackSummarizer((FullSummarizer(model=model, window=window, tokenizer=tokenizer), simple))
        else:
            self.chain = FallbackSummarizer((ChunkedSummarizer(model=model, window=window, tokenizer=tokenizer), simple))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._close is not None:
            await self._close()


def _print(order: CompactOptions, transcript: Transcript, outcome: Outcome, draft: DraftSummary) -> None:
    plan, summary = outcome.plan, draft.summary
    items = (*plan.dropped, *plan.prefix)
    sizer = Sizer(tokenizer_for(order.model))
    kept = len(plan.pinned) + len(plan.replayed) + len(plan.kept)
    noun = "message" if len(items) == 1 else "messages"
    would = "would be left out" if order.dry_run else "left out"
    click.echo(f"{len(items):,} {noun} {would}, {kept:,} kept:")
    for at, item in enumerate(items):
        if HEAD <= at < len(items) - TAIL:
            if at == HEAD:
                click.echo(f"  …  {len(items) - HEAD - TAIL:,} more")
            continue
        entry = transcript.get(item.entry_id)
        said = clip(first_line(entry), 70)
        click.echo(f"  {short_id(item.entry_id):<8}  {entry_role(entry):<10}  {sizer.count_message(item.message):>7,}  {said}")
    paid = "" if summary.usage is None else f", {summary.usage.input_tokens:,} tokens read and {summary.usage.output_tokens:,} written"
    click.echo(f"\nSummary ({summary.mode}{f' by {escape_control_chars(summary.model)}' if summary.model else ''}{paid}):\n")
    click.echo(escape_control_chars(summary.text))
    click.echo(f"\n{outcome.before:,} → {outcome.after:,} tokens")
    if outcome.limit is not None and outcome.after > outcome.limit:
        click.echo(f"That is more than the {outcome.limit:,} that a request may have: what was said last is too large by itself.")
    if outcome.entry is not None:
        click.echo(f"entry {escape_control_chars(outcome.entry.id)} written to {escape_control_chars(str(order.file))}")
    elif order.dry_run:
        click.echo("nothing was written")
    else:
        click.echo("nothing was written: the conversation went on meanwhile")


def _as_json(order: CompactOptions, outcome: Outcome) -> dict[str, object]:
    plan, draft = outcome.plan, outcome.draft
    summary = draft.summary if draft else None
    return {
        "file": str(order.file),
        "dry_run": order.dry_run,
        "note": order.note,
        "tokens_before": outcome.before,
        "tokens_after": outcome.after,
        "dropped": [item.entry_id for item in (*plan.dropped, *plan.prefix)],
        "kept": [item.entry_id for item in (*plan.pinned, *plan.replayed, *plan.kept)],
        "mode": summary.mode if summary else None,
        "model": summary.model if summary else None,
        "usage": attrs.asdict(summary.usage) if summary and summary.usage else None,
        "summary": summary.text if summary else None,
        "entry": entry_to_json(outcome.entry) if outcome.entry else None,
    }


# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit compact talk.jsonl --dry-run
  promptkit compact talk.jsonl --extractive --window 32k
  promptkit compact talk.jsonl --model gpt-5-mini --instructions "Keep the error texts."
"""

NO_MODEL = "No --model is given, so no model is asked: the summary is made of the transcript's own words."
NO_KEY = "OPENAI_API_KEY is not set, so no model is asked: the summary is made of the transcript's own words."


@click.command(short_help="Summarize the older part of a transcript.", epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--instructions", metavar="TEXT", help="What the summary is to heed. Needs a model.")
@click.option("--model", help="The model that writes the summary, over OpenAI's API or that of OPENAI_BASE_URL.")
@click.option("--extractive", is_flag=True, help="Ask no model: lay out the transcript's own words and facts.")
@click.option("--window", type=SIZE, help="The tokens that the model takes, input and output together; by default what is known of it.")
@click.option("--dry-run", is_flag=True, help="Say what would be left out, and show the summary. The file stays as it is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def compact(  # noqa: PLR0913  # one argument for each option of the command
    *, file: Path, instructions: str | None, model: str | None, extractive: bool, window: int | None, dry_run: bool, as_json: bool
) -> None:
    """Append a checkpoint to a transcript: from then on, a model is shown a summary in the place of the older messages.

    Nothing that was said is lost: it stays in the file, and the summary says where. Without --model, or without OPENAI_API_KEY and
    OPENAI_BASE_URL, no model is asked. If no summary is to be had, the file stays as it is.
    """
    if model and extractive:
        usage_error("--extractive asks no model: leave it out, or --model.")
    if window == 0:
        usage_error("--window must be at least 1 token.")
    if not file.exists():
        usage_error(f"there is no file {file}.")
    note = None
    if model and is_keyless():
        model, note = None, NO_KEY
    elif not model and not extractive:
        note = NO_MODEL
    if instructions and not model:
        note = f"{note or 'No model is asked.'} The instructions are not heeded."
    run(CompactOptions(file=file, instructions=instructions, model=model, note=note, window=window, dry_run=dry_run, as_json=as_json))
