"""The pytest plugin as a user meets it who has just installed promptkit with its `testing` extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.testing.project import Project

THREE_LINES = """\
from promptkit import SystemMessage, UserMessage
def test_review(prompt_snapshot):
    assert (SystemMessage()["You review code."], UserMessage()["What is wrong here?"]) == prompt_snapshot
"""

FILE = "__snapshots__/test_prompt/test_review.md"
SHOWN = "## System\n\n```\nYou review code.\n```\n\n## User\n\n```\nWhat is wrong here?\n```\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder)


@pytest.mark.long
def test_three_lines_of_test_give_a_snapshot(project: Project) -> None:
    project.write(THREE_LINES)
    missing = project.run()
    assert (
        "There is no such file yet. `pytest --snapshot-update` writes it, as shown below."
        in missing
    )
    assert SHOWN in missing
    assert project.counts("--snapshot-update") == {"passed": 1, "snapshot generated": 1}
    assert project.files() == {"test_prompt/test_review.md": SHOWN}
    assert project.counts() == {"passed": 1, "snapshot passed": 1}


CHANGED = """\
E       assert tuple == __snapshots__/test_prompt/test_review.md
E         Lines: 1 removed, 1 new, as shown below. `pytest --snapshot-update` accepts them.

test_prompt.py:3: AssertionError
------------------- __snapshots__/test_prompt/test_review.md -------------------
@@ line 1 ## System @@
 ## System
 
 ```
-You review code.
+You review Python code.
 ```
 
 ## User
"""  # noqa: W293  # lines that have not changed begin with a space


@pytest.mark.slow
def test_a_changed_prompt_is_shown_as_a_diff(project: Project) -> None:
    project.write(SHOWN, FILE)
    project.write(THREE_LINES.replace("review code", "review Python code"))
    assert CHANGED in project.run()
    assert project.counts("--snapshot-update") == {"passed": 1, "snapshot updated": 1}
    assert project.files() == {
        "test_prompt/test_review.md": SHOWN.replace("review code", "review Python code")
    }


@pytest.mark.slow
def test_a_long_diff_is_shown_in_full_and_in_parallel_runs_too(project: Project) -> None:
    old, new = ("\n".join(f"{word} {n}" for n in range(100)) for word in ("old", "new"))
    project.write(f"## User\n\n```\n{old}\n```\n", FILE)
    project.write(
        f"from promptkit import UserMessage\ndef test_review(prompt_snapshot):\n    assert UserMessage()[{new!r}] == prompt_snapshot\n"
    )
    printed = project.run("-n", "1")
    assert all(f"\n-old {n}\n" in printed and f"\n+new {n}\n" in printed for n in range(100))


@pytest.mark.slow
def test_a_snapshot_that_no_test_uses_is_found_and_deleted(project: Project) -> None:
    project.write(SHOWN, FILE)
    project.write(THREE_LINES.replace("def test_review", "def test_other"))
    assert project.counts()["snapshot unused"] == 1
    assert "Deleted test_review" in project.run("--snapshot-update")
    assert list(project.files()) == ["test_prompt/test_other.md"]


BROKEN = """\
import os
import pytest
from promptkit import PromptElement, UserMessage, component

@component
class Review(PromptElement):
    def render(self, sizing):
        if "broken" in os.environ:
            raise ValueError("no network")
        return UserMessage()["What is wrong here?"]

@pytest.mark.parametrize("kind", ["prompt", "messages", "receipt"])
def test_review(kind, request):
    assert Review() == request.getfixturevalue(f"{kind}_snapshot")
