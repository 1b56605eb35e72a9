"""What differs from run to run and from machine to machine, replaced before a prompt is compared: ids, dates, folders.

Strings are replaced one by one, before anything is shortened or laid out, so that no half of an id is left over.

Counting that does not vary with what a snapshot replaces: an id has as many tokens as its placeholder.

Without it a prompt with a new uuid in each run would have other figures in each run, and at the edge of a budget lose other elements.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from promptkit.emitters.parts import parse_data_url
from promptkit.messages import DocumentPart, ImagePart, Json, Message, OpaquePart, Part, ToolCall
from promptkit.tokens.tokenizer import Count, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from promptkit.messages import Role, ToolDefinition

__all__ = ["Places", "Replace", "Stabilizer", "Stable", "forms_of_ids", "steady"]


Replace: TypeAlias = Callable[[str], str]
"""A function of one string of the prompt: a text, an id, a path of the receipt."""

_EDGE = "(?<![A-Za-z0-9_]){}(?![A-Za-z0-9_])"
_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_UUID_HEX = "[0-9a-f]{12}[1-8][0-9a-f]{3}[89ab][0-9a-f]{15}"
_ULID = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
_PROVIDERS = "(?:asst|call|chatcmpl|fc|msg|req|resp|rs|run|srvtoolu|thread|toolu)[_-](?=[A-Za-z]*[0-9])[A-Za-z0-9]{8,}"
_IDS = re.compile("|".join(_EDGE.format(form) for form in (_UUID, _UUID_HEX, _ULID, _PROVIDERS)))
_WORD = re.compile("[A-Za-z0-9_-]+")
_SHORTEST = 5  # characters of a call's id that is looked for in text: "c1" may be anything there

_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d+)?(?: ?Z| ?[+-][01]\d:?[0-5]\d)?"
_MINUTES = r"(?:[01]\d|2[0-3]):[0-5]\d(?: ?Z| ?[+-][01]\d:?[0-5]\d)?"
_DAY = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_BASIC = r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])T[0-2]\d[0-5]\d(?:[0-5]\d)?(?:Z|[+-][01]\d(?:[0-5]\d)?)?"
_DATES = re.compile(
    # Not behind a letter and a hyphen: the date in a model's name is part of it.
    rf"(?<![A-Za-z0-9:-])(?:(?P<day>{_DAY})(?:(?P<between>[T ])(?:{_CLOCK}|{_MINUTES})(?!\w))?(?!\d|-\d)|(?P<basic>{_BASIC})(?!\w)|{_CLOCK}(?![\w:]))"
)


@attrs.frozen(kw_only=True)
class Places:
    """The folders of this machine and of this run."""

    root: Path
    """The project's, which becomes `<root>`."""

    home: Path
    """The user's, which becomes `<home>`."""

    temporary: Path
    """The system's for temporary folders: those that `tempfile` makes in it become `<tmp 1>`, `<tmp 2>`, …."""

    pytest: Path | None = None
    """Pytest's for temporary folders: so do all in it."""


@attrs.frozen(kw_only=True)
class Stabilizer:
    """What to replace. Nothing unless said."""

    functions: tuple[Replace, ...] = ()
    """Applied first, in order."""

    ids: bool | str = False
    """Ids of tool calls, uuids, and ids of the forms that providers give; with a regular expression, what it matches, too."""

    dates: bool = False
    """Dates and times as ISO 8601 writes them."""

    places: Callable[[], Places] | None = None
    """Where the folders to replace are found; None leaves paths alone."""

    @property
    def replaces(self) -> bool:
        """Whether anything is replaced."""
        return bool(self.functions or self.ids or self.dates or self.places)


def forms_of_ids(own: str) -> re.Pattern[str]:
    """A form of ids, given as a regular expression, beside those that are known. Raises re.error."""
    flags, pattern = match.groups() if (match := re.fullmatch(r"\(\?(\w+)\)(.*)", own, re.DOTALL)) else ("", own)
    return re.compile(f"(?{flags}:{pattern})|{_IDS.pattern}")


