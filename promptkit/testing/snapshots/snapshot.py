"""The right side of `assert prompt == prompt_snapshot`: syrupy snapshots that render a prompt and write it down.

Each of the three kinds has its own files, one for each comparison, named after the test. Their
suffixes contain no dot: with a suffix that ends in another one (`.messages.json`) syrupy would take
one kind for the other and delete files that are in use.

syrupy is passed a function that returns the document, and its extension calls it. So an error of
the render counts as a failed comparison in syrupy's report, and the snapshot does not count as
unused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import attrs
from syrupy.assertion import AssertionResult, SnapshotAssertion
from syrupy.data import SnapshotCollection
from syrupy.extensions.json import JSONSnapshotExtension
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.types import PropertyFilter, PropertyMatcher

from promptkit.errors import InvalidArgumentError
from promptkit.files import write_output
from promptkit.messages import ToolDefinition, as_sequence
from promptkit.rendering.renderer import Defaults
from promptkit.sizes import read_tokens
from promptkit.testing.snapshots.documents import (
    BudgetLevel,
    MachineFolders,
    ReplaceText,
    SnapshotOptions,
    StabilizeOptions,
    Stabilizer,
    build_wire_json,
    compile_id_pattern,
    format_prompt,
    format_receipt,
    format_request,
    read_request,
    render_levels,
)
from promptkit.testing.snapshots.markdown import diff_lines, escape_json, show_first
from promptkit.tokens import Tokenizer
from promptkit.wire.parts import WireFormat


class _WholeFiles(SingleFileSnapshotExtension):
    """Replace the file of a snapshot as a whole: where the disk is full, the old one stays."""

    @classmethod
    def write_snapshot_collection(
        cls, *, snapshot_collection: SnapshotCollection, name_order: dict[str, int] | None = None
    ) -> None:
        """Write the only snapshot of a collection."""
        del name_order  # there is one
        text = str(next(iter(snapshot_collection)).data)
        write_output(
            Path(snapshot_collection.location), lambda file: file.write(text.encode()), mode=0o666
        )


class PromptExtension(_WholeFiles):
    """Write the document as a Markdown file."""

    _write_mode = WriteMode.TEXT
    file_extension = "md"

    def serialize(self, data: Callable[[], object], **_: object) -> str:
        """Return the text that the function `data` returns."""
        return str(data())


class WireExtension(PromptExtension):
    """Write the document as a Markdown file of its own kind."""

    file_extension = "request"


class ReceiptExtension(PromptExtension):
    """Write the document as a text file."""

    file_extension = "receipt"


class MessagesExtension(_WholeFiles, JSONSnapshotExtension):
    """Write the document as JSON, with syrupy's `matcher`, `include` and `exclude`."""

    _max_depth = 500  # of nesting; syrupy omits values below its own limit
    file_extension = "messages"

    def serialize(
        self,
        data: Callable[[], object],
        *,
        exclude: PropertyFilter | None = None,
        include: PropertyFilter | None = None,
        matcher: PropertyMatcher | None = None,
    ) -> str:
        """Return what the function `data` returns as JSON text, with invisible characters escaped."""
        return escape_json(
            str(super().serialize(data(), exclude=exclude, include=include, matcher=matcher))
        )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PromptSnapshot:
    """A prompt as Markdown, in a file of its own.

    Compare it with an element, a tuple of elements or a Rendered.

    Each method returns a changed copy. All copies in one test number their files together.

    >>> def test_review(prompt_snapshot: PromptSnapshot) -> None:
    ...     assert Review(change="+x = 1") == prompt_snapshot.at(budgets=[8_000, 2_000])
    """

    extension: ClassVar[type[_WholeFiles]] = PromptExtension
    """Names the file, and writes it."""

    assertion: SnapshotAssertion
    """syrupy's assertion, with the extension that names the file."""

    find_folders: Callable[[], MachineFolders]
    """Returns the folders of this machine; called if paths are stabilized."""

    mismatches: list[Mismatch]
    """Failed comparisons, for the report of the test."""

    options: SnapshotOptions = attrs.field(factory=SnapshotOptions)
    stabilize_options: StabilizeOptions = attrs.field(factory=StabilizeOptions)
    _syrupy_options: tuple[tuple[str, Any], ...] = ()  # Any: what syrupy's own call takes

    def __call__(self, *, name: str) -> Self:
        """Name the snapshot, in place of a number, where one test has several."""
        return attrs.evolve(self, syrupy_options=(*self._syrupy_options, ("name", name)))

    def at(
        self,
        *,
        budgets: Sequence[int | str] | None = None,
        tokenizer: Tokenizer | None = None,
        tools: Sequence[ToolDefinition] = (),
        defaults: Defaults | None = None,
    ) -> Self:
        """Render at these budgets, all in one file, largest first; each smaller one shows what it loses.

        An argument that is omitted keeps its earlier value.

        Args:
            budgets: Tokens (8_000 or `"8k"`), or the names of models whose windows are the budgets. A budget that the
                required parts do not fit is recorded with the error's sentence.
            tokenizer: Counts tokens in place of the model's tokenizer or the default.
            tools: Definitions that take room beside the messages.
            defaults: What is removed where nothing has a priority, as in `render`.

        Raises:
            TypeError: `budgets` is one number or name and not a list.
            ValueError: `budgets` is empty.
        """
        if isinstance(budgets, str | int):  # each letter of a model's name would be a budget
            raise TypeError(f"at(budgets={budgets!r}) is no list: write at(budgets=[{budgets!r}]).")
        if budgets is not None and not budgets:
            raise ValueError(
                "at(budgets=[]) names no budget: pass at least one number of tokens or model name, or omit budgets."
            )
        before = self.options
        return attrs.evolve(
            self,
            options=SnapshotOptions(
                budgets=before.budgets if budgets is None else tuple(map(_read_budget, budgets)),
                tokenizer=tokenizer or before.tokenizer,
                tools=tuple(tools) or before.tools,
                defaults=defaults or before.defaults,
            ),
        )

    def stabilize(
        self,
        *functions: ReplaceText,
        ids: bool | str = False,
        dates: bool = False,
        paths: bool = False,
    ) -> Self:
        """Put placeholders where text differs from run to run, in addition to those of earlier calls.

        Args:
            functions: Each takes a string of the prompt and returns it changed.
            ids: Replace ids of tool calls, uuids and providers' ids by `<id 1>`, `<id 2>`, …; the
                same id has the same number in the whole file. A regular expression adds a form of
                ids.
            dates: Replace dates and times of ISO 8601 by `<date>` and `<time>`.
            paths: Replace temporary folders by `<tmp 1>`, the project's folder by `<root>` and the
                home by `<home>`.

        Raises:
            re.error: `ids` is no regular expression.
        """
        if isinstance(ids, str):
            compile_id_pattern(ids)  # fails here rather than in the comparison
        before = self.stabilize_options
        return attrs.evolve(
            self,
            stabilize_options=StabilizeOptions(
                functions=(*before.functions, *functions),
                ids=ids or before.ids,
                dates=dates or before.dates,
                find_folders=self.find_folders if paths else before.find_folders,
            ),
        )

    def __eq__(self, prompt: object) -> bool:
        matches = bool(
            (
                self.assertion(**dict(self._syrupy_options))
                if self._syrupy_options
                else self.assertion
            )
            == (lambda: self._build(prompt, Stabilizer(self.stabilize_options)))
        )
        result = self.assertion.executions[self.assertion.num_executions - 1]
        if result.exception:
            raise result.exception
        if not matches:
            self.mismatches.append(
                _find_mismatch(result, self.assertion.session.pytest_session.config.rootpath)
            )
        return matches

    def __hash__(self) -> int:
        """Hash by identity: a snapshot is a place, not a value."""
        return id(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.assertion.test_location.testname}>"

    def _build(self, prompt: object, stabilizer: Stabilizer) -> object:
        return self._build_document(render_levels(prompt, self.options, stabilizer), stabilizer)

    def _build_document(self, levels: Sequence[BudgetLevel], stabilizer: Stabilizer) -> object:
        return format_prompt(levels)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MessagesSnapshot(PromptSnapshot):
    """The messages of a prompt as they are sent, as JSON: in the format of OpenAI's Chat Completions unless `to` selects another."""

    extension = MessagesExtension

    _wire_format: WireFormat = "chat"

    def __call__(
        self,
        *,
        name: str | None = None,
        matcher: PropertyMatcher | None = None,
        include: PropertyFilter | None = None,
        exclude: PropertyFilter | None = None,
    ) -> Self:
        """Set syrupy's options.

        Args:
            name: A name in place of a number.
            matcher: Replaces values before they are compared.
            include: Selects the keys to compare.
            exclude: Selects the keys to omit.
        """
        options = {"name": name, "matcher": matcher, "include": include, "exclude": exclude}
        return attrs.evolve(
            self,
            syrupy_options=(
                *self._syrupy_options,
                *((key, value) for key, value in options.items() if value is not None),
            ),
        )

    def to(self, wire_format: WireFormat) -> Self:
        """Select the format: `chat`, `responses` or `anthropic`."""
        return attrs.evolve(self, wire_format=wire_format)

    def _build_document(self, levels: Sequence[BudgetLevel], stabilizer: Stabilizer) -> object:
        return build_wire_json(levels, self._wire_format)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReceiptSnapshot(PromptSnapshot):
    """The receipt of a prompt: what it cost, what was removed and why."""

    extension = ReceiptExtension

    def _build_document(self, levels: Sequence[BudgetLevel], stabilizer: Stabilizer) -> object:
        return format_receipt(levels, stabilizer)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class WireSnapshot(PromptSnapshot):
    """A whole request as a provider gets it, of any provider and any program: settings, tools, messages, cache marks.

    Compare it with an `Exchange` of the test server, a request of `httpx` or `httpx2`, the
    arguments of an SDK's call, or a list of these. Secrets of common shapes are left out.
    """

    extension = WireExtension

    def _build(self, prompt: object, stabilizer: Stabilizer) -> object:
        if self.options != SnapshotOptions():
            raise TypeError(
                "a request has its size already: compare the prompt with prompt_snapshot.at(budgets=…)."
            )
        return "\n\n".join(
            format_request(read_request(request), stabilizer)
            for request in (as_sequence(prompt) or (prompt,))
        )


