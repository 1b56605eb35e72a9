"""`transcript`, `import`, `export` and `replay` with the URLs of conversations in databases and object storage."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from promptkit import JsonlStore, Message, Transcript
from promptkit.cli.main import main
from promptkit.transcript import open_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    transcript = Transcript(JsonlStore(tmp_path / "talk.jsonl"))
    transcript.append_messages(Message(role="user", content=("What does the parser do?",)))
    transcript.append_messages(Message(role="assistant", content=("Nothing yet.",)))
    return tmp_path / "talk.jsonl"


@pytest.fixture(
    params=["sqlite:///{folder}/talks.db", "file://{folder}/talks"], ids=["sqlite", "objects"]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    pattern: str = request.param
    return pattern.format(folder=tmp_path)


def test_a_conversation_goes_into_a_store_and_out_of_it_again(
    file: Path, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{place}#my%20talk"
    assert main(["import", str(file), "-o", url]) == 0
    assert f"2 entries written to {url}." in capsys.readouterr().out
    assert open_store(url).load().entries == JsonlStore(file).load().entries
    assert main(["transcript", "list", place]) == 0
    assert capsys.readouterr().out == f"{url}\n"
    assert main(["transcript", "show", url]) == 0
    assert "2 entries, 1 branch" in capsys.readouterr().out
    assert main(["transcript", "grep", "-i", "PARSER", url]) == 0
    assert capsys.readouterr().out.endswith(":user: What does the parser do?\n")
    assert main(["transcript", "validate", url]) == 0
    assert capsys.readouterr().out == f"{url}: 2 entries, no problems\n"
    assert main(["transcript", "stats", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["roles"] == {"user": 1, "assistant": 1}
    assert main(["export", url, "--to", "chat"]) == 0
    assert [message["content"] for message in json.loads(capsys.readouterr().out)] == [
        "What does the parser do?",
        "Nothing yet.",
    ]
    assert main(["import", url, "-o", str(tmp_path / "back.jsonl")]) == 0
    assert JsonlStore(tmp_path / "back.jsonl").load().entries == JsonlStore(file).load().entries


def test_a_replay_of_a_url_has_the_figures_of_the_file(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/talks.db#1"
    assert main(["import", str(file), "-o", url]) == 0
    figures: list[object] = []
    capsys.readouterr()
    for recording in (str(file), url):
        assert main(["replay", recording, "--policy", "trim_last", "--json"]) == 0
        (result,) = json.loads(capsys.readouterr().out)["files"]
        assert result.pop("file") == recording
        figures.append(result)
    assert figures[0] == figures[1]


def test_a_conversation_is_never_replaced(
    file: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(file), "-o", f"{place}#1"]) == 0
    for more, why in (
        ([], "already has entries, which are never replaced"),
        (["--force"], "--force replaces files, and no conversation"),
    ):
        assert main(["import", str(file), "-o", f"{place}#1", *more]) == 2
        error = capsys.readouterr().err
        assert why in error
        assert error.count("\n") == 1
    assert len(open_store(f"{place}#1").load().entries) == 2


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ["transcript", "show", "sqlite:///none.db#1"],
            "there is no such conversation, or it has no entries",
        ),
        (
            ["transcript", "stats", "sqlite:///none.db"],
            "no conversation is named: write its id after the URL",
        ),
        (
            ["transcript", "grep", "x", "mongodb://host/name#1"],
            "mongodb:// is no store of transcripts",
        ),
        (["transcript", "list", "none"], "there is no folder none"),
        (["export", "sqlite:///none.db#1", "--to", "chat"], "there is no such conversation"),
        (
            ["export", "x.jsonl", "--to", "chat", "-o", "sqlite:///none.db#1"],
            "export writes files: `promptkit import FILE -o URL`",
        ),
        (["replay", "postgresql://127.0.0.1:1/none#1"], "cannot be read: "),
    ],
)
def test_what_is_wrong_with_a_url_is_said_in_one_line(
    arguments: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "and nothing was created"


@pytest.mark.parametrize(
    ("library", "url", "hint"),
    [
        (
            "sqlalchemy",
            "sqlite:///a.db#1",
            "needs SQLAlchemy: run `pip install 'sqlalchemy>=2.0'`, or `pip install '.[sql]'` in a checkout",
        ),
        (
            "psycopg",
            "postgresql://nobody@h/a#1",
            "needs psycopg: run `pip install 'psycopg[binary]>=3.2'`, or `pip install '.[postgres]'`",
        ),
        (
            "obstore.store",
            "s3://a/b#1",
            "needs obstore: run `pip install 'obstore>=0.8'`, or `pip install '.[objects]'` in a checkout",
        ),
    ],
)
def test_a_library_that_is_missing_is_named_with_how_to_install_it(
    library: str,
    url: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["transcript", "show", url]) == 2
    assert hint in capsys.readouterr().err
