"""`promptkit bench` as a shell sees it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from promptkit.cli.input.params import SHARE, SHARE_OR_OFF
from promptkit.cli.main import main
from promptkit.cli.output.tables import print_run
from tests.examples import keep_first
from tests.paths import ROOT
from tests.unit.bench.prompts import run_of, sweep_of

SCRIPT = Path(sys.executable).parent / "promptkit"

PROMPT = """
from promptkit import Child, PromptElement, Sizing, SystemMessage, TextChunk, UserMessage, component

@component
class Review(PromptElement):
    query: str
    notes: int = 8

    def render(self, sizing: Sizing) -> Child:
        return (
            SystemMessage(required=True)["You review code."],
            UserMessage(priority=1)[[TextChunk(priority=n)[f"Note {n}: " + "something long " * 10] for n in range(self.notes)]],
            UserMessage(priority=2, label="style")["The guide of style. " * 8],
            UserMessage(required=True)[self.query],
        )

@component
class Nothing(PromptElement):
    def render(self, sizing: Sizing) -> Child:
        return None

@component
class Worse(PromptElement):
    query: str

    def render(self, sizing: Sizing) -> Child:
        return Review(query=self.query).render(sizing)[:2] + Review(query=self.query).render(sizing)[3:]
"""

BENCH = [
    "bench",
    "prompt.py:Review",
    "--props",
    "props.json",
    "--budgets",
    "5,60:240:60,1k",
    "--repeat",
    "0",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prompt.py").write_text(PROMPT, encoding="utf-8")
    (tmp_path / "props.json").write_text('{"query": "Is it right?"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def test_prints_a_line_for_each_budget_and_a_heat_map(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *BENCH)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "prompt.py:Review"
    assert re.fullmatch(r"\d+ tokens in 4 messages without a budget", lines[1])
    assert lines[4].split()[:4] == ["budget", "used", "filled", "dropped"]
    assert [line.split()[0] for line in lines[5:11]] == ["5", "60", "120", "180", "240", "1,000"]
    assert re.fullmatch(r"\s+5  needs \d+\s*", lines[5])
    assert lines[10].split()[3] == "0"
    # the others have no room above their columns
    assert lines[12].split() == ["share", "kept", "of", "tokens", "5", "60", "120", "240"]
    notes = lines[13]
    assert notes.startswith("UserMessage > TextChunk")
    assert notes.endswith("███")
    assert "xxx···" in notes
    assert "· nothing is kept   ▁ to ▇ a part is kept   █ everything is kept" in lines
    assert "x the budget is too small for what is required" in lines
    assert lines[-2].startswith("stable prefix  tokens of the leading messages")


@pytest.mark.slow
def test_says_how_long_it_takes_where_times_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *BENCH[:-1], "1")
    lines = out.splitlines()
    assert re.search(r"; tokenising alone \d+\.\d ms$", lines[1])
    assert lines[4].split()[-2:] == ["cold", "warm"]
    assert re.search(r"\d+\.\d ms +\d+\.\d\dx +\d+\.\d ms +\d+\.\d\dx$", lines[10])


@pytest.mark.parametrize(
    ("budgets", "models"),
    [
        ("7", ""),
        pytest.param("1k:128k:log16", "gpt-5,gpt-4", marks=pytest.mark.slow),
        pytest.param("100:1m:log60", "", marks=pytest.mark.slow),
        pytest.param("1k:999k:log300", "gpt-5,gpt-4", marks=pytest.mark.slow),
    ],
)
def test_fits_eighty_columns(capsys: pytest.CaptureFixture[str], budgets: str, models: str) -> None:
    _, out, _ = run(capsys, *BENCH[:4], "--budgets", budgets, "--models", models, "--repeat", "1")
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80


@pytest.mark.long
@pytest.mark.parametrize("columns", keep_first(1, 10, 40))
def test_a_narrow_terminal_cuts_no_figure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = run(capsys, *BENCH[:4], "--budgets", "128k", "--repeat", "1")
    # one in each group of columns
    rows = [re.sub("^128,000", "", line) for line in out.splitlines() if line.startswith("128,000")]
    assert re.fullmatch(
        r" +\d+ +0% +0 +\d+ +\d+\.\d ms +\d+\.\d\dx +\d+\.\d ms +\d+\.\d\dx", "".join(rows)
    )
    assert re.search(r"^share kept of +tokens 1", out, re.MULTILINE)


@pytest.mark.parametrize("repeat", ["0", "1"])
@pytest.mark.slow
def test_a_prompt_without_anything_is_measured_all_the_same(
    capsys: pytest.CaptureFixture[str], repeat: str
) -> None:
    status, out, err = run(
        capsys,
        "bench",
        "prompt.py:Nothing",
        "--budgets",
        "10",
        "--repeat",
        repeat,
        "--plot",
        "nothing.html",
    )
    assert (status, err) == (0, "")
    assert "0 tokens in 0 messages" in out


def test_names_are_cut_at_the_front_and_wide_letters_take_two_places(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ("A > " + "n" * 90 + " the end", "A > 日本語")
    sweep = sweep_of()
    elements = tuple(
        attrs.evolve(element, path=name)
        for element, name in zip(sweep.elements, names, strict=True)
    )
    print_run(run_of(attrs.evolve(sweep, elements=elements)))
    lines = capsys.readouterr().out.splitlines()
    end = next(line for line in lines if "the end" in line)
    japanese = next(line for line in lines if "日本語" in line)
    assert end.startswith("…nnn")
    assert len(end) == 80
    assert len(japanese) == 80 - 3


@pytest.mark.slow
def test_a_terminal_without_blocks_gets_plain_marks() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([SCRIPT, *BENCH], capture_output=True, check=True, env=environment)
    out = done.stdout.decode("ascii")
    assert ". nothing is kept   : to % a part is kept   # everything is kept" in out
    assert "\\u" not in out


def test_writes_the_run_for_machines(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    status, out, err = run(capsys, *BENCH, "--json")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["target"] == "prompt.py:Review"
    assert report["budgets"] == [5, 60, 120, 180, 240, 1000]
    _, table, _ = run(capsys, *BENCH, "-o", "run.json")
    assert table.startswith("prompt.py:Review\n")
    assert (folder / "run.json").read_text(encoding="ascii") == out


def test_as_good_as_the_baseline_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *BENCH, "-o", "base.json", "--force")
    status, out, err = run(capsys, *BENCH, "--baseline", "base.json")
    assert (status, err) == (0, "")
    assert out.endswith("\n\nAs good as the baseline.\n")


def test_worse_than_the_baseline_ends_with_1_and_says_what_and_what_to_do(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    run(capsys, *BENCH, "-o", "base.json", "--force")
    before = (folder / "base.json").read_bytes()
    worse = [argument.replace("Review", "Worse") for argument in BENCH]
    status, out, err = run(capsys, *worse, "--baseline", "base.json")
    assert (status, err) == (1, "")
    assert "Worse than the baseline:" in out
    assert re.search(
        r"Review > UserMessage\(style\) +\d, from 120 to 1,000 +100% → nothing at 120", out
    )
    assert out.endswith("the same command with -o base.json --force and without --baseline.\n")
    assert (folder / "base.json").read_bytes() == before
    status, out, err = run(capsys, *worse, "--baseline", "base.json", "--json")
    assert status == 1
    assert json.loads(out)["target"] == "prompt.py:Worse"
    assert err.startswith("Worse than the baseline:")


@pytest.mark.slow
def test_the_exit_status_reaches_the_shell() -> None:
    subprocess.run([SCRIPT, *BENCH, "-o", "base.json", "--force"], check=True, capture_output=True)
    worse = [argument.replace("Review", "Worse") for argument in BENCH]
    assert (
        subprocess.run(
            [SCRIPT, *worse, "--baseline", "base.json"], check=False, capture_output=True
        ).returncode
        == 1
    )


def test_tolerances_say_how_much_may_get_worse(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    run(capsys, *BENCH, "-o", "base.json", "--force")
    base = json.loads((folder / "base.json").read_text(encoding="ascii"))
    base["sweeps"][0]["points"][1]["used"] = 60  # filled to the last token
    (folder / "base.json").write_text(json.dumps(base), encoding="ascii")
    assert run(capsys, *BENCH, "--baseline", "base.json", "--tolerance", "0%")[0] == 1
    assert run(capsys, *BENCH, "--baseline", "base.json", "--tolerance", "90%")[0] == 0


@pytest.mark.slow
def test_times_can_be_left_out_of_the_comparison(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    timed = [*BENCH[:-1], "1"]
    run(capsys, *timed, "-o", "base.json", "--force")
    base = json.loads((folder / "base.json").read_text(encoding="ascii"))
    base["sweeps"][0]["floor"] = 1_000.0  # so that every time was next to nothing over it
    (folder / "base.json").write_text(json.dumps(base), encoding="ascii")
    status, out, _ = run(capsys, *timed, "--baseline", "base.json")
    assert status == 1
    assert "(cold render over the floor)" in out
    assert run(capsys, *timed, "--baseline", "base.json", "--time-tolerance", "off")[0] == 0


@pytest.mark.parametrize("form", keep_first(1, "svg", "png", "html"))
def test_draws_it(capsys: pytest.CaptureFixture[str], folder: Path, form: str) -> None:
    assert run(capsys, *BENCH, "--plot", f"review.{form}")[0] == 0
    assert (folder / f"review.{form}").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budgets", "1k:x"], "a range must be A:B:log16, A:B:lin16 or A:B:STEP."),
        (["--models", "gtp-5"], "did you mean 'gpt-5'"),
        (["--tolerance", "some"], "invalid share 'some': use 5% or 0.05."),
        (["--time-tolerance", "no"], "invalid share 'no': use 5% or 0.05."),
        (["--depth", "0"], "Invalid value for '--depth'"),
        (["--baseline", "missing.json"], "missing.json cannot be read: No such file or directory."),
        (["--baseline", "props.json"], "props.json is not a run of promptkit bench."),
        (["--baseline", "base.json", "--budgets", "1k"], "the budgets of the baseline ("),
        (
            ["--baseline", "base.json", "--models", "gpt-5"],
            "the models of the baseline (none) and of this run (gpt-5) differ",
        ),
        (
            ["--baseline", "base.json", "--depth", "2"],
            "the depth of the baseline (3) and of this run (2) differ",
        ),
        (
            ["--baseline", "base.json", "-o", "./base.json"],
            "--output and --baseline both name base.json",
        ),
        (
            ["-o", "missing/run.json"],
            "cannot write missing/run.json: there is no folder missing.",
        ),
        (["--plot", "run.pdf"], "invalid plot format '.pdf': use .svg, .png, .html."),
        (
            ["--plot", "missing/run.svg"],
            "cannot write missing/run.svg: there is no folder missing.",
        ),
        (
            ["--plot", "run.svg", "-o", "./run.svg"],
            "--plot and --output or --baseline both name run.svg: name two files.",
        ),
        (["-o", "."], "cannot write .: it is a folder."),
    ],
)
def test_a_mistake_is_one_line_and_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    run(capsys, *BENCH, "-o", "base.json", "--force")
    status, out, err = run(capsys, *BENCH, *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.startswith("promptkit: ")
    assert err.count("\n") == 1


def test_drawing_without_matplotlib_is_one_line_and_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = run(capsys, *BENCH, "--plot", "run.svg")
    assert (status, out) == (2, "")
    assert err == (
        "promptkit: plots need matplotlib: run `pip install 'matplotlib>=3.9'`, or `pip install '.[plot]'` in a checkout of promptkit.\n"
    )


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("150 %", 1.5), ("0", 0.0)]
)
def test_a_share_is_written_in_percent_or_as_a_part_of_one(text: str, share: float) -> None:
    assert SHARE.convert(text, None, None) == pytest.approx(share)
    assert SHARE_OR_OFF.convert(text, None, None) == pytest.approx(share)
    assert SHARE_OR_OFF.convert(" OFF ", None, None) is None


@pytest.mark.slow
def test_the_gate_holds_the_shipped_prompt_against_its_baseline(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(
        r'"\$venv/bin/promptkit" (bench .*?)(?: </dev/null)?$', gate, re.MULTILINE
    )
    assert "--repeat 0" in command
    status, out, _ = run(capsys, *command.split())
    assert status == 0, out
