"""Find the facts of messages without a model.

Facts only grow, up to fixed bounds. They keep what a summary of a summary would lose, above all the
list of changed files.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import TypeVar

import attrs

from promptkit.compaction.planning.blocks import is_user_request, unmark_request
from promptkit.compaction.planning.facts import Command, Facts, Name, Skill, is_thinking
from promptkit.compaction.planning.names import (
    find_candidates,
    find_figures,
    find_replaced_names,
    is_common,
    is_name,
    iter_texts,
)
from promptkit.compaction.planning.tool_calls import (
    FILE_RULES,
    PATH_ARGUMENTS,
    FileCall,
    FileRule,
    find_file_call,
    find_skill_name,
    is_rule_file,
    list_rules,
    parse_arguments,
)
from promptkit.compaction.planning.user_messages import MARKER, rank_requests
from promptkit.messages import (
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    ToolCall,
    as_mapping,
)
from promptkit.tools import is_error_result
from promptkit.transcript import ViewItem

MAX_ENTRIES = 400
"""Entries of each list."""


MAX_ENTRY_CHARACTERS = 4_000
"""Characters of one entry."""


MAX_LIST_CHARACTERS = 40_000
"""Characters of one list. The oldest entries are removed first. Of skills the oldest texts are, and
the names stay."""


MAX_REQUESTS_CHARACTERS = 80_000
"""Characters of the user's messages: some 20,000 tokens. They leave in the order of
`rank_requests`."""


MAX_REQUEST_CHARACTERS = 20_000
"""Characters of one message of the user. The middle of a longer one is left out."""


MAX_SKILL_CHARACTERS = 20_000
"""Characters of the text of one skill."""


MAX_THINKING_CHARACTERS = 100_000
"""Characters of a thinking block as JSON. A longer block is not kept, because it cannot be
shortened."""


COMMAND_ARGUMENTS = ("command", "cmd", "script")
MAX_FIGURES = 100
"""Figures that are kept, the newest."""

MAX_NAMES = 1_500
"""Names that are kept: those that are most likely to be used again. More than a list shows, so that
what is known of a name counts when it is used again."""

WRITTEN_WEIGHT, REPEATED_WEIGHT, GRACE = 2, 4, 5
"""The weights in `rate_name` of a name that the model or the user wrote, and of one that more than
one message contains; and the messages for which a name is about as likely as a new one."""

PLAN_TOOLS = frozenset(
    {"exitplanmode", "exit_plan_mode", "present_plan", "create_plan", "write_plan"}
)
ERROR_LINE = re.compile(
    r"\b(?:[A-Z]\w*(?:Error|Exception|Warning)|error|fatal|failed|FAILED|panic|Traceback|refused|denied)\b"
)
TODO_LINE = re.compile(r"^[ \t]*+(?:[-*]|\d{1,9}\.)[ \t]*+\[([ xX]?)\][ \t]++(\S.*)$", re.MULTILINE)
CLOSED_STATUSES = frozenset({"completed", "done", "cancelled"})


Item = TypeVar("Item")


def extend_facts(
    facts: Facts, items: Iterable[ViewItem], *, rules: Iterable[FileRule] = FILE_RULES
) -> Facts:
    """Add the facts of more messages.

    Runs in linear time. Adding messages in several steps gives the same facts as adding them at
    once, as long as no list is full.

    Args:
        facts: The facts so far.
        items: The messages.
        rules: Tell which files a tool call reads or changes.
    """
    collector = _FactCollector(facts, tuple(rules))
    for item in items:
        collector.add(item)
    return collector.build()


def rate_name(name: Name, *, messages: int) -> float:
    """Rate how likely a name is used again: what was written, repeated and seen lately is likelier.

    `messages` is the number of the newest message.
    """
    weight = 1 + WRITTEN_WEIGHT * math.log1p(name.written)
    weight *= REPEATED_WEIGHT if name.seen > 1 else 1
    return weight / (max(0, messages - name.last) + GRACE)


class _FactCollector:
    """Collects facts message by message."""

    def __init__(self, known: Facts, rules: Sequence[FileRule]) -> None:
        self._list_rules = cache(partial(list_rules, rules=rules))
        self.requests = list(known.requests)
        self.read = dict.fromkeys(known.read)
        self.changed = dict.fromkeys(known.changed)
        self.commands = list(known.commands)
        self.errors = dict.fromkeys(known.errors)
        self.tools = dict(known.tools)
        self.known = known
        self.todos, self.last_reply, self.messages, self.thinking = (
            known.todos,
            known.last_reply,
            known.messages,
            known.thinking,
        )
        self.thinking_model = known.thinking_model
        self.plan, self.unanswered = known.plan, known.unanswered
        self.skills = {skill.name: skill.text for skill in known.skills}
        self.rules = {rule.name: rule.text for rule in known.rules}
        # of names, and of words that may be some
        self.written = Counter({name.text: name.written for name in known.names})
        self.read_in_results = Counter(
            {each.text: each.seen - each.written for each in known.names}
        )
        self.last = {name.text: name.last for name in known.names}
        self._said = list[str]()  # the texts of the user and the model
        self._running: dict[str, int] = {}  # call id → index of its command
        # call id → where the text of its skill or rules belongs, and its name
        self._loading: dict[str, tuple[dict[str, str], str]] = {}
        # call id → its files, until the result tells that the call did not fail
        self._using: dict[str, FileCall] = {}

    def add(self, item: ViewItem) -> None:
        """Add one message."""
        message = item.message
        text = message.text
        if item.kind == "replacement" and _describe_request(message) in self.requests:
            # the message was counted at the previous checkpoint and is still shown next to its
            # summary
            return
        self.messages += 1
        self._add_names(item.unpruned or message)
        if message.role == "user":
            # neither a summary nor a reminder from a program
            if is_user_request(item) and (request := _describe_request(message)):
                self.requests.append(request)
                self.unanswered += 1
                self._said.append(text)
        elif message.role == "assistant":
            self._add_thinking(item)
            if text.strip():
                self.last_reply = _clip(text.strip())
                self._add_markdown_todos(text)
                self._said.append(text)
            if not message.tool_calls:
                self.unanswered = 0
            for call in message.tool_calls:
                self._add_call(call)
        elif message.role == "tool":
            self._add_result(
                message.tool_call_id or "",
                (item.unpruned or message).text,
                failed=is_error_result(message),
            )

    def _add_thinking(self, item: ViewItem) -> None:
        for part in item.message.content:
            if isinstance(part, OpaquePart) and is_thinking(part):
                self.thinking, self.thinking_model = part, item.model or ""

    def build(self) -> Facts:
        """Return the collected facts, within bounds."""
        for call_id in list(self._using):  # their results are not among the messages
            self._list_files(call_id)
        requests = _keep_requests(self.requests)
        first_open = len(self.requests) - self.unanswered
        return Facts(
            requests=tuple(self.requests[at] for at in requests),
            unanswered=sum(at >= first_open for at in requests),
            read=_keep_newest([path for path in self.read if path not in self.changed], len),
            changed=_keep_newest(list(self.changed), len),
            commands=_keep_newest(
                self.commands,
                lambda command: len(command.name) + len(command.what) + len(command.outcome),
            ),
            errors=_keep_newest(list(self.errors), len),
            figures=self._find_figures(),
            plan=self.plan,
            todos=_keep_newest(self.todos, len),
            pins=self.known.pins,
            skills=_keep_newest_texts([Skill(*skill) for skill in self.skills.items()]),
            rules=_keep_newest_texts([Skill(*rule) for rule in self.rules.items()]),
            tools=_keep_newest(list(self.tools.items()), lambda tool: len(tool[0])),
            names=self._rank_names(),
            last_reply=self.last_reply,
            messages=self.messages,
            thinking=self.thinking
            if len(json.dumps(self.thinking and self.thinking.value)) <= MAX_THINKING_CHARACTERS
            else None,
            thinking_model=self.thinking_model,
            earlier=self.known.earlier,
        )

    def _add_names(self, message: Message) -> None:
        called = message.tool_calls
        words = find_candidates("\n".join(iter_texts(message)) if called else message.text)
        (self.read_in_results if message.role == "tool" else self.written).update(words)
        self.last.update(dict.fromkeys(words, self.messages))
        if called:
            self.last.update(dict.fromkeys(find_replaced_names(message), 0))

    def _rank_names(self) -> tuple[Name, ...]:
        """Return the names that are most likely to be used again, the likeliest first."""
        known = {name.text: name for name in self.known.names}
        # a Counter looks up what it does not have in a call
        count_written, count_read = self.written.get, self.read_in_results.get
        names = {
            text: Name(text, written := count_written(text, 0), written + count_read(text, 0), last)
            for text, last in self.last.items()
            if is_name(text) and not is_common(text)
        }
        ranked = sorted(
            (known | names).values(),
            key=lambda name: (-rate_name(name, messages=self.messages), name.text),
        )
        return tuple(ranked[:MAX_NAMES])

    def _find_figures(self) -> tuple[str, ...]:
        """Return the newest figures. Older texts than theirs are not searched."""
        found = (reversed(list(find_figures(text))) for text in reversed(self._said))
        newest = dict[str, None]()
        for figure in chain(chain.from_iterable(found), reversed(self.known.figures)):
            newest[figure] = None
            if len(newest) == MAX_FIGURES:
                break
        return tuple(reversed(newest))

    def _add_call(self, call: ToolCall) -> None:
        name = _clip(call.name, 100)
        self.tools[name] = self.tools.get(name, 0) + 1
        arguments = parse_arguments(call.arguments) or {}
        if ("todo" in name.lower() or name.lower() == "update_plan") and self._add_todo_list(
            arguments
        ):
            return
        if name.lower() in PLAN_TOOLS and (plan := _find_text(arguments, ("plan",))):
            self.plan = _clip(plan.strip())
            return
        skill = find_skill_name(call.name, arguments)
        if skill is not None:
            self._loading[call.id] = self.skills, _clip(skill, 100)
            return
        files = find_file_call(call.name, arguments, self._list_rules(call.name)) or FileCall(
            "other"
        )
        lists_files = files.use in {"read", "change"} and bool(files.paths)
        if lists_files:
            self._list_files(call.id)  # of an earlier call with this id, which has no result
            self._using[call.id] = files
            if files.use == "read" and is_rule_file(files.paths[0]):
                self._loading[call.id] = self.rules, _clip(files.paths[0])
        command = _find_text(arguments, COMMAND_ARGUMENTS)
        if command is None and files.use == "search":
            return  # the next calls read what the search found
        if not lists_files or (command is not None and not _find_text(arguments, PATH_ARGUMENTS)):
            self._running[call.id] = len(self.commands)
            self.commands.append(
                Command(name, _clip(command if command is not None else call.arguments, 400))
            )

    def _add_result(self, call_id: str, text: str, *, failed: bool) -> None:
        if failed:
            self._using.pop(call_id, None)
        else:
            self._list_files(call_id)
        at, loading = self._running.pop(call_id, None), self._loading.pop(call_id, None)
        if loading is not None and not failed:
            loaded, name = loading
            loaded.pop(name, None)
            loaded[name] = _clip(text.strip(), MAX_SKILL_CHARACTERS)
        if at is None and not failed:
            # not a command: error lines inside a file that was read are not errors of this session
            return
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if at is not None:
            self.commands[at] = attrs.evolve(
                self.commands[at], outcome=_clip(lines[-1] if lines else "(nothing)", 300)
            )
        errors = [line for line in lines if ERROR_LINE.search(line)]
        for line in errors or (lines[:1] if failed else ()):
            _move_to_end(self.errors, _clip(line, 300))

    def _list_files(self, call_id: str) -> None:
        """List the files of a call, if it is not known to have failed."""
        files = self._using.pop(call_id, None)
        if files is not None:
            known = self.read if files.use == "read" else self.changed
            for path in files.paths:
                _move_to_end(known, _clip(path))

    def _add_markdown_todos(self, text: str) -> None:
        points = list(TODO_LINE.finditer(text)) if "[" in text else ()
        if points:
            self.todos = tuple(
                _clip(point[2].strip(), 300) for point in points if not point[1].strip()
            )

    def _add_todo_list(self, arguments: Mapping[str, Json]) -> bool:
        """Take the items of a call that writes a todo list.

        Returns False if the call has no list.
        """
        lists = [value for value in arguments.values() if isinstance(value, list)]
        for points in lists[:1]:
            texts = (
                point.get("content") or point.get("title") or point.get("text") or point.get("step")
                for point in map(as_mapping, points)
                if str(point.get("status")) not in CLOSED_STATUSES
            )
            self.todos = tuple(_clip(text, 300) for text in texts if isinstance(text, str))
        return bool(lists)


def _move_to_end(items: dict[str, None], item: str) -> None:
    """Put an item at the end, and remove its earlier position."""
    items.pop(item, None)
    items[item] = None


def _keep_newest(items: Sequence[Item], size: Callable[[Item], int]) -> tuple[Item, ...]:
    """Return the newest items that fit the bounds."""
    left = MAX_LIST_CHARACTERS
    start = len(items)
    while start > max(0, len(items) - MAX_ENTRIES):
        left -= size(items[start - 1])
        if left < 0:
            break
        start -= 1
    return tuple(items[start:])


def _keep_requests(texts: Sequence[str]) -> list[int]:
    """Return the places of the user's messages that fit the bounds, in their order."""
    left = MAX_REQUESTS_CHARACTERS
    kept: list[int] = []
    for at in reversed(rank_requests(texts)):
        left -= len(texts[at])
        if left < 0 or len(kept) == MAX_ENTRIES:
            break
        kept.append(at)
    return sorted(kept)


