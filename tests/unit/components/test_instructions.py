"""`Instructions`: the developer's words and the project's files, in one system message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from promptkit_components import Instructions

from promptkit import render, render_async
from promptkit.errors import RunningLoopError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n", encoding="utf-8")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "AGENTS.md").write_text("Use spaces.\n", encoding="utf-8")
    return tmp_path


class TestWithoutFiles:
    def test_is_a_system_message(self) -> None:
        (message,) = render(Instructions()["Be brief."]).messages
        assert (message.role, message.text) == ("system", "Be brief.")

    def test_is_nothing_without_words(self) -> None:
        assert render(Instructions()).messages == ()

    def test_renders_inside_a_running_loop(self) -> None:
        async def main() -> None:
            assert render(Instructions()["Be brief."]).messages[0].text == "Be brief."

        asyncio.run(main())


class TestFiles:
    def test_follow_the_words_in_the_order_given(self, project: Path) -> None:
        (message,) = render(
            Instructions(files=["AGENTS.md", "src/AGENTS.md"], root=project)["Be brief."]
        ).messages
        assert message.text.strip() == (
            'Be brief.\n<instructions file="AGENTS.md">\nUse tabs.\n</instructions>\n<instructions file="src/AGENTS.md">\nUse spaces.\n</instructions>'
        )

    def test_are_references(self, project: Path) -> None:
        rendered = render(Instructions(files=["AGENTS.md"], root=project))
        assert [reference.to for reference in rendered.references] == ["AGENTS.md"]

    def test_are_awaited(self, project: Path) -> None:
        async def main() -> str:
            return (
                (await render_async(Instructions(files=["AGENTS.md"], root=project)))
                .messages[0]
                .text
            )

        assert "Use tabs." in asyncio.run(main())

    def test_need_render_async_in_a_running_loop(self, project: Path) -> None:
        async def main() -> None:
            with pytest.raises(RunningLoopError):
                render(Instructions(files=["AGENTS.md"], root=project))

        asyncio.run(main())

    def test_that_are_missing_are_left_out_and_reported(self, project: Path) -> None:
        rendered = render(Instructions(files=["CLAUDE.md", "AGENTS.md"], root=project))
        assert "CLAUDE.md" not in rendered.messages[0].text
        assert [(repair.kind, "CLAUDE.md" in repair.detail) for repair in rendered.repairs] == [
            ("missing file", True)
        ]

    def test_that_cannot_be_read_raise(self, project: Path) -> None:
        with pytest.raises(OSError, match="src"):
            render(Instructions(files=["src"], root=project))

    def test_are_cut_in_the_middle(self, project: Path) -> None:
        (project / "LONG.md").write_text(
            "\n".join(f"rule {i}" for i in range(500)), encoding="utf-8"
        )
        text = (
            render(Instructions(files=["LONG.md"], root=project, truncate_at=50)).messages[0].text
        )
        assert "rule 0\n" in text
        assert "rule 499" in text
        assert len(text) < 500
