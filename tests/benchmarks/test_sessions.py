"""The benchmark of sessions, reduced: the default preset harms nothing, and what goes wrong is counted."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import benchmarks.sessions
from benchmarks.sessions import main, run_preset
from benchmarks.sessions_world import TROUBLES, Model, find_detail, make_tasks, make_trouble
from promptkit import ToolCall
from promptkit.providers.model import PURPOSE_HEADER
from promptkit.testing.server import Exchange, HttpAnswer

if TYPE_CHECKING:
    from promptkit.testing.server.journal import Answer

TASK = "Task 4: read src/a.py, src/b.py, and say when you have seen them."
LOOK = "Task 5: what is the detail of src/a.py?"


# Any stands for JSON
def answer(
    *messages: dict[str, Any],
    tools: tuple[str, ...] = ("read_file", "recall"),
    model: Model | None = None,
    purpose: str | None = None,
) -> Answer:
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    # Any stands for as above
    body: dict[str, Any] = {"model": "gpt-4.1", "messages": list(messages), "tools": offered}
    raw = json.dumps(body).encode()
    return (model or Model()).answer(
        Exchange(
            number=1,
            method="POST",
            path="/v1/chat/completions",
            headers={} if purpose is None else {PURPOSE_HEADER.lower(): purpose},
            client=("127.0.0.1", 1),
            raw=raw,
            body=body,
        )
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(name: str, result: str, **arguments: str) -> list[dict[str, Any]]:
    call = {
        "id": f"c{result}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": result, "tool_call_id": call["id"]},
    ]


def read(path: str) -> ToolCall:
    return ToolCall(id="", name="read_file", arguments=json.dumps({"path": path}))


@pytest.mark.slow
def test_the_default_preset_harms_nothing() -> None:
    figures = asyncio.run(run_preset("vscode", rounds=1))
    harm = (
        figures.invalid_requests,
        figures.silent_omissions,
        figures.wedged,
        figures.overflows,
        figures.lost,
        figures.repeated_tool_runs,
        figures.unfinished,
    )
    assert harm == (0, 0, 0, 0, 0, 0, 0)
    assert figures.longest_wait_over_limit == 0
    assert figures.details_dropped > 1
    assert figures.details_found == 1
    assert figures.compactions > 1
    assert min(figures.cached_share, figures.cached_share_anthropic) > 0.4


@pytest.mark.slow
def test_a_request_that_tells_the_model_nothing_of_what_it_leaves_out_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = asyncio.run(run_preset("truncate_only", rounds=1, troubles=["smaller"]))
    monkeypatch.setattr(benchmarks.sessions, "MARKER", re.compile("no marker"))
    untold = asyncio.run(run_preset("truncate_only", rounds=1, troubles=["smaller"]))
    assert (told.silent_omissions, told.wedged) == (0, 0)
    assert untold.silent_omissions > 0


@pytest.mark.long
def test_a_preset_that_does_not_compact_reports_its_overflows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["off", "--rounds", "1", "--trouble", "no_summaries", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["off"]
    assert found["overflows"] > 0
    assert found["wedged"] > 0
    assert found["lost"] == found["invalid_requests"] == 0


def test_the_model_repeats_a_call_that_its_request_does_not_show() -> None:
    assert answer(user(TASK)) == [read("src/a.py"), read("src/b.py")]
    assert answer(user(TASK), *called("read_file", "# src/a.py", path="src/a.py")) == [
        read("src/b.py")
    ]
    assert (
        answer(user("The files src/a.py, src/b.py were read."), user(TASK))
        == "Task 4 is done: I have seen 2 files."
    )
    assert answer(user(f"<requests>\n{TASK}\n</requests>"), user(TASK)) == [
        read("src/a.py"),
        read("src/b.py"),
    ]
    assert answer(user("Everything is fine.")) == "What should I do?"


def test_the_model_finds_a_detail_only_where_its_request_shows_it_or_the_way_to_it() -> None:
    detail = f"# src/a.py\nDETAIL = {find_detail('src/a.py')}"
    found = f"Task 5: it is {find_detail('src/a.py')}."
    crumb = user('look it up there: recall({"query": "a.py"})')
    searched = called(
        "recall",
        '[assistant, entry e2]\nread_file {"path": "src/a.py"} → entry e3',
        query="src/a.py",
    )
    page = called("recall", f"[result of read_file, entry e3]\n{detail}", entry="e3")

    assert answer(*called("read_file", detail, path="src/a.py"), user(LOOK)) == found
    assert answer(crumb, user(LOOK), tools=("read_file",)) == "Task 5: I do not know."
    assert answer(crumb, user(LOOK)) == [
        ToolCall(id="", name="recall", arguments='{"query": "src/a.py"}')
    ]
    assert answer(crumb, user(LOOK), *searched) == [
        ToolCall(id="", name="recall", arguments='{"entry": "e3"}')
    ]
    assert answer(crumb, user(LOOK), *searched, *page) == found


def test_the_model_reads_an_entry_on_whose_search_a_compaction_has_dropped() -> None:
    crumb = user(f'{LOOK} look it up there: recall({{"query": "a.py"}})')
    rest = called(
        "recall", '# src/a.py\n[there is more: recall({"entry": "e3", "page": 2})]', entry="e3"
    )
    assert answer(crumb, *rest) == [
        ToolCall(id="", name="recall", arguments='{"entry": "e3", "page": 2}')
    ]
    assert answer(*rest, crumb) == [  # of an earlier turn
        ToolCall(id="", name="recall", arguments='{"query": "src/a.py"}')
    ]


def test_the_script_has_all_that_goes_wrong() -> None:
    tasks = make_tasks(2)
    assert {task.before for task in tasks} == {None, "smaller", "larger", "compact", "branch"}
    assert max(len(task.paths) for task in tasks) > 4
    assert sum(task.wanted is not None for task in tasks) == 6


def test_each_kind_of_trouble_has_turns_that_follow_it() -> None:
    plans = {kind: make_trouble(kind) for kind in TROUBLES}
    assert not any(task.trouble for tasks in plans.values() for task in tasks[-3:])
    assert all(tasks[0].trouble for tasks in (plans["too_large"], plans["no_summaries"]))
    assert [task.number for task in plans["oversized"] if len(task.text) > 50_000] == [5]
    assert [task.trouble for task in plans["oversized"]].index(True) == 4
    assert [task.before for task in plans["smaller"] if task.before] == ["smaller"]
    assert any("src/picture" in path for task in plans["pictures"] for path in task.paths)


def test_trouble_has_its_faults_only_while_it_lasts() -> None:
    refusing = Model("too_large")
    assert answer(user(TASK), model=refusing) == [read("src/a.py"), read("src/b.py")]
    refusing.trouble = True
    answers = [answer(user(TASK), model=refusing) for _ in range(10)]
    assert [each.status for each in answers if isinstance(each, HttpAnswer)] == [413, 413]

    silent = Model("no_summaries")
    silent.trouble = True
    asked = [answer(user(TASK), model=silent, purpose="compaction") for _ in range(2)]
    assert isinstance(asked[0], str)
    assert "cannot help" in asked[0]
    assert isinstance(asked[1], HttpAnswer)
    assert answer(user(TASK), model=silent) == [read("src/a.py"), read("src/b.py")]
    silent.trouble = False
    summary = answer(user(TASK), model=silent, purpose="compaction")
    assert isinstance(summary, str)
    assert "<summary>" in summary
