"""Text that a tool result repeats of earlier entries is stored by reference, and every reader of the view sees it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from promptkit import JsonlStore, Message, ToolCall, Transcript
from promptkit.agent.window.window import ContextWindow
from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.recall.tool import recall
from promptkit.compaction.summarizers.summarizer import collect_dropped_messages, updated_facts
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.entries import Edit, Entry, MessageEntry
from promptkit.transcript.log.quotes import QUOTE_MARK, quote_sources, restore_quotes
from promptkit.transcript.log.view import ViewBuilder, build_view
from promptkit.transcript.stores.store import InMemoryStore
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from promptkit.transcript.stores.store import TranscriptStore

LONG = "\n".join(f"line {number} of the parser, with error {number * 7919}" for number in range(40))
SHOWN = f"[result of read_file, entry e3]\n{LONG[:900]}\n\n[there is more: recall({{}})]"


def result(call: str, text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id=call)


def call(call_id: str, name: str) -> Message:
    return Message(
        role="assistant",
        tool_calls=[ToolCall(id=call_id, name=name, arguments='{"path": "parser.py"}')],
    )


def looked_back(store: TranscriptStore | None = None) -> Transcript:
    """A conversation in which the model has read a file, and has looked back at the result."""
    ids = itertools.count(1)
    transcript = Transcript(store, clock=lambda: 0.0, new_id=lambda: f"e{next(ids)}")
    transcript.append_messages(Message(role="user", content="Read it."))
    transcript.append_messages(call("c1", "read_file"), result("c1", LONG))
    transcript.append_messages(call("c2", "mcp__talk__recall"))
    transcript.append_messages(result("c2", SHOWN))
    return transcript


def shown(transcript: Transcript) -> str:
    return build_view(transcript.path()).messages[4].text


def test_a_look_back_is_stored_by_reference_and_shown_in_full_also_after_loading(
    tmp_path: Path,
) -> None:
    file = tmp_path / "talk.jsonl"
    transcript = looked_back(JsonlStore(file))
    stored = transcript.get("e5").payload
    assert isinstance(stored, MessageEntry)
    assert (
        stored.message.text
        == f"[result of read_file, entry e3]\n{QUOTE_MARK}\n\n[there is more: recall({{}})]"
    )
    assert LONG[800:900] not in file.read_text().splitlines()[-1]
    again = Transcript(JsonlStore(file))
    assert again.path() == transcript.path()
    assert shown(again) == shown(transcript) == SHOWN
    assert shown(transcript.fork(InMemoryStore())) == SHOWN


def test_what_is_appended_later_does_not_change_an_earlier_look_back() -> None:
    transcript, builder = looked_back(), ViewBuilder()
    assert builder.build(transcript.path()[:4]).messages
    assert builder.build(transcript.path()).messages[4].text == SHOWN
    transcript.append_messages(Message(role="user", content=f"[user, entry e3]\n{LONG}"))
    transcript.append(Edit(target="e3", content=("[pruned]",), reason="pruned"))
    assert builder.build(transcript.path()) == build_view(transcript.path())
    assert shown(transcript) == SHOWN


def test_a_redaction_reaches_the_look_backs_that_repeat_the_entry() -> None:
    transcript = looked_back()
    transcript.append(Edit(target="e3", content=("[redacted]",), reason="redacted"))
    assert "error" not in shown(transcript).replace("recall", "")


def test_a_quote_whose_entry_is_missing_stays_a_mark() -> None:
    assert QUOTE_MARK in build_view(looked_back().path()[3:]).messages[1].text


def test_a_program_that_passes_its_whole_list_continues_the_same_branch() -> None:
    window = ContextWindow(
        model="m", transcript=looked_back(), budget=50_000, tokenizer=WordTokenizer()
    )
    messages = window.view.messages
    assert window.sync(messages) == []
    assert [
        entry.message for entry in window.sync([*messages, Message(role="user", content="Go on.")])
    ] == [Message(role="user", content="Go on.")]
    assert len(window.transcript.leaves()) == 1


def test_a_summarizer_is_given_the_references_and_facts_do_not_repeat_what_was_read_back() -> None:
    transcript = looked_back()
    items = build_view(transcript.path()).items
    task = SummaryTask(plan=Plan(leaf="e5", dropped=items), max_tokens=100)
    assert [LONG[:900] in message.text for message in collect_dropped_messages(task)] == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert not updated_facts(task).errors
    assert not updated_facts(task).commands


def read_back(file: Path, change: Callable[[str], str] = str, times: int = 1) -> Transcript:
    """A conversation whose model reads the transcript's own file with another tool."""
    transcript = looked_back(JsonlStore(file))
    for number in range(times):
        transcript.append_messages(call(f"r{number}", "read_file"))
        text = change(file.read_text(encoding="utf-8"))
        transcript.append_messages(result(f"r{number}", text))
        assert build_view(transcript.path()).messages[-1].text == text
        assert build_view(Transcript(JsonlStore(file)).path()).messages[-1].text == text
    return transcript