def _keep_newest_texts(skills: Sequence[Skill]) -> tuple[Skill, ...]:
    """Return the skills, with the texts of the newest ones that fit a list.

    The others have their names alone.
    """
    left = MAX_LIST_CHARACTERS
    kept: list[Skill] = []
    for skill in reversed(_keep_newest(skills, lambda skill: len(skill.name))):
        fits = len(skill.text) <= left
        left -= len(skill.text) if fits else 0
        kept.append(skill if fits else attrs.evolve(skill, text=""))
    return tuple(reversed(kept))


def _clip(text: str, limit: int = MAX_ENTRY_CHARACTERS) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _describe_request(message: Message) -> str:
    """Return the text of a user's message, with a note of its pictures and documents.

    The middle of a very long one is left out.
    """
    message = unmark_request(message)
    text = message.text.strip()
    others = sum(isinstance(part, ImagePart | DocumentPart) for part in message.content)
    if len(text) > MAX_REQUEST_CHARACTERS:
        half = (MAX_REQUEST_CHARACTERS - len(MARKER)) // 2
        text = f"{text[:half]}{MARKER}{text[-half:]}"
    return "\n".join(
        filter(None, (text, f"[{others} attachment{'' if others == 1 else 's'}]" if others else ""))
    )


def _find_text(arguments: Mapping[str, object], names: Iterable[str]) -> str | None:
    """Return the first of the named arguments that is a text."""
    return next((value for name in names if isinstance(value := arguments.get(name), str)), None)
