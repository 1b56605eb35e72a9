"""Many files: in order, alone, and the same however many processes play them."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import JsonlStore, Transcript
from promptkit.errors import TranscriptError
from promptkit.lab.engines import open_engine
from promptkit.lab.replay.policies import find_policy
from promptkit.lab.replay.prompt_cache import cache_rule_for
from promptkit.lab.replay.results import FailedFile, FileResult, ReplayTotals, results_to_json
from promptkit.lab.replay.runner import (
    ReplayOptions,
    ReplayRules,
    Simulation,
    replay,
    replay_file,
    sum_results,
)
from promptkit.tokens.prices import read_prices
from tests.unit.lab.replay.conversations import long_conversation, recording_of, write_transcript

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = {
    "policy",
    "requests",
    "checkpoints",
    "foreground_waits",
    "overflows",
    "invalid_requests",
    "input_tokens",
    "cached_tokens",
    "summary_tokens",
    "price",
    "quoted_share",
    "in_context_share",
    "named_share",
    "lines_used",
    "names_used",
}


def options(model: str = "gpt-5", *, timeline: bool = False) -> ReplayOptions:
    rules = ReplayRules(model=model, window=8_000, cache=cache_rule_for(model))
    return ReplayOptions(
        policies=("vscode", "langchain", "drop_oldest"),
        rules=rules,
        price=read_prices().for_model(model),
        timeline=timeline,
    )


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [
        write_transcript(tmp_path / f"talk{turns}.jsonl", long_conversation(turns))
        for turns in (5, 3, 7)
    ]


@pytest.mark.slow
def test_results_come_in_the_order_of_the_files_whatever_the_number_of_processes(
    files: list[Path],
) -> None:
    told: list[Path | str] = []
    alone = replay(files, options())
    with open_engine(workers=2) as engine:
        several = replay(files, options(), executor=engine, on_file_done=told.append)
    assert alone == several
    assert [result.file for result in alone] == [str(file) for file in files]
    assert sorted(map(str, told)) == sorted(map(str, files))


def test_what_comes_of_a_file_does_not_depend_on_others_nor_on_its_name(
    files: list[Path], tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere.jsonl"
    shutil.copy(files[2], copy)
    together = replay(files, options())[2]
    apart = replay_file(copy, options())
    assert isinstance(together, FileResult)
    assert attrs.evolve(together, file=str(copy)) == apart


def test_a_file_that_cannot_be_played_is_reported_and_the_others_are_played(
    files: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("no recording at all\n")
    found = replay([files[0], bad, tmp_path / "none.jsonl", files[1]], options())
    assert [type(result) for result in found] == [FileResult, FailedFile, FailedFile, FileResult]
    with pytest.raises(TranscriptError):
        replay_file(bad, options())
    data = json.loads(
        results_to_json(
            found,
            sum_results(
                [each for each in found if isinstance(each, FileResult)], options(), file="all"
            ),
        )
    )
    assert [bool(each["policies"]) for each in data["files"]] == [True, False, False, True]
    assert "error" in data["files"][1]


def test_a_beginning_that_branches_share_is_billed_once(tmp_path: Path) -> None:
    talk, others = long_conversation(9), long_conversation(12)[64:]
    transcript = Transcript(JsonlStore(tmp_path / "branches.jsonl"), clock=lambda: 0.0)
    entries = transcript.append_messages(*talk)
    transcript.rewind(entries[55].id)
    transcript.append_messages(*others)
    terms = attrs.evolve(options(timeline=True), policies=("vscode", "langchain"))
    both = replay_file(tmp_path / "branches.jsonl", terms)
    simulations = {
        name: [
            Simulation(recording_of(each), terms.rules)
            for each in (talk, talk[:56], [*talk[:56], *others])
        ]
        for name in terms.policies
    }
    seed = f"{hashlib.sha256((tmp_path / 'branches.jsonl').read_bytes()).hexdigest()}:0"
    assert (both.conversations, both.messages) == (2, len(talk) + len(others))
    for result in both.policies:
        first, begun, second = (
            each.run(find_policy(result.policy), seed=seed) for each in simulations[result.policy]
        )
        assert result.timeline == (*first.timeline, *second.timeline[len(begun.timeline) :])
        for figure in ("requests", "checkpoints", "foreground_waits", "cuts", "requests_billed"):
            counted, parts = (
                getattr(result.totals, figure),
                [getattr(each.totals, figure) for each in (first, second, begun)],
            )
            assert (
                counted == parts[0] + parts[1] - parts[2]
                if figure != "requests_billed"
                else counted.input_tokens
                == (parts[0].input_tokens + parts[1].input_tokens - parts[2].input_tokens)
            )
        uses, parts = (
            result.totals.retention.names_used,
            [each.totals.retention.names_used for each in (first, second, begun)],
        )
        assert uses == parts[0] + parts[1] - parts[2]
        summaries = [each.totals.summaries_billed.output_tokens for each in (first, second, begun)]
        assert (
            result.totals.summaries_billed.output_tokens
            == summaries[0] + summaries[1] - summaries[2]
        )


def test_the_json_has_the_figures_of_every_policy(files: list[Path]) -> None:
    data = json.loads(results_to_json([one := replay_file(files[0], options())], one))
    assert list(data) == ["total", "files"]
    (file,) = data["files"]
    assert file["file"] == str(files[0])
    assert [row["policy"] for row in file["policies"]] == ["vscode", "langchain", "drop_oldest"]
    for row in file["policies"]:
        assert set(row) >= FIELDS
        assert 0 <= row["in_context_share"] <= row["named_share"] <= 1
        assert row["cached_tokens"] <= row["input_tokens"]
    assert file["policies"][0]["invalid_requests"] == 0


def test_figures_of_a_file_are_the_sum_of_its_conversations(tmp_path: Path) -> None:
    one, two = long_conversation(6), long_conversation(9)
    both = tmp_path / "both.json"
    shape: list[dict[str, object]] = [
        {"task_id": at, "reward": 1.0, "info": {}, "trial": 0, "traj": [_chat(m) for m in talk]}
        for at, talk in enumerate((one, two))
    ]
    both.write_text(json.dumps(shape))
    result = replay_file(both, options())
    assert result.conversations == 2
    assert result.messages == len(one) + len(two)
    assert result.policies[2].totals.requests == sum(
        message.role == "assistant" for message in (*one, *two)
    )


def test_steps_are_kept_where_a_timeline_is_wanted(files: list[Path]) -> None:
    plain, drawn = replay_file(files[0], options()), replay_file(files[0], options(timeline=True))
    assert [result.timeline for result in plain.policies] == [()] * 3
    assert [len(result.timeline) for result in drawn.policies] == [
        result.totals.requests for result in drawn.policies
    ]
    assert (
        sum(step.checkpoint for step in drawn.policies[0].timeline)
        == drawn.policies[0].totals.checkpoints
    )


def test_anthropics_writes_are_priced(files: list[Path]) -> None:
    result = replay_file(files[0], options("claude-sonnet-4-5")).policies[0]
    bill = result.totals.requests_billed + result.totals.summaries_billed
    price = read_prices().for_model("claude-sonnet-4-5")
    assert bill.written_tokens
    assert result.price == pytest.approx(price.cost(bill))
    assert result.price > attrs.evolve(price, cache_write=None).cost(bill)


def test_tallies_add_up() -> None:
    one = ReplayTotals(requests=2, longest_request=4)
    two = ReplayTotals(requests=3, longest_request=5)
    assert one + two == ReplayTotals(requests=5, longest_request=5)


def _chat(message: object) -> dict[str, object]:
    from promptkit.messages import Message
    from promptkit.wire.chat import to_chat

    assert isinstance(message, Message)
    return dict(to_chat([message])[0])
