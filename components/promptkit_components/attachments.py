"""What a person attaches to a request: files or parts of them, and images."""

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
    r"""A file, or the part of it that begins at `start_line`. Lines count from 1, the last one is included.

    >>> Attachment(path="a.py", text="one\ntwo\nthree").part(2, 3).lines
    '2-3'
    """

    path: str
    """Shown to the model, and the target of the reference."""

    text: str
    """What is shown, no more than the lines meant."""

    start_line: int = 1
    """The line of the file that the text begins with."""

    end_line: int | None = None
    """The line that it ends with; None counts the text's own."""

    language: str = ""
    """What the fence is marked with, such as `python`."""

    outline: str | None = None
    """Shown where the text does not fit: signatures, headings. None: the text's beginning and end."""

    @property
    def lines(self) -> str:
        """The range, as in `10-24`."""
        return f"{self.start_line}-{self.start_line + max(len(self.text.splitlines()) - 1, 0) if self.end_line is None else self.end_line}"

    def part(self, first: int, last: int) -> Attachment:
        """The lines `first` to `last` of the file, as far as the text has them; without the outline, which is the whole's."""
        kept = self.text.splitlines(keepends=True)[max(first - self.start_line, 0) : max(last - self.start_line + 1, 0)]
        return attrs.evolve(self, text="".join(kept), start_line=max(first, self.start_line), end_line=None, outline=None)


@component
class Attachments(PromptElement):
    r"""Files and images, for the inside of a message. The first are kept longest.

    Each file is shown in full where its share of the budget allows, else as its outline or with its middle cut out, else by its
    name alone. What is shown stands in `rendered.references`, with its path and its lines.

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

    files: Sequence[Attachment] = ()
    """The most important first."""

    images: Sequence[ImagePart] = ()
    """Shown after the files, and kept longer than all of them: an image is rarely attached in passing."""

    def render(self, sizing: Sizing) -> Child:
        """One First per file, then the images."""
        _ = sizing
        last = len(self.files)
        return (
            (_File(file=file, priority=last - number) for number, file in enumerate(self.files)),
            (
                Image(
                    src=image.url,
                    detail=image.detail,
                    media_type=image.media_type,
                    width=image.width,
                    height=image.height,
                    priority=last + 1,
                )
                for image in self.images
            ),
        )


@component
class _File(PromptElement):
    """One file in the first of its forms that fits."""

    file: Attachment

    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        file = self.file
        cut = Truncate(keep="middle", ratio=0.4, marker="\n[… lines left out …]\n")[file.text]
        return First()[
            self._wrap(TextChunk()[file.text], {}),
            self._wrap(cut, {"shown": "parts"}) if file.outline is None else self._wrap(TextChunk()[file.outline], {"shown": "outline"}),
            Group()[Tag(tag="attachment", attributes={"path": file.path, "lines": file.lines, "shown": "name"}), self._reference()],
        ]

    def _wrap(self, body: PromptElement, more: dict[str, str]) -> PromptElement:
        fence = "`" * max((3, *(len(run) + 1 for run in re.findall("`{3,}", self.file.text))))
        attributes = {"path": self.file.path, "lines": self.file.lines, **more}
        opening = TextChunk()[f"{fence}{self.file.language}"]
        return Tag(tag="attachment", attributes=attributes)[opening, body, TextChunk()[fence], self._reference()]

    def _reference(self) -> Reference:
        first, last = self.file.lines.split("-")
        return Reference(to=self.file.path, detail={"start_line": int(first), "end_line": int(last)})
