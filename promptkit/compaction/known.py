"""What is known before a summary is made: the facts of the checkpoint before it, and those of the branches that it covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.blocks import is_opening
from promptkit.compaction.facts import Facts
from promptkit.transcript.entries import BranchSummary, Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptkit.compaction.plan import Plan
    from promptkit.messages import Json
    from promptkit.transcript.transcript import Transcript

__all__ = ["known_facts"]


def known_facts(transcript: Transcript, plan: Plan) -> Mapping[str, Json]:
    """What is carried over into the summary of a plan.

    Of branches that were left, only the files that were read and changed: what the person wanted there was left with them.
    """
    opening = next((item.entry for item in (*plan.dropped, *plan.pinned, *plan.replayed) if is_opening(item)), None)
    earlier = None if opening is None else transcript.get(opening).payload
    facts: Mapping[str, Json] = earlier.facts if isinstance(earlier, Checkpoint) else {}
    told = [transcript.get(item.entry).payload for item in (*plan.dropped, *plan.prefix) if item.kind == "branch_summary"]
    branches = [Facts.from_json(each.facts) for each in told if isinstance(each, BranchSummary) and each.facts]
    if not branches:
        return facts
    known = Facts.from_json(facts)
    read = _once(path for each in (known, *branches) for path in each.read)
    changed = _once(path for each in (known, *branches) for path in each.changed)
    return {**facts, **attrs.evolve(known, read=read, changed=changed).to_json()}


def _once(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
