"""A replay of what was done holds against what the provider billed, and every table and page has the same figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from promptkit.cli.main import main
from promptkit.lab.replay import find_policy
from promptkit.lab.replay.conversation_log import LogOptions, log_conversation
from promptkit.lab.replay.conversation_page import build_columns
from promptkit.lab.replay.recordings import read_recordings
from promptkit.lab.replay.runner import ReplayRules, SentRequest, Simulation
from promptkit.messages import Message, Usage
from promptkit.tokens import read_prices, tokenizer_for
from promptkit.tokens.tokenizer import count_message
from promptkit.transcript import Checkpoint, JsonlStore, MessageEntry, Transcript
from promptkit.transcript.log.view import build_view
from tests.paths import SHARED, needs_shared
from tests.unit.lab.replay.conversations import long_conversation

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.lab.replay.recordings import BillTotals

MODEL = "claude-opus-4-5"
FIXED = 20_000
"""Tokens of each request that the recording does not have."""

FORGOTTEN = 9
"""The reply whose request the provider's cache did not serve."""

RECORDINGS = (
    "pi/before-compaction.jsonl",
    "claude-code/entire-91-b42542f24f-0-compaction-small.jsonl",
    "claude-code/spotter-8463c716-a2ea-4c14-9efa-87158ebd9f20.jsonl",
    "claude-code/sessionshare-general-tool-calls.jsonl",
)
REST = (RECORDINGS[0], *RECORDINGS[2:])


