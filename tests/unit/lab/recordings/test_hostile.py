"""Recordings that somebody damaged, or made to do damage: they are read as far as can be, and what cannot be is told."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.lab.recordings.exporting import encode_transcript
from promptkit.lab.recordings.importing import import_recording
from promptkit.lab.recordings.reading.values import MAX_DEPTH
from promptkit.transcript.stores.jsonl.reader import StoredEntry, TranscriptReader
from tests.examples import examples
from tests.fuzz.mutations import damaged, mutated
from tests.unit.lab.recordings.samples import (
    CHAT,
    CLAUDE,
    SAMPLES,
    Read,
    answer,
    lines,
    packed,
    read_text,
    result,
    user,
)

LINES = ("claude_code", "pi", "codex")
BY_LINE = (*LINES, "openai_chat_lines")
TEXTS = tuple(name for name in SAMPLES if name not in LINES)


@st.composite
def mutated_sample(draw: st.DrawFn, name: str) -> bytes:
    """A sample in which values were exchanged, left out or repeated."""
    parts: list[Any] = (
        [json.loads(line) for line in SAMPLES[name][1].splitlines()]
        if name in BY_LINE
        else [json.loads(SAMPLES[name][1])]
    )
    changed: list[Any] = draw(mutated(parts))
    return "".join(json.dumps(part) + "\n" for part in changed or [[]]).encode()


def survived(data: bytes, codec: str) -> Read | None:
    """The recording, in full or as far as it could be read; written and read again.

    None where it was refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = read_text(Path(folder), data, codec)
        except TranscriptError:
            return None
        assert made.counts.messages >= 0
        out = Path(folder) / "out.jsonl"
        out.write_bytes(b"".join(encode_transcript(made.entries)))
        stored = list(TranscriptReader(out))
        assert [item.entry.id for item in stored if isinstance(item, StoredEntry)] == [
            entry.id for entry in made.entries
        ]
        assert len(stored) == len(made.entries)
        return made


def unread(data: bytes) -> int:
    """The lines that are no JSON object."""
    count = 0
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.strip():
            try:
                count += not isinstance(json.loads(line.decode(errors="replace")), dict)
            except ValueError:
                count += 1
    return count


SLOW = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", SAMPLES)
@SLOW
@given(data=st.data())
def test_a_mutated_recording_is_read(name: str, data: st.DataObject) -> None:
    content = data.draw(mutated_sample(name))
    made = survived(content, SAMPLES[name][0])
    assert made is not None
    if name in LINES:
        assert made.counts.skipped_lines == unread(content)
        assert made.counts.messages + made.counts.skipped_lines <= len(content.splitlines())
    survived(content, "auto")


@pytest.mark.parametrize("name", SAMPLES)
@SLOW
@given(data=st.data())
def test_a_damaged_recording_is_read_as_far_as_can_be(name: str, data: st.DataObject) -> None:
    content = data.draw(damaged(SAMPLES[name][1].encode()))
    made = survived(content, SAMPLES[name][0])
    # or it says that it is compressed, and is not
    if name in LINES and not content.startswith(b"\x1f\x8b"):
        assert made is not None
        assert made.counts.skipped_lines == unread(content)


