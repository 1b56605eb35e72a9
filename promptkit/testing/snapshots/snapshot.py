"""What stands on the right of `assert prompt == prompt_snapshot`: a snapshot of syrupy's that knows how to write a prompt down.

Where syrupy keeps the three kinds of snapshots, and how it writes them: one file each, named after its test.

The suffixes have no dot of their own: a suffix that ends in another's (`.messages.json`) would let syrupy take one kind for the other
and delete what is in use.

Each takes a function that returns what is to be written, and calls it: so what a render raises is to syrupy a comparison that failed,
and not a snapshot that no test uses any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs
from syrupy.extensions.json import JSONSnapshotExtension
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from promptkit.testing.snapshots.budgets import Asked, Level, levels_of, prompt_document
from promptkit.testing.snapshots.diff import difference
from promptkit.testing.snapshots.markdown import json_safe
from promptkit.testing.snapshots.removals import receipt_document
from promptkit.testing.snapshots.stabilize import Places, Replace, Stabilizer, Stable, forms_of_ids
from promptkit.testing.snapshots.wire import WireForm, wire_document

if TYPE_CHECKING:
    from syrupy.assertion import AssertionResult, SnapshotAssertion
    from syrupy.types import PropertyFilter, PropertyMatcher

    from promptkit.messages import ToolDefinition
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["MessagesExtension", "MessagesSnapshot", "Mismatch", "PromptExtension", "PromptSnapshot", "ReceiptExtension", "ReceiptSnapshot"]


LONGEST = 400
"""Lines of a mismatch that are shown; a version control system shows the rest once the snapshot is updated."""


@attrs.frozen
class Mismatch:
    """A comparison that failed."""

    path: str
    """The snapshot's file, from the project's folder on where it is in there."""

    lines: tuple[str, ...]
    """What has changed; all that was received where there was no snapshot."""

    new: bool
    """Whether there was no snapshot."""

    @property
    def shown(self) -> Sequence[str]:
        """The lines for the report, cut where they are very many."""
        if len(self.lines) <= LONGEST:
            return self.lines
        return [*self.lines[:LONGEST], f"… and {len(self.lines) - LONGEST:,} more lines"]

    def __str__(self) -> str:
        if self.new:
            return "There is no such file yet. `pytest --snapshot-update` writes it, as shown below."
        gone, new = (sum(line.startswith(mark) for line in self.lines) for mark in "-+")
        return f"Lines: {gone:,} gone, {new:,} new, as shown below. `pytest --snapshot-update` accepts them."


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PromptSnapshot:
    """A prompt as Markdown, in a file of its own. Compared with an element, a tuple of elements or a Rendered.

    Each method gives a changed copy, and all copies of a test number their files together.
    """

    assertion: SnapshotAssertion
    """syrupy's, with the extension that says where the file is."""

    find_places: Callable[[], Places]
    """Asked for the folders of this machine where paths are to be stable."""

    mismatches: list[Mismatch]
    """Where a failed comparison is written down, for the report."""

    asked: Asked = attrs.field(factory=Asked)
    stabilizer: Stabilizer = attrs.field(factory=Stabilizer)
    options: tuple[tuple[str, Any], ...] = ()  # Any: what syrupy's own call takes

    def __call__(self, *, name: str) -> Self:
        """Under this name instead of a number: for several snapshots in one test."""
        return attrs.evolve(self, options=(*self.options, ("name", name)))

    def at(
        self,
        *,
        budgets: Sequence[int | str] | None = None,
        tokenizer: Tokenizer | None = None,
        tools: Sequence[ToolDefinition] = (),
    ) -> Self:
        """At these budgets, all in one file, largest first; each smaller one says what it loses.

        A number is tokens, a string a model whose window is the budget. A budget that what is required does not fit is recorded with
        the error's sentence. `tokenizer` counts instead of the model's or the default, `tools` take room beside the messages.
        What is not given stays as it was.
        """
        if isinstance(budgets, str | int):  # each letter of a model's name would be a budget
            message = f"at(budgets={budgets!r}) is no list: write at(budgets=[{budgets!r}])."
            raise TypeError(message)
        if budgets is not None and not budgets:
            message = "at(budgets=[]) names no budget: give at least one number of tokens or model name, or leave budgets out."
            raise ValueError(message)
        before = self.asked
        asked = Asked(
            budgets=before.budgets if budgets is None else tuple(budgets),
            tokenizer=tokenizer or before.tokenizer,
            tools=tuple(tools) or before.tools,
        )
        return attrs.evolve(self, asked=asked)

    def stable(self, *functions: Replace, ids: bool | str = False, dates: bool = False, paths: bool = False) -> Self:
        """With placeholders for what differs from run to run, in addition to those asked for before.

        `ids`: ids of tool calls, uuids and providers' ids become `<id 1>`, `<id 2>`, …, the same id the same number everywhere in the
        file; a regular expression adds a form. `dates`: dates and times of ISO 8601 become `<date>` and `<time>`. `paths`: temporary
        folders become `<tmp 1>`, the project's `<root>`, the home `<home>`. A function gets each string of the prompt and returns what
        stands for it.
        """
        if isinstance(ids, str):
            forms_of_ids(ids)  # fails here rather than in the comparison
        before = self.stabilizer
        return attrs.evolve(
            self,
            stabilizer=Stabilizer(
                functions=(*before.functions, *functions),
                ids=ids or before.ids,
                dates=dates or before.dates,
                places=self.find_places if paths else before.places,
            ),
        )

    def __eq__(self, prompt: object) -> bool:
        def document() -> object:
            stable = Stable(self.stabilizer)
            return self._document(levels_of(prompt, self.asked, stable), stable)

        kept = bool((self.assertion(**dict(self.options)) if self.options else self.assertion) == document)
        result = self.assertion.executions[self.assertion.num_executions - 1]
        if result.exception:
            raise result.exception
        if not kept:
            self.mismatches.append(_mismatch(result, self.assertion.session.pytest_session.config.rootpath))
        return kept

    def __hash__(self) -> int:
        """By identity: it is a place, not a value."""
        return id(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.assertion.test_location.testname}>"

    def _document(self, levels: Sequence[Level], stable: Stable) -> object:
        _ = stable
        return prompt_document(levels)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MessagesSnapshot(PromptSnapshot):
    """The messages as they are sent, as JSON: OpenAI's Chat Completions unless `to` says otherwise."""

    form: WireForm = "openai"

    def __call__(
        self,
        *,
        name: str | None = None,
        matcher: PropertyMatcher | None = None,
        include: PropertyFilter | None = None,
        exclude: PropertyFilter | None = None,
    ) -> Self:
        """With syrupy's options: a name instead of a number, and matchers and filters of its values and keys."""
        given = {"name": name, "matcher": matcher, "include": include, "exclude": exclude}
        return attrs.evolve(self, options=(*self.options, *((key, value) for key, value in given.items() if value is not None)))

    def to(self, form: WireForm) -> Self:
        """In this format: `openai`, `responses` or `anthropic`."""
        return attrs.evolve(self, form=form)

    def _document(self, levels: Sequence[Level], stable: Stable) -> object:
        _ = stable
        return wire_document(levels, self.form)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReceiptSnapshot(PromptSnapshot):
    """What the prompt cost, and what was removed and why."""

    def _document(self, levels: Sequence[Level], stable: Stable) -> object:
        return receipt_document(levels, stable)


