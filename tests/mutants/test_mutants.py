"""The mutants are the same in every run, change what runs and nothing else, and those that no test notices are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.mutants.__main__ import ACCEPTED
from tests.mutants.accepted import load_accepted
from tests.mutants.live import find_changed_codes, find_statement
from tests.mutants.operators import find_mutants
from tests.mutants.rooms import ROOMS
from tests.mutants.run import choose_mutants
from tests.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from types import CodeType


@pytest.mark.parametrize(
    ("line", "others"),
    [
        ("a < b", ["a <= b"]),
        ("a == b >= c", ["a != b >= c", "a == b > c"]),
        ("a is not None", ["a is None"]),
        ("a not in b", ["a in b"]),
        ("a + b", ["a - b"]),
        ("a += b", ["a -= b"]),
        ("a + 1", ["a - 1", "a + 2"]),
        ("a // 3", ["a * 3", "a // 4", "a // 2"]),
        ("0.5", ["0.55"]),
        ("True", ["False"]),
        ("a and b or c", ["a and b and c", "a or b or c"]),
        ("not (a or b)", ["(a or b)", "not (a and b)"]),
        ("-a", ["a"]),
        ("a if b else c", ["a if not (b) else c"]),
        ("[a for a in b if c]", ["[a for a in b if not (c)]"]),
        ("a[b:]", ["a[:b]"]),
        ("a[:b]", ["a[b:]"]),
        ("a[b:c]", ["a[b:]"]),
        ("min(a, b)", ["max(a, b)"]),
        ("any(a)", ["all(a)"]),
        ("'ä', a <b # <", ["'ä', a <=b # <"]),
        ("a + 'b'", []),
        ("f'{a + b}'", []),
        ("zip(a, b, strict=True)", []),
    ],
)
def test_each_operator_changes_one_symbol(line: str, others: list[str]) -> None:
    assert [mutant.after for mutant in find_mutants(line)] == others


def test_a_condition_is_negated_and_so_is_what_a_predicate_returns() -> None:
    source = "def f(a) -> bool:\n    if a:\n        return g(a)\n    while a:\n        pass\n    return a\n"
    assert [(mutant.line, mutant.after) for mutant in find_mutants(source)] == [
        (2, "if not (a):"),
        (3, "return not (g(a))"),
        (4, "while not (a):"),
        (6, "return not (a)"),
    ]


def test_annotations_decorators_and_imports_for_types_are_not_changed() -> None:
    source = "if TYPE_CHECKING:\n    a = 1\n\n@frozen(x=True)\nclass A:\n    b: Literal[1] | None\n\n    @retry(3)\n    def c(self, d: Literal[2]) -> Literal[3]: ...\n"
    assert find_mutants(source) == []


def test_an_expression_of_many_lines_is_shown_with_the_lines_that_change() -> None:
    (mutant,) = find_mutants("a(\n    b\n    <\n    c,\n)\n")
    assert (mutant.line, mutant.before, mutant.after, mutant.source) == (
        3,
        "<",
        "<=",
        "a(\n    b\n    <=\n    c,\n)\n",
    )


@pytest.mark.long
@pytest.mark.parametrize("name", list(ROOMS))
def test_every_mutant_of_a_room_is_python(name: str) -> None:
    for file, mutant in choose_mutants(ROOT, ROOMS[name], limit=100):
        compile(mutant.source, file, "exec")


def test_the_same_seed_draws_the_same_mutants() -> None:
    room = ROOMS["policy"]
    first, again, other = (choose_mutants(ROOT, room, limit=5, seed=seed) for seed in (1, 1, 2))
    assert len(first) == 5
    assert first == again != other


@pytest.mark.parametrize("name", list(ROOMS))
def test_the_files_and_tests_of_a_room_exist(name: str) -> None:
    room = ROOMS[name]
    assert [path for path in room.tests if not ROOT.joinpath(path).exists()] == []
    assert any(True for pattern in room.files for _ in ROOT.glob(pattern))


@pytest.mark.long
def test_each_accepted_survivor_is_still_a_mutant_and_has_a_reason() -> None:
    accepted = load_accepted(ACCEPTED)
    there = {
        (file, mutant.before, mutant.after)
        for file in {known.file for known in accepted}
        for mutant in find_mutants((ROOT / file).read_text(encoding="utf-8"))
    }
    listed = [(known.file, known.before, after) for known in accepted for after in known.after]
    assert [each for each in listed if each not in there] == []
    assert [known for known in accepted if not known.reason] == []
    assert len(listed) == len(set(listed))


def _compile(source: str) -> CodeType:
    return compile(source, "planted.py", "exec", dont_inherit=True)


@pytest.mark.parametrize(
    ("source", "before", "after", "changed"),
    [
        ("def f():\n    return 1", "1", "2", ["f"]),
        ("def f():\n    return 1", "1", "a or 1", ["f"]),
        ("def f():\n    return 1", "f()", "g()", ["<module>", "f"]),
        ("def f(a=1):\n    return a", "1", "2", ["<module>"]),
        ("class A:\n    a = 1", "1", "2", ["A"]),
        ("class A:\n    def f():\n        return lambda: 1", "1", "2", ["f", "<lambda>"]),
        ("a = [1 for b in c]", "1", "2", ["<listcomp>"]),
    ],
)
def test_what_a_change_of_a_file_changes_is_a_function_or_runs_at_import(
    source: str, before: str, after: str, changed: list[str]
) -> None:
    if sys.version_info >= (3, 12) and changed == ["<listcomp>"]:
        changed = ["<module>"]
    pairs = find_changed_codes(_compile(source), _compile(source.replace(before, after, 1)))
    assert [old.co_name for old, _ in pairs] == changed


@pytest.mark.parametrize(
    ("line", "lines"), [(1, [1]), (2, [2]), (3, [3, 4]), (4, [3, 4]), (6, [6, 7]), (7, [6, 7])]
)
def test_a_line_belongs_to_the_statement_or_the_head_that_it_is_part_of(
    line: int, lines: list[int]
) -> None:
    source = "def f():\n    a\n    if (a or\n        b):\n        c\n    return (a +\n        b)"
    assert list(find_statement(source, line)) == lines


PLANTED = """
DAYS = 7


