"""The world of the benchmark of sessions: files with details, the tasks of a user, a model that decides by its request alone, and faults.

The model repeats a call whose result its request does not show, and finds a detail only if its
request shows it or shows the way to it.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from pydoc_data.topics import topics
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs

from promptkit import ToolCall, ToolDefinition
from promptkit.compaction.summarizers.summarizer import SECTIONS
from promptkit.messages import ImagePart, Message
from promptkit.testing.server import (
    Hang,
    HttpAnswer,
    ScriptedReply,
    rate_limit_error,
    server_error,
)
from promptkit.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.messages import Part
    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer

__all__ = ["TROUBLES", "Files", "Model", "Task", "find_detail", "make_tasks", "make_trouble"]

TROUBLES = ("too_large", "no_summaries", "smaller", "pictures", "oversized")
"""The kinds of trouble that have a conversation of their own: a 413 at every fifth request, the first
and those for summaries included; summaries that always fail; a switch to a smaller model; tools that
return pictures; a message that fits no window."""

_WORDS = topics["assignment"].split()
_TASK = re.compile(r"^Task (\d+): (.*)$", re.MULTILINE)
_PATH = re.compile(r"src/\w+\.py")
_DETAIL = re.compile(r"DETAIL = (\w+)")
_BREADCRUMB = re.compile(r"look it up there: (\w+)\((\{.*?\})\)")
_READ = re.compile(r'path[\\"]*: ?[\\"]*(src/\w+\.py)')
_TOLD = re.compile(r"The files ([^;]*?) were read\.")
_MORE = re.compile(r"\[there is more: recall\((\{.*\})\)\]")
_RESULT = r"^read_file \{{\"path\": \"{}\"\}} → entry (\w+)$"


@attrs.frozen(kw_only=True)
class Task:
    """A message of the user, and what is done before it is sent."""

    number: int
    text: str
    paths: tuple[str, ...] = ()
    """The files that are to be read."""
    wanted: str | None = None
    """The file whose detail is asked for."""
    before: str | None = None
    """`smaller`, `larger`: another model. `compact`. `branch`: back to before the previous two
    tasks."""
    trouble: bool = False
    """True if the turn may fail: requests or summaries fail, or its message is too large."""

    @property
    def message(self) -> str:
        """The text of the user's message."""
        return f"Task {self.number}: {self.text}"


def make_tasks(rounds: int) -> list[Task]:
    """Return the tasks of a conversation: four files and more at once, look-backs, two models, a branch."""
    # kind, files or the task looked back to, words of a file, what comes before
    plan: list[tuple[str, int, int, str | None]] = []
    for start in range(0, 9 * rounds, 9):
        plan += [
            ("read", 2, 700, None),
            ("read", 3, 700, None),
            ("talk", 0, 0, None),
            ("read", 5, 2_200, None),  # more than a window
            ("look", start + 1, 0, "smaller" if start % 2 else None),
            ("read", 3, 900, "compact" if start % 2 else None),
            ("look", start + 4, 0, None),
            ("read", 4, 900, "branch" if start % 2 else None),
            ("look", start + 2, 0, "larger" if start % 2 else "smaller" if start else None),
        ]
    return _build_tasks(plan)


def make_trouble(kind: str) -> list[Task]:
    """Return the tasks of a conversation with one kind of trouble: more files than a window, and three tasks after it."""
    read = "picture" if kind == "pictures" else "read"
    tasks = _build_tasks(
        [
            ("read", 2, 700, None),
            ("talk", 0, 0, None),
            (read, 3, 1_200, None),
            ("read", 4, 900, None),
            ("huge", 0, 0, None) if kind == "oversized" else (read, 3, 900, None),
            ("look", 1, 0, "smaller" if kind == "smaller" else None),
            ("read", 4, 1_200, None),
            ("talk", 0, 0, None),
            ("read", 2, 700, None),
            ("look", 7, 0, None),
        ]
    )
    troubled = {"too_large": range(1, 8), "no_summaries": range(1, 8), "oversized": (5,)}
    return [attrs.evolve(task, trouble=task.number in troubled.get(kind, ())) for task in tasks]


def _build_tasks(plan: Sequence[tuple[str, int, int, str | None]]) -> list[Task]:
    tasks: list[Task] = []
    for number, (kind, count, words, before) in enumerate(plan, 1):
        if kind in {"read", "picture"}:
            name = "picture" if kind == "picture" else "task"
            paths = tuple(f"src/{name}{number}_{at}_of_{words}.py" for at in range(count))
            tasks.append(
                Task(
                    number=number,
                    text=f"read {', '.join(paths)}, and say when you have seen them.",
                    paths=paths,
                    before=before,
                )
            )
        elif kind == "look":
            wanted = tasks[count - 1].paths[-1]
            tasks.append(
                Task(
                    number=number,
                    text=f"what is the detail of {wanted}?",
                    wanted=wanted,
                    before=before,
                )
            )
        else:
            said = _make_words(20_000 if kind == "huge" else 40, number)
            tasks.append(Task(number=number, text=f"is it true that {said}?", before=before))
    return tasks


