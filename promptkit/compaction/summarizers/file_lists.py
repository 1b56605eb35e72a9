"""Which files were read and changed, as two lists behind a summary: over all checkpoints, whatever the summary itself remembers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.breadcrumb import strip_breadcrumb
from promptkit.compaction.summarizers.facts import Facts
from promptkit.compaction.summarizers.summarizer import updated_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["FileListSummarizer", "FileOperations", "render_file_lists", "list_file_operations", "strip_file_lists"]

READ, MODIFIED = "read-files", "modified-files"
SHARE = 4
"""The lists have at most a quarter of what the summary may have."""

_SELECTOR = re.compile(r"(?:#L\d{1,9}(?:-L?\d{1,9})?|:\d{1,9}(?:[-:,]\d{1,9})?)$")
_BLOCKS = re.compile(rf"\n*<{READ}>\n(?:[^<\n]*\n)*</{READ}>\n*|\n*<{MODIFIED}>\n(?:[^<\n]*\n)*</{MODIFIED}>\n*")


@attrs.frozen(kw_only=True)
class FileOperations:
    """Paths, each in one of the lists, sorted."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


def list_file_operations(facts: Facts) -> FileOperations:
    """The files of some facts: without the lines that were read of them, and in the one list where they were changed.

    >>> list_file_operations(Facts(read=("b.py:10-20", "a.py"), changed=("a.py",)))
    FileOperations(read=('b.py',), modified=('a.py',))
    """
    modified = {_path(path) for path in facts.changed} - {""}
    read = {_path(path) for path in facts.read} - modified - {""}
    return FileOperations(read=tuple(sorted(read)), modified=tuple(sorted(modified)))


def render_file_lists(files: FileOperations, *, max_tokens: int, tokenizer: Tokenizer) -> str:
    """Both lists in tags, within so many tokens: what was changed goes first, and a list that is cut says how many are missing."""
    modified = _block(MODIFIED, files.modified, max_tokens, tokenizer)
    read = _block(READ, files.read, max_tokens - tokenizer.count(modified), tokenizer)
    return "\n\n".join(filter(None, (read, modified)))


def strip_file_lists(summary: str) -> str:
    """A summary without its lists: the next one gets its own."""
    return _BLOCKS.sub("\n\n", summary).strip()


@attrs.frozen(kw_only=True)
class FileListSummarizer:
    """Puts the lists behind the summary that another summarizer writes. They are part of it from then on, as in pi."""

    summarizer: Summarizer
    tokenizer: Tokenizer

    async def summarize(self, task: SummaryTask) -> Summary:
        """The summary with its lists, within the task's tokens. Raises SummaryError if the summarizer has none."""
        facts = Facts.from_json(updated_facts(task))  # before a model is asked: what is dropped is known now
        most = task.max_tokens // SHARE
        blocks = render_file_lists(list_file_operations(facts), max_tokens=most, tokenizer=self.tokenizer)
        if not blocks:
            return await self.summarizer.summarize(task)
        behind = f"\n\n{blocks}"
        plan = task.plan
        if plan.previous is not None:
            plan = attrs.evolve(plan, previous=strip_file_lists(strip_breadcrumb(plan.previous)))
        room = task.max_tokens - self.tokenizer.count(behind)
        summary = await self.summarizer.summarize(attrs.evolve(task, plan=plan, max_tokens=room, check=None))
        return attrs.evolve(summary, text=f"{strip_file_lists(summary.text)}{behind}", facts=summary.facts or facts.to_json())


def _path(path: str) -> str:
    """A path in one line, in which nothing is a tag, without the lines that were asked for."""
    return _SELECTOR.sub("", " ".join(path.split())).replace("<", "&lt;")


def _block(tag: str, paths: Sequence[str], tokens: int, tokenizer: Tokenizer) -> str:
    """The longest list that fits, by halving."""
    if not paths:
        return ""
    whole = _list(tag, paths, 0)
    if tokenizer.count(whole) <= tokens:
        return whole
    low, high = 0, len(paths) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if tokenizer.count(_list(tag, paths[:middle], len(paths) - middle)) <= tokens:
            low = middle
        else:
            high = middle - 1
    return _list(tag, paths[:low], len(paths) - low) if low else ""


def _list(tag: str, paths: Iterable[str], missing: int) -> str:
    more = [f"… and {missing:,} more"] if missing else []
    return "\n".join([f"<{tag}>", *paths, *more, f"</{tag}>"])
