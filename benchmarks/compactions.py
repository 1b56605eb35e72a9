"""Compare summaries with what real models used after real compactions: `python -m benchmarks.compactions FOLDER`.

Reads recordings whose agents compacted them. *From memory* is what a reply after a compaction uses
of the messages before it and nothing since has shown: names, and lines that it quotes. The benchmark
prints how much of that the recorded summary shows, and how much promptkit's extract of the same
messages, without and with the list of names that `break_even` shows beside it.

A model can only use what its context had, so the comparison favours the recorded summaries.

With `--window`, all recordings are replayed under `break_even` instead. For each of its lists of names
the benchmark prints how much of it the next 40 messages use, and how many names they use from memory
and find in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction import ExtractiveSummarizer, Plan, SummaryTask
from promptkit.compaction.planning.names import (
    NAMES_TAG,
    find_names,
    is_common,
    iter_texts,
    remove_name_list,
)
from promptkit.compaction.planning.plan import TARGET_SHARE
from promptkit.compaction.presets.break_even import BreakEven, break_even
from promptkit.lab.recordings import read_recording
from promptkit.lab.replay import ReplayRules, cache_rule_for
from promptkit.lab.replay.policies import find_policy
from promptkit.lab.replay.recordings import Branches, read_recordings
from promptkit.lab.replay.retention import iter_lines
from promptkit.lab.replay.runner import SentRequest, Simulation
from promptkit.messages import Message
from promptkit.tokens import parse_tokens, tokenizer_for
from promptkit.transcript import Checkpoint, Entry, ViewItem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_AFTER = 60
"""Messages after a compaction that are looked at."""

MIN_BEFORE = 20
"""Messages that a compaction replaces, at least."""

SUMMARY_TOKENS = BreakEven().summary_tokens

MODEL = "gpt-5"

NEXT_MESSAGES = 40
"""Messages after a compaction of a replay that are looked at."""


@attrs.frozen(kw_only=True)
class Compaction:
    """A compaction of a recording."""

    file: str
    before: tuple[Entry, ...]
    """The entries with messages that it replaced."""
    kept: tuple[Entry, ...]
    """The entries with messages that stayed."""
    after: tuple[Entry, ...]
    """The entries with messages that followed, until the next compaction."""
    summary: str


def read_compactions(file: Path) -> Iterator[Compaction]:
    """Yield the compactions of a recording, each once."""
    tree = Branches(entry for _, batch in read_recording(file) for entry in batch.entries)
    seen: set[str] = set()
    for leaf in tree.leaves:
        path = tree.path_to(leaf)
        for at, entry in enumerate(path):
            if not isinstance(entry.payload, Checkpoint) or entry.id in seen:
                continue
            seen.add(entry.id)
            kept = entry.payload.first_kept
            cut = next((place for place in range(at) if path[place].id == kept), at)
            later = takewhile(lambda each: not isinstance(each.payload, Checkpoint), path[at + 1 :])
            said, stayed, followed = (
                tuple(each for each in entries if each.message and each.message.role != "system")
                for entries in (path[:cut], path[cut:at], later)
            )
            if len(said) >= MIN_BEFORE and followed:
                yield Compaction(
                    file=file.name,
                    before=said,
                    kept=stayed,
                    after=followed[:MAX_AFTER],
                    summary=entry.payload.summary or "",
                )


def find_uses(message: Message) -> set[tuple[str, str]]:
    """Return the names and the lines of a message that need memory."""
    names = set[str]().union(*map(find_names, iter_texts(message)))
    return {("name", name) for name in names if not is_common(name)} | {
        ("line", line) for line in iter_lines(message)
    }


def find_all_uses(messages: Iterable[Message]) -> set[tuple[str, str]]:
    """Return the names and the lines of several messages."""
    return set[tuple[str, str]]().union(*map(find_uses, messages))


def find_uses_from_memory(
    before: Sequence[Message], kept: Sequence[Message], after: Sequence[Message]
) -> Counter[tuple[str, str]]:
    """Count what the replies of `after` use of the messages `before` that nothing since has shown."""
    known = find_all_uses(before) - find_all_uses(kept)
    known -= {("name", call.name) for each in after for call in each.tool_calls}
    uses: Counter[tuple[str, str]] = Counter()
    for message in after:
        found = find_uses(message) & known
        if message.role == "assistant":
            uses.update(found)
        known -= found
    return uses


async def measure(compaction: Compaction) -> Counter[str]:
    """Count the uses from memory, and those that each summary shows."""
    tokenizer = tokenizer_for(MODEL)
    dropped, kept = (
        tuple(
            ViewItem(message=entry.message, entry_id=entry.id)
            for entry in entries
            if entry.message is not None
        )
        for entries in (compaction.before, compaction.kept)
    )
    plan = Plan(leaf=dropped[-1].entry_id, dropped=dropped, kept=kept)
    summary = await ExtractiveSummarizer(tokenizer=tokenizer).summarize(
        SummaryTask(plan=plan, max_tokens=TARGET_SHARE * SUMMARY_TOKENS, requests_beside=True)
    )
    replacement = break_even().replacement
    bare = attrs.evolve(replacement, names_tokens=0).build(plan, summary, tokenizer).messages
    whole = replacement.build(plan, summary, tokenizer).messages
    texts = {
        "recorded": [Message(role="user", content=(compaction.summary,))],
        "extract": bare,
        "extract and names": whole,
    }
    shown = {name: find_all_uses(messages) for name, messages in texts.items()}
    after = _messages(compaction.after)
    uses = find_uses_from_memory(_messages(compaction.before), _messages(compaction.kept), after)
    counts: Counter[str] = Counter(compactions=1)
    for kind in ("name", "line"):
        of_kind = {use: count for use, count in uses.items() if use[0] == kind}
        counts[f"{kind}s"] += sum(of_kind.values())
        for name, there in shown.items():
            counts[f"{kind}s, {name}"] += sum(n for use, n in of_kind.items() if use in there)
    said = find_all_uses(each for each in after if each.role == "assistant")
    listed = shown["extract and names"] - shown["extract"]
    listed = {use for use in listed if use[0] == "name"}
    counts["listed"], counts["listed and used later"] = len(listed), len(listed & said)
    for name, messages in texts.items():
        counts[f"tokens, {name}"] = sum(tokenizer.count(message.text) for message in messages)
    return counts


def measure_lists(file: Path, window: int) -> Counter[str]:
    """Replay the recordings of a file, and count the names of the lists beside the summaries."""
    counts: Counter[str] = Counter()
    rules = ReplayRules(model=MODEL, window=window, cache=cache_rule_for(MODEL))
    for recording in read_recordings(file):

        def on_request(
            request: SentRequest, messages: Sequence[Message] = recording.messages
        ) -> None:
            if not request.checkpoint:
                return
            sent = [each.message for each in request.messages]
            bare = [
                attrs.evolve(each, content=(remove_name_list(each.text),))
                if f"<{NAMES_TAG}>" in each.text
                else each
                for each in sent
            ]
            after = messages[request.reply :][:NEXT_MESSAGES]
            listed = {use for use in find_all_uses(sent) - find_all_uses(bare) if use[0] == "name"}
            used = find_all_uses(each for each in after if each.role == "assistant")
            memory = find_uses_from_memory(messages[: request.reply], bare, after)
            counts.update(
                {
                    "lists": bool(listed),
                    "listed": len(listed),
                    "used": len(listed & used),
                    "memory": sum(kind == "name" for kind, _ in memory),
                    "recovered": len(listed & memory.keys()),
                }
            )

        Simulation(recording, rules).run(
            find_policy("break_even"), seed=file.name, on_request=on_request
        )
    return counts


def _messages(entries: Iterable[Entry]) -> list[Message]:
    return [entry.message for entry in entries if entry.message is not None]


def describe(file: str, counts: Counter[str]) -> str:
    """Return a line with the shares of one compaction, or of several together."""
    parts = [
        f"{kind} from memory {counts[kind]:4,}: "
        + ", ".join(
            f"{name} {counts[f'{kind}, {name}'] / max(1, counts[kind]):4.0%}"
            for name in ("recorded", "extract", "extract and names")
        )
        for kind in ("names", "lines")
    ]
    listed = f"listed {counts['listed']:,}, used later {counts['listed and used later'] / max(1, counts['listed']):.1%}"
    tokens = ", ".join(
        f"{name} {counts[f'tokens, {name}'] / max(1, counts['compactions']):,.0f}"
        for name in ("recorded", "extract", "extract and names")
    )
    return f"{file[:32]:32}  {';  '.join((*parts, listed))};  tokens {tokens}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compactions", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--window", type=parse_tokens)
    given = parser.parse_args(arguments)
    if given.window:
        files = (
            file for file in given.folder.rglob("*") if file.is_file() and file.suffix != ".md"
        )
        lists = sum((measure_lists(file, given.window) for file in sorted(files)), Counter[str]())
        sys.stdout.write(
            f"{lists['lists']} lists with {lists['listed']:,} names, used in the next {NEXT_MESSAGES} messages "
            f"{lists['used'] / max(1, lists['listed']):.1%}; of {lists['memory']:,} names from memory "
            f"{lists['recovered']:,}\n"
        )
        return
    rows = [
        (compaction.file, asyncio.run(measure(compaction)))
        for file in sorted(given.folder.rglob("*.jsonl"))
        for compaction in read_compactions(file)
    ]
    total = sum((counts for _, counts in rows), Counter[str]())
    if given.json:
        sys.stdout.write(
            json.dumps(
                {"total": total, "compactions": [dict(each, file=file) for file, each in rows]}
            )
            + "\n"
        )
        return
    for file, counts in (*rows, (f"{len(rows)} compactions", total)):
        sys.stdout.write(describe(file, counts) + "\n")


if __name__ == "__main__":
    main()
