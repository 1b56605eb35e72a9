"""`Attachments`: files, parts of files and images that a user attaches to a request."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from promptkit import (
    Child,
    First,
    Group,
    Image,
    ImagePart,
    PromptElement,
    Reference,
    Sizing,
    Tag,
    TextChunk,
    Truncate,
    component,
)

__all__ = ["Attachment", "Attachments"]


@attrs.frozen(kw_only=True)
class Attachment:
    r"""A file, or the part of a file that starts at `start_line`.

    Line numbers start at 1, and ranges include the last line.

    >>> Attachment(path="a.py", text="one\ntwo\nthree").part(2, 3).lines
    '2-3'
    """

    path: str
    """The path, which the model sees and the reference points to."""

    text: str
    """The text to show: the attached lines only."""

    start_line: int = 1
    """The number of the first line of `text` in the file."""

    end_line: int | None = None
    """The number of the last line. None: counted from `text`."""

    language: str = ""
    """The language of the code fence, such as `python`."""

    outline: str | None = None
    """A shorter text, such as signatures or headings, shown if `text` does not fit. None: the start
    and end of `text`."""

    @property
    def lines(self) -> str:
        """The range of lines, such as `10-24`."""
        return f"{self.start_line}-{self.start_line + max(len(self.text.splitlines()) - 1, 0) if self.end_line is None else self.end_line}"

    def part(self, first: int, last: int) -> Attachment:
        """Return the lines `first` to `last` of the file, as far as `text` has them.

        The outline is dropped.
        """
        kept = self.text.splitlines(keepends=True)[
            max(first - self.start_line, 0) : max(last - self.start_line + 1, 0)
        ]
        return attrs.evolve(
            self,
            text="".join(kept),
            start_line=max(first, self.start_line),
            end_line=None,
            outline=None,
        )


def _freeze_files(files: Sequence[Attachment]) -> tuple[Attachment, ...]:
    return tuple(files)


def _freeze_images(images: Sequence[ImagePart]) -> tuple[ImagePart, ...]:
    return tuple(images)


@component(pure=True)
class Attachments(PromptElement):
    r"""Files and images, for the inside of a message. The first files are kept longest.

    Each file is shown in full if its share of the budget allows it, else as its outline or without
    its middle, else as its name. `rendered.references` lists the shown files, with their paths and
    lines.

    >>> from promptkit import UserMessage, render
    >>> files = [Attachment(path="greet.py", text="def greet():\n    return 'Hello'", language="python")]
    >>> print(render(UserMessage()["What does this do?", Attachments(files=files)], budget=200).messages[0].text)
    What does this do?
    <attachment path="greet.py" lines="1-2">
    ```python
    def greet():
        return 'Hello'
    ```
    </attachment>
    """

    files: Sequence[Attachment] = attrs.field(default=(), converter=_freeze_files)
    """The files, the most important first."""

    images: Sequence[ImagePart] = attrs.field(default=(), converter=_freeze_images)
    """The images, shown after the files. They are kept longer than the files, since users attach
    few images and mean them."""

    def render(self, sizing: Sizing) -> Child:
        """Return one First per file, then the images."""
        _ = sizing
        last = len(self.files)
        return (
            (_File(file=file, priority=last - number) for number, file in enumerate(self.files)),
            (
                Image(
                    url=image.url,
                    detail=image.detail,
                    media_type=image.media_type,
                    width=image.width,
                    height=image.height,
                    priority=last + 1,
                )
                for image in self.images
            ),
        )


@component(pure=True)
class _File(PromptElement):
    """One file, in the first form that fits."""

    file: Attachment

    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        file = self.file
        truncated = Truncate(keep="middle", ratio=0.4, marker="\n[… lines left out …]\n")[file.text]
        return First()[
            self._wrap(TextChunk()[file.text], {}),
            self._wrap(truncated, {"shown": "parts"})
            if file.outline is None
            else self._wrap(TextChunk()[file.outline], {"shown": "outline"}),
            Group()[
                Tag(
                    tag="attachment",
                    attributes={"path": file.path, "lines": file.lines, "shown": "name"},
                ),
                self._reference(),
            ],
        ]

    def _wrap(self, body: PromptElement, attributes: dict[str, str]) -> PromptElement:
        fence = "`" * max((3, *(len(run) + 1 for run in re.findall("`{3,}", self.file.text))))
        attributes = {"path": self.file.path, "lines": self.file.lines, **attributes}
        opening = TextChunk()[f"{fence}{self.file.language}"]
        return Tag(tag="attachment", attributes=attributes)[
            opening, body, TextChunk()[fence], self._reference()
        ]

    def _reference(self) -> Reference:
        first, last = self.file.lines.split("-")
        return Reference(
            to=self.file.path, detail={"start_line": int(first), "end_line": int(last)}
        )
