"""Attachments of a user message: what a file is, how long texts are shortened, and what is refused before anything is written."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import ContextBudget, DocumentPart, ImagePart
from promptkit.agent import TextAttachment
from promptkit.agent.session.session import AgentSession
from promptkit.agent.sync import SyncSession
from promptkit.errors import InvalidArgumentError, NoPendingMessageError
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens.images import read_dimensions

if TYPE_CHECKING:
    from promptkit.messages import Part

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def session(window: int = 1_000) -> AgentSession:
    return AgentSession(
        model=ScriptedModel(["I see."]),
        budget=ContextBudget(window=window, reserved_output_tokens=0),
        tokenizer=WordTokenizer(),
    )


# Any stands for also what is refused
def sent(each: AgentSession, content: str = "Look at this.", *attached: Any) -> tuple[Part, ...]:
    asyncio.run(each.run(content, attachments=attached))
    assert isinstance(each.model, ScriptedModel)
    return each.model.requests[0].messages[-1].content


def write(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_a_text_file_stands_behind_the_message_with_its_path(tmp_path: Path) -> None:
    path = write(tmp_path, "notes.txt", "one\r\ntwo\n</attachment> three\n")
    parts = sent(session(), "Look at this.", path)
    assert "".join(map(str, parts)) == (
        f'Look at this.\n\n<attachment path="{path}">\none\ntwo\n<\\/attachment> three\n</attachment>'
    )


def test_a_text_with_a_name_is_attached_as_a_file_is(tmp_path: Path) -> None:
    path = write(tmp_path, "long.txt", " ".join(f"w{number}" for number in range(900)))
    as_file = sent(session(), "Look at this.", path)
    as_text = sent(
        session(),
        "Look at this.",
        TextAttachment(name=str(path), text=path.read_text(encoding="utf-8")),
    )
    assert as_text == as_file
    assert "the middle of this file is left out" in str(as_text[-1])


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PIXEL, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89arest", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPrest", "image/webp"),
    ],
)
def test_an_image_is_known_by_its_content(data: bytes, media_type: str, tmp_path: Path) -> None:
    _, image = sent(session(3_000), "Look.", write(tmp_path, "image.txt", data))
    assert image == ImagePart(
        url=f"data:{media_type};base64,{base64.b64encode(data).decode()}", media_type=media_type
    )
    if media_type == "image/png":
        assert isinstance(image, ImagePart)
        assert read_dimensions(image.url) == (1, 1)


def test_a_pdf_is_a_document_and_parts_are_passed_on(tmp_path: Path) -> None:
    picture = ImagePart(url="https://example.com/a.png", width=10, height=10)
    pdf = write(tmp_path, "a.pdf", b"%PDF-1.7 rest")
    _, document, image = sent(session(100_000), "Look.", pdf, picture)
    assert document == DocumentPart(
        data=base64.b64encode(b"%PDF-1.7 rest").decode(), media_type="application/pdf", name="a.pdf"
    )
    assert image is picture


def test_long_texts_are_shortened_together_to_half_of_the_window_and_a_short_one_stays_whole(
    tmp_path: Path,
) -> None:
    files = [
        write(tmp_path, f"{number}.log", " ".join(f"w{number}_{at}" for at in range(size)))
        for number, size in enumerate((900, 700, 20))
    ]
    text = "".join(map(str, sent(session(), "Compare.", *files)))
    assert WordTokenizer().count(text) <= 500 + 20
    assert text.count("the middle of this file is left out") == 2
    for first, last in (("w0_0 ", "w0_899\n"), ("w1_0 ", "w1_699\n"), ("w2_0 ", "w2_19\n")):
        assert first in text
        assert last in text


def test_a_text_of_any_length_is_attached_in_time(tmp_path: Path) -> None:
    text = "".join(
        map(
            str,
            sent(session(), "Sum it up.", write(tmp_path, "all.log", "line of a log\n" * 500_000)),
        )
    )
    assert WordTokenizer().count(text) <= 520


def test_attachments_alone_are_a_message_and_nothing_is_none(tmp_path: Path) -> None:
    assert "hello" in str(sent(session(), "", write(tmp_path, "a.txt", "hello"))[-1])
    with pytest.raises(NoPendingMessageError):
        asyncio.run(session().run(""))


@pytest.mark.parametrize(
    ("attached", "error", "says"),
    [
        (Path("gone.txt"), FileNotFoundError, r"gone\.txt"),
        (Path(), OSError, r"'\.'"),
        ("notes.txt", TypeError, r"a Path\('notes.txt'\)"),
        (
            DocumentPart(data="", media_type="application/pdf", tokens=5_000),
            InvalidArgumentError,
            "takes 5,0.. tokens, and all .* 1,000",
        ),
    ],
)
def test_what_cannot_be_attached_is_refused_with_its_name_and_nothing_is_written(
    attached: Any, error: type[Exception], says: str
) -> None:  # Any: wrong on purpose
    each = session()
    with pytest.raises(error, match=says):
        asyncio.run(each.run("Look.", attachments=[attached]))
    assert len(each.transcript) == 0


@pytest.mark.parametrize("data", [b"\x00\x01\x02", b"caf\xe9"])
def test_a_file_of_an_unknown_kind_is_refused_with_its_path(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"odd\.bin' is neither text"):
        sent(session(), "Look.", write(tmp_path, "odd.bin", data))


def test_content_of_the_wrong_type_is_refused_with_attachments_too(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a session takes text"):
        asyncio.run(session().run(None, attachments=[write(tmp_path, "a.txt", "hello")]))  # type: ignore[arg-type]  # wrong on purpose


def test_attachments_are_a_list() -> None:
    with pytest.raises(TypeError, match="must be a list"):
        asyncio.run(session().run("Look.", attachments="notes.txt"))  # type: ignore[arg-type]  # wrong on purpose


def test_a_sync_session_takes_attachments(tmp_path: Path) -> None:
    with SyncSession(session()) as each:
        assert (
            each.run(
                "Look.",
                attachments=[
                    write(
                        tmp_path,
                        "a.txt",
                        "hello".encode("utf-16").decode("latin-1").encode("latin-1"),
                    )
                ],
            ).text
            == "I see."
        )
        assert "hello" in each.call(lambda it: it.window.view.messages[0].text)
