"""The results of a replay: the figures of each policy on each file, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import attrs

from promptkit.lab.replay.recordings import BillTotals
from promptkit.lab.replay.retention import RetentionCounts
from promptkit.reprs import describe_fields
from promptkit.tokens import BilledTokens

SHOWN = {
    "quoted": "share of the earlier lines that answers quote word for word which the request shows",
    "in context": "share of the earlier names in answers that the request shows next to a word next to which they were recorded",
    "named": "share of the earlier names in answers that the request spells anywhere",
}
"""The figures of what requests show, and what they mean. Lines have 20 characters or more; names are
identifiers and paths, without those that need no memory."""


@attrs.frozen(kw_only=True)
class FileResult:
    """The results of all policies on one file."""

    file: str
    conversations: int
    messages: int
    window: int
    """The context window in tokens."""
    model: str
    policies: tuple[PolicyResult, ...]
    bill: BillTotals | None = None
    """What providers billed for the recorded requests, and what the replay of them says; None if no
    recording has bills, or they are not compared."""
    lower_bound: float | None = None
    """US dollars that the conversations cost at least under any policy; None unless it was asked
    for."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class FailedFile:
    """A file that could not be played, with the reason as a sentence."""

    file: str
    reason: str

    __repr__ = describe_fields

    def describe(self) -> str:
        """Return one line: the file and the reason."""
        return describe_failure(self.file, self.reason)


def describe_failure(file: str, reason: str) -> str:
    """Return one line for a file that could not be worked on.

    The reason may name the file already.
    """
    line = " ".join(reason.split())
    return (
        line
        if line.startswith((f"{file}:", f"{file} ")) or f"no file {file}" in line
        else f"{file}: {line}"
    )


@attrs.frozen(kw_only=True)
class PolicyResult:
    """The result of one policy on one file."""

    policy: str
    totals: ReplayTotals
    price: float
    """US dollars for requests, replies and summaries."""
    price_summaries: float
    """US dollars of `price` that were spent on summaries."""
    price_with_lookups: float
    """US dollars of `price`, and of the look-ups of answers that lack a line."""
    planned_optimum: float | None = None
    """US dollars with compactions at the points that are best by a model of sizes, with summaries as
    large as those of this policy; None unless it was asked for."""
    timeline: tuple[TimelineRequest, ...] = ()
    """All requests in order; empty unless a timeline was requested."""

    __repr__ = describe_fields

    @property
    def over_planned(self) -> float | None:
        """The price as a multiple of the planned optimum; None if that is not known."""
        return self.price / self.planned_optimum if self.planned_optimum else None

    @property
    def shown(self) -> Mapping[str, float]:
        """What the requests show of that which replies use, by the names in `SHOWN`."""
        counts = self.totals.retention
        return {
            "quoted": _share(counts.lines_shown, counts.lines_used),
            "in context": _share(counts.contexts_shown, counts.contexts_used),
            "named": _share(counts.names_shown, counts.names_used),
        }

    @property
    def requests_present_share(self) -> float:
        """The share of the user's messages that the request itself contains, over all requests."""
        return _share(
            self.totals.retention.user_messages_present, self.totals.retention.user_messages
        )

    @property
    def requests_share(self) -> float:
        """The share of the user's messages that the request or its transcript contains, over all requests."""
        return _share(
            self.totals.retention.user_messages_known, self.totals.retention.user_messages
        )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


@attrs.frozen(kw_only=True)
class ReplayTotals:
    """The counts of one policy. They can be added up over conversations and files."""

    requests: int = 0
    checkpoints: int = 0
    """Summaries that replaced messages."""
    foreground_waits: int = 0
    """Requests that waited for a summary."""
    overflows: int = 0
    """Requests that were larger than the context window allows. They are billed as if the model had
    accepted them."""
    invalid_requests: int = 0
    """Requests that a provider would reject as invalid."""
    cuts: int = 0
    """Requests that did not start with the whole request before them, so that a prompt cache cannot
    serve the rest."""
    longest_request: int = 0
    """Tokens of the longest request."""
    requests_billed: BilledTokens = attrs.field(factory=BilledTokens)
    """Tokens of the requests and their replies."""
    summaries_billed: BilledTokens = attrs.field(factory=BilledTokens)
    """Tokens of the requests for summaries."""
    lookups_billed: BilledTokens = attrs.field(factory=BilledTokens)
    """Tokens of one look-up for each answer that lacks a line. They are not part of the
    requests."""
    retention: RetentionCounts = attrs.field(factory=RetentionCounts)

    __repr__ = describe_fields

    def __add__(self, other: ReplayTotals) -> ReplayTotals:
        return ReplayTotals(
            requests=self.requests + other.requests,
            checkpoints=self.checkpoints + other.checkpoints,
            foreground_waits=self.foreground_waits + other.foreground_waits,
            overflows=self.overflows + other.overflows,
            invalid_requests=self.invalid_requests + other.invalid_requests,
            cuts=self.cuts + other.cuts,
            longest_request=max(self.longest_request, other.longest_request),
            requests_billed=self.requests_billed + other.requests_billed,
            summaries_billed=self.summaries_billed + other.summaries_billed,
            lookups_billed=self.lookups_billed + other.lookups_billed,
            retention=self.retention + other.retention,
        )