MAX_SHOWN_LINES = 400
"""Lines of a mismatch that a report shows; a version control system shows the rest once the
snapshot is updated."""


@attrs.frozen
class Mismatch:
    """A failed comparison."""

    path: str
    """Path of the snapshot's file, relative to pytest's rootdir if it is inside."""

    lines: tuple[str, ...]
    """The diff; the whole document if there was no snapshot."""

    is_new: bool
    """Whether there was no snapshot."""

    @property
    def shown_lines(self) -> Sequence[str]:
        """The first 400 lines, and how many more there are."""
        return show_first(self.lines, MAX_SHOWN_LINES)

    def __str__(self) -> str:
        if self.is_new:
            return (
                "There is no such file yet. `pytest --snapshot-update` writes it, as shown below."
            )
        removed, new = (sum(line.startswith(mark) for line in self.lines) for mark in "-+")
        return f"Lines: {removed:,} removed, {new:,} new, as shown below. `pytest --snapshot-update` accepts them."


def _find_mismatch(result: AssertionResult, root: Path) -> Mismatch:
    before, after = result.recalled_data, str(result.asserted_data)
    path = Path(result.snapshot_location)
    if path.is_relative_to(root):
        path = path.relative_to(root)
    return Mismatch(
        path.as_posix(),
        tuple(after.split("\n") if before is None else diff_lines(str(before), after)),
        before is None,
    )


def _read_budget(budget: int | str) -> int | str:
    """Return a number of tokens that is written as text as a number, and a model's name as it is."""
    try:
        return read_tokens(budget)
    except InvalidArgumentError:
        return budget