def find_detail(path: str) -> str:
    """Return the detail that is in the middle of a file."""
    return hashlib.sha256(path.encode()).hexdigest()[:12]


PICTURE = ImagePart(
    url="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


class Files:
    """The files, and how often each was read. Its tool is called in threads."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self._lock = Lock()

    def tool(self) -> Tool:
        """Return the tool that reads a file."""
        # Any stands for JSON
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
        }
        return Tool(
            definition=ToolDefinition(
                name="read_file", description="Read a file.", parameters=parameters
            ),
            run=self._read,
        )

    def _read(self, arguments: Mapping[str, object]) -> str | Sequence[Part]:
        path = str(arguments["path"])
        with self._lock:
            self.reads[path] += 1
        count = int(match[1]) // 2 if (match := re.search(r"_of_(\d+)\.py", path)) else 100
        lines = [_make_words(12, f"{path}{line}") for line in range(count // 12)]
        text = "\n".join([f"# {path}", *lines, f"DETAIL = {find_detail(path)}", *reversed(lines)])
        return (text, PICTURE) if path.startswith("src/picture") else text


SUMMARIES = ("good", "refusal", "vague", "cut", "busy", "good", "hang", "good", "good")
"""The outcomes of the first, second, … summary request; after the last one they start over. A vague
summary has all headings, and names no file."""


REFUSAL = "I am sorry, but I cannot help with that."


class Model:
    """The model behind the server."""

    def __init__(self, kind: str | None = None) -> None:
        """Answer with all faults of the first conversation, or with those of a kind of trouble alone."""
        self.trouble = False
        """True while a kind of trouble causes faults."""
        self._kind = kind
        self.delivered: Counter[str] = Counter()
        """The texts of answers that were sent to the client."""
        self.dropped: set[str] = set()
        """The files whose detail was asked for when the request did not show it."""
        self.found: set[str] = set()
        """Those of them whose detail the model then found."""
        self._lock = Lock()
        self._summaries = self._requests = 0

    def answer(self, exchange: Exchange) -> Answer:
        """Answer a request by what it shows, or with a fault."""
        with self._lock:
            summary = exchange.purpose == "compaction"
            self._summaries += summary
            self._requests += not summary
            fault = self._find_fault(summary=summary) if self._kind else None
            if fault is not None:
                return fault
            if summary:
                outcomes = ("good",) if self._kind else SUMMARIES
                kind = outcomes[(self._summaries - 1) % len(outcomes)]
                return _answer_summary(kind, self._summaries, exchange)
            if not self._kind and self._requests % 11 == 7:  # the seventh of eleven
                return rate_limit_error(0.05)
            if not self._kind and self._requests % 29 == 17:  # and so on
                return server_error(503)
            if not self._kind and self._requests == 41:  # once
                return Hang()
            answer = self._decide(_Shown(exchange))
            if isinstance(answer, str):
                self.delivered[answer] += 1
            return answer

    def _find_fault(self, *, summary: bool) -> Answer | None:
        """Return the fault that the kind of trouble has for a request, or None."""
        if not self.trouble:
            return None
        if self._kind == "too_large" and (self._summaries + self._requests) % 5 == 1:
            return HttpAnswer(status=413, body="<h1>413 Request Entity Too Large</h1>")
        if self._kind == "no_summaries" and summary:
            return REFUSAL if self._summaries % 2 else server_error(500)
        return None

    def _decide(self, shown: _Shown) -> str | Sequence[ToolCall]:
        if shown.task is None:
            return "What should I do?"
        number, text = shown.task
        paths = _PATH.findall(text)
        if text.startswith("read "):
            missing = [path for path in paths if not shown.knows(path)]
            return [
                _call("read_file", path=path) for path in missing
            ] or f"Task {number} is done: I have seen {len(paths)} files."
        if text.startswith("what is the detail"):
            return self._look_back(number, paths[0], shown)
        return f"Task {number}: yes. {_make_words(30, number)}"

    def _look_back(self, number: str, path: str, shown: _Shown) -> str | Sequence[ToolCall]:
        detail = shown.find_detail(path)
        recalled = shown.read_back(path)
        if detail is None:
            self.dropped.add(path)
        if found := detail or (recalled if isinstance(recalled, str) else None):
            if path in self.dropped and found == find_detail(path):
                self.found.add(path)
            return f"Task {number}: it is {found}."
        return [recalled] if isinstance(recalled, ToolCall) else f"Task {number}: I do not know."


class _Shown:
    """A request, as the model sees it."""

    def __init__(self, exchange: Exchange) -> None:
        self.messages = exchange.messages
        self.tools = {tool["function"]["name"] for tool in exchange.chat.get("tools") or ()}
        texts = [_text(message) for message in self.messages]
        tasks = [
            (match, at)
            for at, (text, message) in enumerate(zip(texts, self.messages, strict=True))
            if message["role"] == "user"
            for match in _TASK.finditer(text)
        ]
        latest = max((match for match, _ in tasks), key=lambda match: int(match[1]), default=None)
        self.task = None if latest is None else (latest[1], latest[2])
        self._all = "\n".join(texts)
        calls = {
            call["id"]: call["function"]
            for message in self.messages
            for call in message.get("tool_calls") or ()
        }
        results = [
            (at, (function["name"], json.loads(function["arguments"]), text))
            for at, (text, message) in enumerate(zip(texts, self.messages, strict=True))
            if message["role"] == "tool" and (function := calls.get(message["tool_call_id"]))
        ]
        self._results = [result for _, result in results]
        start = max((at for match, at in tasks if latest and match[1] == latest[1]), default=0)
        self._newest = [result for at, result in results if at > start]
        """The results of the task's own turn."""

    def knows(self, path: str) -> bool:
        """Return whether a file was read, as far as the request shows: a call, or a summary that tells it.

        What the user asks tells nothing.
        """
        return any(
            name == "read_file" and arguments["path"] == path
            for name, arguments, _ in self._results
        ) or path in _TASK.sub("", self._all)

    def find_detail(self, path: str) -> str | None:
        """Return the detail that the file's result shows."""
        texts = [
            text
            for name, arguments, text in self._results
            if name == "read_file" and arguments["path"] == path
        ]
        return next((match[1] for text in texts if (match := _DETAIL.search(text))), None)

    def read_back(self, path: str) -> str | ToolCall | None:
        """Return the detail that was read back, or the next call on the way to it, or None if there is no way."""
        breadcrumb = _BREADCRUMB.search(self._all)
        tool = breadcrumb[1] if breadcrumb else "recall"
        if tool not in self.tools:
            return None
        recalls = [(arguments, text) for name, arguments, text in self._results if name == tool]
        searched = [text for arguments, text in recalls if arguments.get("query") == path]
        # a compaction may have dropped the search while its entry is read page by page
        entry = next(
            (
                arguments["entry"]
                for name, arguments, _ in reversed(self._newest)
                if name == tool and "entry" in arguments
            ),
            None,
        )
        if searched:
            named = re.search(_RESULT.format(re.escape(path)), searched[-1], re.MULTILINE)
            entry = named and named[1]
        elif entry is None:
            return _call(tool, query=path)
        if entry is None:
            return None
        pages = {
            arguments.get("page", 1): text
            for arguments, text in recalls
            if arguments.get("entry") == entry
        }
        if found := next(
            (match[1] for text in pages.values() if (match := _DETAIL.search(text))), None
        ):
            return found
        if not pages:
            return _call(tool, entry=entry)
        more = _MORE.search(pages[max(pages)])
        return ToolCall(id="", name=tool, arguments=more[1]) if more else None


def _answer_summary(kind: str, number: int, exchange: Exchange) -> Answer:
    match kind:
        case "refusal":
            return REFUSAL
        case "cut":
            return ScriptedReply(
                message=Message(
                    role="assistant", content=f"<summary>\n{SECTIONS[0]}\n{_make_words(60, number)}"
                ),
                finish="length",
            )
        case "busy":
            return rate_limit_error(0.2)
        case "hang":
            return Hang()
        case _:
            body = exchange.raw.decode()
            earlier = (path for told in _TOLD.findall(body) for path in told.split(", "))
            read = dict.fromkeys((*earlier, *_READ.findall(body))) if kind == "good" else {}
            sections = "\n".join(
                f"{at}. {title}: {_make_words(20, f'{title}{number}')}"
                for at, title in enumerate(SECTIONS, 1)
            )
            told = f"The files {', '.join(read)} were read." if read else "Files were read."
            return f"<analysis>{_make_words(30, number)}</analysis>\n<summary>\n{sections}\n{told}\n</summary>"


def _call(tool: str, **arguments: str) -> ToolCall:
    return ToolCall(id="", name=tool, arguments=json.dumps(arguments))


def _text(message: Mapping[str, Any]) -> str:  # Any: JSON
    content = message.get("content") or ""
    return (
        content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    )


def _make_words(count: int, seed: object) -> str:
    return " ".join(random.Random(str(seed)).choices(_WORDS, k=count))
