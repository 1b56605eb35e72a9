"""What is carried over from checkpoint to checkpoint: facts that are read off the messages themselves, without a model.

Facts only grow, within bounds: what a summary of a summary would forget, the list of files that were changed above all, is folded
from every stretch that is dropped.

Which skill a tool call invokes: the host's instructions for a kind of work, which the model goes on needing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import attrs

from promptkit.compaction.planning.blocks import is_user_request
from promptkit.compaction.summarizers.quirks import is_thinking
from promptkit.messages import OpaquePart
from promptkit.transcript.redaction import redact_json

if TYPE_CHECKING:
    from promptkit.messages import Json, ToolCall
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.view import ViewItem

__all__ = ["Command", "Facts", "extend_facts", "find_skill_name", "thinking_from_facts", "redact_facts"]


TOOLS = frozenset({"skill", "load_skill", "use_skill", "invoke_skill"})
NAMES = ("skill", "name", "command", "skill_name")


def find_skill_name(tool: str, arguments: Mapping[str, object]) -> str | None:
    """The name of the skill that a call of a tool invokes; None for any other call.

    >>> find_skill_name("Skill", {"command": "pdf"})
    'pdf'
    """
    if tool.lower() not in TOOLS:
        return None
    return next((text.strip() for name in NAMES if isinstance(text := arguments.get(name), str) and text.strip()), None)


Item = TypeVar("Item")

MOST = 400
"""Entries of each list; the oldest leave."""

LONGEST = 4_000
"""Characters of one entry."""

CHARACTERS = 40_000
"""Characters of one list; the oldest leave, but for the first request."""

LONGEST_THOUGHT = 100_000
"""Characters of a thought, as JSON: it is kept whole or not at all."""

PATHS = ("path", "file_path", "filePath", "filename", "file", "notebook_path", "target_file")
COMMANDS = ("command", "cmd", "script")
CHANGES = re.compile(r"write|edit|replace|create|patch|insert|delete|remove|move|rename|append|update", re.IGNORECASE)
READS = re.compile(r"read|view|open|cat\b|load|show", re.IGNORECASE)
SEARCHES = re.compile(r"search|grep|find|glob|list|\bls\b", re.IGNORECASE)
ERRORS = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception|Warning)|error|fatal|failed|FAILED|panic|Traceback|refused|denied)\b")
POINT = re.compile(r"^[ \t]*+(?:[-*]|\d{1,9}\.)[ \t]*+\[([ xX]?)\][ \t]++(\S.*)$", re.MULTILINE)
DONE = frozenset({"completed", "done", "cancelled"})


@attrs.frozen
class Command:
    """A call that ran something, and the end of what it returned."""

    name: str
    what: str
    outcome: str = ""


@attrs.frozen(kw_only=True)
class Facts:
    """What is known of everything that was dropped so far, oldest first."""

    requests: tuple[str, ...] = ()
    """What the person said, word for word."""
    read: tuple[str, ...] = ()
    """Paths that were read and not changed."""
    changed: tuple[str, ...] = ()
    """Paths that were changed."""
    commands: tuple[Command, ...] = ()
    errors: tuple[str, ...] = ()
    todos: tuple[str, ...] = ()
    """The open points of the last list that the model wrote."""
    skills: tuple[str, ...] = ()
    """The skills that were invoked."""
    tools: tuple[tuple[str, int], ...] = ()
    """The tools that were called, and how often."""
    last_reply: str = ""
    """What the model said last."""
    messages: int = 0
    """How many messages were dropped."""
    thinking: OpaquePart | None = None
    """The last thought of the model, for one that must lead with it."""
    earlier: str | None = None
    """None: a model wrote the summary that these facts stand beside. Else it was made of them, and this is the last one that a model
    wrote, or empty where there was none."""

    def to_json(self) -> dict[str, Json]:
        """As the facts of a checkpoint; what is not known is left out."""
        facts = attrs.asdict(self, value_serializer=_as_list)
        known = {name: value for name, value in facts.items() if value not in (None, [], 0) and (value or name == "earlier")}
        return cast("dict[str, Json]", known)  # lists of strings and figures

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Facts:
        """The facts of a checkpoint; what is no such thing, as another program may have written it, counts as nothing."""
        return cls(
            requests=_texts(data.get("requests")),
            read=_texts(data.get("read")),
            changed=_texts(data.get("changed")),
            commands=tuple(Command(*row) for row in _rows(data.get("commands"))),
            errors=_texts(data.get("errors")),
            todos=_texts(data.get("todos")),
            skills=_texts(data.get("skills")),
            tools=_counts(data.get("tools")),
            last_reply=_text(data.get("last_reply")),
            messages=count if isinstance(count := data.get("messages"), int) else 0,
            thinking=thinking_from_facts(data),
            earlier=earlier if isinstance(earlier := data.get("earlier"), str) else None,
        )


def extend_facts(facts: Facts, items: Iterable[ViewItem]) -> Facts:
    """The facts with those of more messages. Linear in their text; folding in parts is folding at once, as long as no list is full."""
    gathering = _Gathering(facts)
    for item in items:
        gathering.take(item)
    return gathering.facts()


def thinking_from_facts(facts: Mapping[str, Json]) -> OpaquePart | None:
    """The last thought in the facts of a checkpoint; None where they have none."""
    return _thought(facts.get("thinking"))


def redact_facts(facts: Mapping[str, Json], redactor: Redactor) -> dict[str, Json]:
    """Facts of which the redactor has seen every text. A thought in which it finds something goes whole: it is signed."""
    clean = {name: redact_json(value, redactor) for name, value in facts.items()}
    return {name: value for name, value in clean.items() if name != "thinking" or value == facts[name]}


class _Gathering:
    """Facts while they are gathered."""

    def __init__(self, known: Facts) -> None:
        self.requests = list(known.requests)
        self.read = dict.fromkeys(known.read)
        self.changed = dict.fromkeys(known.changed)
        self.commands = list(known.commands)
        self.errors = dict.fromkeys(known.errors)
        self.tools = dict(known.tools)
        self.known = known
        self.todos, self.last_reply, self.messages, self.thinking = known.todos, known.last_reply, known.messages, known.thinking
        self.skills = dict.fromkeys(known.skills)
        self._running: dict[str, int] = {}  # call id → its command

    def take(self, item: ViewItem) -> None:
        """One more message."""
        message = item.message
        text = message.text
        if item.kind == "replacement" and _clip(text.strip()) in self.requests:
            return  # it is still shown beside the summary that it was taken into
        self.messages += 1
        if message.role == "user":
            if text.strip() and is_user_request(item):  # no summary, no reminder of a program's
                self.requests.append(_clip(text.strip()))
        elif message.role == "assistant":
            self.thinking = next((p for p in reversed(message.content) if isinstance(p, OpaquePart) and is_thinking(p)), self.thinking)
            if text.strip():
                self.last_reply = _clip(text.strip())
                self._note_todos(text)
            for call in message.tool_calls:
                self._call(call)
        elif message.role == "tool":
            self._result(message.tool_call_id or "", text)

    def facts(self) -> Facts:
        """What was gathered, within bounds."""
        requests = _bounded(self.requests, len)
        return Facts(
            requests=requests if len(requests) == len(self.requests) else (self.requests[0], *requests),
            read=_bounded([path for path in self.read if path not in self.changed], len),
            changed=_bounded(list(self.changed), len),
            commands=_bounded(self.commands, lambda command: len(command.name) + len(command.what) + len(command.outcome)),
            errors=_bounded(list(self.errors), len),
            todos=_bounded(self.todos, len),
            skills=_bounded(list(self.skills), len),
            tools=_bounded(list(self.tools.items()), lambda tool: len(tool[0])),
            last_reply=self.last_reply,
            messages=self.messages,
            thinking=self.thinking if len(json.dumps(self.thinking and self.thinking.value)) <= LONGEST_THOUGHT else None,
            earlier=self.known.earlier,
        )

    def _call(self, call: ToolCall) -> None:
        name = _clip(call.name, 100)
        self.tools[name] = self.tools.get(name, 0) + 1
        arguments = _arguments(call.arguments)
        if "todo" in name.lower() and self._note_list(arguments):
            return
        path, command, skill = _first(arguments, PATHS), _first(arguments, COMMANDS), find_skill_name(call.name, arguments)
        if command is None and SEARCHES.search(call.name):
            return  # what it found is looked at by the next calls
        if skill is not None:
            _newest(self.skills, _clip(skill, 100))
        elif path is not None and CHANGES.search(call.name):
            _newest(self.changed, _clip(path))
        elif path is not None and READS.search(call.name):
            _newest(self.read, _clip(path))
        else:
            self._running[call.id] = len(self.commands)
            self.commands.append(Command(name, _clip(command if command is not None else call.arguments, 400)))

    def _result(self, call_id: str, text: str) -> None:
        at = self._running.pop(call_id, None)
        if at is None:
            return  # a file that tells of errors has none of its own
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        self.commands[at] = attrs.evolve(self.commands[at], outcome=_clip(lines[-1] if lines else "(nothing)", 300))
        for line in lines:
            if ERRORS.search(line):
                _newest(self.errors, _clip(line, 300))

    def _note_todos(self, text: str) -> None:
        points = list(POINT.finditer(text))
        if points:
            self.todos = tuple(_clip(point[2].strip(), 300) for point in points if not point[1].strip())

    def _note_list(self, arguments: Mapping[str, object]) -> bool:
        """Take the points of a call that writes a list; False if it is none of these."""
        found = next((cast("list[object]", value) for value in arguments.values() if isinstance(value, list)), None)  # of JSON
        if found is None:
            return False
        points = [cast("dict[str, object]", point) for point in found if isinstance(point, dict)]  # of JSON
        texts = [(point.get("content") or point.get("title") or point.get("text"), str(point.get("status"))) for point in points]
        self.todos = tuple(_clip(text, 300) for text, status in texts if isinstance(text, str) and status not in DONE)
        return True


def _newest(items: dict[str, None], item: str) -> None:
    """Put an item at the end, wherever it was."""
    items.pop(item, None)
    items[item] = None


def _bounded(items: Sequence[Item], size: Callable[[Item], int]) -> tuple[Item, ...]:
    """The newest items that the bounds have room for."""
    left = CHARACTERS
    start = len(items)
    while start > max(0, len(items) - MOST):
        left -= size(items[start - 1])
        if left < 0:
            break
        start -= 1
    return tuple(items[start:])


def _clip(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _arguments(text: str) -> Mapping[str, object]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}  # JSON objects have string keys


def _first(arguments: Mapping[str, object], names: Iterable[str]) -> str | None:
    """The first of some arguments that is a text."""
    return next((value for name in names if isinstance(value := arguments.get(name), str)), None)


def _as_list(_: object, __: object, value: object) -> object:
    if not isinstance(value, tuple):
        return value
    return [_as_list(_, __, item) for item in cast("tuple[object, ...]", value)]  # of what facts hold


def _thought(value: Json) -> OpaquePart | None:
    if not isinstance(value, Mapping):
        return None
    tokens, provider = value.get("tokens"), value.get("provider")
    part = OpaquePart(
        value=value.get("value"),
        tokens=tokens if isinstance(tokens, int) else None,
        provider=provider if isinstance(provider, str) else None,
    )
    return part if is_thinking(part) else None


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _rows(value: Json) -> list[tuple[str, str, str]]:
    rows = value if isinstance(value, list) else []
    return [(_text(row.get("name")), _text(row.get("what")), _text(row.get("outcome"))) for row in rows if isinstance(row, Mapping)]


def _counts(value: Json) -> tuple[tuple[str, int], ...]:
    rows = value if isinstance(value, list) else []
    return tuple((str(row[0]), row[1]) for row in rows if isinstance(row, list) and len(row) == 2 and isinstance(row[1], int))  # noqa: PLR2004  # name and number
