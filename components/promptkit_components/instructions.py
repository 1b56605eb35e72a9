"""`Instructions`: the developer's instructions, and those of a project in files such as AGENTS.md."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path

from promptkit import (
    Child,
    Metadata,
    PromptElement,
    Reference,
    Sizing,
    SystemMessage,
    Tag,
    component,
)
from promptkit.messages import Repair
from promptkit_components.truncation import truncate_output

__all__ = ["Instructions"]


@component
class Instructions(PromptElement):
    """One system message: the children (text, a Template), then each file in a tag of its own.

    Files are read in threads, all at once, while the prompt is expanded. With files, call
    `await render_async(...)` instead of `render()` in a running event loop. A missing file is
    skipped and reported in `rendered.repairs`, since files such as AGENTS.md are optional by
    convention. Any other failure to read raises OSError.

    >>> from promptkit import render
    >>> print(render(Instructions()["You are a careful engineer."]).messages[0].text)
    You are a careful engineer.
    """

    files: Sequence[str | Path] = ()
    """The paths, which the model sees as they are written, the most specific last."""

    root: str | Path = "."
    """The folder that the paths are relative to."""

    truncate_at: int | None = None
    """The maximum tokens of one file. A longer file keeps a head (40 %) and a tail (60 %)."""

    def render(self, sizing: Sizing) -> Child | Awaitable[Child]:
        """Return a system message, or an awaitable of one if there are files to read."""
        _ = sizing
        return self._load_files() if self.files else SystemMessage()[self.children]

    async def _load_files(self) -> Child:
        texts = await asyncio.gather(
            *(asyncio.to_thread(_read, Path(self.root) / file) for file in self.files)
        )
        missing = [file for file, text in zip(self.files, texts, strict=True) if text is None]
        return (
            (
                Metadata(
                    value=Repair(
                        kind="missing file",
                        detail=f"There is no instruction file {str(file)!r}; it was left out.",
                    )
                )
                for file in missing
            ),
            SystemMessage()[
                self.children,
                (
                    self._wrap_file(str(file), text)
                    for file, text in zip(self.files, texts, strict=True)
                    if text
                ),
            ],
        )

    def _wrap_file(self, file: str, text: str) -> PromptElement:
        body = text.strip("\n")
        shown = body if self.truncate_at is None else truncate_output(body, self.truncate_at)
        return Tag(tag="instructions", attributes={"file": file})[shown, Reference(to=file)]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
