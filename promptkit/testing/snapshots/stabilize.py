"""Replace what differs from run to run and from machine to machine by placeholders: ids, dates, folders.

Strings are replaced one by one, before they are shortened or laid out, so that no half of an id is
left over.

The tokenizer counts the placeholders too. Otherwise a prompt with a new uuid in each run would have
other figures in each run, and would lose other elements at the edge of a budget.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from promptkit import DocumentPart, ImagePart, Message, OpaquePart, Part, ToolCall, ToolDefinition
from promptkit.messages import Json, Role, copy_json
from promptkit.tokens import Count, Tokenizer
from promptkit.wire.parts import parse_data_url

ReplaceText: TypeAlias = Callable[[str], str]
"""Takes one string of the prompt (a text, an id, a path in the receipt) and returns it changed."""


@attrs.frozen(kw_only=True)
class MachineFolders:
    """The folders of this machine and of this run."""

    root: Path
    """The project's folder, which becomes `<root>`."""

    home: Path
    """The user's home, which becomes `<home>`."""

    temporary: Path
    """The system's folder for temporary files. Folders that `tempfile` creates in it become
    `<tmp 1>`, `<tmp 2>`, …."""

    pytest: Path | None = None
    """pytest's folder for temporary files. All folders in it become `<tmp 1>`, `<tmp 2>`, …."""


@attrs.frozen(kw_only=True)
class StabilizeOptions:
    """What to replace; nothing by default."""

    functions: tuple[ReplaceText, ...] = ()
    """Functions that are applied first, in order."""

    ids: bool | str = False
    """Whether to replace ids of tool calls, uuids and providers' ids. A regular expression replaces
    its matches as well."""

    dates: bool = False
    """Whether to replace dates and times in the form of ISO 8601."""

    find_folders: Callable[[], MachineFolders] | None = None
    """Finds the folders to replace; None keeps paths as they are."""