class TestOneByOne:
    @pytest.mark.parametrize("name", LINES)
    def test_a_line_that_is_cut_short_costs_that_line_alone(
        self, name: str, tmp_path: Path
    ) -> None:
        whole = read_text(tmp_path, SAMPLES[name][1]).counts
        cut = read_text(tmp_path, SAMPLES[name][1] + SAMPLES[name][1][:40]).counts
        assert (cut.messages, cut.skipped_lines) == (whole.messages, 1)

    @pytest.mark.parametrize("name", LINES)
    def test_blank_lines_are_none(self, name: str, tmp_path: Path) -> None:
        spaced = "\n \n" + SAMPLES[name][1].replace("\n", "\n\r\n\t\n")
        assert read_text(tmp_path, spaced).counts == read_text(tmp_path, SAMPLES[name][1]).counts

    @pytest.mark.parametrize("name", TEXTS)
    def test_a_text_that_is_cut_short_gives_what_came_before(
        self, name: str, tmp_path: Path
    ) -> None:
        content = SAMPLES[name][1].rstrip()
        made = read_text(tmp_path, content[:-1], SAMPLES[name][0])
        assert made.counts.messages == read_text(tmp_path, content).counts.messages
        assert made.counts.skipped_lines == 1
        assert "the rest of the file could not be read" in made.problems[0]

    def test_a_compressed_file_that_is_cut_short_gives_what_came_before(
        self, tmp_path: Path
    ) -> None:
        noise = lines([user(f"u{number}", None, f"{number**50}") for number in range(3_000)])
        made = read_text(tmp_path, packed(noise)[:-200])
        assert 0 < made.counts.messages < 3_000
        assert made.counts.skipped_lines == 1

    @pytest.mark.slow
    def test_deep_json_is_kept_as_text(self, tmp_path: Path) -> None:
        for depth in (MAX_DEPTH + 5, 100_000):
            deep = "[" * depth + "]" * depth
            made = read_text(
                tmp_path, lines(CLAUDE[1:2]) + f'{{"type": "user", "uuid": "d", "x": {deep}}}\n'
            )
            assert (made.counts.messages, made.counts.skipped_lines, made.problems) == (
                1,
                1,
                ["nested too deeply."],
            )
            chat = json.dumps(CHAT)[:-1]
            assert read_text(tmp_path, f"{chat}, {deep}]").counts.skipped_lines == 1
            assert survived(
                f'{chat}, {{"role": "user", "content": "a", "x": {"[" * 150 + "]" * 150}}}]'.encode(),
                "auto",
            )

    def test_numbers_that_json_does_not_have_become_text(self, tmp_path: Path) -> None:
        line = '{"type": "user", "uuid": "u", "parentUuid": null, "a": NaN, "b": -Infinity, "c": 1e999, "message": {"role": "user", "content": "x"}}'
        made = survived(line.encode(), "auto")
        assert made is not None
        assert '{"a": "NaN", "b": "-Infinity", "c": "1e999"}' in json.dumps(
            [getattr(entry.payload, "data", None) for entry in made.entries]
        )
        assert survived(
            b'[{"role": "user", "content": "x", "n": 1e999, "m": 123456789012345678901234567890}]',
            "auto",
        )

    def test_a_number_of_too_many_digits_costs_its_line(self, tmp_path: Path) -> None:
        digits = "9" * (sys.get_int_max_str_digits() + 1)
        made = read_text(tmp_path, lines(CLAUDE[1:2]) + f'{{"type": "user", "n": {digits}}}\n')
        assert (made.counts.messages, made.counts.skipped_lines) == (1, 1)

    def test_what_is_no_utf_8_becomes_replacement_characters(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, b'[{"role": "user", "content": "a\xffb\xe2\x80"}]')
        assert made.shown[0].text == "a\ufffdb\ufffd"
        made = read_text(tmp_path, lines([user("u1", None, "a@b")]).encode().replace(b"@", b"\xff"))
        assert made.shown[0].text == "a\ufffdb"

    def test_a_byte_order_mark_inside_a_file_costs_its_line_with_the_stored_reason(
        self, tmp_path: Path
    ) -> None:
        first, second = lines([user("u1", None, "a")]), lines([user("u2", "u1", "b")])
        made = read_text(tmp_path, f"{first}\ufeff{second}")
        assert made.problems == [
            "no JSON: Unexpected UTF-8 BOM (decode using utf-8-sig) at column 1."
        ]

    def test_other_line_breaks_do_not_end_a_line(self, tmp_path: Path) -> None:
        content = json.dumps(user("u1", None, "a\u2028b\x85c"), ensure_ascii=False)
        assert read_text(tmp_path, content).shown[0].text == "a\u2028b\x85c"

    def test_one_id_for_everything_is_survived(self, tmp_path: Path) -> None:
        same = [
            user("x", "x", "a"),
            answer("x", "x", "m", {"type": "tool_use", "id": "", "name": "", "input": 1}),
            user("x", "x", result("")),
        ]
        made = read_text(tmp_path, lines(same * 20))
        assert (made.counts.messages, made.counts.tool_calls) == (41, 20)

    def test_a_folder_and_a_missing_file_are_refused_in_a_line(self, tmp_path: Path) -> None:
        for path, message in (
            (tmp_path, "is a directory"),
            (tmp_path / "nothing", "there is no file"),
        ):
            with pytest.raises(TranscriptError, match=message):
                import_recording(path)
        with pytest.raises(TranscriptError, match="there is no format 'x'"):
            read_text(tmp_path, "", "x")
        with pytest.raises(TranscriptFormatError, match="damaged or cut short"):
            read_text(tmp_path, packed("x")[:12])