@attrs.frozen(kw_only=True)
class TimelineRequest:
    """One request of a timeline."""

    tokens: int
    cached: int
    """Tokens that were read from the prompt cache."""
    checkpoint: bool
    """Whether a summary replaced messages since the request before."""

    __repr__ = describe_fields


def sum_bills(bills: Sequence[BillTotals | None]) -> BillTotals | None:
    """Return the sum of bills; None if none is known."""
    known = [bill for bill in bills if bill is not None]
    return sum(known, BillTotals()) if known else None


def results_to_json(files: Sequence[FileResult | FailedFile], total: FileResult) -> str:
    """Return the results as JSON, with a line for each policy.

    A file that could not be played has its reason as `error`. `total` has the sums over all files,
    and the name of none.
    """
    return (
        _format_list(
            "files",
            [_format_file(file) for file in files],
            before=f'"total": {_format_file(total)}',
        )
        + "\n"
    )


def _format_file(file: FileResult | FailedFile) -> str:
    return (
        json.dumps({"file": file.file, "error": file.reason, "policies": []})
        if isinstance(file, FailedFile)
        else _format_list(
            "policies",
            [f"  {json.dumps(_policy_fields(each))}" for each in file.policies],
            before=json.dumps(_file_fields(file))[1:-1],
        )
    )


def _format_list(name: str, lines: Sequence[str], *, before: str) -> str:
    """Format an object with a list of values that are JSON already.

    `before` contains its other fields, as JSON.
    """
    return f"{{{before}, {json.dumps(name)}: [\n" + ",\n".join(lines) + "\n]}"


def _file_fields(file: FileResult) -> dict[str, object]:
    return {
        "file": file.file,
        "window": file.window,
        "model": file.model,
        "conversations": file.conversations,
        "messages": file.messages,
        **({} if file.bill is None else {"bill": file.bill.to_json()}),
        **({} if file.lower_bound is None else {"lower_bound": round(file.lower_bound, 6)}),
    }


def _policy_fields(result: PolicyResult) -> dict[str, object]:
    totals = result.totals
    planned, ratio = result.planned_optimum, result.over_planned
    return {
        "policy": result.policy,
        "requests": totals.requests,
        "checkpoints": totals.checkpoints,
        "foreground_waits": totals.foreground_waits,
        "overflows": totals.overflows,
        "invalid_requests": totals.invalid_requests,
        "input_tokens": totals.requests_billed.input_tokens,
        "cached_tokens": totals.requests_billed.cached_tokens,
        "written_tokens": totals.requests_billed.written_tokens,
        "output_tokens": totals.requests_billed.output_tokens,
        "summary_tokens": totals.summaries_billed.output_tokens,
        "summary_input_tokens": totals.summaries_billed.input_tokens,
        "summary_cached_tokens": totals.summaries_billed.cached_tokens,
        "price": round(result.price, 6),
        "price_summaries": round(result.price_summaries, 6),
        "price_with_lookups": round(result.price_with_lookups, 6),
        **({} if planned is None else {"planned_optimum": round(planned, 6)}),
        **({} if ratio is None else {"over_planned": round(ratio, 4)}),
        "answers_lacking": totals.retention.answers_lacking,
        **{
            f"{name.replace(' ', '_')}_share": round(share, 4)
            for name, share in result.shown.items()
        },
        "lines_used": totals.retention.lines_used,
        "names_used": totals.retention.names_used,
        "requests_present_share": round(result.requests_present_share, 4),
        "requests_share": round(result.requests_share, 4),
        "longest_request": totals.longest_request,
        "cuts": totals.cuts,
    }


def result_rows(result: FileResult, conversation: int) -> list[dict[str, object]]:
    """Return a flat row for each policy of the result of one conversation.

    `conversation` is its number in the file, from 0.
    """
    # a bill is an object, and rows are flat
    fields = {
        name: value
        for name, value in _file_fields(result).items()
        if name not in ("conversations", "bill")
    }
    return [
        {
            "file": fields["file"],
            "conversation": conversation,
            **fields,
            **_policy_fields(each),
        }
        for each in result.policies
    ]