class Stabilizer:
    """The replacements of one snapshot.

    Args:
        options: What to replace.
        numbered: Whether placeholders have numbers, so that the same id has the same number in the
            whole snapshot. Otherwise all ids look alike.
    """

    def __init__(self, options: StabilizeOptions, *, numbered: bool = True) -> None:
        self.options = options
        self._numbered = numbered
        self._numbers: dict[str, dict[str, int]] = {}
        self._call_ids: set[str] = set()
        self._steps: list[ReplaceText] = list(options.functions)
        if options.ids:
            forms = _IDS if options.ids is True else compile_id_pattern(options.ids)
            self._steps.append(
                lambda text: _WORD.sub(
                    self._replace_call_id, forms.sub(lambda match: self._replace_id(match[0]), text)
                )
            )
        if options.find_folders:
            self._steps += _make_folder_steps(options.find_folders(), self._make_placeholder)
        if options.dates:
            self._steps.append(lambda text: _DATES.sub(_replace_date, text))

    def stabilize_text(self, text: str) -> str:
        """Replace what varies in one string."""
        for step in self._steps:
            text = step(text)
        return text

    def stabilize_messages(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Replace what varies in all strings of these messages."""
        if not self._steps:
            return tuple(messages)
        messages = tuple(messages)
        self._call_ids.update(call.id for message in messages for call in message.tool_calls)
        return tuple(map(self._stabilize_message, messages))

    def _stabilize_message(self, message: Message) -> Message:
        return attrs.evolve(
            message,
            content=tuple(map(self._stabilize_part, message.content)),
            name=None if message.name is None else self.stabilize_text(message.name),
            tool_calls=tuple(map(self.stabilize_call, message.tool_calls)),
            tool_call_id=None
            if message.tool_call_id is None
            else self.stabilize_call_id(message.tool_call_id),
        )

    def _stabilize_part(self, part: Part) -> Part:
        match part:
            case str():
                return self.stabilize_text(part)
            case ImagePart() if parse_data_url(part.url) is None:
                return attrs.evolve(part, url=self.stabilize_text(part.url))
            case DocumentPart(name=str(name)):
                return attrs.evolve(part, name=self.stabilize_text(name))
            case OpaquePart():
                return attrs.evolve(part, value=self.stabilize_json(part.value))
            case _:
                return part

    def stabilize_json(self, value: Json) -> Json:
        """Replace what varies in the strings of a copy of a JSON value."""
        copied: Json = copy_json(value, self.stabilize_text)
        return copied

    def stabilize_call(self, call: ToolCall) -> ToolCall:
        """Replace what varies in the id and the arguments of a tool call."""
        return attrs.evolve(
            call, id=self.stabilize_call_id(call.id), arguments=self.stabilize_text(call.arguments)
        )

    def stabilize_call_id(self, call_id: str) -> str:
        """Replace the id of a tool call, which is an id whatever its form."""
        replaced = self.stabilize_text(call_id)
        return self._replace_id(call_id) if self.options.ids and replaced == call_id else replaced

    def _replace_call_id(self, match: re.Match[str]) -> str:
        return (
            self._replace_id(match[0])
            if len(match[0]) >= _MIN_CALL_ID and match[0] in self._call_ids
            else match[0]
        )

    def _replace_id(self, found: str) -> str:
        return self._make_placeholder("id", found.lower())

    def _make_placeholder(self, kind: str, found: str) -> str:
        if not self._numbered:
            return f"<{kind}>"
        numbers = self._numbers.setdefault(kind, {})
        return f"<{kind} {numbers.setdefault(found, len(numbers) + 1)}>"


_EDGE = "(?<![A-Za-z0-9_]){}(?![A-Za-z0-9_])"
_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_UUID_HEX = "[0-9a-f]{12}[1-8][0-9a-f]{3}[89ab][0-9a-f]{15}"
_ULID = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
_PROVIDERS = "(?:asst|call|chatcmpl|fc|msg|req|resp|rs|run|srvtoolu|thread|toolu)[_-](?=[A-Za-z]*[0-9])[A-Za-z0-9]{8,}"
_IDS = re.compile("|".join(_EDGE.format(form) for form in (_UUID, _UUID_HEX, _ULID, _PROVIDERS)))
_WORD = re.compile("[A-Za-z0-9_-]+")
# characters; a shorter id, such as "c1", may be anything in a text and is not searched there
_MIN_CALL_ID = 5


def compile_id_pattern(id_form: str) -> re.Pattern[str]:
    """Compile a pattern for a further form of ids and for the known ones.

    Raises re.error if `id_form` is no regular expression.
    """
    flags, pattern = (
        match.groups()
        if (match := re.fullmatch(r"\(\?(\w+)\)(.*)", id_form, re.DOTALL))
        else ("", id_form)
    )
    return re.compile(f"(?{flags}:{pattern})|{_IDS.pattern}")


_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d+)?(?: ?Z| ?[+-][01]\d:?[0-5]\d)?"
_MINUTES = r"(?:[01]\d|2[0-3]):[0-5]\d(?: ?Z| ?[+-][01]\d:?[0-5]\d)?"
_DAY = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_BASIC = r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])T[0-2]\d[0-5]\d(?:[0-5]\d)?(?:Z|[+-][01]\d(?:[0-5]\d)?)?"
_DATES = re.compile(
    # Not behind a letter and a hyphen: the date in a model's name is part of it.
    rf"(?<![A-Za-z0-9:-])(?:(?P<day>{_DAY})(?:(?P<separator>[T ])(?:{_CLOCK}|{_MINUTES})(?!\w))?(?!\d|-\d)|(?P<basic>{_BASIC})(?!\w)|{_CLOCK}(?![\w:]))"
)


def _replace_date(match: re.Match[str]) -> str:
    # Dates have no numbers, because two of them are often equal by chance.
    if match["day"]:
        return f"<date>{match['separator']}<time>" if match["separator"] else "<date>"
    return "<date>T<time>" if match["basic"] else "<time>"


def _make_folder_steps(
    folders: MachineFolders, make_placeholder: Callable[[str, str], str]
) -> list[ReplaceText]:
    """Replace temporary folders, then the project, then the home, because the first may be inside the second, and that inside the third."""
    steps: list[ReplaceText] = []
    for folder, inside in (
        (folders.pytest, r"[\w.@+~%-]*\w"),
        (folders.temporary, r"tmp[a-z0-9_]{8}(?!\w)"),
    ):
        if folder is not None:
            steps.append(
                _make_folder_step(folder, lambda name: make_placeholder("tmp", name), inside)
            )
    return steps + [
        # nothing is matched inside these folders, so that the name is added to an empty text
        _make_folder_step(folder, name.__add__)
        for folder, name in ((folders.root, "<root>"), (folders.home, "<home>"))
        if len(folder.parts) > 1  # the root of the file system is in every path
    ]


def _make_folder_step(folder: Path, name_folder: ReplaceText, inside: str = "") -> ReplaceText:
    """Make a function that replaces a folder, or the folders `inside` it, and writes the separators behind it as slashes."""
    spellings = "|".join(
        re.escape(form)
        for form in sorted(
            {
                form
                for path in (folder, folder.resolve())
                for form in (str(path), path.as_posix(), json.dumps(str(path))[1:-1])
            },
            key=lambda form: (-len(form), form),
        )
    )
    # on other systems a backslash begins an escape
    separator = r"[\\/]+" if "\\" in str(folder) else "/+"
    ending = f"{separator}(?P<inside>{inside})" if inside else r"(?P<inside>)(?![\w-]|\.\w)"
    pattern = re.compile(
        rf"(?<![\w.~-])(?:{spellings}){ending}(?P<rest>(?:{separator}[\w.@+~%-]+)*)"
    )
    return lambda text: pattern.sub(
        lambda match: name_folder(match["inside"]) + re.sub(separator, "/", match["rest"]), text
    )


def stabilize_tokenizer(tokenizer: Tokenizer, options: StabilizeOptions) -> Tokenizer:
    """Return a tokenizer that counts text as the snapshot shows it; the tokenizer itself if nothing is replaced."""
    return (
        _StableTokenizer(tokenizer, Stabilizer(options, numbered=False))
        if options != StabilizeOptions()
        else tokenizer
    )


@attrs.frozen
class _StableTokenizer(Tokenizer):
    """A tokenizer that replaces what varies before another one counts.

    It declares no safe cut, because a replaced text may lie across any cut, and no bound of a
    count.
    """

    _tokenizer: Tokenizer
    _stabilizer: Stabilizer

    @property
    def name(self) -> str:
        return self._tokenizer.name

    def count(self, text: str) -> int:
        return self._tokenizer.count(self._stabilizer.stabilize_text(text))

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        return self._tokenizer.count_framing(
            role,
            name=name and self._stabilizer.stabilize_text(name),
            tool_calls=[self._stabilizer.stabilize_call(call) for call in tool_calls],
            tool_call_id=tool_call_id and self._stabilizer.stabilize_call_id(tool_call_id),
            text=text,
        )

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        return self._tokenizer.count_part(part)

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        return self._tokenizer.count_overhead(tools, system=system)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        # Cut between words, so that no half of an id is counted; cut inside a word only if not even
        # the first one fits.
        places = {
            0,
            len(text),
            *(place.start() for place in re.finditer(r"(?<=\s)(?=\S)|(?<=\S)(?=\s)", text)),
        }
        lengths = sorted(place if keep == "head" else len(text) - place for place in places)
        fitting = bisect_right(
            lengths, tokens, key=lambda length: self.count(_take_end(text, length, keep))
        )
        return (
            _take_end(text, lengths[fitting - 1], keep)
            if fitting > 1 or not text
            else super().truncate(_take_end(text, lengths[1], keep), tokens, keep=keep)
        )


def _take_end(text: str, characters: int, keep: Literal["head", "tail"]) -> str:
    return text[:characters] if keep == "head" else text[len(text) - characters :]
