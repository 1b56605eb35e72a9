"""What a replay found: the figures of each policy on each file, and the same as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from promptkit.replay.policies.bill import Bill
from promptkit.replay.retention import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.replay.prices import Price

__all__ = ["Failed", "FileResult", "PolicyResult", "ReplayTotals", "Step", "as_json", "priced"]


@attrs.frozen(kw_only=True)
class Step:
    """One request, for the timeline. Figures are tokens."""

    tokens: int
    cached: int
    checkpoint: bool
    """A summary was put in place for it."""


@attrs.frozen(kw_only=True)
class ReplayTotals:
    """The counts of one policy, which can be added up over conversations and files."""

    requests: int = 0
    checkpoints: int = 0
    foreground_waits: int = 0
    """Requests that waited for a summary."""
    overflows: int = 0
    """Requests that were larger than the window lets them be. They are billed as if the model had taken them."""
    invalid_requests: int = 0
    """Requests that a provider refuses for their form."""
    cuts: int = 0
    """Requests that did not begin with all of the request before: what followed there was paid for again."""
    longest_request: int = 0
    """Tokens."""
    bill: Bill = attrs.field(factory=Bill)
    """Of the requests and their answers."""
    summaries: Bill = attrs.field(factory=Bill)
    """Of the requests that summaries were asked with."""
    kept: Kept = attrs.field(factory=Kept)
    faults: tuple[str, ...] = ()
    """What was wrong with the first invalid requests."""

    def __add__(self, other: ReplayTotals) -> ReplayTotals:
        return ReplayTotals(
            requests=self.requests + other.requests,
            checkpoints=self.checkpoints + other.checkpoints,
            foreground_waits=self.foreground_waits + other.foreground_waits,
            overflows=self.overflows + other.overflows,
            invalid_requests=self.invalid_requests + other.invalid_requests,
            cuts=self.cuts + other.cuts,
            longest_request=max(self.longest_request, other.longest_request),
            bill=self.bill + other.bill,
            summaries=self.summaries + other.summaries,
            kept=self.kept + other.kept,
            faults=(*self.faults, *other.faults)[:FAULTS],
        )


FAULTS = 3
"""Faults that are told."""


@attrs.frozen(kw_only=True)
class PolicyResult:
    """What one policy came to on one file."""

    policy: str
    tally: ReplayTotals
    price: float
    """Dollars for all of it: requests, answers, summaries."""
    price_summaries: float
    """Dollars of that for summaries."""
    steps: tuple[Step, ...] = ()
    """Each request in order, where a timeline was asked for."""

    @property
    def facts_share(self) -> float:
        """Of the facts that were used after their message was dropped, the share that was there or reachable; 1 where there are none."""
        kept = self.tally.kept
        return _share(kept.present + kept.reachable, kept.dropped)

    @property
    def facts_present_share(self) -> float:
        """The share of these that was there."""
        return _share(self.tally.kept.present, self.tally.kept.dropped)

    @property
    def uses_present_share(self) -> float:
        """Of all facts that answers used and that were said before, the share that was in the request: the same ones for all policies."""
        kept = self.tally.kept
        return _share(kept.uses - kept.dropped + kept.present, kept.uses)

    @property
    def requests_share(self) -> float:
        """Of what the person had asked, the share that was there or reachable, over all requests."""
        return _share(self.tally.kept.asked_known, self.tally.kept.asked)

    @property
    def requests_end_share(self) -> float:
        """The same in the last request of each conversation."""
        return _share(self.tally.kept.asked_last_known, self.tally.kept.asked_last)


@attrs.frozen(kw_only=True)
class FileResult:
    """What the policies came to on one file."""

    file: str
    conversations: int
    messages: int
    window: int
    model: str
    policies: tuple[PolicyResult, ...]


def priced(name: str, tally: ReplayTotals, price: Price, *, hour: bool, steps: Sequence[Step] = ()) -> PolicyResult:
    """The result of a policy's counts at a price."""
    summaries = price.of(tally.summaries, hour=hour)
    whole = price.of(tally.bill, hour=hour) + summaries
    return PolicyResult(policy=name, tally=tally, price=whole, price_summaries=summaries, steps=tuple(steps))


@attrs.frozen(kw_only=True)
class Failed:
    """A file that could not be played, and why."""

    file: str
    why: str


def as_json(files: Sequence[FileResult | Failed]) -> str:
    """The results as JSON, a line for each policy; of a file that could not be played, the reason as `error`."""
    return _list("files", [_file_text(file) for file in files]) + "\n"


def _file_text(file: FileResult | Failed) -> str:
    if isinstance(file, Failed):
        return json.dumps({"file": file.file, "error": file.why, "policies": []})
    rows = [f"  {json.dumps(_row(each))}" for each in file.policies]
    return _list("policies", rows, before=json.dumps(_head(file))[1:-1])


def _list(name: str, lines: Sequence[str], *, before: str = "") -> str:
    """An object with a list of what is written already, after other fields."""
    text = ",\n".join(lines)
    return f"{{{before}{', ' if before else ''}{json.dumps(name)}: [\n{text}\n]}}"


def _head(file: FileResult) -> dict[str, object]:
    return {
        "file": file.file,
        "window": file.window,
        "model": file.model,
        "conversations": file.conversations,
        "messages": file.messages,
    }


def _row(result: PolicyResult) -> dict[str, object]:
    tally = result.tally
    return {
        "policy": result.policy,
        "requests": tally.requests,
        "checkpoints": tally.checkpoints,
        "foreground_waits": tally.foreground_waits,
        "overflows": tally.overflows,
        "invalid_requests": tally.invalid_requests,
        "input_tokens": tally.bill.input_tokens,
        "cached_tokens": tally.bill.cached_tokens,
        "written_tokens": tally.bill.written_tokens,
        "output_tokens": tally.bill.output_tokens,
        "summary_tokens": tally.summaries.output_tokens,
        "summary_input_tokens": tally.summaries.input_tokens,
        "summary_cached_tokens": tally.summaries.cached_tokens,
        "price": round(result.price, 6),
        "price_summaries": round(result.price_summaries, 6),
        "facts_share": round(result.facts_share, 4),
        "facts_present_share": round(result.facts_present_share, 4),
        "facts_dropped": tally.kept.dropped,
        "facts_used": tally.kept.uses,
        "uses_present_share": round(result.uses_present_share, 4),
        "requests_share": round(result.requests_share, 4),
        "requests_end_share": round(result.requests_end_share, 4),
        "longest_request": tally.longest_request,
        "cuts": tally.cuts,
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
