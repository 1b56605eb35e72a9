"""What differs from run to run has a placeholder; what belongs together still does.

Figures and losses do not vary with what is replaced.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, Literal, cast
from uuid import uuid4

import pytest
from hypothesis import given, strategies as st

from promptkit import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    PromptElement,
    ToolCall,
    ToolMessage,
    Truncate,
    UserMessage,
)
from promptkit.testing.snapshots.documents import (
    MachineFolders,
    SnapshotOptions,
    StabilizeOptions,
    Stabilizer,
    format_prompt,
    format_receipt,
    render_levels,
    stabilize_tokenizer,
)
from promptkit.testing.word_tokenizer import WordTokenizer
from promptkit.tokens import Count, tokenizer_for

if TYPE_CHECKING:
    from promptkit.messages import Role

UUID = "3fa85f64-5717-4562-b3fc-2c963f66afa6"
FOLDERS = MachineFolders(
    root=Path("/home/ada/shop"),
    home=Path("/home/ada"),
    temporary=Path("/scratch"),
    pytest=Path("/scratch/pytest-of-ada/pytest-3"),
)


def stable(**options: object) -> Stabilizer:
    return Stabilizer(StabilizeOptions(**options))  # type: ignore[arg-type]  # each test gives what it is about


class TestIds:
    @pytest.mark.parametrize(
        "found",
        [
            UUID,
            UUID.upper(),
            UUID.replace("-", ""),
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "call_Ab12Cd34Ef56Gh78Ij90Kl12",
            "toolu_01A09q90qw90lq917835lq9",
            "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        ],
    )
    def test_of_known_forms_are_numbered(self, found: str) -> None:
        assert (
            stable(ids=True).stabilize_text(f"({found}) and {UUID[:-1]}0, {found}.")
            == "(<id 1>) and <id 2>, <id 1>."
        )

    def test_a_form_may_begin_with_flags_which_hold_for_it_alone(self) -> None:
        known, unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav"
        assert (
            stable(ids=r"(?i)ord-\d+").stabilize_text(f"ORD-1 ord-1 {known} {unknown}")
            == f"<id 1> <id 1> <id 2> {unknown}"
        )

    def test_a_uuid_is_the_same_in_capitals(self) -> None:
        assert stable(ids=True).stabilize_text(f"{UUID} {UUID.upper()}") == "<id 1> <id 1>"

    @pytest.mark.parametrize(
        "text",
        [
            "call_everything",
            "message",
            "run_tests",
            "1234567890",
            "id",
            "msg_id",
            "deadbeef",
            "v1.2.3",
        ],
    )
    def test_words_are_no_ids(self, text: str) -> None:
        assert stable(ids=True).stabilize_text(text) == text

    def test_calls_and_results_stay_paired_whatever_their_ids(self) -> None:
        messages = [
            Message(
                role="assistant",
                tool_calls=(ToolCall(id="a", name="f"), ToolCall(id="other", name="f")),
            ),
            Message(role="tool", tool_call_id="other"),
            Message(role="tool", tool_call_id="a"),
        ]
        calls, *results = stable(ids=True).stabilize_messages(messages)
        assert [call.id for call in calls.tool_calls] == ["<id 1>", "<id 2>"]
        assert [result.tool_call_id for result in results] == ["<id 2>", "<id 1>"]

    def test_the_id_of_a_call_is_found_in_text(self) -> None:
        messages = [
            Message(role="assistant", tool_calls=(ToolCall(id="job-77", name="f"),)),
            Message(role="tool", tool_call_id="job-77", content=("job-77 is done, job-78 is not",)),
        ]
        assert (
            stable(ids=True).stabilize_messages(messages)[1].text == "<id 1> is done, job-78 is not"
        )

    def test_a_form_of_ones_own_is_an_id_too(self) -> None:
        assert (
            stable(ids=r"ORD-\d+").stabilize_text(f"ORD-1, ORD-22, ORD-1, {UUID}")
            == "<id 1>, <id 2>, <id 1>, <id 3>"
        )

    def test_arguments_and_opaque_parts_are_searched(self) -> None:
        (message,) = stable(ids=True).stabilize_messages(
            [
                Message(
                    role="assistant",
                    content=(OpaquePart(value={"deep": [{"id": UUID}, 1, None]}),),
                    tool_calls=(ToolCall(id=UUID, name="f", arguments=json.dumps({"of": UUID})),),
                )
            ]
        )
        assert message.content == (OpaquePart(value={"deep": [{"id": "<id 1>"}, 1, None]}),)
        assert message.tool_calls == (
            ToolCall(id="<id 1>", name="f", arguments='{"of": "<id 1>"}'),
        )

    def test_an_opaque_part_may_be_nested_deeply(self) -> None:
        value: object = UUID
        for _ in range(150):
            value = [value]
        (message,) = stable(ids=True).stabilize_messages(
            [Message(role="user", content=(OpaquePart(value=value),))]  # type: ignore[arg-type]  # JSON
        )
        found: object = cast("OpaquePart", message.content[0]).value
        while isinstance(found, list):
            (found,) = cast("list[object]", found)
        assert found == "<id 1>"

    def test_a_long_word_takes_no_longer_than_it_is_long(self) -> None:
        assert (
            stable(ids=True, dates=True, find_folders=lambda: FOLDERS).stabilize_text(
                "a" * 1_000_000
            )
            == "a" * 1_000_000
        )


class TestDates:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("on 2025-01-31.", "on <date>."),
            ("2025-01-31T10:11:12Z", "<date>T<time>"),
            ("2025-01-31 10:11:12.123456+01:00", "<date> <time>"),
            ("2025-01-31T10:11", "<date>T<time>"),
            ("20250131T101112Z", "<date>T<time>"),
            ("at 10:11:12", "at <time>"),
            ("log_2025-01-31.txt", "log_<date>.txt"),
            ("2025-01-31-notes.md", "<date>-notes.md"),
        ],
    )
    def test_of_iso_8601_have_a_placeholder(self, text: str, expected: str) -> None:
        assert stable(dates=True).stabilize_text(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "gpt-4o-2024-08-06",
            "parser.py:10:24",
            "2025-13-01",
            "1-2-3",
            "12025-01-31",
            "2025-01-311",
            "10:61:00",
            "1:2:3:4",
        ],
    )
    def test_what_is_none_stays(self, text: str) -> None:
        assert stable(dates=True).stabilize_text(text) == text


class TestPaths:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("/scratch/pytest-of-ada/pytest-3/test_a0/src/cart.py:3", "<tmp 1>/src/cart.py:3"),
            ("in /scratch/pytest-of-ada/pytest-3/test_a0.", "in <tmp 1>."),
            ("/scratch/tmpab12cd_4/x and /scratch/tmpzzzzzzzz", "<tmp 1>/x and <tmp 2>"),
            ("/home/ada/shop/cart.py", "<root>/cart.py"),
            ('"/home/ada/shop"', '"<root>"'),
            ("/home/ada/.config", "<home>/.config"),
            ("file:///home/ada/shop/a.py", "file://<root>/a.py"),
            ("/home/ada/shop\\nnext", "<root>\\nnext"),
        ],
    )
    def test_of_this_machine_have_a_placeholder(self, text: str, expected: str) -> None:
        assert stable(find_folders=lambda: FOLDERS).stabilize_text(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "/home/adam/x",
            "/home/ada.old",
            "/home/ada-2",
            "src/home/ada",
            "/scratch/out.txt",
            "/usr/bin",
            "~/x",
        ],
    )
    def test_what_only_looks_like_one_stays(self, text: str) -> None:
        assert stable(find_folders=lambda: FOLDERS).stabilize_text(text) == text

    def test_the_folders_of_a_real_machine_are_found(self, tmp_path: Path) -> None:
        pytest_folder = tmp_path.parent
        places = MachineFolders(
            root=Path.cwd(),
            home=Path.home(),
            temporary=Path(tempfile.gettempdir()),
            pytest=pytest_folder,
        )
        with tempfile.TemporaryDirectory() as other:
            found = stable(find_folders=lambda: places).stabilize_text(
                f"{tmp_path / 'a.py'} {other} {Path.cwd() / 'b.py'} {tmp_path}"
            )
        assert found == "<tmp 1>/a.py <tmp 2> <root>/b.py <tmp 1>"

    def test_a_link_to_a_folder_is_that_folder(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        places = MachineFolders(
            root=tmp_path / "link", home=Path("/home/ada"), temporary=Path("/scratch")
        )
        assert (
            stable(find_folders=lambda: places).stabilize_text(
                f"{tmp_path / 'link' / 'a'} {tmp_path / 'real' / 'b'}"
            )
            == "<root>/a <root>/b"
        )

    def test_separators_of_windows_become_slashes(self) -> None:
        root = cast("Path", _Windows("C:\\Users\\ada\\shop"))
        places = MachineFolders(root=root, home=Path("/home/ada"), temporary=Path("/scratch"))
        text = "C:\\Users\\ada\\shop\\src\\a.py C:/Users/ada/shop/b.py " + json.dumps(
            "C:\\Users\\ada\\shop\\src\\c.py"
        )
        assert (
            stable(find_folders=lambda: places).stabilize_text(text)
            == '<root>/src/a.py <root>/b.py "<root>/src/c.py"'
        )

    def test_the_root_of_the_file_system_is_no_folder_to_replace(self) -> None:
        places = MachineFolders(root=Path("/"), home=Path("/"), temporary=Path("/scratch"))
        assert (
            stable(find_folders=lambda: places).stabilize_text("1 / 2 // 3, /etc/hosts")
            == "1 / 2 // 3, /etc/hosts"
        )


class _Windows(PureWindowsPath):
    """A path of another system, which cannot be resolved here."""

    def resolve(self) -> _Windows:
        return self


class TestFunctions:
    def test_get_each_string_before_anything_else(self) -> None:
        def shout(text: str) -> str:
            return text.replace("ada", UUID)

        messages = [
            Message(
                role="user",
                name="ada",
                content=("by ada", ImagePart(url="https://example.org/ada.png")),
            )
        ]
        (message,) = stable(functions=(shout,), ids=True).stabilize_messages(messages)
        assert message == Message(
            role="user",
            name="<id 1>",
            content=("by <id 1>", ImagePart(url="https://example.org/<id 1>.png")),
        )

    def test_media_stay_as_they_are(self) -> None:
        parts = (
            ImagePart(url="data:image/png;base64,AAAA"),
            DocumentPart(data="AAAA", media_type="text/plain", name="a"),
        )
        (message,) = stable(functions=(str.upper,)).stabilize_messages(
            [Message(role="user", content=parts)]
        )
        assert message.content == (
            parts[0],
            DocumentPart(data="AAAA", media_type="text/plain", name="A"),
        )

    def test_nothing_is_replaced_unless_asked_for(self) -> None:
        messages = (Message(role="user", content=(f"{UUID} 2025-01-31 /home/ada",)),)
        assert stable().stabilize_messages(messages) == messages


@given(
    st.lists(
        st.sampled_from([UUID, UUID[:-1] + "0", "job-77", "2025-01-31", "/home/ada/shop/x", "text"])
    )
)
def test_equal_strings_have_equal_placeholders_and_others_others(words: list[str]) -> None:
    found = (
        stable(ids=True).stabilize_text(" ".join(words)).replace("<id ", "<id").split(" ")
        if words
        else []
    )
    assert len(set(zip(words, found, strict=True))) == len(set(words)) == len(set(found))


def prompt(unique: str) -> tuple[PromptElement, ...]:
    return (
        *(
            UserMessage(priority=number)[f"{number}: the order {unique} is late, where is it?"]
            for number in range(20)
        ),
        AssistantMessage(
            priority=50,
            tool_calls=(ToolCall(id=unique, name="find", arguments=f'{{"order": "{unique}"}}'),),
        ),
        ToolMessage(priority=50, tool_call_id=unique)[f"{unique} was sent."],
        UserMessage(priority=60)[Truncate(max_tokens=60)[f"Log of {unique}.\n" * 30]],
    )


@pytest.mark.parametrize("write", [format_prompt, format_receipt])
def test_a_prompt_with_a_new_id_has_the_same_snapshot_at_every_budget(write: object) -> None:
    def document(unique: str) -> str:
        stable = Stabilizer(StabilizeOptions(ids=True))
        levels = render_levels(
            prompt(unique), SnapshotOptions(budgets=tuple(range(100, 500, 17))), stable
        )
        return format_prompt(levels) if write is format_prompt else format_receipt(levels, stable)

    # Ids of few and of many tokens: without steady counting one loses what the other keeps.
    assert (
        document("call_aaaaaaaaaaaaaaaa1")
        == document(str(uuid4()))
        == document("chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT")
    )


def test_without_replacements_counting_is_what_it_was() -> None:
    tokenizer = tokenizer_for(None)
    assert stabilize_tokenizer(tokenizer, StabilizeOptions()) is tokenizer
    assert stabilize_tokenizer(tokenizer, StabilizeOptions(dates=True)).count(
        "no date"
    ) == tokenizer.count("no date")


def test_frames_parts_and_requests_are_those_of_the_tokenizer() -> None:
    tokenizer = tokenizer_for("gpt-5")
    counting = stabilize_tokenizer(tokenizer, StabilizeOptions(ids=True))
    calls = [ToolCall(id="<id>", name="f", arguments="{}")]
    assert counting.name == tokenizer.name
    assert counting.count_framing(
        "assistant", tool_calls=[ToolCall(id="x", name="f")], text=False
    ) == tokenizer.count_framing("assistant", tool_calls=calls, text=False)
    assert counting.count_overhead() == tokenizer.count_overhead()


class _Asked(WordTokenizer):
    """Says that a frame costs as many tokens as its id has characters."""

    def count_framing(self, role: Role, **of: Any) -> Count:
        return Count(len(of["tool_call_id"] or ""))


def test_the_id_of_a_result_is_counted_as_its_placeholder() -> None:
    assert stabilize_tokenizer(_Asked(), StabilizeOptions(ids=True)).count_framing(
        "tool", tool_call_id=str(uuid4())
    ) == Count(len("<id>"))


@pytest.mark.parametrize("keep", ["head", "tail"])
def test_a_cut_is_an_end_of_the_text_that_fits_even_inside_one_long_word(
    keep: Literal["head", "tail"],
) -> None:
    counting = stabilize_tokenizer(tokenizer_for(None), StabilizeOptions(ids=True))
    for text in ("", "one", "one two  three\n four " * 9, "word" * 900):
        for tokens in (0, 1, 7, 100):
            cut = counting.truncate(text, tokens, keep=keep)
            assert text.startswith(cut) if keep == "head" else text.endswith(cut)
            assert counting.count(cut) <= tokens
            assert cut or not (text and tokens)