def number_lines(text: str) -> str:
    return "".join(f"{at:6}\t{line}" for at, line in enumerate(text.splitlines(keepends=True), 1))


def name_the_file(text: str) -> str:
    return "".join(f"talk.jsonl:{line}\n" for line in text.split("\n"))


def cut(text: str) -> str:
    return f"{text[:2_500]}\n[The rest is left out.]"


def cut_lines(text: str) -> str:
    return "\n".join(f"{line[:1_000]}…" for line in text.split("\n"))


@pytest.mark.parametrize("change", [str, number_lines, name_the_file, cut, cut_lines])
def test_lines_of_the_file_that_another_tool_reads_are_stored_by_reference(
    tmp_path: Path, change: Callable[[str], str]
) -> None:
    transcript = read_back(tmp_path / "talk.jsonl", change)
    stored = transcript.path()[-1].payload
    assert isinstance(stored, MessageEntry)
    assert {quote.of for quote in stored.quotes} == {"line"}
    assert "error 7919" not in stored.message.text


def test_reading_the_file_again_and_again_does_not_double_it(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    sizes: list[int] = []
    for times in (1, 6):
        file.unlink(missing_ok=True)
        read_back(file, times=times)
        sizes.append(file.stat().st_size)
    assert sizes[1] < 5 * sizes[0]  # and not 32 times it


def test_what_stands_beside_a_line_of_the_file_is_found_by_recall(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    transcript = read_back(
        file, lambda text: f"src/kumquat.py: {'x' * 4_000}\n{text.splitlines()[3]}"
    )
    read_back_whole = recall(transcript.path(), {"pattern": r"kumquat|error 7919\b"})
    assert read_back_whole.count("src/kumquat.py") == 1
    assert read_back_whole.count("error 7919") == 1


def test_a_line_of_an_entry_that_was_redacted_since_is_not_shown(tmp_path: Path) -> None:
    transcript = read_back(tmp_path / "talk.jsonl")
    transcript.append(Edit(target="e3", content=("[redacted]",), reason="redacted"))
    assert "error 7919" not in build_view(transcript.path()).messages[-1].text


def test_lines_that_only_look_like_those_of_the_file_stay_as_they_are() -> None:
    transcript = looked_back()
    text = "\n".join(
        f'{{"id":"{name}","parent_id":null,"kind":"message","time":1.0,"data":{{"x":"{"y" * 300}"}}}}'
        for name in ("e1", "e3", "nowhere")
    )
    transcript.append_messages(call("r", "read_file"))
    transcript.append_messages(result("r", text))
    assert transcript.path()[-1].message == result("r", text)


@settings(max_examples=examples(100))
@given(st.data())
def test_a_quoted_text_is_restored_exactly(data: st.DataObject) -> None:
    letters = st.text(st.sampled_from("ab…[] \n\r\u2028"), max_size=60)
    sources = {f"e{at}": (data.draw(letters) * data.draw(st.integers(1, 20))) for at in range(3)}
    entries = {
        name: Entry(
            id=name,
            parent_id=None,
            time=0.0,
            payload=MessageEntry(message=Message(role="user", content=text)),
        )
        for name, text in sources.items()
    }
    pieces = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["e0", "e1", "e2", "e9"]),
                st.integers(0, 400),
                st.integers(0, 1200),
                letters,
            ),
            max_size=4,
        )
    )
    text = data.draw(letters) + "\n\n".join(
        f"[user, entry {name}]\n{junk}{''.join(sources.get(name, '').splitlines(keepends=True))[start:end]}"
        for name, start, end, junk in pieces
    )
    message = result("c", text)
    entry = quote_sources(message, entries.get)
    assert restore_quotes(entry, entries.get) == message
    assert attrs.evolve(entry, quotes=()).message.text.count(QUOTE_MARK) >= len(entry.quotes)
