"""The fixture `prompt_bench`, in test suites as users have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import run_program
from tests.unit.testing.project import environment

pytest_plugins = ["pytester"]

PROMPT = """
from promptkit import SystemMessage, UserMessage

def prompt(first=1, second=2):
    return (
        SystemMessage(required=True)["Be brief."],
        UserMessage(priority=first, label="old")["An old remark that takes some room. " * 3],
        UserMessage(priority=second, label="new")["A new remark that takes some room. " * 3],
    )
"""

TEST = """
import pytest
from prompt import prompt

@pytest.mark.prompt_bench(budgets="60,1k", baseline="bench/remarks.json")
def test_remarks(prompt_bench):
    run = prompt_bench(prompt())
    assert run.budgets == (60, 1000)
    assert run.repeat == 0
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyprojecttoml(
        '[tool.pytest.ini_options]\naddopts = ["--strict-markers"]\npythonpath = ["."]\nfilterwarnings = ["error"]\n'
    )
    pytester.makepyfile(prompt=PROMPT, test_remarks=TEST)
    return pytester


def said(suite: pytest.Pytester, *arguments: str, **outcomes: int) -> str:
    """What pytest prints in a process of its own, with no other plugin, which must end with these outcomes."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "promptkit.testing.snapshots.plugin")
    alone = environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = run_program("pytest", *options, *arguments, folder=Path.cwd(), environment=alone)
    counts: dict[str, int] = pytest.RunResult.parse_summary_nouns(done.stdout.splitlines())  # pyright: ignore[reportUnknownMemberType]  # its parameter has no type
    assert counts == outcomes, done.stdout + done.stderr
    return done.stdout


def baseline(suite: pytest.Pytester) -> Path:
    return suite.path / "bench" / "remarks.json"


def test_a_missing_baseline_fails_and_says_how_to_write_it(suite: pytest.Pytester) -> None:
    text = said(suite, failed=1)
    command = 'pytest --prompt-bench-update "test_remarks.py::test_remarks"'
    assert f"there is no baseline bench/remarks.json yet. Write it: {command}" in text
    assert "Traceback" not in text
    assert not baseline(suite).exists()


@pytest.mark.long
def test_the_option_writes_it_and_then_the_prompt_is_held_against_it(
    suite: pytest.Pytester,
) -> None:
    said(suite, "--prompt-bench-update", passed=1)
    written = baseline(suite).read_bytes()
    assert json.loads(written)["target"] == "test_remarks.py::test_remarks"
    said(suite, passed=1)
    suite.makepyfile(prompt=PROMPT.replace("second=2", "second=0"))
    text = said(suite, failed=1)
    assert "the prompt is worse than bench/remarks.json." in text
    assert "UserMessage(new)" in next(
        line for line in text.splitlines() if "100% → nothing" in line
    )
    assert "Better than the baseline:" in text
    assert "Traceback" not in text
    assert baseline(suite).read_bytes() == written
    said(suite, "--prompt-bench-update", passed=1)
    assert baseline(suite).read_bytes() != written
    said(suite, passed=1)


def test_the_baseline_is_found_from_the_root_wherever_pytest_is_started(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = suite.mkdir("deep")
    (suite.path / "test_remarks.py").rename(below / "test_remarks.py")
    monkeypatch.chdir(below)
    said(suite, "--prompt-bench-update", "--rootdir", str(suite.path), passed=1)
    assert baseline(suite).exists()
    assert list(below.glob("**/*.json")) == []


def test_a_better_prompt_passes(suite: pytest.Pytester) -> None:
    suite.makepyfile(prompt=PROMPT.replace("* 3", "* 6"))
    said(suite, "--prompt-bench-update", passed=1)
    suite.makepyfile(prompt=PROMPT)
    text = said(suite, "-rP", passed=1)
    assert "Better than the baseline:" in text


def test_a_tolerance_lets_little_pass(suite: pytest.Pytester) -> None:
    said(suite, "--prompt-bench-update", passed=1)
    suite.makepyfile(
        prompt=PROMPT.replace("* 3", "* 6", 1).replace(
            "A new remark that takes some room. ", "New. "
        )
    )
    said(suite, failed=1)
    suite.makepyfile(test_remarks=TEST.replace('.json")', '.json", tolerance=0.9)'))
    said(suite, passed=1)


MISTAKES = {
    "": "has no marker with a baseline",
    '@pytest.mark.prompt_bench(budgets="1k")': "the marker needs a baseline",
    '@pytest.mark.prompt_bench(baseline="a.json", budget="1k")': "the marker has no argument budget; it takes baseline, budgets,",
    '@pytest.mark.prompt_bench("a.json")': "takes its arguments by name",
    "@pytest.mark.prompt_bench(baseline=None)": "baseline must be a path from the rootdir, not None",
    '@pytest.mark.prompt_bench(baseline="a.json", budgets=50)': "budgets must be a list of tokens, or text such as",
    '@pytest.mark.prompt_bench(baseline="a.json", tolerance="5%")': "tolerance must be a number, 0 or more, not '5%'",
    '@pytest.mark.prompt_bench(baseline="a.json", time_tolerance=-1)': "time_tolerance must be a number, 0 or more, or None, not -1",
    '@pytest.mark.prompt_bench(baseline="a.json", models="gpt-5")': "models must be a list of names, not 'gpt-5'",
    '@pytest.mark.prompt_bench(baseline="a.json", depth=0)': "depth must be a whole number, 1 or more, not 0",
    '@pytest.mark.prompt_bench(baseline="a.json", repeat=-1)': "repeat must be a whole number, 0 or more, not -1",
}


def test_a_mistake_in_the_marker_is_said(suite: pytest.Pytester) -> None:
    tests = (
        f"{marker}\ndef test_{number}(prompt_bench): ...\n"
        for number, marker in enumerate(MISTAKES)
    )
    suite.makepyfile(test_remarks="import pytest\n\n" + "\n".join(tests))
    text = said(suite, "--prompt-bench-update", errors=len(MISTAKES))
    assert [expected for expected in MISTAKES.values() if expected not in text] == []


def test_other_budgets_than_those_of_the_baseline_fail(suite: pytest.Pytester) -> None:
    said(suite, "--prompt-bench-update", passed=1)
    suite.makepyfile(test_remarks=TEST.replace("60,1k", "70,1k"))
    text = said(suite, failed=1)
    assert "the budgets of the baseline (60, 1000) and of this run (70, 1000) differ" in text
    assert "Traceback" not in text


def test_one_baseline_is_one_prompt(suite: pytest.Pytester) -> None:
    again = TEST[TEST.index("\n@") :].replace("test_remarks(", "test_again(")
    suite.makepyfile(
        test_remarks=TEST.replace("    assert run.repeat == 0", "    prompt_bench(prompt())")
        + again
    )
    text = said(suite, "--prompt-bench-update", failed=1, errors=1)
    assert "a test measures one prompt" in text
    assert "test_remarks.py::test_remarks uses the baseline bench/remarks.json already" in text


@pytest.mark.slow
def test_a_run_without_such_tests_loads_nothing_of_it(suite: pytest.Pytester) -> None:
    loaded = "[name for name in sys.modules if name.startswith('promptkit.bench')]"
    suite.makepyfile(test_remarks=f"import sys\n\ndef test_nothing():\n    assert {loaded} == []\n")
    suite.runpytest_subprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=1)
