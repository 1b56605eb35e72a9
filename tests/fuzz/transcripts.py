"""Targets: files of transcripts that were cut and changed, the stores next to each other, and redaction."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from promptkit import Message, ToolCall
from promptkit.errors import TranscriptConflictError, TranscriptError
from promptkit.transcript.log.entries import CustomEntry, Entry, MessageEntry
from promptkit.transcript.log.redaction import redact_message, redact_secrets
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_view
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.stores.objects import ObjectStore
from promptkit.transcript.stores.sql import SqlStore
from promptkit.transcript.stores.store import InMemoryStore
from tests.behaviour.transcript_strategies import (
    FileInMemory,
    grow,
    new_file,
    new_transcript,
    steps,
)
from tests.conversations import user_message
from tests.fuzz.mutations import damaged
from tests.fuzz.target import Target, as_case, check_sentence, read_case
from tests.unit.transcript.log.secret_shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from promptkit.transcript.stores.store import TranscriptStore

__all__ = ["REDACTION", "STORES", "TRANSCRIPT_BYTES", "TRANSCRIPT_DAMAGE"]

HEADER = b'{"promptkit":"transcript","version":1}\n'


# Files that were damaged
# -----------------------------------------------------------------------------------------------------------


def _damage(content: bytes, kind: str, at: int, length: int) -> bytes:
    """Change the bytes at a place."""
    match kind:
        case "flip":
            return (
                content[:at]
                + bytes(byte ^ 1 << length % 8 for byte in content[at : at + 1])
                + content[at + 1 :]
            )
        case "truncate":
            return content[:at]
        case "cut":
            return content[:at] + content[at + length :]
        case "repeat":
            return content[:at] + content[max(0, at - length) : at] + content[at:]
        case _:
            return content[:at] + b"\0" * len(content[at : at + length]) + content[at + length :]


def _check_damage(case: bytes) -> None:
    """What stands before the damage is there; what is appended is there afterwards; damage beside the file and its archives costs nothing."""
    spec = read_case(case)
    if spec is None:
        return
    with new_file() as path:
        transcript = new_transcript(JsonlStore(path))
        grow(transcript, ("user", 1))
        for name, number in spec["steps"]:
            grow(transcript, (name, number))
        if spec["archive"] and len(transcript.entries) > 1:
            last: int = spec["archive"] % len(transcript.entries)
            with suppress(TranscriptError):  # an entry of the last batch
                JsonlStore(path).archive(through=transcript.entries[last].id)
        before = [entry.id for entry in transcript.entries]
        files = sorted(file for file in path.parent.iterdir() if not file.name.endswith(".lock"))
        at_file: int = spec["file"] % len(files)
        chosen = files[at_file]
        content = chosen.read_bytes()
        first = len(content)
        for kind, place, length in spec["damages"]:
            at = place % (len(content) + 1)
            content, first = _damage(content, kind, at, length), min(first, at)
        chosen.write_bytes(content)
        _check_open(path, before, damaged_file=chosen, first=first, header=len(HEADER))


def _check_open(
    path: Path, before: list[str], *, damaged_file: Path, first: int, header: int
) -> None:
    try:
        transcript = Transcript(JsonlStore(path))
    except TranscriptError as error:
        assert damaged_file == path, "a file beside the transcript makes it unreadable"
        assert first < path.stat().st_size + 1
        check_sentence(error)
        content = path.read_bytes()
        with suppress(TranscriptError):
            JsonlStore(path).append(new_transcript().append_messages(user_message("no")))
            assert content.startswith(HEADER[:1]), "a file that cannot be read was written to"
        return
    found = [entry.id for entry in transcript.entries]
    assert len(found) == len(set(found)), "an entry is there twice"
    if damaged_file != path and ".gz" not in damaged_file.name:
        assert found == before, "a file that can be made again cost entries"
    lines = path.read_bytes()
    if damaged_file == path and b'"archives"' not in lines[:400] and first >= header:
        whole = [
            entry
            for entry in before
            if f'"id":"{entry}"'.encode() in lines[:first].rpartition(b"\n")[0]
        ]
        # 8: of a batch
        assert found[: max(0, len(whole) - 8)] == before[: max(0, len(whole) - 8)], (
            "entries before the damage are gone"
        )
    for leaf in transcript.leaves():
        build_view(transcript.path(leaf.id))
    list(find_problems(TranscriptReader(path)))
    new = transcript.append_messages(user_message("afterwards"))[0].id
    assert [entry.id for entry in Transcript(JsonlStore(path)).entries] == [*found, new]


_DAMAGES = st.tuples(
    st.sampled_from(("flip", "truncate", "cut", "repeat", "zero")),
    st.integers(0, 1 << 16),
    st.integers(1, 200),
)
TRANSCRIPT_DAMAGE = Target(
    check=_check_damage,
    cases=st.fixed_dictionaries(
        {
            "steps": steps(),
            "archive": st.sampled_from((0, 0, 1, 3, 8)),
            "file": st.integers(0, 3),
            "damages": st.lists(_DAMAGES, min_size=1, max_size=3),
        }
    ).map(as_case),
)


def _check_bytes(case: bytes) -> None:
    """Whatever a file holds, it is refused with an error of promptkit's or read, and then it can be continued."""
    with new_file() as path:
        path.write_bytes(case)
        try:
            transcript = Transcript(JsonlStore(path))
        except TranscriptError as error:
            check_sentence(error)
            assert not case.startswith(HEADER), "a file with a good header is refused"
            assert path.read_bytes() == case
            return
        found = [entry.id for entry in transcript.entries]
        assert len(found) == len(set(found))
        for leaf in transcript.leaves()[-5:]:
            build_view(transcript.path(leaf.id))
        list(find_problems(TranscriptReader(path)))
        made = transcript.append_messages(user_message("afterwards"))[0]
        assert Transcript(JsonlStore(path)).entries[-1] == made


