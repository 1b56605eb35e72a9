from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest

from promptkit.compaction.pruning.offload import offload_results
from promptkit.messages import ImagePart, Message, Part, ToolCall
from promptkit.testing import WordTokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.compaction.pruning.messages import Reduction

TOKENIZER = WordTokenizer()
LARGE = "a line of text\n" * 1_000


class Letters(WordTokenizer):
    """Lets any pointer cost less than any output."""

    def count(self, text: str) -> int:
        return 1 if text.startswith("[This output") else len(text)


def rounds(
    *content: Part, name: str = "read", arguments: str = "{}", call: str = "c"
) -> tuple[Message, Message]:
    made = Message(
        role="assistant", tool_calls=(ToolCall(id=call, name=name, arguments=arguments),)
    )
    return made, Message(role="tool", content=content, tool_call_id=call)


def offload(folder: Path, *messages: Message, exempt: tuple[str, ...] = ()) -> Reduction:
    return offload_results(messages, folder, tokenizer=TOKENIZER, exempt=exempt)


def test_a_large_result_is_in_a_file_and_the_conversation_says_where(tmp_path: Path) -> None:
    done = offload(tmp_path, *rounds(LARGE))
    (file,) = tmp_path.iterdir()
    assert file.read_text(encoding="utf-8") == LARGE
    assert (
        done.messages[1].text
        == f"[This output has 15,000 characters in 1,001 lines. It is in the file {file}: read there what you need.]"
    )
    assert done.messages[1].tool_call_id == "c"
    assert [(change.index, change.kind) for change in done.changes] == [(1, "offloaded")]
    assert done.tokens_after < done.tokens_before


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("x y" * 2_731, True),
        ("x " * 4_096, False),
        ("x " * 4_097, True),
        ("é " * 2_731, True),
        ("é " * 2_730, False),
        ("small", False),
    ],
)
def test_a_result_is_moved_above_eight_kibibytes(tmp_path: Path, text: str, moved: bool) -> None:
    assert (len(text.encode()) > 8_192) is moved
    assert bool(offload(tmp_path, *rounds(text)).changes) is moved


def test_the_same_result_is_the_same_file_at_any_time(tmp_path: Path) -> None:
    once = offload(tmp_path, *rounds(LARGE))
    assert offload(tmp_path, *rounds(LARGE)).messages == once.messages
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/abs/olute",
        "a\\b",
        "..",
        ".",
        "",
        "con",
        "-rf",
        "é" * 300,
        "x" * 300,
        "a b;rm -rf ~",
        "$(id)",
        "\x00\n",
    ],
)
def test_a_files_name_leads_nowhere_else_whatever_the_tool_is_called(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "inside"
    offload(folder, *rounds(LARGE, name=name))
    (file,) = folder.iterdir()
    assert list(tmp_path.iterdir()) == [folder]
    assert re.fullmatch(r"\w[\w-]{0,39}-[0-9a-f]{16}\.txt", file.name, re.ASCII)


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "inside", tmp_path / "outside.txt"
    offload(folder, *rounds(LARGE))
    (file,) = folder.iterdir()
    file.unlink()
    outside.write_text("mine", encoding="utf-8")
    file.symlink_to(outside)
    offload(folder, *rounds(LARGE))
    assert outside.read_text(encoding="utf-8") == "mine"
    assert not file.is_symlink()
    assert file.read_text(encoding="utf-8") == LARGE


def test_a_link_that_looks_like_the_file_is_replaced(tmp_path: Path) -> None:
    folder, outside = tmp_path / "inside", tmp_path / "outside.txt"
    text = ("a " * 2_000)[: len(str(outside))]  # a link is as long as the path that it holds
    offload_results(rounds(text), folder, tokenizer=Letters(), max_inline_bytes=10)
    (file,) = folder.iterdir()
    file.rename(outside)
    file.symlink_to(outside)
    offload_results(rounds(text), folder, tokenizer=Letters(), max_inline_bytes=10)
    assert not file.is_symlink()


@pytest.mark.parametrize("tampered", ["half", LARGE.replace("t", "T", 1)])
def test_a_file_that_was_tampered_with_is_written_anew(tmp_path: Path, tampered: str) -> None:
    offload(tmp_path, *rounds(LARGE))
    (file,) = tmp_path.iterdir()
    file.write_text(tampered, encoding="utf-8")
    offload(tmp_path, *rounds(LARGE))
    assert file.read_text(encoding="utf-8") == LARGE


def test_a_result_whose_file_cannot_be_written_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        done = offload(tmp_path / "file", *rounds(LARGE))
    assert done.messages == rounds(LARGE)
    assert done.changes == ()
    assert "stays in the conversation" in caplog.text


def test_nothing_is_left_behind_where_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert offload(tmp_path, *rounds(LARGE)).messages == rounds(LARGE)
    assert list(tmp_path.iterdir()) == []


def test_exempt_tools_and_what_is_no_result_stay(tmp_path: Path) -> None:
    talk = (
        Message(role="system", content=(LARGE,)),
        Message(role="user", content=(LARGE,)),
        Message(role="assistant", content=(LARGE,)),
        *rounds(LARGE, name="memory"),
    )
    assert offload(tmp_path / "folder", *talk, exempt=("memory",)).messages == talk
    assert not (tmp_path / "folder").exists()


@pytest.mark.spec("E80")
@pytest.mark.parametrize(
    "arguments",
    [
        '{{"path": "{file}"}}',
        '{{"path": "somewhere/{name}"}}',
        '{{"command": "grep x {folder}/*"}}',
    ],
)
def test_what_was_read_back_from_the_folder_is_not_put_there_again(
    tmp_path: Path, arguments: str
) -> None:
    offload(tmp_path, *rounds(LARGE))
    (file,) = tmp_path.iterdir()
    talk = rounds(
        LARGE + "more", arguments=arguments.format(file=file, name=file.name, folder=tmp_path)
    )
    assert offload(tmp_path, *talk).messages == talk
    # the id belongs to another call now
    again = offload(tmp_path, *talk, *rounds(LARGE + "other", call="c"))
    assert [change.index for change in again.changes] == [3]


def test_images_in_a_result_stay(tmp_path: Path) -> None:
    image = ImagePart(url="https://example.com/x.png")
    done = offload(tmp_path, *rounds(image, LARGE, image, LARGE)).messages[1]
    assert [type(part) for part in done.content] == [ImagePart, str, ImagePart]
    (file,) = tmp_path.iterdir()
    assert file.read_text(encoding="utf-8") == LARGE + LARGE


def test_text_that_is_no_unicode_is_written_readably(tmp_path: Path) -> None:
    offload(tmp_path, *rounds("\ud83d " * 9_000))
    (file,) = tmp_path.iterdir()
    assert file.read_text(encoding="utf-8").startswith("\\ud83d \\ud83d")


def test_a_result_of_one_word_costs_less_than_a_pointer(tmp_path: Path) -> None:
    assert offload(tmp_path, *rounds("x" * 9_000)).changes == ()
    assert list(tmp_path.iterdir()) == []
