"""The output helpers of all commands: escaped and clipped text, tables, a spinner, JSON, output files, and the error that ends a command."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.text import Text

    from promptkit import Part


# Control characters except tab and line feed; line and paragraph separators; characters that
# override or isolate the direction of writing; lone surrogates, which no encoding can write.
DANGEROUS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


QUIET = "promptkit.quiet"
"""The key in the context of a command that was called with `--quiet`."""


def usage_error(message: str) -> NoReturn:
    """End the command with exit status 2 and a one-line message on stderr."""
    raise click.UsageError(message)


def is_quiet() -> bool:
    """Return whether the command was called with `--quiet`."""
    context = click.get_current_context(silent=True)
    return context is not None and QUIET in context.meta


def print_note(text: str, *, err: bool = False) -> None:
    """Print a line about a result, unless the command is quiet."""
    if not is_quiet():
        click.echo(text, err=err)


def count_nouns(number: int, noun: str, nouns: str | None = None) -> str:
    """Return a number with its noun: `1 file`, `1,200 files`. `nouns` is a plural that does not end with s alone."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def escape_control_chars(text: str) -> str:
    r"""Escape characters that would move the cursor, change colours or reverse the direction of writing in a terminal.

    >>> escape_control_chars("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return DANGEROUS.sub(_escape, text)


def show_text(text: str) -> str:
    """Return a text as it is printed to stdout: for a terminal, and with `--color always`, with control characters escaped, for a pipe or a file as it is."""
    return (
        escape_control_chars(text) if sys.stdout.isatty() or "FORCE_COLOR" in os.environ else text
    )


def _escape(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}" if match[0] <= "\xff" else f"\\u{ord(match[0]):04x}"


def describe_part(part: Part) -> str:
    """Return the text of a part of a message, or a name for an image or a document; nothing for any other part."""
    from promptkit import DocumentPart, ImagePart

    match part:
        case str(text):
            return text
        case ImagePart(url=url):
            return f"[image {url[:60]}]"
        case DocumentPart(name=name, media_type=kind):
            return f"[document {name or kind}]"
        case _:
            return ""


def clip(text: str, width: int) -> str:
    """Cut a text to at most `width` columns. A text that is cut ends with `…`."""
    from rich.cells import cell_len, set_cell_size

    # every character takes at least one column, except combining characters
    text = text[: width + 1]
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def draw_bar(console: Console, share: float, width: int, style: str) -> Text:
    """Draw how full something is, in characters that the terminal's encoding has."""
    from rich.text import Text

    full, empty = "█░" if console.encoding.startswith("utf") else "#."
    filled = min(width, round(width * share))
    return Text.assemble((full * filled, style), (empty * (width - filled), "bright_black"))


def read_width(default: int) -> int:
    """Return the columns of the terminal, or of the environment variable COLUMNS, or `default` if stdout is neither a terminal nor told."""
    from rich.console import Console

    return (
        Console().width
        if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
        else default
    )


@contextmanager
def show_spinner(task: str) -> Generator[None]:
    """Show `task` and a spinner on stderr while the block runs.

    Shows nothing if stderr is not a terminal, or the command is quiet.
    """
    if is_quiet() or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(task)):
        yield


def print_legend(entries: Sequence[tuple[str, str]], *, width: int, indent: int = 0) -> None:
    """Print names and their meanings in two columns of at most `width` columns together.

    Long meanings wrap.
    """
    column = indent + max(len(name) for name, _ in entries) + 2
    for name, meaning in entries:
        lines = wrap(meaning, max(width - column, 20), break_on_hyphens=False)
        click.echo(f"{'':{indent}}{name}".ljust(column) + f"\n{'':{column}}".join(lines))


