"""The headings that summaries and handoffs are asked for, and the check that something of their own stands under them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from promptkit.errors import SummaryError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from promptkit.compaction.planning.plan import Summary
    from promptkit.tokens import Tokenizer

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
    lines = (
        line
        for template in _TEMPLATES
        for line in template.read_text(encoding="utf-8").splitlines()
    )
    return frozenset(
        _HEADING.sub("", line).strip(_MARKUP) for line in lines if _HEADING.match(line)
    )


def check_length(summary: Summary, *, replaced: int, tokenizer: Tokenizer) -> None:
    """Raise SummaryError if a summary is too short to stand for `replaced` tokens, or has nothing besides its headings.

    A placeholder says that it is no summary, and may be short.
    """
    if summary.mode == "placeholder":
        return
    least = min(MIN_SUMMARY_TOKENS, replaced // SHORTEST_SHARE)
    tokens, own = tokenizer.count(summary.text), find_own_text(summary.text)
    if tokens < least:
        detail = f"a summary of {tokens:,} tokens cannot replace {replaced:,}: {summary.text.strip()[:80]!r}."
        raise SummaryError(reason="too_short", detail=detail, usage=summary.usage)
    if not own:
        detail = f"a summary with nothing of its own cannot replace {replaced:,} tokens: {summary.text.strip()[:80]!r}."
        raise SummaryError(reason="too_short", detail=detail, usage=summary.usage)
