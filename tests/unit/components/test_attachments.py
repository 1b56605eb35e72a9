"""`Attachments`: in full, shorter, or by name, as there is room."""

from __future__ import annotations

from promptkit_components import Attachment, Attachments

from promptkit import ImagePart, Rendered, TextChunk, UserMessage, render

CODE = "\n".join(f"def function_{i}():\n    return {i}" for i in range(100))


def shown(*files: Attachment, budget: int = 4_000) -> Rendered:
    return render(UserMessage()[Attachments(files=files)], budget=budget)


class TestForms:
    def test_in_full_where_it_fits(self) -> None:
        text = (
            shown(Attachment(path="a.py", text="x = 1", start_line=7, language="python"))
            .messages[0]
            .text
        )
        assert (
            text.strip()
            == '<attachment path="a.py" lines="7-7">\n```python\nx = 1\n```\n</attachment>'
        )

    def test_the_outline_where_the_text_does_not(self) -> None:
        text = (
            shown(Attachment(path="a.py", text=CODE, outline="100 functions"), budget=60)
            .messages[0]
            .text
        )
        assert 'shown="outline"' in text
        assert "100 functions" in text
        assert "return" not in text

    def test_head_and_tail_where_there_is_no_outline(self) -> None:
        text = shown(Attachment(path="a.py", text=CODE), budget=150).messages[0].text
        assert 'shown="parts"' in text
        assert "def function_0():" in text
        assert "return 99" in text
        assert "[… lines left out …]" in text

    def test_the_name_where_nothing_else_does(self) -> None:
        text = (
            shown(Attachment(path="a.py", text=CODE, outline="word " * 200), budget=40)
            .messages[0]
            .text
        )
        assert 'path="a.py"' in text
        assert 'shown="name"' in text
        assert "word" not in text

    def test_never_above_the_budget(self) -> None:
        for budget in range(30, 800, 60):
            rendered = shown(
                Attachment(path="a.py", text=CODE),
                Attachment(path="b.py", text=CODE, outline="functions"),
                budget=budget,
            )
            assert rendered.tokens <= budget


class TestWhatLeaves:
    def test_the_last_file_first(self) -> None:
        files = [
            Attachment(path="a.py", text="a = 1\n" * 10),
            Attachment(path="b.py", text="b = 1\n" * 10),
        ]
        prompt = UserMessage()[TextChunk()["word " * 150], Attachments(files=files, priority=1)]
        shown = [
            "".join(m.text for m in render(prompt, budget=budget).messages)
            for budget in range(160, 300, 5)
        ]
        assert any("a.py" in text and "b.py" not in text for text in shown)
        assert not any("b.py" in text and "a.py" not in text for text in shown)


class TestFence:
    def test_is_longer_than_any_in_the_text(self) -> None:
        text = (
            shown(Attachment(path="a.md", text="````python\n````", language="markdown"))
            .messages[0]
            .text
        )
        assert "`````markdown\n````python\n````\n`````" in text


class TestReferences:
    def test_name_path_and_lines(self) -> None:
        (reference,) = shown(Attachment(path="a.py", text="one\ntwo", start_line=3)).references
        assert reference.to == "a.py"
        assert reference.detail == {"start_line": 3, "end_line": 4}

    def test_survive_where_only_the_name_is_shown(self) -> None:
        rendered = shown(Attachment(path="a.py", text=CODE, outline="word " * 200), budget=40)
        assert [reference.to for reference in rendered.references] == ["a.py"]


class TestAttachment:
    def test_counts_its_lines(self) -> None:
        assert Attachment(path="a", text="one\ntwo\n").lines == "1-2"
        assert Attachment(path="a", text="").lines == "1-1"
        assert Attachment(path="a", text="one", start_line=5, end_line=9).lines == "5-9"

    def test_gives_a_part_of_itself(self) -> None:
        part = Attachment(path="a", text="one\ntwo\nthree\nfour", start_line=10).part(11, 12)
        assert (part.text, part.lines) == ("two\nthree\n", "11-12")


class TestImages:
    def test_follow_the_files(self) -> None:
        rendered = render(
            UserMessage()[
                Attachments(
                    files=[Attachment(path="a", text="x")],
                    images=[ImagePart(url="https://example.org/a.png", detail="low")],
                )
            ]
        )
        assert isinstance(rendered.messages[0].content[-1], ImagePart)
