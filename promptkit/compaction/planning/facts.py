"""Facts of messages, which are carried from checkpoint to checkpoint, as plain values and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import attrs

from promptkit.messages import Json, OpaquePart
from promptkit.transcript import Redactor, redact_json

T = TypeVar("T")
_Fact: TypeAlias = (
    "str | int | Command | Skill | Pin | Name | OpaquePart | tuple[_Fact, ...] | None"
)


@attrs.frozen
class Command:
    """A tool call that ran something, and the end of its result."""

    name: str
    """The tool's name."""
    what: str
    """The command, or the call's arguments."""
    outcome: str = ""
    """The last line of the result."""


@attrs.frozen
class Skill:
    """A skill that was loaded: a set of instructions from the host for one kind of work, which the model continues to need."""

    name: str
    """The skill's name."""
    text: str
    """The instructions: the result of the call that loaded the skill. Empty where newer skills left
    no room for it."""


@attrs.frozen(kw_only=True)
class Pin:
    """A text of the conversation that no compaction drops."""

    entry: str
    """The id of the entry that it is from."""
    text: str
    """The text: a whole message, or a passage of one."""
    by: str
    """The author of the message: `user`, `assistant`, or `tool` for the result of a tool."""


@attrs.frozen
class Name:
    """An identifier or a path, and how often it was used."""

    text: str
    """The name, as it was written."""
    written: int
    """The number of messages of the model and the user that contain it."""
    seen: int
    """The number of messages that contain it."""
    last: int
    """The number of the last of these messages, counted over all dropped messages. 0: that was an
    edit that removed the name."""


@attrs.frozen(kw_only=True)
class Facts:
    """The facts of all messages that were dropped so far. Lists are ordered oldest first."""

    requests: tuple[str, ...] = ()
    """The user's messages, word for word."""
    unanswered: int = 0
    """The number of the newest of them that no final reply of the model has followed."""
    read: tuple[str, ...] = ()
    """Paths that were read and not changed."""
    changed: tuple[str, ...] = ()
    """Paths that were changed."""
    commands: tuple[Command, ...] = ()
    """Commands and other tool calls, except reads, changes and searches of files."""
    errors: tuple[str, ...] = ()
    """Lines of tool results that report an error."""
    figures: tuple[str, ...] = ()
    """Figures that the user and the model wrote, each with the words beside it."""
    plan: str = ""
    """The last plan that the model presented."""
    todos: tuple[str, ...] = ()
    """The open items of the last list that the model wrote."""
    pins: tuple[Pin, ...] = ()
    """The texts that were pinned."""
    skills: tuple[Skill, ...] = ()
    """The skills that were loaded, each once."""
    rules: tuple[Skill, ...] = ()
    """The files with rules for agents that were read, such as `AGENTS.md`, each once."""
    tools: tuple[tuple[str, int], ...] = ()
    """The tools that were called, each with its number of calls."""
    names: tuple[Name, ...] = ()
    """Identifiers and paths, the one that is most likely to be used again first
    (docs/economics.md)."""
    last_reply: str = ""
    """The text of the model's last message."""
    messages: int = 0
    """Number of dropped messages."""
    thinking: OpaquePart | None = None
    """The model's last thinking block, for models that require one at the start of the
    conversation."""
    thinking_model: str = ""
    """The model that wrote it. Empty: unknown."""
    earlier: str | None = None
    """None: a model wrote the summary that belongs to these facts. Otherwise the summary was made
    from the facts, and this is the last summary that a model wrote, or an empty text if there was
    none."""
    memories: str | None = None
    """The list of memories that the answer with the summary had beside it. None: no list was asked
    for."""

    def merge(self, own: Facts) -> Facts:
        """Return these facts with the values that other ones have, which replace their own."""
        return attrs.evolve(self, **{name: getattr(own, name) for name in own._list_known()})

    def to_json(self) -> dict[str, Json]:
        """Return the facts as they are stored in a checkpoint. Unknown fields are omitted."""
        return {name: _to_json(getattr(self, name)) for name in self._list_known()}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Facts:
        """Read the facts of a checkpoint.

        Values of an unexpected type, as another program may have written them, are ignored.
        """
        return cls(
            requests=_read_texts(data.get("requests")),
            unanswered=_read_count(data.get("unanswered")),
            # pi's names, in imported sessions
            read=_read_texts(data.get("read")) or _read_texts(data.get("readFiles")),
            changed=_read_texts(data.get("changed")) or _read_texts(data.get("modifiedFiles")),
            commands=_read_rows(
                data.get("commands"),
                lambda row: Command(
                    _read_text(row.get("name")),
                    _read_text(row.get("what")),
                    _read_text(row.get("outcome")),
                ),
            ),
            errors=_read_texts(data.get("errors")),
            figures=_read_texts(data.get("figures")),
            plan=_read_text(data.get("plan")),
            todos=_read_texts(data.get("todos")),
            pins=pins_from_json(data),
            skills=_read_rows(data.get("skills"), _read_skill),
            rules=_read_rows(data.get("rules"), _read_skill),
            tools=tuple(_iter_counts(data.get("tools"))),
            names=_read_rows(
                data.get("names"),
                lambda row: Name(
                    _read_text(row.get("text")),
                    _read_count(row.get("written")),
                    _read_count(row.get("seen")),
                    _read_count(row.get("last")),
                ),
            ),
            last_reply=_read_text(data.get("last_reply")),
            messages=_read_count(data.get("messages")),
            thinking=thinking_from_json(data),
            thinking_model=_read_text(data.get("thinking_model")),
            earlier=_read_optional(data.get("earlier")),
            memories=_read_optional(data.get("memories")),
        )

    def redact(self, redactor: Redactor) -> Facts:
        """Remove secrets from all texts.

        A thinking block with a secret is removed whole, because it is signed.
        """
        data = self.to_json()
        clean = {name: redact_json(value, redactor) for name, value in data.items()}
        thinking = self.thinking if clean.get("thinking") == data.get("thinking") else None
        return attrs.evolve(Facts.from_json(clean), thinking=thinking)

    def _list_known(self) -> list[str]:
        """Return the names of the fields that have a value."""
        names = (field.name for field in attrs.fields(type(self)))
        return [
            name
            for name in names
            if (value := getattr(self, name))
            or (value is not None and name in {"earlier", "memories"})
        ]