def _mismatch(result: AssertionResult, root: Path) -> Mismatch:
    before, after = result.recalled_data, str(result.asserted_data)
    path = Path(result.snapshot_location)
    if path.is_relative_to(root):
        path = path.relative_to(root)
    lines = after.split("\n") if before is None else difference(str(before), after)
    return Mismatch(path.as_posix(), tuple(lines), before is None)


class PromptExtension(SingleFileSnapshotExtension):
    """Markdown, which is text already."""

    _write_mode = WriteMode.TEXT
    file_extension = "md"

    def serialize(self, data: Any, **_: Any) -> str:  # noqa: ANN401  # Any: what syrupy declares
        """The text that the function `data` returns."""
        return str(data())


class ReceiptExtension(PromptExtension):
    """Text."""

    file_extension = "receipt"


class MessagesExtension(JSONSnapshotExtension):
    """JSON, with syrupy's `matcher`, `include` and `exclude`."""

    _max_depth = 500  # of nesting, below which syrupy would leave values out
    file_extension = "messages"

    def serialize(self, data: Any, **kwargs: Any) -> str:  # noqa: ANN401  # Any: what syrupy declares
        """What the function `data` returns as JSON text, without characters that a reader would not see or a file not hold."""
        return json_safe(str(super().serialize(data(), **kwargs)))