class Stable:
    """One snapshot's replacements: the same id has the same number in all of it. Not `numbered`, all ids look alike."""

    def __init__(self, stabilizer: Stabilizer, *, numbered: bool = True) -> None:
        self.stabilizer = stabilizer
        self._with_numbers = numbered
        self._numbers: dict[str, dict[str, int]] = {}
        self._calls: set[str] = set()
        self._ids = bool(stabilizer.ids)
        self._steps: list[Replace] = list(stabilizer.functions)
        if stabilizer.ids:
            forms = _IDS if stabilizer.ids is True else forms_of_ids(stabilizer.ids)
            self._steps.append(lambda text: _WORD.sub(self._known, forms.sub(lambda match: self._id(match[0]), text)))
        if stabilizer.places:
            self._steps += _folders(stabilizer.places(), self._numbered)
        if stabilizer.dates:
            self._steps.append(lambda text: _DATES.sub(_date, text))

    def text(self, text: str) -> str:
        """One string, stable."""
        for step in self._steps:
            text = step(text)
        return text

    def messages(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """The messages with all their strings stable."""
        if not self._steps:
            return tuple(messages)
        messages = tuple(messages)
        self._calls.update(call.id for message in messages for call in message.tool_calls)
        return tuple(map(self._message, messages))

    def _message(self, message: Message) -> Message:
        return attrs.evolve(
            message,
            content=tuple(map(self._part, message.content)),
            name=None if message.name is None else self.text(message.name),
            tool_calls=tuple(map(self.call, message.tool_calls)),
            tool_call_id=None if message.tool_call_id is None else self.call_id(message.tool_call_id),
        )

    def _part(self, part: Part) -> Part:
        match part:
            case str():
                return self.text(part)
            case ImagePart() if parse_data_url(part.url) is None:
                return attrs.evolve(part, url=self.text(part.url))
            case DocumentPart(name=str(name)):
                return attrs.evolve(part, name=self.text(name))
            case OpaquePart():
                return attrs.evolve(part, value=self._json(part.value))
            case _:
                return part

    def _json(self, value: Json) -> Json:
        """A JSON value with its strings stable, made without recursion."""
        root = [value]
        todo: list[list[Json] | dict[str, Json]] = [root]
        while todo:
            holder = todo.pop()
            if isinstance(holder, dict):
                for key, item in holder.items():
                    holder[key] = self._copied(item, todo)
            else:
                holder[:] = [self._copied(item, todo) for item in holder]
        return root[0]

    def _copied(self, item: Json, todo: list[list[Json] | dict[str, Json]]) -> Json:
        if isinstance(item, str):
            return self.text(item)
        if isinstance(item, Mapping):
            todo.append(dict(item))
        elif isinstance(item, list):
            todo.append(list(item))
        else:
            return item
        return todo[-1]

    def call(self, call: ToolCall) -> ToolCall:
        """A tool call with its strings stable."""
        return attrs.evolve(call, id=self.call_id(call.id), arguments=self.text(call.arguments))

    def call_id(self, call_id: str) -> str:
        """A call's own id: an id whatever its form."""
        made = self.text(call_id)
        return self._id(call_id) if self._ids and made == call_id else made

    def _known(self, match: re.Match[str]) -> str:
        return self._id(match[0]) if len(match[0]) >= _SHORTEST and match[0] in self._calls else match[0]

    def _id(self, found: str) -> str:
        return self._numbered("id", found.lower())

    def _numbered(self, kind: str, found: str) -> str:
        if not self._with_numbers:
            return f"<{kind}>"
        numbers = self._numbers.setdefault(kind, {})
        return f"<{kind} {numbers.setdefault(found, len(numbers) + 1)}>"


def _date(match: re.Match[str]) -> str:
    # Not numbered: two dates are often equal by chance.
    if match["day"]:
        return f"<date>{match['between']}<time>" if match["between"] else "<date>"
    return "<date>T<time>" if match["basic"] else "<time>"


def _folders(places: Places, numbered: Callable[[str, str], str]) -> list[Replace]:
    """Temporary folders, then the project, then the home: the first may be in the second, and that in the third."""
    steps: list[Replace] = []
    for folder, inside in ((places.pytest, r"[\w.@+~%-]*\w"), (places.temporary, r"tmp[a-z0-9_]{8}(?!\w)")):
        if folder is not None:
            steps.append(_folder(folder, lambda name: numbered("tmp", name), inside))
    for folder, name in ((places.root, "<root>"), (places.home, "<home>")):
        if len(folder.parts) > 1:  # the root of the file system is in every path
            steps.append(_folder(folder, _always(name)))
    return steps


def _always(name: str) -> Replace:
    return lambda _: name


def _folder(folder: Path, named: Replace, inside: str = "") -> Replace:
    """A replacement of a folder, or of the folders `inside` it, and of the separators that follow by slashes."""
    forms = {form for path in (folder, folder.resolve()) for form in (str(path), path.as_posix(), json.dumps(str(path))[1:-1])}
    spelled = "|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form)))
    between = r"[\\/]+" if "\\" in str(folder) else "/+"  # elsewhere a backslash is the beginning of an escape
    ending = f"{between}(?P<inside>{inside})" if inside else r"(?P<inside>)(?![\w-]|\.\w)"
    pattern = re.compile(rf"(?<![\w.~-])(?:{spelled}){ending}(?P<rest>(?:{between}[\w.@+~%-]+)*)")
    return lambda text: pattern.sub(lambda match: named(match["inside"]) + re.sub(between, "/", match["rest"]), text)


def steady(tokenizer: Tokenizer, stabilizer: Stabilizer) -> Tokenizer:
    """A tokenizer that counts text as it stands in the snapshot; the tokenizer itself where nothing is replaced."""
    return _Steady(tokenizer, Stable(stabilizer, numbered=False)) if stabilizer.replaces else tokenizer


@attrs.frozen
class _Steady(Tokenizer):
    """Another tokenizer, given stable text.

    No cut is safe: what is replaced may lie across one. Nothing is known without counting either.
    """

    _tokenizer: Tokenizer
    _stable: Stable

    @property
    def name(self) -> str:
        return self._tokenizer.name

    def count(self, text: str) -> int:
        return self._tokenizer.count(self._stable.text(text))

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
            name=name and self._stable.text(name),
            tool_calls=[self._stable.call(call) for call in tool_calls],
            tool_call_id=tool_call_id and self._stable.call_id(tool_call_id),
            text=text,
        )

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        return self._tokenizer.count_part(part)

    def count_overhead(self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False) -> Count:
        return self._tokenizer.count_overhead(tools, system=system)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        # Between words, so that no half of an id is counted as what it is; inside one only where not even the first fits.
        places = {0, len(text), *(place.start() for place in re.finditer(r"(?<=\s)(?=\S)|(?<=\S)(?=\s)", text))}
        lengths = sorted(place if keep == "head" else len(text) - place for place in places)
        fitting = bisect_right(lengths, tokens, key=lambda length: self.count(_end(text, length, keep)))
        if fitting > 1 or not text:
            return _end(text, lengths[fitting - 1], keep)
        return super().truncate(_end(text, lengths[1], keep), tokens, keep=keep)


def _end(text: str, characters: int, keep: Literal["head", "tail"]) -> str:
    return text[:characters] if keep == "head" else text[len(text) - characters :]