@pytest.fixture(scope="module")
def billed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with bills: instructions that it does not have, a compaction, and a cache that forgot once."""
    file = tmp_path_factory.mktemp("bills") / "talk.jsonl"
    clock = iter(range(1_800_000_000, 1_900_000_000, 20))
    transcript = Transcript(JsonlStore(file), clock=lambda: float(next(clock)))
    tokenizer = tokenizer_for(MODEL, mean=True)
    sent, replies = 0, 0

    def count(messages: tuple[Message, ...]) -> int:
        return FIXED + sum(count_message(message, tokenizer) for message in messages)

    for message in long_conversation(12):
        if message.role != "assistant":
            transcript.append(MessageEntry(message=message))
            continue
        if replies == 20:
            usage = Usage(input_tokens=sent, output_tokens=700, cached_tokens=sent)
            transcript.append(
                Checkpoint(
                    summary="Rows were mended.",
                    first_kept=transcript.path()[-3].id,
                    model=MODEL,
                    usage=usage,
                )
            )
        tokens = count(build_view(transcript.path()).messages)
        replies += 1
        cached = 0 if replies == FORGOTTEN else min(sent, tokens) if tokens > sent else FIXED
        usage = Usage(
            input_tokens=tokens,
            output_tokens=count_message(message, tokenizer),
            cached_tokens=cached,
            written_tokens=tokens - cached,
        )
        transcript.append(MessageEntry(message=message, usage=usage, model=MODEL, finish="stop"))
        sent = tokens
    return file


def bill_of(file: Path) -> BillTotals:
    log = log_conversation(file, LogOptions(prices=read_prices()))
    assert log.bill is not None
    return log.bill


def check_bill(bill: BillTotals) -> None:
    assert bill.replayed.input_tokens == pytest.approx(bill.billed.input_tokens, rel=0.05)
    assert bill.replayed.output_tokens == pytest.approx(bill.billed.output_tokens, rel=0.05)
    assert bill.replayed_price == pytest.approx(bill.billed_price, rel=0.05)


def test_a_replay_of_what_was_done_is_within_five_percent_of_the_bill(billed: Path) -> None:
    bill = bill_of(billed)
    check_bill(bill)
    assert bill.fixed_tokens / bill.requests == pytest.approx(FIXED, rel=0.01)
    assert (bill.misses, bill.own_misses) == (1, 0)


@needs_shared("transcripts")
@pytest.mark.parametrize(
    "name", [RECORDINGS[1], *(pytest.param(each, marks=pytest.mark.slow) for each in REST)]
)
def test_a_replay_of_a_real_recording_is_within_five_percent_of_the_bill(name: str) -> None:
    check_bill(bill_of(SHARED / "transcripts" / name))


def read_figures(file: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Compare the bill and the price of what was recorded in the statistics, on the page and in a replay. Returns the output tokens of summaries."""
    assert main(["transcript", "stats", str(file), "--json"]) == 0
    requests = json.loads(capsys.readouterr().out)["requests"]
    log = log_conversation(file, LogOptions(prices=read_prices()))
    page = json.loads(json.dumps(build_columns(log)))
    command = ["replay", str(file), "--policy", "vscode", "--window", "200k", "--json"]
    assert main([*command, "--model", log.model]) == 0
    replayed = json.loads(capsys.readouterr().out)["total"]["bill"]
    text = page["bill"].pop("text")
    assert requests["bill"] == page["bill"] == replayed
    assert requests["price"] == pytest.approx(replayed["price"], abs=1e-5)
    assert page["logs"][0]["price"] == pytest.approx(replayed["price"], abs=1e-5)
    assert sum(page["logs"][0]["tokens"]) == sum(each["tokens"] for each in requests["list"])
    assert sum(page["logs"][0]["output"]) == sum(each["output_tokens"] for each in requests["list"])
    assert main(["transcript", "stats", str(file)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert main(["transcript", "view", str(file), "-o", str(file.with_suffix(".html"))]) == 0
    assert text in printed
    assert text in " ".join(capsys.readouterr().out.split())
    assert text[:40] in file.with_suffix(".html").read_text()
    assert main(command[:-1]) == 0
    assert text in " ".join(capsys.readouterr().out.split())
    summaries: int = replayed["output_tokens"] - sum(page["logs"][0]["output"])
    return summaries


def test_statistics_page_and_replay_agree_on_every_figure(
    billed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_figures(billed, capsys) == 700


@pytest.mark.long
@needs_shared("transcripts")
def test_all_figures_of_a_real_recording_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_bytes((SHARED / "transcripts" / RECORDINGS[1]).read_bytes())
    read_figures(file, capsys)


def play(file: Path, **rules: float | None) -> list[SentRequest]:
    sent: list[SentRequest] = []
    (recording,) = read_recordings(file)
    chosen = ReplayRules(model=MODEL, window=200_000, cache="anthropic", **rules)  # type: ignore[arg-type]  # whole numbers and shares
    Simulation(recording, chosen).run(find_policy("vscode"), seed="s", on_request=sent.append)
    return sent


def test_a_policy_is_billed_what_every_recorded_request_had_and_misses_where_it_missed(
    billed: Path,
) -> None:
    bare, full = play(billed), play(billed, fixed_tokens=None, cache_misses=None)
    extra = {b.billed.input_tokens - a.billed.input_tokens for a, b in zip(bare, full, strict=True)}
    assert len(extra) == 1
    assert extra.pop() == pytest.approx(FIXED, rel=0.01)
    missed = [at for at, each in enumerate(full) if at and not each.billed.cached_tokens]
    assert missed == [FORGOTTEN - 1]


def test_what_no_recording_says_can_be_assumed(billed: Path) -> None:
    bare, full = play(billed), play(billed, fixed_tokens=30_000, cache_misses=0.5)
    extra = full[0].billed.input_tokens - bare[0].billed.input_tokens
    assert extra == pytest.approx(30_000, abs=10)
    missed = sum(not each.billed.cached_tokens for each in full[1:])
    assert len(full) / 4 < missed < 3 * len(full) / 4
    assert [each.billed for each in full] == [
        each.billed for each in play(billed, fixed_tokens=30_000, cache_misses=0.5)
    ]


def test_a_prompt_that_leaves_less_than_half_of_the_window_is_left_out(billed: Path) -> None:
    (recording,) = read_recordings(billed)
    rules = ReplayRules(model=MODEL, window=32_000, cache="anthropic", fixed_tokens=None)
    sent: list[SentRequest] = []
    Simulation(recording, rules).run(find_policy("vscode"), seed="s", on_request=sent.append)
    assert sent[0].billed.input_tokens < FIXED


def test_without_bills_nothing_is_compared(tmp_path: Path) -> None:
    transcript = Transcript(JsonlStore(tmp_path / "talk.jsonl"))
    transcript.append_messages(*long_conversation(2))
    log = log_conversation(tmp_path / "talk.jsonl", LogOptions(prices=read_prices()))
    assert log.bill is None


@pytest.mark.parametrize(
    ("assumed", "problem"),
    [
        ("tokens=3", "write fixed_tokens=…, cache_misses=…, summary_tokens=…"),
        ("cache_misses=2", "write 0.02 or 2%"),
        ("fixed_tokens=many", "use 8000, 8k or 1m"),
    ],
)
def test_an_assumption_that_cannot_be_read_says_what_to_write(
    billed: Path, assumed: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(billed), "--assume", assumed]) == 2
    assert problem in capsys.readouterr().err