def double(number: int) -> int:
    return number * 2


WEEKS = double(26)


def grade(points: int) -> str:
    if points < 50:
        return "fail"
    return "pass"


def count_down(start: int) -> int:
    steps = 0
    while start:
        start -= 1
        steps += 1
    return steps


def count_up() -> int:
    return 1
"""
WEAK = """
from planted.grade import DAYS, WEEKS, count_down, grade


def test_what_is_computed_at_import() -> None:
    assert (DAYS, WEEKS) == (7, 52)


def test_grade() -> None:
    assert (grade(10), grade(90)) == ("fail", "pass")


def test_count_down() -> None:
    assert count_down(4) == 4
"""
RUN = """
import json, sys
from pathlib import Path
import attrs
from tests.mutants.accepted import Accepted
from tests.mutants.rooms import Room
from tests.mutants.run import choose_mutants, run_room

root = Path(sys.argv[1])
room = Room(files=("planted/*.py",), tests=("tests",))
accepted = [Accepted(file="planted/grade.py", before="if points < 50:", after=("if points < 51:",), reason="planted")]
found = run_room(root, room, choose_mutants(root, room), accepted=accepted, least_seconds=2)
print(json.dumps(attrs.asdict(found["planted/grade.py"])))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each mutant runs in a fork")
class TestRun:
    """In a process of its own, since a pytest session has threads and has loaded what the tests should load anew."""

    def _run(self, root: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", RUN, str(root)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def _plant(self, root: Path, tests: str) -> None:
        for name, text in (
            ("planted/grade.py", PLANTED),
            ("planted/__init__.py", ""),
            ("tests/test_grade.py", tests),
        ):
            root.joinpath(name).parent.mkdir(exist_ok=True)
            root.joinpath(name).write_text(text)

    @pytest.mark.long
    def test_survivors_kills_and_endless_loops_of_a_weak_test_are_told_apart(
        self, tmp_path: Path
    ) -> None:
        self._plant(tmp_path, WEAK)
        done = self._run(tmp_path)
        assert done.stderr == ""
        found: dict[str, Any] = json.loads(done.stdout)
        assert [
            (each["file"], each["line"], each["operator"], each["after"])
            for each in found["survivors"]
        ] == [
            ("planted/grade.py", 13, "comparison", "if points <= 50:"),
            ("planted/grade.py", 13, "constant", "if points < 49:"),
            ("planted/grade.py", 27, "constant", "return 2"),
        ]
        # killed: a negated condition, a negated loop, a count from 1, `steps -= 1` and by 2, `start -= 2`, and seven
        # changes of what is computed at import; endless: `start += 1`
        assert {name: found[name] for name in ("mutants", "killed", "timeout", "accepted")} == {
            "mutants": 18,
            "killed": 13,
            "timeout": 1,
            "accepted": 1,
        }
        assert tmp_path.joinpath("planted/grade.py").read_text() == PLANTED

    @pytest.mark.long
    def test_tests_that_fail_without_a_mutant_are_refused(self, tmp_path: Path) -> None:
        self._plant(tmp_path, WEAK.replace("(4) == 4", "(4) == 5"))
        done = self._run(tmp_path)
        assert "BrokenTestsError" in done.stderr
        assert "assert 4 == 5" in done.stderr
