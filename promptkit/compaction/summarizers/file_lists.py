"""Lists of the files that were read and changed, appended to a summary: over all checkpoints, whatever the summary itself says."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import attrs

from promptkit.compaction.planning.breadcrumb import strip_breadcrumb
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import Summary, SummaryTask
from promptkit.compaction.summarizers.summarizer import Summarizer, updated_facts
from promptkit.tokens import Tokenizer


@attrs.frozen(kw_only=True)
class FileListSummarizer:
    """Appends the lists to the summary of another summarizer.

    They are part of the summary from then on, as in pi.
    """

    summarizer: Summarizer
    tokenizer: Tokenizer

    async def summarize(self, task: SummaryTask) -> Summary:
        """Return the summary with its lists, within the task's tokens.

        Raises:
            SummaryError: The other summarizer made no summary.
        """
        # before the model is asked, because the lists reduce its token limit
        facts = updated_facts(task)
        blocks = render_file_lists(
            facts, max_tokens=task.max_tokens // LIST_SHARE, tokenizer=self.tokenizer
        )
        if not blocks:
            return await self.summarizer.summarize(task)
        suffix = f"\n\n{blocks}"
        plan = task.plan
        if plan.previous is not None:
            plan = attrs.evolve(plan, previous=strip_file_lists(strip_breadcrumb(plan.previous)))
        room = task.max_tokens - self.tokenizer.count(suffix)
        summary = await self.summarizer.summarize(
            attrs.evolve(task, plan=plan, max_tokens=room, check=None)
        )
        return attrs.evolve(summary, text=f"{strip_file_lists(summary.text)}{suffix}")


READ_TAG, MODIFIED_TAG = "read-files", "modified-files"

LIST_SHARE = 4
"""The lists take at most a quarter of the summary's limit."""


_LINE_SELECTOR = re.compile(r"(?:#L\d{1,9}(?:-L?\d{1,9})?|:\d{1,9}(?:[-:,]\d{1,9})?)$")
_LISTS = re.compile(
    rf"\n*<{READ_TAG}>\n(?:[^<\n]*\n)*</{READ_TAG}>\n*|\n*<{MODIFIED_TAG}>\n(?:[^<\n]*\n)*</{MODIFIED_TAG}>\n*"
)


def render_file_lists(facts: Facts, *, max_tokens: int, tokenizer: Tokenizer) -> str:
    """Write both lists in tags, sorted and without line ranges. A file that was changed is only listed as modified.

    Args:
        facts: The facts with the files.
        max_tokens: Token limit of both lists. Modified files come first; a list that is cut says
            how many paths are missing.
        tokenizer: Counts the tokens.
    """
    changed = {_clean_path(path) for path in facts.changed} - {""}
    seen = {_clean_path(path) for path in facts.read} - changed - {""}
    modified = _fit_list(MODIFIED_TAG, sorted(changed), max_tokens, tokenizer)
    read = _fit_list(READ_TAG, sorted(seen), max_tokens - tokenizer.count(modified), tokenizer)
    return "\n\n".join(filter(None, (read, modified)))


def strip_file_lists(summary: str) -> str:
    """Remove the lists from a summary. The next summary gets its own."""
    return _LISTS.sub("\n\n", summary).strip()


def has_file_lists(summary: str) -> bool:
    """Return whether a summary contains the lists."""
    return _LISTS.search(summary) is not None


def strip_line_range(path: str) -> str:
    """Return a path without the range of lines that was asked for."""
    return _LINE_SELECTOR.sub("", path)


def _clean_path(path: str) -> str:
    """Return a path in one line, without tags and without a line range."""
    return strip_line_range(" ".join(path.split())).replace("<", "&lt;")


def _fit_list(tag: str, paths: Sequence[str], tokens: int, tokenizer: Tokenizer) -> str:
    """Return the longest list that fits. Finds its length by bisection."""
    if not paths or tokenizer.count(_render_list(tag, paths, 0)) <= tokens:
        return _render_list(tag, paths, 0) if paths else ""

    def count(shown: int) -> int:
        return tokenizer.count(_render_list(tag, paths[:shown], len(paths) - shown))

    most = bisect_right(range(1, len(paths)), tokens, key=count)
    return _render_list(tag, paths[:most], len(paths) - most) if most else ""


def _render_list(tag: str, paths: Iterable[str], missing: int) -> str:
    more = [f"… and {missing:,} more"] if missing else []
    return "\n".join([f"<{tag}>", *paths, *more, f"</{tag}>"])
