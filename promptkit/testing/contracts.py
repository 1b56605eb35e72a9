"""Tests of what a program may bring along: a store of transcripts, a policy, a summarizer, an engine that encodes text.

For a store, derive a class from `StoreContract`, which needs pytest, and give it a fixture that
returns a function which opens your store:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path: Path) -> Callable[[], TranscriptStore]:
            return partial(MyStore, tmp_path / "talk.db")
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise, product
from pathlib import Path
from random import Random
from typing import get_args

import attrs

from promptkit.compaction import (
    ApplySummary,
    Compact,
    Decision,
    DiscardSummary,
    Fail,
    KeepLastRound,
    LastRequest,
    NoAction,
    Policy,
    PolicyState,
    Promote,
    RenderPruned,
    Summarizer,
    Summary,
    SummaryTask,
    Wait,
)
from promptkit.compaction.planning.selection import select
from promptkit.compaction.policy.rules import TOO_LARGE
from promptkit.compaction.policy.state import Attempts, BackgroundState, Phase
from promptkit.errors import SummaryError, TranscriptConflictError, TranscriptError
from promptkit.messages import Message, ToolCall, is_instance
from promptkit.tokens import ContextBudget, Tokenizer, tokenizer_for
from promptkit.tokens.encodings import EncodingEngine, get_encoding
from promptkit.transcript import (
    ArchivingStore,
    Checkpoint,
    CustomEntry,
    Edit,
    Entry,
    EntryPayload,
    Label,
    MessageEntry,
    Observation,
    Reset,
    SearchableStore,
    Setting,
    Transcript,
    TranscriptStore,
    build_view,
    extract_words,
)
from promptkit.transcript.log.search import list_lines

THREADS, APPENDS = 3, 6
"""Writers at the same time, and what each appends."""


class StoreContract:
    """The promises of a store, as tests: derive a class from this one, with a fixture `open_store`.

    `open_store` returns a function without arguments. Each call opens the store of the same
    conversation, which is empty at first. For the tests with several processes the function must be
    picklable, such as a `functools.partial` of a class.
    """

    between_processes = True
    """Whether another process can open the store. False for a store in memory."""

    def test_an_empty_conversation_has_no_entries(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """Nothing is read before something is written, and the last id is empty."""
        store = open_store()
        for loaded in (store.load(), store.refresh()):
            assert (loaded.entries, loaded.problems, loaded.line_numbers, loaded.last_id) == (
                (),
                (),
                (),
                "",
            )
        store.append([])
        assert open_store().load().entries == ()

    def test_entries_are_read_as_they_were_written_in_their_order(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """Every kind of entry, every batch size and every text comes back equal."""
        store = open_store()
        entries = _all_kinds()
        store.load()
        store.append(entries[:1])
        store.append(entries[1:4])
        store.append(entries[4:])
        loaded = open_store().load()
        assert loaded.entries == tuple(entries)
        assert loaded.problems == ()
        assert loaded.last_id == entries[-1].id
        assert len(loaded.line_numbers) == len(entries)
        assert all(before < after for before, after in pairwise(loaded.line_numbers))

    def test_large_entries_are_kept_whole(self, open_store: Callable[[], TranscriptStore]) -> None:
        """An entry of 400 KB, and a batch of 300 entries."""
        store = open_store()
        large = [
            _entry("large", "é\u2028 word" * 50_000),
            *(_entry(f"e{number}", "x" * 100) for number in range(300)),
        ]
        store.append(large[:1], expect="")
        store.append(large[1:], expect="large")
        assert open_store().load().entries == tuple(large)

    def test_any_id_of_an_entry_is_kept(self, open_store: Callable[[], TranscriptStore]) -> None:
        """Ids with quotes, line breaks, NUL, lone surrogates, characters beyond ASCII, and long ones are told apart."""
        ids = [
            "a'b\"c",
            "a\nb",
            "a\0b",
            "\ud800",
            "é",
            "e\u0301",
            "😀",
            "%",
            "_",
            "\\",
            " ",
            "A",
            "a",
            "x" * 5_000,
        ]
        store = open_store()
        for last, entry_id in pairwise(["", *ids]):
            store.append([_entry(entry_id, "text")], expect=last)
        assert [entry.id for entry in open_store().load().entries] == ids

    def test_refreshing_returns_what_others_appended(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """Check that new entries are returned.

        Entries that were returned before may be repeated.
        """
        one, other = open_store(), open_store()
        one.load()
        other.load()
        one.append([_entry("a", "one")])
        assert _new(other.refresh().entries, []) == ["a"]
        one.append([_entry("b", "two"), _entry("c", "three")])
        other.append([_entry("d", "four")])
        assert _new(other.refresh().entries, ["a"]) in (["b", "c"], ["b", "c", "d"])
        assert _new(one.refresh().entries, ["a", "b", "c"]) == ["d"]
        assert (
            one.refresh().last_id == other.refresh().last_id == open_store().load().last_id == "d"
        )

    def test_a_batch_that_expects_another_last_entry_is_refused(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """The error carries what was appended, and nothing of the batch is written."""
        one, other = open_store(), open_store()
        one.append([_entry("a", "one")], expect="")
        other.load()
        one.append([_entry("b", "two")], expect="a")
        assert _conflict(other, [_entry("x", "x"), _entry("y", "y")], "a") == ["b"]
        assert _conflict(open_store(), [_entry("x", "x")], "") == ["a", "b"]
        assert _conflict(open_store(), [_entry("a", "one")], "") == ["a", "b"], (
            "the same entries again are a conflict, too"
        )
        _conflict(one, [_entry("x", "x")], "no such id")
        assert _new(other.refresh().entries, ["a"]) == ["b"], (
            "a conflict does not hide entries from the next refresh"
        )
        other.append([_entry("c", "three")], expect="b")
        assert [entry.id for entry in open_store().load().entries] == ["a", "b", "c"]

    def test_a_store_that_was_not_read_can_expect_the_last_entry(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """A store need not be loaded before a batch is appended."""
        open_store().append([_entry("a", "one")], expect="")
        open_store().append([_entry("b", "two")], expect="a")
        open_store().append([_entry("c", "three")])
        assert [entry.id for entry in open_store().load().entries] == ["a", "b", "c"]

    def test_a_conversation_goes_on_after_it_was_opened_again(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """A transcript with calls, a checkpoint and a branch gives the same view in another program."""
        transcript = Transcript(open_store())
        first, _ = transcript.append_messages(
            Message(role="user", content=("one",)),
            Message(role="assistant", tool_calls=(ToolCall(id="c1", name="read"),)),
        )
        transcript.append_messages(Message(role="tool", tool_call_id="c1", content=("text",)))
        transcript.append(Checkpoint(summary="the summary", first_kept=transcript.leaf))
        transcript.rewind(first.id)
        transcript.append_messages(Message(role="assistant", content=("else",)))
        again = Transcript(open_store())
        assert again.entries == transcript.entries
        assert again.problems == ()
        assert again.leaf == transcript.leaf
        for leaf in transcript.leaves():
            assert build_view(again.path(leaf.id)) == build_view(transcript.path(leaf.id))

    def test_two_writers_in_turns_make_one_line(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """Check that each writer continues from the entries of the other."""
        transcripts = [Transcript(open_store()) for _ in range(2)]
        for number in range(8):
            transcripts[number * 5 % 3 % 2].append_messages(
                Message(role="user", content=(str(number),))
            )
        _check_line(open_store(), [str(number) for number in range(8)])

    def test_threads_at_the_same_time_make_one_line(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """Each thread has a store of its own.

        Nothing is lost, nothing is there twice, and no branch is made.
        """

        def write(number: int) -> None:
            transcript = Transcript(open_store())
            for at in range(APPENDS):
                transcript.append_messages(
                    Message(role="user", name=f"w{number}", content=(str(at),))
                )

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(write, range(THREADS)))
        messages = _check_line(open_store())
        for number in range(THREADS):
            assert [message.text for message in messages if message.name == f"w{number}"] == [
                str(at) for at in range(APPENDS)
            ]

    def test_a_killed_process_loses_nothing_that_was_acknowledged(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """Another process writes at the same time, and is killed: its batches are there completely or not at all."""
        if not self.between_processes:
            import pytest

            pytest.skip("only one process can open this store")
        killed = start_writer(open_store, "killed", 1_000, pause=0.02)
        acknowledged: list[str] = []
        assert killed.stdout is not None
        transcript = Transcript(open_store())
        for number in range(4):
            line = killed.stdout.readline()
            assert line, "the process ended before it was killed"
            acknowledged += [
                *json.loads(line),
                *(
                    entry.id
                    for entry in transcript.append_messages(
                        Message(role="user", name="other", content=(str(number),))
                    )
                ),
            ]
        killed.kill()
        acknowledged += [
            entry_id
            for line in killed.communicate()[0].splitlines()
            if line.endswith("]")
            for entry_id in json.loads(line)
        ]
        messages = _check_line(open_store())
        ids = [entry.id for entry in open_store().load().entries]
        assert set(acknowledged) <= set(ids)
        assert len(ids) == len(set(ids))
        batches = [message.text for message in messages if message.name == "killed"]
        whole = [f"{batch}.{at}" for batch in range(len(batches)) for at in range(batch % 3 + 1)][
            : len(batches)
        ]
        assert batches == whole, "batches have their order"
        assert (
            not batches or int(batches[-1].split(".")[1]) == int(batches[-1].split(".")[0]) % 3
        ), "the last batch is whole"

    def test_archived_entries_can_still_be_read(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """For a store with `archive`: the same entries in the same order, for those who have it open, too."""
        store, reader = open_store(), open_store()
        if not isinstance(store, ArchivingStore):
            return
        for number in range(4):
            store.append([_entry(f"e{number}.{at}", "x") for at in range(2)])
        reader.load()
        entries = open_store().load().entries
        store.archive(through="e1.0")
        store.archive(through="e1.0")
        assert open_store().load().entries == entries
        assert _new(reader.refresh().entries, [entry.id for entry in entries]) == []
        reader.append([_entry("f", "x")], expect="e3.1")
        store.archive(through="e2.1")
        _conflict(open_store(), [_entry("g", "x")], "")
        for unknown in ("f", "no such id"):
            try:
                store.archive(through=unknown)
            except TranscriptError:
                continue
            raise AssertionError(f"archive(through={unknown!r}) must be refused")
        late, ids = open_store(), [*(entry.id for entry in entries), "f"]
        assert [entry.id for entry in late.load().entries] == ids
        late.append([_entry("g", "x")], expect="f")
        assert _new(reader.refresh().entries, ids) == ["g"]

    def test_the_index_finds_every_message_with_a_word(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """For a store with `find_entries`: no message is missing that contains a word."""
        store = open_store()
        if not isinstance(store, SearchableStore):
            return
        assert store.find_entries(["word"]) == frozenset()
        texts = [
            "the parser in src/parser.py",
            "Ünïcode ÉCOLE école",
            "a_b-c.d/e2e x",
            "TimeoutError: 3 retries of HTTPServerTests",
            "y" * 90,
            "1,234.5 ½ ٣",
            "日本語",
            "修改parser.py里的端口",
            "ปุ่มสีน้ำเงิน 설정을 色 ボタン",
        ]
        call = Message(
            role="assistant",
            tool_calls=(ToolCall(id="c", name="grep_files", arguments='{"q": "needle"}'),),
        )
        entries = [
            *(_entry(f"e{at}", text) for at, text in enumerate(texts)),
            Entry(id="call", parent_id=None, time=1.0, payload=MessageEntry(message=call)),
        ]
        store.append(entries)
        words = {
            entry.id: frozenset[str]().union(*map(extract_words, list_lines(entry)))
            for entry in entries
        }
        for stem in {
            word[:length] for found in words.values() for word in found for length in (1, 3, 50, 90)
        }:
            assert {
                entry_id
                for entry_id, found in words.items()
                if any(word.startswith(stem) for word in found)
            } <= store.find_entries([stem]), stem
        assert store.find_entries(["parser", "needle"]) >= {"e0", "call"}
        assert store.find_entries(extract_words("端口")) >= {"e7"}
        assert store.find_entries(["nowhere"]) == frozenset()

    def test_the_address_is_one_line_and_stays(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        """The address is part of summaries."""
        store = open_store()
        address = store.address
        store.append([_entry("a", "one")])
        assert store.address == address == open_store().address
        assert address is None or (address and len(address.splitlines()) == 1)


def start_writer(
    open_store: Callable[[], TranscriptStore], name: str, batches: int, *, pause: float = 0.0
) -> subprocess.Popen[str]:
    """Start a process that appends batches of one to three messages, and prints a line of ids after each.

    Args:
        open_store: Opens the store. It is pickled.
        name: The name of the process in its messages.
        batches: Batches to append.
        pause: Seconds between them.
    """
    code = "import sys; from promptkit.testing.contracts import write_messages; write_messages(*sys.argv[1:])"
    return subprocess.Popen(  # noqa: S603  # this interpreter
        [
            sys.executable,
            "-c",
            code,
            base64.b64encode(pickle.dumps(open_store)).decode(),
            name,
            str(batches),
            str(pause),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def write_messages(work: str, name: str, batches: str, pause: str) -> None:
    """Do the work of a process that `start_writer` started."""
    open_store: Callable[[], TranscriptStore] = pickle.loads(base64.b64decode(work))  # noqa: S301  # from the process that started this one
    transcript = Transcript(open_store())
    for batch in range(int(batches)):
        entries = transcript.append_messages(
            *(
                Message(role="user", name=name, content=(f"{batch}.{at}",))
                for at in range(batch % 3 + 1)
            )
        )
        sys.stdout.write(f"{json.dumps([entry.id for entry in entries])}\n")
        sys.stdout.flush()
        time.sleep(float(pause))


def _entry(entry_id: str, text: str) -> Entry:
    return Entry(
        id=entry_id,
        parent_id=None,
        time=1.5,
        payload=MessageEntry(message=Message(role="user", content=(text,))),
    )


def _all_kinds() -> list[Entry]:
    call = Message(
        role="assistant",
        content=("\u2028 \0 \ud800 é 😀 'quoted' \\",),
        tool_calls=(ToolCall(id="c", name="n", arguments="{}"),),
    )
    payloads: list[EntryPayload] = [
        MessageEntry(message=Message(role="user", content=("one\r\ntwo",))),
        MessageEntry(message=call, model="m", finish="stop"),
        Checkpoint(summary="s", first_kept="e0", facts={"read": ["a.py", None, 1.5, True]}),
        Edit(target="e0", content=None, reason="pruned"),
        Reset(reason="manual"),
        CustomEntry(name="app.mark", data={"nested": [{"\0": "\ud800"}]}),
        Setting(name="model", value="gpt"),
        Label(target="e0", label="start"),
        Observation(name="seen", data=None),
    ]
    return [
        Entry(id=f"e{at}", parent_id=parent, time=1_790_000_000.25 + at, payload=payload)
        for at, (parent, payload) in enumerate(
            zip([None, *(f"e{at}" for at in range(len(payloads)))], payloads, strict=False)
        )
    ]


def _new(entries: Sequence[Entry], known: Sequence[str]) -> list[str]:
    return [entry.id for entry in entries if entry.id not in known]


def _conflict(store: TranscriptStore, entries: Sequence[Entry], expect: str) -> list[str]:
    """Append with an expectation that is wrong, and return the ids that the conflict carries."""
    try:
        store.append(entries, expect=expect)
    except TranscriptConflictError as error:
        return [entry.id for entry in error.entries]
    raise AssertionError(f"append(expect={expect!r}) must raise TranscriptConflictError")


def _check_line(store: TranscriptStore, texts: Sequence[str] | None = None) -> list[Message]:
    """Check that a conversation is one line without problems, and return its messages."""
    transcript = Transcript(store)
    assert transcript.problems == ()
    assert len(transcript.leaves()) == 1, "a branch was made"
    assert transcript.path() == tuple(transcript.entries)
    messages = [entry.message for entry in transcript.path() if entry.message]
    assert texts is None or [message.text for message in messages] == texts
    return messages


MAX_DECISIONS = 10
"""Decisions after which a policy must have ended a request that stays too large."""

BUDGET = ContextBudget(window=10_000, reserved_output_tokens=0)
ATTEMPTS = (Attempts(), Attempts().after_attempt("failed"), Attempts(consecutive_unsuccessful=9))


def check_policy(policy: Policy) -> None:
    """Check that a policy decides in every state, and that its decisions can be carried out.

    It is asked in some thousand states. Each decision has a reason, and is the same for the same
    state. The user's own request for a compaction is done. Without automatic compaction nothing else
    is. Only a request that is too large waits, is pruned or fails, only a background summary that
    exists is waited for or applied, and a request that no summary makes smaller has an end.

    Args:
        policy: The policy. One that draws random numbers is given a fixed generator.

    Raises:
        AssertionError: The policy breaks a promise. The message has the decision and the state.

    >>> check_policy(first_match([compact_on_demand, on_overflow(), compact_at(0.85)]))
    """
    for state in _list_states():
        decision = policy.decide(state)
        _check(decision, policy.decide(state) == decision, "differs for the same state", state)
        _check(decision, isinstance(decision, get_args(Decision)), "is no decision", state)
        _check(decision, decision.reason.why.strip(), "has no reason", state)
        _check(decision, _is_possible(decision, state), "cannot be carried out", state)
        if state.phase == "manual":
            _check(decision, isinstance(decision, Compact), "is not what the user asks for", state)
        elif not state.enabled:
            _check(
                decision,
                isinstance(decision, NoAction | DiscardSummary | RenderPruned | Fail),
                "was made although compaction is off",
                state,
            )
        if state.phase in TOO_LARGE:
            _check(decision, _ends(policy, state), "is repeated without an end", state)


def _check(found: object, holds: object, problem: str, state: object) -> None:
    if not holds:
        raise AssertionError(f"{found!r} {problem}: {state!r}.")


def _list_states() -> Iterator[PolicyState]:
    flags = (False, True)
    phases: tuple[Phase, ...] = get_args(Phase)
    backgrounds: tuple[BackgroundState, ...] = get_args(BackgroundState)
    for phase, tokens, background, attempts, enabled, warm, done in product(
        phases, (None, 100, 8_000, 9_600, 12_000), backgrounds, ATTEMPTS, flags, flags, flags
    ):
        yield PolicyState(
            phase=phase,
            budget=BUDGET,
            tokens=tokens,
            background=background,
            attempts=attempts,
            enabled=enabled,
            warm=warm,
            mid_turn=warm,
            messages=40,
            compacted=done,
            waited=done,
            extracted=done,
        )


def _is_possible(decision: Decision, state: PolicyState) -> bool:
    match decision:
        case Wait():
            return state.background == "running" and state.phase in (*TOO_LARGE, "before_render")
        case ApplySummary():
            return state.background == "ready"
        case DiscardSummary():
            return state.background != "idle"
        case Promote():
            return state.larger_model is not None
        case RenderPruned() | Fail():
            return state.phase in TOO_LARGE
        case _:
            return True


def _ends(policy: Policy, state: PolicyState) -> bool:
    """Return whether a policy comes to an end with a request that nothing makes smaller."""
    for _ in range(MAX_DECISIONS):
        match policy.decide(state):
            case Wait():
                state = attrs.evolve(state, waited=True, background="ready")
            case ApplySummary() | DiscardSummary():
                state = attrs.evolve(state, background="idle", compacted=True)
            case Compact(extract=extract):
                state = attrs.evolve(
                    state,
                    compacted=True,
                    attempts=state.attempts.after_attempt("not reduced"),
                    extracted=extract or state.extracted,
                    background="idle",
                )
            case _:
                return True
    return False


def check_summarizer(
    make: Callable[[], Summarizer], *, tokenizer: Tokenizer | None = None, max_tokens: int = 2_000
) -> None:
    """Check that a summarizer returns a summary that a checkpoint can have, or raises a SummaryError.

    It gets a conversation with tool calls, the same after an earlier summary, with instructions of
    the user, and one with long messages.

    Args:
        make: Returns a new summarizer for each task, such as one with a `ScriptedModel`.
        tokenizer: Counts the summaries. Default: that of OpenAI's models.
        max_tokens: The most tokens of a summary.

    Raises:
        AssertionError: The summarizer breaks a promise. The message has the summary and the task.

    >>> check_summarizer(ExtractiveSummarizer)
    """
    import asyncio  # not for those who only test a policy

    counter, errors = tokenizer or tokenizer_for(None), list[str]()
    tasks = list(_list_tasks(counter, max_tokens))
    for task in tasks:
        before = repr(attrs.asdict(task))
        try:
            summary = asyncio.run(make().summarize(task))
        except SummaryError as error:
            _check(error, str(error), "has no text", task)
            errors.append(str(error))
            continue
        _check(task, repr(attrs.asdict(task)) == before, "was changed by the summarizer", summary)
        _check(summary, is_instance(summary, Summary), "is no Summary", task)
        _check(summary, summary.text.strip() and summary.mode, "has no text, or no mode", task)
        tokens = counter.count(summary.text)
        _check(summary, tokens <= task.max_tokens, f"has {tokens:,} tokens", task)
        _check(summary, summary.usage is None or summary.model, "has a usage and no model", task)
        json.dumps([summary.facts.to_json(), dict(summary.data)])  # a transcript keeps them
    _check(errors, len(errors) < len(tasks), "are all that it has made of", tasks)


def _list_tasks(tokenizer: Tokenizer, max_tokens: int) -> Iterator[SummaryTask]:
    for previous, instructions, size in (
        (None, None, 1),
        ("The parser was read.", None, 1),
        (None, "Keep the names of files.", 1),
        (None, None, 400),
    ):
        transcript = Transcript()
        if previous is not None:
            transcript.append(Checkpoint(summary=previous))
        for number in range(4):
            call = ToolCall(id=f"c{number}", name="read_file", arguments='{"path": "parser.py"}')
            transcript.append_messages(
                Message(role="user", content=(f"Review part {number}. " * size,)),
                Message(role="assistant", tool_calls=(call,)),
                Message(role="tool", tool_call_id=call.id, content=("def parse(): ...\n" * size,)),
                Message(role="assistant", content=(f"Part {number} is sound.",)),
            )
        view = build_view(transcript.path())
        yield SummaryTask(
            plan=select(
                view, leaf=transcript.leaf or "", tokenizer=tokenizer, keep=KeepLastRound()
            ),
            max_tokens=max_tokens,
            instructions=instructions,
            last_request=LastRequest(messages=tuple(item.message for item in view.items)),
        )


WILD = (
    "",
    "<|endoftext|> <|im_start|><|fim_prefix|>",
    "it's I'LL they'Re we'VE 'S\u017f 'd\u2019s",
    "def f(x):\r\n\treturn x  \r\n\r\n",
    '{"path":"src/a.py","text":"a\\\\n\\u00e9"}',
    "\u05e9\u05dc\u05d5\u05dd \u202eabc\u202c \u0915\u094d\u0937 Z\u0301\u0301\u0301",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
)
"""Texts in which engines have differed: special tokens, contractions, scripts."""

RUNS = (" ", "\n", "\r\n", "\t", "a", "A", "ab", "=", "1", "\u00e9", "\u6f22", " a", "\u00a0")
"""What the texts repeat that are runs of something."""

ALPHABET = (
    "aAbBzZ\u00e9\u00c9\u00df0123456789 \t\n\r.,;:'\"`/\\-_(){}[]<>|&*%$#@!?~^+=\u00a0\u2003\u3000\u6f22\u304b\ud55c"
    "\u0627\u05d0\u0939\u0e44\U0001f600\u200d\ufeff\u0301\x00\x7f\u2028\u01c5\u2163\u00bd\u00b2"
)
"""The characters of random texts."""

BLOCK = 256  # characters of Unicode in one text
SURROGATES = range(0xD800, 0xE000)
ASSIGNED = 0x3_0000  # nearly all assigned characters are before it


def check_encoding_engine(
    engine: EncodingEngine, encoding: str = "o200k_base", *, recordings: Iterable[Path | str] = ()
) -> None:
    """Check that an engine returns the same tokens as tiktoken, and the same bytes for them.

    The texts are runs of up to 40,000 characters, all characters of Unicode, random texts, and
    others in which engines have differed. It takes some seconds.

    Args:
        engine: The engine.
        encoding: The name of its encoding.
        recordings: Recordings in any format that `promptkit import` reads, whose texts are
            compared, too.

    Raises:
        AssertionError: The engine differs. The message has the text.

    >>> check_encoding_engine(tiktoken.get_encoding("o200k_base"))
    """
    theirs = get_encoding(encoding)
    for text in chain(WILD, _repeat(), _list_unicode(), _draw(), _read(recordings)):
        expected = theirs.encode_ordinary(text)
        found = engine.encode_ordinary(text)
        if list(found) != expected:
            raise AssertionError(
                f"The engine encodes {text!r:.200} as {len(found):,} tokens other than the {len(expected):,} of {encoding}."
            )
        if engine.decode_bytes(found) != theirs.decode_bytes(expected):
            raise AssertionError(
                f"The engine decodes the tokens of {text!r:.200} to other bytes than {encoding}."
            )


def _repeat() -> Iterator[str]:
    for unit, length in product(RUNS, (1, 2, 3, 4, 5, 16, 127, 128, 129, 1_000, 20_000)):
        yield unit * length
        yield f"x{unit * length}y"


def _list_unicode() -> Iterator[str]:
    """Yield all characters, in a row and each beside a letter and a space."""
    for start in range(0, 0x110000, BLOCK):
        characters = [chr(code) for code in range(start, start + BLOCK) if code not in SURROGATES]
        yield "".join(characters)
        if start < ASSIGNED:
            yield "".join(f"a{each} {each}" for each in characters)


def _draw() -> Iterator[str]:
    rng = Random(0)  # noqa: S311  # texts, no secrets
    yield from ("".join(rng.choices(ALPHABET, k=rng.randint(1, 300))) for _ in range(2_000))


def _read(recordings: Iterable[Path | str]) -> Iterator[str]:
    from promptkit.lab.recordings import messages_from_entries, read_recording

    for recording in recordings:
        for message in messages_from_entries(
            [entry for _, batch in read_recording(recording) for entry in batch.entries], full=True
        ):
            yield message.text
            yield from (call.arguments for call in message.tool_calls)
