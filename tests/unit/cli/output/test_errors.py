"""A failure in one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from promptkit import Template, render
from promptkit.cli.output.errors import explain_failure
from promptkit.errors import PromptKitError
from promptkit.tokens import parse_tokens

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def failure(code: str, path: Path, **names: object) -> BaseException:
    path.write_text(code, encoding="utf-8")
    try:
        exec(compile(code, str(path), "exec"), names)  # noqa: S102  # the code is the test's own
    except Exception as error:  # noqa: BLE001  # any failure is looked at
        return error
    raise AssertionError(code)


def test_points_at_the_users_line(tmp_path: Path) -> None:
    path = tmp_path / "prompt.py"
    assert (
        explain_failure(failure("x = 1\nx.upper()", path))
        == f"{path}:2: AttributeError: 'int' object has no attribute 'upper'"
    )


def test_points_at_the_users_line_when_a_library_raised(tmp_path: Path) -> None:
    path = tmp_path / "prompt.py"
    assert explain_failure(failure("import json\n\njson.loads('{')", path)).startswith(
        f"{path}:3: json.decoder.JSONDecodeError: "
    )


def test_an_error_raised_on_purpose_needs_no_class(tmp_path: Path) -> None:
    path = tmp_path / "prompt.py"
    assert (
        explain_failure(failure("raise Refused('No\\n  room.')", path, Refused=PromptKitError))
        == f"{path}:1: No room."
    )
    assert explain_failure(PromptKitError("No room.")) == "No room."


def test_a_syntax_error_has_the_place_of_the_code(tmp_path: Path) -> None:
    path = tmp_path / "prompt.py"
    assert (
        explain_failure(failure("x = (\n", path)) == f"{path}:1: SyntaxError: '(' was never closed"
    )


def test_of_a_group_the_first_is_said_with_its_notes(tmp_path: Path) -> None:
    inner = ValueError("bad")
    inner.add_note("in Prompt > Page")
    group = ExceptionGroup("several", [ExceptionGroup("some", [inner]), KeyError("x")])
    assert (
        explain_failure(failure("raise group", tmp_path / "p.py", group=group))
        == "ValueError: bad (in Prompt > Page)"
    )


def test_a_path_below_the_current_folder_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        explain_failure(failure("1 / 0", tmp_path / "prompt.py"))
        == "prompt.py:1: ZeroDivisionError: division by zero"
    )


def explain_template(text: str, folder: Path, **values: object) -> str:
    """Render a template as a component of the user does, and explain the failure."""
    (folder / "page.j2").write_text(text, encoding="utf-8")
    prompt = Template(file=folder / "page.j2", values=values)
    return explain_failure(
        failure(
            "\n\nrender(prompt, budget=100)", folder / "prompt.py", render=render, prompt=prompt
        )
    )


def test_an_error_in_a_template_names_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in (
        '{% user priority="high" %}\na\n{% enduser %}',
        "{% user %}{{ name }}{% enduser %}",
        "{% user %}{{ }}{% enduser %}",
    ):
        explained = explain_template(text, tmp_path)
        assert explained.startswith("page.j2:1: ")
        assert re.findall(r"[\w./]+\.\w+:\d+", explained) == ["page.j2:1"]


def test_an_error_in_a_function_that_a_template_calls_names_the_line_of_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    explained = explain_template("{% user %}\n{{ fail('a') }}{% enduser %}", tmp_path, fail=int)
    assert explained.startswith("page.j2:2: ValueError: invalid literal for int()")


def test_an_error_that_passes_through_a_template_has_the_line_of_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    explained = explain_template(
        "{% user %}\n\n{{ parse('8x') }}{% enduser %}", tmp_path, parse=parse_tokens
    )
    assert explained.startswith("page.j2:3: invalid token count '8x'")