def _sample(*done: tuple[str, int]) -> bytes:
    file = FileInMemory()
    transcript = new_transcript(file)
    for step in done:
        grow(transcript, step)
    return file.content


_SAMPLES = (
    HEADER,
    _sample(
        ("user", 1),
        ("calls", 2),
        ("result", 3),
        ("checkpoint", 5),
        ("edit", 4),
        ("branch", 2),
        ("reset", 3),
    ),
    _sample(("batch", 1), ("rewind", 1), ("custom", 2), ("quiet", 4), ("quiet", 1), ("answer", 8)),
)
TRANSCRIPT_BYTES = Target(
    check=_check_bytes, cases=st.sampled_from(_SAMPLES).flatmap(damaged), seeds=_SAMPLES
)


# Stores
# ----------------------------------------------------------------------------------------------------------------------------


class _Pair:
    """One conversation, opened twice in each of several stores, which must all do the same."""

    def __init__(self, folder: Path) -> None:
        memory = InMemoryStore()
        self.names = ("memory", "file", "SQLite", "objects")
        self.openers: tuple[Callable[[], TranscriptStore], ...] = (
            lambda: memory,
            lambda: JsonlStore(folder / "talk.jsonl"),
            lambda: SqlStore(f"sqlite:///{folder}/talks.db#42"),
            lambda: ObjectStore(f"file://{folder}/talks#42"),
        )
        self.open: list[list[TranscriptStore]] = [
            [opener() for _ in range(2)] for opener in self.openers
        ]

    def compare(self, results: list[object]) -> None:
        """Every store must answer what the one in memory answers."""
        for name, result in zip(self.names, results, strict=True):
            assert result == results[0], (
                f"{name} answers {result!r:.300}, and a store in memory {results[0]!r:.300}"
            )


def _append(store: TranscriptStore, entries: list[Entry], expect: str | None) -> object:
    try:
        store.append(entries, expect=expect)
    except TranscriptConflictError:
        return "conflict"
    return "appended"


_TEXTS = (
    "a",
    "",
    "\ud800",
    "\u2028\r\n",
    "\0",
    "x" * 3_000,
    "'; DROP TABLE entries; --",
    "é\U0001f600",
    "%_\\",
)
_IDS = ("a", "a'b", "a\nb", "\ud800", "%", "A", "e\u0301", "é", " ")


def _check_stores(case: bytes) -> None:
    """What is appended, refused and read is the same in every store, whoever has written."""
    spec = read_case(case)
    if spec is None:
        return
    with new_file() as path:
        pair = _Pair(path.parent)
        known: list[str] = []
        steps: list[tuple[str, int, int]] = spec
        for number, (action, handle, value) in enumerate(steps):
            match action:
                case "append":
                    entries = [_entry(number, at, value) for at in range(1 + value % 3)]
                    expect = (None, known[-1] if known else "", "", "nobody")[value % 4]
                    results: list[object] = [
                        _append(stores[handle], entries, expect) for stores in pair.open
                    ]
                    pair.compare(results)
                    known += [entry.id for entry in entries if results[0] == "appended"]
                case "reopen":
                    for stores, opener in zip(pair.open, pair.openers, strict=True):
                        stores[handle] = opener()
                case _:
                    pair.compare([stores[handle].refresh().last_id for stores in pair.open])
        loaded = [opener().load() for opener in pair.openers]
        pair.compare([(each.entries, each.last_id, each.problems) for each in loaded])
        assert [entry.id for entry in loaded[0].entries] == known


def _entry(number: int, at: int, value: int) -> Entry:
    text = _TEXTS[value % len(_TEXTS)]
    payload = (
        CustomEntry(name=text, data={text: [text, value]})
        if value % 5 == 0
        else MessageEntry(message=user_message(text or "empty"))
    )
    return Entry(
        id=f"{_IDS[value % len(_IDS)]}{number}.{at}",
        parent_id=None,
        time=float(number),
        payload=payload,
    )


STORES = Target(
    check=_check_stores,
    cases=st.lists(
        st.tuples(
            st.sampled_from(("append", "append", "append", "reopen", "refresh")),
            st.integers(0, 1),
            st.integers(0, 400),
        ),
        max_size=12,
    ).map(as_case),
)


# Redaction
# -------------------------------------------------------------------------------------------------------------------------


def _check_redaction(case: bytes) -> None:
    """Redacting again changes nothing, a secret with white space around it is gone, and arguments stay JSON."""
    text = case.decode(errors="surrogateescape")
    shown = redact_secrets(text)
    assert redact_secrets(shown) == shown, "not the same the second time"
    arguments = json.dumps({"command": text, text: 1})
    message = Message(
        role="assistant", tool_calls=(ToolCall(id="c", name="run", arguments=arguments),)
    )
    (call,) = redact_message(message, redact_secrets).tool_calls
    assert isinstance(json.loads(call.arguments), dict)


_SECRETS = tuple(template.format(secret) for template, secret in SHAPES.values())
_AROUND = (
    " ",
    "\n",
    '"',
    "'",
    "\\n",
    "{",
    "}",
    ":",
    "=",
    "[redacted: api key]",
    "password",
    "token=",
    "Bearer ",
    "curl -u ",
    "é",
    "\ud800",
    "a1",
)
REDACTION = Target(
    check=_check_redaction,
    cases=st.lists(st.sampled_from((*_SECRETS, *_AROUND * 4)), max_size=12).map(
        lambda each: "".join(each).encode(errors="surrogatepass")
    ),
    seeds=tuple(each.encode() for each in _SECRETS),
)