def print_table(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    gap: int,
    first: JustifyMethod,
) -> None:
    """Print a table.

    If the terminal is too narrow for it, columns move into a second table below, so that no figure
    is broken.

    Args:
        console: Where to print.
        headings: The names of the columns. The first column names the row, and is repeated in each
            table.
        rows: The cells of each row. A row may be shorter than the headings.
        gap: The characters between two columns.
        first: How the first column is aligned. All others are aligned to the right.
    """
    from rich.table import Column, Table
    from rich.text import Text

    texts = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = [
        max(
            *map(len, heading.split("\n")),
            *(row[column].cell_len for row in texts if column < len(row)),
            0,
        )
        for column, heading in enumerate(headings)
    ]
    for number, columns in enumerate(_group_columns(widths, console.width, gap)):
        if number:
            console.print()
        table = Table(
            *(
                Column(headings[column], justify="right" if column else first, no_wrap=True)
                for column in columns
            ),
            box=None,
            pad_edge=False,
            padding=(0, gap, 0, 0),
            width=sum(widths[column] + gap for column in columns) - gap,
        )
        for row in texts:
            table.add_row(*(row[column] for column in columns if column < len(row)))
        console.print(table, crop=False)


def _group_columns(widths: Sequence[int], available: int, gap: int) -> list[list[int]]:
    """Return the columns of each table: the first one, and as many others as fit beside it, but at least one."""
    groups: list[list[int]] = []
    room = 0
    for column in range(1, len(widths)):
        if not groups or gap + widths[column] > room:
            groups.append([0])
            room = available - widths[0]
        groups[-1].append(column)
        room -= gap + widths[column]
    return groups


def echo_wrapped(text: str, *, err: bool = False, indent: int = 0) -> None:
    """Print a sentence.

    Lines are broken between words at the width of the terminal; elsewhere it is one line. Those
    after the first are indented by so many columns.
    """
    width = read_width(0)
    lines = wrap(
        text,
        max(width, indent + 20),
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    click.echo("\n".join(lines) if width else text, err=err)


def print_json(value: object) -> None:
    """Print a value as indented JSON, in ASCII: a prompt may contain text that the terminal's encoding cannot write."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


_PAGE_MARKS = (
    b'<meta name="generator" content="promptkit">',
    b"<dc:title>promptkit</dc:title>",  # the creator in the metadata of an SVG
    b"Software\0promptkit",  # in a PNG
)


def check_output(*paths: Path | None, force: bool) -> None:
    """End the command with a sentence, before its work begins, if a file cannot be written or may not be replaced.

    A page or a picture that promptkit wrote is replaced, any other file only with `force`. `-` is
    stdout.
    """
    for path in paths:
        if path is None or str(path) == "-":
            continue
        if not path.resolve().parent.is_dir():
            usage_error(f"cannot write {path}: there is no folder {path.parent}.")
        if path.is_dir():
            usage_error(f"cannot write {path}: it is a folder.")
        if path.is_file() and not force and not _is_page(path):
            usage_error(f"{path} already exists: name another file, or pass --force to replace it.")


def _is_page(path: Path) -> bool:
    """Return whether promptkit wrote a file as a page or a picture."""
    with path.open("rb") as file:
        head = file.read(4_096)  # the bytes of a page or a picture that have its mark
    return any(mark in head for mark in _PAGE_MARKS)


def write_file(path: Path, content: bytes | Iterable[bytes], *, mode: int = 0o600) -> None:
    """Write a file, or end the command with a sentence. `-` is stdout.

    Args:
        path: The file.
        content: The content, whole or in chunks.
        mode: The permissions of a new file. By default only the user may read it, since it may hold
            a conversation.
    """
    from promptkit.files import write_output

    chunks = [content] if isinstance(content, bytes) else content
    if str(path) == "-":
        sys.stdout.buffer.writelines(chunks)
        return
    try:
        write_output(path, lambda file: file.writelines(chunks), mode=mode)
    except OSError as error:
        usage_error(f"cannot write {path}: {error.strerror}.")


def write_json(output: Path | None, chunks: Iterable[bytes]) -> None:
    """Write JSON to a file, or to stdout, as it is printed there."""
    if output is not None:
        write_file(output, chunks)
        return
    for chunk in chunks:
        text = chunk.decode("utf-8", errors="surrogatepass")
        # On a terminal, control characters are `\u` escapes, which mean the same.
        sys.stdout.write(
            DANGEROUS.sub(
                lambda match: match[0] if match[0] == "\r" else f"\\u{ord(match[0]):04x}", text
            )
            if sys.stdout.isatty()
            else text
        )
