"""The newest files of a conversation, shown again after a compaction with the text that they have then."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.facts import Facts, extend_facts
from promptkit.compaction.summarizers.file_lists import strip_line_range
from promptkit.errors import InvalidArgumentError
from promptkit.messages import Message
from promptkit.tokens.truncation import truncate_text
from promptkit.transcript.log.view import escape_closing_tag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from promptkit.compaction.planning.file_calls import FileRule
    from promptkit.compaction.planning.plan import Plan, Summary
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.redaction import Redactor

_LOGGER = logging.getLogger("promptkit")

TAG = "recent-files"
TITLE = "The files that were used last, with the text that they had when the summary above was put in place:"
MARKER = "\n[The middle of this file is left out here.]\n"

MOST_ATTEMPTS = 4
"""Times `max_files`: so many files are asked for at most, as some may be gone."""


@attrs.frozen(kw_only=True)
class RecentFiles:
    """The files that a checkpoint shows after its summary.

    They are read once, when the checkpoint is written.

    Changed files come before files that were only read, the newest first. A file that a message
    still shows is left out.

    >>> Replacement(files=RecentFiles(read=lambda path: Path(path).read_text() if Path(path).is_file() else None))
    """

    read: Callable[[str], str | Awaitable[str | None] | None]
    """Returns the present text of a file, or None if the model shall not see it. May be async. What
    it raises is logged."""
    max_files: int = 5
    max_tokens: int = 25_000
    """The most tokens of all files together. A session takes at most an eighth of what a
    conversation may have."""
    max_file_tokens: int = 5_000
    """The most tokens of one file. The middle of a longer one is left out."""
    seconds: float = 10.0
    """The longest time of all reads together. Then the files that were read are shown."""

    def __attrs_post_init__(self) -> None:
        for name in ("max_files", "max_tokens", "max_file_tokens", "seconds"):
            if not getattr(self, name) >= 0:
                problem = f"{name}={getattr(self, name)} must be at least 0."
                raise InvalidArgumentError(problem)

    async def load(  # noqa: PLR0913  # keywords
        self,
        plan: Plan,
        summary: Summary,
        *,
        room: int,
        rules: Sequence[FileRule],
        tokenizer: Tokenizer,
        redactor: Redactor | None,
    ) -> tuple[Message, ...]:
        """Read the files and return the message that shows them, or nothing.

        Args:
            plan: What is dropped and kept.
            summary: The checked summary, whose facts name the files.
            room: The most tokens of the message.
            rules: Tell which files the tool calls of kept messages read.
            tokenizer: Counts the tokens.
            redactor: Removes secrets; None: nothing is removed.
        """
        left = (
            min(room, self.max_tokens)
            - tokenizer.count(_format([]))
            - tokenizer.count_framing("user").tokens
        )
        blocks: list[str] = []
        try:
            async with asyncio.timeout(self.seconds):
                for path in self._select(plan, Facts.from_json(summary.facts), rules):
                    if len(blocks) == self.max_files or left <= 0:
                        break
                    text = await self._read(path)
                    if text is None:
                        continue
                    block = _fit(
                        path,
                        text if redactor is None else redactor(text),
                        min(left, self.max_file_tokens),
                        tokenizer,
                    )
                    left -= tokenizer.count(block)
                    blocks += [block] if block else []
        except TimeoutError:
            _LOGGER.warning(
                "the newest files were not all read within %g seconds; %d are shown",
                self.seconds,
                len(blocks),
            )
        return (Message(role="user", content=(_format(blocks[::-1]),)),) if blocks else ()

    def _select(self, plan: Plan, facts: Facts, rules: Sequence[FileRule]) -> Iterator[str]:
        """Yield the paths of the newest files that no kept message shows, the newest first."""
        shown = {
            strip_line_range(path) for path in extend_facts(Facts(), plan.kept, rules=rules).read
        }
        newest = dict.fromkeys(
            map(strip_line_range, (*reversed(facts.changed), *reversed(facts.read)))
        )
        yield from [path for path in newest if path and path not in shown][
            : MOST_ATTEMPTS * self.max_files
        ]

    async def _read(self, path: str) -> str | None:
        try:
            text = self.read(path)
            if inspect.isawaitable(text):
                text = await text
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001  # a host's function may raise anything, and the checkpoint goes on without the file
            _LOGGER.warning(
                "the file %s is left out after a compaction: reading it raised %r", path, error
            )
            return None
        if text is not None and not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a host's function
            _LOGGER.warning(
                "the file %s is left out after a compaction: read() returned %s and not a text",
                path,
                type(text).__name__,
            )
            return None
        return text


def _fit(path: str, text: str, tokens: int, tokenizer: Tokenizer) -> str:
    """Return the block of a file in at most `tokens`, or an empty text if not even the marker fits."""
    name = path.replace('"', "&quot;").replace("\n", " ")
    safe = escape_closing_tag(escape_closing_tag(text, "file"), TAG).rstrip("\n")
    frame = tokenizer.count(f'<file path="{name}">\n\n</file>\n')
    shown = truncate_text(
        safe, tokens - frame, keep="middle", ratio=0.5, marker=MARKER, tokenizer=tokenizer
    )
    return f'<file path="{name}">\n{shown}\n</file>' if shown and shown != MARKER else ""


def _format(blocks: Sequence[str]) -> str:
    return "\n".join([f"<{TAG}>", TITLE, *blocks, f"</{TAG}>"])