def is_thinking(part: object) -> bool:
    """Tell whether a part is a thinking block of a Claude model, signed or redacted."""
    value = part.value if isinstance(part, OpaquePart) else None
    return isinstance(value, Mapping) and value.get("type") in {"thinking", "redacted_thinking"}


def pin_from_json(data: Mapping[str, Json]) -> Pin:
    """Read a pin as facts and the entries of pins store it. Values of another type are empty."""
    return Pin(**{name: _read_text(data.get(name)) for name in ("entry", "text", "by")})


def pins_from_json(facts: Mapping[str, Json]) -> tuple[Pin, ...]:
    """Return the pins in the facts of a checkpoint."""
    return _read_rows(facts.get("pins"), pin_from_json)


def thinking_from_json(facts: Mapping[str, Json]) -> OpaquePart | None:
    """Return the last thinking block in the facts of a checkpoint, or None."""
    value = facts.get("thinking")
    if not isinstance(value, Mapping):
        return None
    tokens, provider = value.get("tokens"), value.get("provider")
    part = OpaquePart(
        value=value.get("value"),
        tokens=tokens if isinstance(tokens, int) else None,
        provider=provider if isinstance(provider, str) else None,
    )
    return part if is_thinking(part) else None


_ROWS: Mapping[type, Sequence[str]] = {
    row: tuple(attrs.fields_dict(row)) for row in (Command, Skill, Pin, Name)
}
"""The fields of each class of facts, which are texts and numbers."""


def _to_json(value: _Fact) -> Json:
    fields = _ROWS.get(type(value))
    if fields is not None:  # a list of names has 1,500
        return {field: getattr(value, field) for field in fields}
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Command | Skill | Pin | Name | OpaquePart):
        return attrs.asdict(value)
    # a summarizer of a program's own may have given a list
    return [_to_json(each) for each in value]


def _read_skill(row: Mapping[str, Json]) -> Skill:
    return Skill(_read_text(row.get("name")), _read_text(row.get("text")))


def _read_count(value: Json) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _read_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _read_optional(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _read_texts(value: Json) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _read_rows(value: Json, read: Callable[[Mapping[str, Json]], T]) -> tuple[T, ...]:
    """Read the objects of a list."""
    rows = value if isinstance(value, list) else []
    return tuple(read(row) for row in rows if isinstance(row, Mapping))


def _iter_counts(value: Json) -> Iterator[tuple[str, int]]:
    for row in value if isinstance(value, list) else []:
        match row:
            case [name, int(number)]:
                yield str(name), number
            case _:
                pass