"""


@pytest.mark.slow
def test_a_prompt_that_cannot_be_rendered_keeps_its_snapshot(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(BROKEN)
    project.run("--snapshot-update")
    before = project.files()
    monkeypatch.setenv("broken", "yes")
    assert "ValueError: no network" in project.run("--snapshot-update")
    assert project.files() == before
    assert len(before) == 3


ELSEWHERE = """\
import os
from promptkit import UserMessage
def test_review(prompt_snapshot, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert UserMessage()["What is wrong here?"] == prompt_snapshot
"""


@pytest.mark.slow
def test_a_file_is_named_from_the_project_on_wherever_the_test_works(project: Project) -> None:
    project.write(SHOWN, FILE)
    project.write(ELSEWHERE)
    assert f"assert UserMessage == {FILE}\n" in project.run()


@pytest.mark.slow
def test_an_error_may_name_what_no_file_can_hold(project: Project) -> None:
    project.write("""\
from promptkit import SystemMessage
def test_review(prompt_snapshot):
    assert SystemMessage(required=True, label="\\ud800")["Be brief."] == prompt_snapshot.at(budgets=[3])
""")
    assert project.counts("--snapshot-update") == {"passed": 1, "snapshot generated": 1}
    assert "Largest: \\ud800 7." in project.files()["test_prompt/test_review.md"]


EVERY_KIND = """\
import pytest
from promptkit import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from syrupy.extensions.json import JSONSnapshotExtension
from syrupy.filters import props
from syrupy.matchers import path_type

PROMPT = (
    SystemMessage(required=True)["Be brief."],
    UserMessage(priority=1)["What is this?"],
    AssistantMessage(tool_calls=(ToolCall(id="c", name="look"),)),
    ToolMessage(tool_call_id="c")["A\\r\\n\\udc80"],
)

@pytest.fixture
def as_json(snapshot):
    return snapshot.use_extension(JSONSnapshotExtension)

def test_kinds(prompt_snapshot, messages_snapshot, receipt_snapshot, snapshot, as_json):
    for _ in range(2):
        assert PROMPT == prompt_snapshot
        assert PROMPT == messages_snapshot
        assert PROMPT == receipt_snapshot
        assert {"a": 1} == as_json
        assert {"a": 1} == snapshot

@pytest.mark.parametrize("budget", [1_000, 15])
def test_budgets(budget, prompt_snapshot, messages_snapshot, receipt_snapshot):
    for each in (prompt_snapshot, messages_snapshot, receipt_snapshot):
        assert PROMPT == each.at(budgets=[budget, 1, "gpt-5"])

class TestForms:
    def test_forms(self, messages_snapshot):
        for form in ("chat", "responses", "anthropic"):
            assert PROMPT == messages_snapshot(name=form).to(form)
        assert PROMPT == messages_snapshot(name="options", matcher=path_type({".*id": (str,)}, regex=True), exclude=props("content"))
"""


@pytest.mark.slow
def test_all_kinds_live_in_one_session_with_other_snapshots(project: Project) -> None:
    project.write(EVERY_KIND)
    assert project.counts("--snapshot-update", "-n", "1") == {"passed": 4, "snapshot generated": 20}
    written = project.files()
    assert project.counts("--snapshot-update") == {"passed": 4, "snapshot passed": 20}
    assert project.files() == written
    assert set(written) == {
        "test_prompt.ambr",
        *(
            f"test_prompt/test_kinds{number}.{kind}"
            for number in ("", ".1")
            for kind in ("md", "messages", "receipt", "json")
        ),
        *(
            f"test_prompt/test_budgets[{budget}].{kind}"
            for budget in (1000, 15)
            for kind in ("md", "messages", "receipt")
        ),
        *(
            f"test_prompt/TestForms.test_forms[{name}].messages"
            for name in ("chat", "responses", "anthropic", "options")
        ),
    }
    options = written["test_prompt/TestForms.test_forms[options].messages"]
    assert '"content"' not in options
    assert '"tool_call_id": "str"' in options


STABLE = """\
import json, tempfile
from datetime import datetime
from pathlib import Path
from uuid import uuid4
from promptkit import AssistantMessage, ToolCall, ToolMessage, UserMessage

def test_stable(prompt_snapshot, messages_snapshot, receipt_snapshot, tmp_path):
    call = ToolCall(id=uuid4().hex, name="read", arguments=json.dumps({"path": str(tmp_path / "cart.py")}))
    with tempfile.TemporaryDirectory() as folder:
        prompt = (
            UserMessage()[f"It is {datetime.now().isoformat()} in {folder}, {Path(__file__).parent} is the project."],
            AssistantMessage(tool_calls=(call,)),
            ToolMessage(tool_call_id=call.id)[f"{tmp_path}/cart.py"],
        )
        for each in (prompt_snapshot, messages_snapshot, receipt_snapshot):
            assert prompt == each.at(budgets=[10_000, 1]).stabilize(ids=True, dates=True, paths=True)
"""


@pytest.mark.slow
def test_a_stable_snapshot_is_the_same_in_every_run_and_place(
    project: Project, tmp_path: Path
) -> None:
    project.write(STABLE)
    project.run("--snapshot-update")
    shown = project.files()["test_prompt/test_stable.md"]
    for line in (
        "  It is <date>T<time> in <tmp 1>, <root> is the project.",
        '* calls read (<id 1>) {"path": "<tmp 2>/cart.py"}',
        "Tool read (<id 1>)",
        "  <tmp 2>/cart.py",
    ):
        assert f"\n{line}\n" in shown
    moved = Project(project.folder.rename(tmp_path / "moved"))
    assert moved.counts("-n", "1") == {"passed": 1, "snapshot passed": 3}


BLOCKER = """\
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("syrupy", "hypothesis"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_without_the_extra_the_fixtures_say_what_to_install_and_all_else_works(
    project: Project,
) -> None:
    project.write(
        THREE_LINES.replace("prompt_snapshot", "receipt_snapshot")
        + THREE_LINES
        + "\ndef test_other():\n    assert True\n"
    )
    project.write(BLOCKER, "without.py")
    # What is not installed has no entry point either; hypothesis is left out of all these runs.
    printed = project.run_script("without.py", "-p", "no:syrupy")
    hint = "which is not loaded here: run `pip install 'syrupy>=5'`, or `pip install '.[testing]'` in a checkout of promptkit."
    assert f"\nprompt_snapshot needs syrupy, {hint}\n" in printed
    assert "1 passed, 1 error" in printed
    assert "Traceback" not in printed


def test_a_session_that_takes_no_snapshot_pays_for_none() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import promptkit.testing.snapshots.plugin;"
        "print([name for name in set(sys.modules) - before if name.startswith(('syrupy', 'hypothesis', 'promptkit.rendering', 'tiktoken'))])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


@pytest.mark.slow
def test_a_project_may_set_the_stabilisers_for_all_of_its_tests(project: Project) -> None:
    project.write(
        "import pytest\n@pytest.fixture\ndef prompt_snapshot(prompt_snapshot):\n    return prompt_snapshot.stabilize(str.upper, dates=True)\n",
        "conftest.py",
    )
    project.write(
        "from promptkit import UserMessage\ndef test_it(prompt_snapshot):\n    assert UserMessage()['on 2025-01-31'] == prompt_snapshot\n"
    )
    project.run("--snapshot-update")
    assert project.files() == {"test_prompt/test_it.md": "## User\n\n```\nON <date>\n```\n"}
