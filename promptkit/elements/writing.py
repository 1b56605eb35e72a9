"""Shorter ways to write what prompts are full of: tags, lines and conditions."""

from __future__ import annotations

from itertools import pairwise
from typing import NoReturn

import attrs

from promptkit.elements.builtin import Tag, TextChunk
from promptkit.elements.component import component
from promptkit.elements.element import Child, Opening, PromptElement, flatten
from promptkit.errors import TreeError


@attrs.frozen
class TagMaker:
    """Makes the elements of one tag: `tag.file`, or `tag("file")`."""

    name: str

    def __call__(self, /, **attributes: str) -> Tag:
        """Return the element with these attributes, in this order."""
        return Tag(tag=self.name, attributes=attributes)

    def __getitem__(self, children: object) -> NoReturn:
        """Report children that stand beside the name."""
        raise TreeError(
            f"children of a tag stand behind its attributes: write tag.{self.name}()[…]."
        )


class _Tags:
    """The type of `tag`."""

    def __getattr__(self, name: str) -> TagMaker:
        if name.startswith("__"):  # copy, pickle and inspect ask for such names
            raise AttributeError(name)
        return TagMaker(name)

    def __call__(self, name: str, /, **attributes: str) -> Tag:
        """Return the element of a tag with a name that Python cannot write."""
        return Tag(tag=name, attributes=attributes)


tag = _Tags()
"""Makes tags: `tag.file(path="a.py")[code]`, or `tag("file-part", path="a.py")[code]`.

Keywords are attributes; `.layout(…)` sets layout props.
"""


def lines(*children: Child) -> Child:
    """Join children by line breaks, leaving out what is false: None, booleans, empty texts and empty sequences.

    Each item of a sequence is a line, too. A text that ends with a line break is followed by an
    empty line. Tags and TextChunks begin and end their own lines, so that no line break stays
    behind when one of them is pruned. Behind a TextChunk that comes first, write texts, not
    elements: the line break before an element stays.

    >>> UserMessage()[lines("Folders:", (f"- {folder}" for folder in folders), truncated and "(more)")]
    """
    shown = [child for child in flatten(children, "lines") if child not in (None, "")]
    texts = [at for at, child in enumerate(shown) if not isinstance(child, Tag | TextChunk)]
    # The line break between two texts stands where nothing of it shows if what is between them is
    # pruned: a TextChunk begins a line but does not end it, a Tag does both.
    breaks_before = {
        after if isinstance(shown[after - 1], TextChunk) else before + 1
        for before, after in pairwise(texts)
    }
    first = texts[0] if texts else 0
    if first and isinstance(shown[first - 1], TextChunk):
        # no text is before it, so that a line break would stay as an empty first line
        text = shown[first]
        if isinstance(text, str):
            shown[first] = TextChunk()[text]
        else:
            breaks_before.add(first)
    return [
        item
        for at, child in enumerate(shown)
        for item in (("\n", child) if at in breaks_before else (child,))
    ]


class If(Opening):
    r"""Children that are shown if a condition holds. The condition is any value, such as a list, a number or a mapping.

    `files and X()` fails for an empty mapping or a 0, which is no child; this does not.

    Both sides are plain Python: the children are made in either case.

    >>> UserMessage()[If(files)["Files:\\n", ", ".join(files)]]
    """

    def __init__(self, condition: object) -> None:
        self._holds = bool(condition)

    def __getitem__(self, children: Child) -> Child:
        """Return the children, or None if the condition does not hold."""
        return children if self._holds else None


@component
class Provided(PromptElement):
    """Children below which `sizing.get` finds a value. `Provide(value)[…]` makes it."""

    value: object
    """The value."""


class Provide(Opening):
    """A service, or settings, for the components inside: `sizing.get(Type)` returns the value there.

    The innermost value of the type is found, so that a part of a prompt may have another one.
    Nothing is found outside of the brackets.

    >>> Provide(workspace)[SystemMessage()[Folders()], UserMessage()[question]]
    """

    def __init__(self, value: object) -> None:
        self._value = value

    def __getitem__(self, children: Child) -> Provided:
        """Return an element with these children, which compete with its siblings."""
        return Provided(value=self._value, pass_priority=True)[children]
