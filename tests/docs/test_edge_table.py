"""docs/edge-cases.md names a test for every edge case, or says why there is none.

`PROMPTKIT_DOCS=write` writes its last column anew.
"""

from __future__ import annotations

import ast
import os
import re

from tests.paths import ROOT

PAGE = ROOT / "docs" / "edge-cases.md"
CASES = range(1, 113)
NONE = "none"
"""Stands in the last column of a case that does not concern a library."""


def marked_tests() -> dict[int, list[str]]:
    """The tests that are marked with each case (`@pytest.mark.spec("E20")`), in the order of their names."""
    found: dict[int, set[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "mark.spec(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for number in (
                    number
                    for decorator in node.decorator_list
                    for number in spec_numbers(decorator)
                ):
                    if number.startswith("E"):
                        found.setdefault(int(number[1:]), set()).add(node.name)
    return {number: sorted(names) for number, names in found.items()}


def spec_numbers(decorator: ast.expr) -> list[str]:
    """The numbers of a marker; none of another decorator."""
    if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != "pytest.mark.spec":
        return []
    return [
        str(argument.value) for argument in decorator.args if isinstance(argument, ast.Constant)
    ]


def rows() -> dict[int, tuple[str, str, str]]:
    """Of each case: what could go wrong, what is done, the tests."""
    found: dict[int, tuple[str, str, str]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"\| E(\d+) \| ([^|]*) \| ([^|]*) \| ?([^|]*) ?\|", line):
            assert int(match[1]) not in found, f"E{match[1]} has two rows"
            found[int(match[1])] = match[2].strip(), match[3].strip(), match[4].strip()
    return found


def cell(names: list[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names) or NONE


def write(tests: dict[int, list[str]]) -> None:
    def line(match: re.Match[str]) -> str:
        return f"{match[1]} {cell(tests.get(int(match[2]), []))} |"

    text = re.sub(
        r"^(\| E(\d+) \| [^|\n]* \| [^|\n]* \|)[^|\n]*\|$",
        line,
        PAGE.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    PAGE.write_text(text, encoding="utf-8")


def test_every_edge_case_has_a_row_that_says_what_is_done_about_it() -> None:
    table = rows()

    assert sorted(table) == list(CASES)
    assert list(table) == sorted(table)
    assert all(wrong and done for wrong, done, _ in table.values())


def test_the_tests_of_the_table_are_those_that_are_marked_with_its_cases() -> None:
    tests, table = marked_tests(), rows()
    stale = [
        f"E{number}"
        for number in sorted({*CASES, *tests})
        if table.get(number, ("", "", ""))[2] != cell(tests.get(number, []))
    ]
    if stale and os.environ.get("PROMPTKIT_DOCS") == "write":
        write(tests)

    assert not stale, (
        "PROMPTKIT_DOCS=write pytest tests/docs/test_edge_table.py writes the tests of these anew: "
        + ", ".join(stale)
    )
