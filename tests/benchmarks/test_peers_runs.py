"""Adapters as processes: asked, timed, ended; and what a race makes of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from benchmarks.peers.environments import SERVE
from benchmarks.peers.peer import OWN, Peer, peers
from benchmarks.peers.process import AdapterError, AdapterProcess, AdapterTimeoutError, Answer
from benchmarks.peers.runs import MOST, SHARES, RunningPeer, run_case, run_probe
from benchmarks.peers.verdict import CUT, judge
from benchmarks.peers.work import SHAPES, ShapeName, Work, make_workload
from tests.examples import keep_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Speak = Callable[[str], AdapterProcess]

LIMIT = 20.0
"""Seconds; nothing here comes near it but what is made to."""

ENDS = "def claim(result): return 7\ndef wire(result): return result\ndef encode(text): return text.split()\n"
KEEPS_TWO = ENDS + "def fit(work): return work['items'][-2:]\n"
CUTS = ENDS + "def fit(work): return [{**work['items'][-1], 'content': 'x'}]\n"
RAISES = ENDS + "def fit(work): raise ValueError('no budget\\nand more')\n"
CHATS = (
    ENDS
    + "import os\ndef fit(work):\n    print('hello'); os.system('echo there')\n    return work['items'][-2:]\n"
)
DIES = ENDS + "import os\ndef fit(work):\n    os.write(2, b'out of memory\\n'); os._exit(3)\n"
HANGS_LATER = (
    ENDS
    + "def fit(work):\n    while len(work['items']) > 30: pass\n    return work['items'][-2:]\n"
)


@pytest.fixture
def speak(tmp_path: Path) -> Iterator[Speak]:
    """Makes the process of an adapter with this text. All are ended afterwards."""
    speakers: list[AdapterProcess] = []

    def make_speaker(text: str) -> AdapterProcess:
        adapter = tmp_path / f"adapter_{len(speakers)}.py"
        adapter.write_text(text, encoding="utf-8")
        command = [sys.executable, "-P", str(SERVE), str(adapter)]
        speakers.append(AdapterProcess(command, os.environ, adapter.with_suffix(".log")))
        return speakers[-1]

    yield make_speaker
    for process in speakers:
        process.end()


@pytest.fixture
def work_file(tmp_path: Path) -> Path:
    file = tmp_path / "work.json"
    file.write_text(make_workload("messages", 10).to_json(), encoding="utf-8")
    return file


def entry(name: str, process: AdapterProcess | None, note: str = "") -> RunningPeer:
    return RunningPeer(attrs.evolve(peers()["langchain"], name=name), process, note)


def test_an_adapter_answers_as_often_as_it_is_asked(speak: Speak, work_file: Path) -> None:
    process = speak(KEEPS_TWO)
    for _ in range(3):
        answer = process.ask(work_file, LIMIT)
        assert list(answer.messages) == list(make_workload("messages", 10).items[-2:])
        assert answer.claim == 7
        assert answer.seconds >= 0
        assert answer.clock > 0
        assert answer.floor > 0


def test_what_a_library_prints_is_no_answer(speak: Speak, work_file: Path) -> None:
    process = speak(CHATS)
    assert len(process.ask(work_file, LIMIT).messages) == 2
    assert len(process.ask(work_file, LIMIT).messages) == 2
    assert "there" in process.log.read_text(encoding="utf-8")


def test_an_exception_is_told_in_its_first_line_and_the_adapter_goes_on(
    speak: Speak, work_file: Path
) -> None:
    process = speak(RAISES)
    for _ in range(2):
        with pytest.raises(AdapterError, match=r"^ValueError: no budget$"):
            process.ask(work_file, LIMIT)


def test_a_library_that_is_not_there_is_told(speak: Speak, work_file: Path) -> None:
    with pytest.raises(
        AdapterError, match=r"^ModuleNotFoundError: No module named 'nowhere_to_be_found'$"
    ):
        speak("import nowhere_to_be_found\n").ask(work_file, LIMIT)


def test_a_process_that_ends_is_told_by_its_last_words_and_started_again(
    speak: Speak, work_file: Path
) -> None:
    process = speak(DIES)
    for _ in range(2):
        with pytest.raises(AdapterError, match=r"^out of memory$"):
            process.ask(work_file, LIMIT)


def test_an_adapter_that_cannot_be_started_is_told(tmp_path: Path, work_file: Path) -> None:
    with pytest.raises(AdapterError, match="No such file"):
        AdapterProcess([str(tmp_path / "nothing")], os.environ, tmp_path / "log").ask(
            work_file, LIMIT
        )


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_ended(speak: Speak, work_file: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.json"
    small.write_text(make_workload("messages", 20).to_json(), encoding="utf-8")
    work_file.write_text(make_workload("messages", 40).to_json(), encoding="utf-8")
    process = speak(HANGS_LATER)
    process.ask(small, LIMIT)
    with pytest.raises(AdapterTimeoutError, match=r"^over 0\.5 s$"):
        process.ask(work_file, 0.5)
    assert len(process.ask(small, LIMIT).messages) == 2


@pytest.mark.slow
def test_a_race_says_of_every_peer_what_became_of_it(speak: Speak, tmp_path: Path) -> None:
    lacking = RunningPeer(
        attrs.evolve(peers()["langchain"], name="lacks", lacks={"messages": "no history"}),
        speak(KEEPS_TWO),
    )
    running = [
        entry("keeps", speak(KEEPS_TWO)),
        entry("cuts", speak(CUTS)),
        entry("raises", speak(RAISES)),
        entry("hangs", speak(HANGS_LATER)),
        entry("none", None, "no such version"),
        lacking,
    ]
    said: list[str] = []
    small, large = (
        run_case(
            running,
            make_workload("messages", size),
            rounds=2,
            folder=tmp_path,
            limit=0.5,
            report_progress=said.append,
        )
        for size in (20, 40)
    )
    assert {name: outcome.status for name, outcome in large.outcomes.items()} == {
        "keeps": "ran",
        "cuts": "ran",
        "raises": "failed",
        "hangs": "over",
        "none": "failed",
        "lacks": "lacks",
    }
    assert small.outcomes["hangs"].status == "ran"
    assert large.outcomes["hangs"].note == "over 0.5 s at 40"
    assert large.outcomes["none"].note == "no such version"
    assert large.outcomes["lacks"].note == "no history"
    keeps = small.outcomes["keeps"]
    assert (keeps.runs, keeps.kept, keeps.claim, keeps.faults) == (MOST - 1, 2, 7, ())
    assert small.outcomes["cuts"].faults == ("not the newest in a row", CUT)
    assert len(said) == 6


@pytest.mark.slow
def test_what_took_too_long_is_not_asked_for_more(speak: Speak, tmp_path: Path) -> None:
    running = [entry("hangs", speak(HANGS_LATER))]
    run_probe(running, "messages", 10, tmp_path, LIMIT)
    run_case(
        running,
        make_workload("messages", 40),
        rounds=1,
        folder=tmp_path,
        limit=0.5,
        report_progress=len,
    )
    larger = run_case(
        running,
        make_workload("messages", 50),
        rounds=1,
        folder=tmp_path,
        limit=0.5,
        report_progress=len,
    )
    assert larger.outcomes["hangs"].note == "over 0.5 s at 40"


def test_a_probe_counts_at_how_many_budgets_a_result_is_right(speak: Speak, tmp_path: Path) -> None:
    found = run_probe(
        [entry("keeps", speak(KEEPS_TWO)), entry("cuts", speak(CUTS))],
        "messages",
        10,
        tmp_path,
        LIMIT,
    )
    assert (found["keeps"].budgets, found["keeps"].fits, found["keeps"].sound) == (
        len(SHARES),
        len(SHARES),
        len(SHARES),
    )
    assert (found["cuts"].fits, found["cuts"].sound, found["cuts"].faults[CUT]) == (
        len(SHARES),
        0,
        len(SHARES),
    )


@pytest.mark.long
@pytest.mark.parametrize("shape", keep_first(2, *(shape for shape in SHAPES if shape != "history")))
def test_promptkit_keeps_the_most_that_fits_in_every_shape(
    shape: ShapeName, tmp_path: Path
) -> None:
    own: Peer = peers()[OWN]
    process = AdapterProcess(
        [sys.executable, "-P", str(SERVE), str(own.adapter)], os.environ, tmp_path / "log"
    )
    try:
        for size in (40, 60):
            work = make_workload(shape, size)
            file = tmp_path / "work.json"
            file.write_text(work.to_json(), encoding="utf-8")
            answer = process.ask(file, LIMIT)
            verdict = judge(work, answer.messages)
            assert verdict.faults == ()
            assert len(verdict.kept) == work.most()
            assert answer.claim == verdict.tokens
    finally:
        process.end()


@pytest.mark.long
def test_promptkit_fills_each_budget_of_the_history_with_a_sound_prompt(tmp_path: Path) -> None:
    process = AdapterProcess(
        [sys.executable, "-P", str(SERVE), str(peers()[OWN].adapter)], os.environ, tmp_path / "log"
    )
    whole = make_workload("history", 60)
    try:
        for budget in (whole.tokens, whole.budget, whole.budget // 2):
            work = attrs.evolve(whole, budget=budget)
            file = tmp_path / "work.json"
            file.write_text(work.to_json(), encoding="utf-8")
            answer = process.ask(file, LIMIT)
            verdict = judge(work, answer.messages)
            assert verdict.faults == ()
            assert 0.95 * budget < verdict.tokens == answer.claim
    finally:
        process.end()


@pytest.mark.parametrize(("shape", "collects"), [("messages", False), ("history", True)])
def test_the_collector_is_on_for_the_history_alone(
    shape: ShapeName, collects: bool, speak: Speak, work_file: Path
) -> None:
    work_file.write_text(make_workload(shape, 8).to_json(), encoding="utf-8")
    ends = (
        "import gc\ndef fit(work): return gc.isenabled()\ndef claim(result): return int(result)\n"
    )
    process = speak(ends + "def wire(result): return []\ndef encode(text): return text.split()\n")
    assert process.ask(work_file, LIMIT).claim == collects


def test_a_case_says_at_which_budget_it_was(speak: Speak, tmp_path: Path) -> None:
    case = run_case(
        [entry("keeps", speak(KEEPS_TWO))],
        make_workload("history", 8, "30k"),
        rounds=1,
        folder=tmp_path,
        limit=LIMIT,
        report_progress=len,
    )
    assert (case.at, case.budget, case.name) == ("30k", 30_000, "8 at 30k")


@pytest.mark.parametrize(("names", "asked"), [("ab", "ab" * MOST), ("a", "aa")], ids=["two", "one"])
def test_peers_with_short_runs_go_on_in_turns_and_one_alone_does_not(
    names: str, asked: str, speak: Speak, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    ask = RunningPeer.ask

    def ask_and_note(self: RunningPeer, work: Work, file: Path, limit: float) -> Answer | None:
        seen.append(self.peer.name)
        return ask(self, work, file, limit)

    monkeypatch.setattr(RunningPeer, "ask", ask_and_note)
    run_case(
        [entry(name, speak(KEEPS_TWO)) for name in names],
        make_workload("messages", 10),
        rounds=1,
        folder=tmp_path,
        limit=LIMIT,
        report_progress=len,
    )
    assert "".join(seen) == asked
