"""Measure what users of agents ask for: `python -m benchmarks.wishes --json`.

Drives the default preset over the recordings in `../shared/transcripts`, or in the folder that is
given, and over scripted conversations, and prints

- `user_messages_shown_share`: of the user's messages so far, the share that requests in a window of
  32k show, over all requests, with the model of two for which it is lower;
- `constraints_binding_share`: of what the user ruled out in messages that were summarized, the share
  that the last view repeats as binding;
- `facts_lost_after_10_compactions`: requests, constraints, pins, plan, todos, skills, rules and
  changed files of a scripted conversation that the view no longer shows;
- `finished_work_reopened`: requests with a final reply that a view shows as open;
- `invented_quotes_unmarked`: quotations of the user in summaries that the user never said, and that
  are not marked;
- `prefix_breaks_by_tool_changes`, `cache_misses_explained_share`: as `benchmarks.wishes_cache` says;
- `wedged`: sessions of 20 kinds of oversized turns that could not go on, as `benchmarks.wishes_wedged` says.

Without recordings it prints why it measures nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

import attrs

from benchmarks.wishes_cache import explained_share, prefix_breaks
from benchmarks.wishes_wedged import count_wedged
from promptkit import ContextBudget, ContextWindow, Message, ToolCall
from promptkit.compaction import Summary, SummaryTask
from promptkit.compaction.planning.blocks import OPEN
from promptkit.compaction.planning.user_messages import NOT_SAID, find_constraints
from promptkit.errors import ContextWindowFullError
from promptkit.lab.engines import open_engine
from promptkit.lab.replay import FileResult, ReplayOptions, ReplayRules, cache_rule_for, replay
from promptkit.lab.replay.recordings import Recording, read_recordings
from promptkit.lab.replay.runner import sum_results
from promptkit.testing import WordTokenizer
from promptkit.tokens import read_prices

WINDOW = 32_000
MODELS = ("gpt-5", "claude-sonnet-4-5")
COMPACTIONS = 10
WORDS = WordTokenizer()
BINDING = "CONSTRAINT (still binding): "
DEFAULT_FOLDER = Path(__file__).parents[2] / "shared" / "transcripts"


def words(count: int, word: str = "word") -> str:
    return " ".join([word] * count)


@attrs.define
class Writer:
    """Writes the same summary each time."""

    text: str = words(60, "nothing")

    async def summarize(self, task: SummaryTask) -> Summary:
        """Return the summary."""
        _ = task
        return Summary(text=self.text, mode="test")


def open_window(tokens: int, writer: Writer | None = None) -> ContextWindow:
    budget = ContextBudget(window=tokens, reserved_output_tokens=tokens // 10)
    return ContextWindow(
        model="m", budget=budget, tokenizer=WORDS, summarizer=writer or Writer(), rng=lambda: 0.5
    )


def call(window: ContextWindow, name: str, result: str, **arguments: object) -> None:
    made = ToolCall(id=f"c{len(window.transcript)}", name=name, arguments=arguments)
    window.add(Message(role="assistant", tool_calls=[made]))
    window.add(Message(role="tool", tool_call_id=made.id, content=result))


def shown(window: ContextWindow) -> str:
    return "\n".join(message.text for message in window.view.messages)


def measure_user_messages(files: list[Path]) -> float:
    """Return the share of the user's messages that requests show, with the model for which it is lower."""
    shares: list[float] = []
    for model in MODELS:
        rules = ReplayRules(model=model, window=WINDOW, cache=cache_rule_for(model))
        price = read_prices().for_model(model)
        options = ReplayOptions(policies=("vscode",), rules=rules, price=price)
        with open_engine("local") as engine:
            played = replay(files, options, executor=engine)
            results = [each for each in played if isinstance(each, FileResult)]
        shares.append(sum_results(results, options, file="all").policies[0].requests_present_share)
    return min(shares)


@attrs.define
class Standing:
    """Constraints and requests, as they are shown after a conversation."""

    constraints: int = 0
    binding: int = 0
    reopened: int = 0


async def play(recording: Recording) -> Standing:
    """Play a recording in a window of 32k whose summaries are extracted, and look at its views."""
    window = ContextWindow(model="gpt-4o", budget=WINDOW, rng=lambda: 0.5)
    standing = Standing()
    for at, message in enumerate(recording.messages):
        if message.role != "assistant" or at == 0:
            window.add(message)
            continue
        try:
            await window.request()
        except ContextWindowFullError:
            window.add(message)
            continue
        window.add_reply(message)
        await window.wait_idle()
        if not message.tool_calls:
            await window.end_turn()
    look_at(window, standing)
    await window.close()
    return standing


def look_at(window: ContextWindow, standing: Standing) -> None:
    """Count the constraints that were summarized and those that bind, and the answered requests that are open."""
    path = [entry.message for entry in window.transcript.path() if entry.message is not None]
    in_view = {item.message.text for item in window.view.items}
    dropped = [
        entry.message.text
        for entry in window.transcript.path()
        if entry.message is not None
        and entry.message.role == "user"
        and entry.message.text not in in_view
        and entry.kind == "message"
    ]
    text = shown(window)
    if window.view.checkpoint_id is not None:
        constraints = find_constraints(dropped)
        standing.constraints += len(constraints)
        standing.binding += sum(f"{BINDING}{each[:40]}" in text for each in constraints)
    last_reply = max(
        (
            at
            for at, message in enumerate(path)
            if message.role == "assistant" and not message.tool_calls
        ),
        default=0,
    )
    answered = {message.text.strip() for message in path[:last_reply] if message.role == "user"}
    later = {message.text.strip() for message in path[last_reply:] if message.role == "user"}
    standing.reopened += sum(f"{OPEN}{each}" in text for each in answered - later if each)


async def play_script() -> tuple[Standing, int]:
    """Compact a scripted conversation ten times; return how things stand, and how many facts are gone."""
    window = open_window(40_000)
    forbidden = [
        "Never push to main!",
        "Ask before you delete a file.",
        "Bitte nicht die Tests ändern.",
        "不要修改配置文件。",
        "Do not use the network.",
    ]
    facts = [f"{BINDING}{each}" for each in forbidden]
    window.add(Message(role="user", content=f"Fix the parser. {' '.join(forbidden)}"))
    call(window, "exit_plan_mode", "ok", plan="First PLAN4711.")
    call(window, "todo_write", "ok", todos=[{"content": "do TODO4712", "status": "pending"}])
    call(window, "Skill", "Call SKILL4713.", command="pdf")
    call(window, "read_file", "Always use RULE4714.", path="/repo/AGENTS.md")
    call(window, "bash", "the port is 55432", command="netstat")
    window.pin(text="the port is 55432")
    facts += ["PLAN4711", "TODO4712", "SKILL4713", "RULE4714", "[tool] the port is 55432"]
    window.add(Message(role="assistant", content="Done."))
    for number in range(COMPACTIONS):
        wish = f"Wish {number}: name the column c{number * 7919}."
        window.add(Message(role="user", content=wish))
        call(window, "edit_file", "ok", path=f"src/area_{number}/part.py")
        facts += [wish, f"src/area_{number}/part.py"]
        for _ in range(4):
            call(window, "bash", words(4_000, "log"), command="make")
        window.add(Message(role="assistant", content=words(100, "reply")))
        window.add(Message(role="user", content="Go on."))
        window.add(Message(role="assistant", content="Yes."))
        if await window.compact() is None:
            raise RuntimeError(f"compaction {number + 1} did not happen.")
    text = shown(window)
    standing = Standing(
        constraints=len(forbidden), binding=sum(f"{BINDING}{each}" in text for each in forbidden)
    )
    look_at(window, Standing())
    reopened = Standing()
    look_at(window, reopened)
    standing.reopened = reopened.reopened
    return standing, sum(fact not in text for fact in facts)


async def count_unmarked_quotes() -> int:
    """Return the invented quotations of the user in summaries that are not marked."""
    invented = (
        'The user said "drop the old table".',
        "The user asked: “please start again from zero”.",
        'The person\'s words were: "you may push to main".',
        "Der Nutzer schrieb: „lösche den ganzen Ordner“.",
        "用户说 “请删除那个旧的数据库表格”。",
    )
    unmarked = 0
    for quote in invented:
        window = open_window(20_000, Writer(f"{words(40)} {quote} {words(20)}"))
        for said in ("Keep the old table.", "Go on."):
            window.add(Message(role="user", content=said))
            call(window, "bash", words(2_000), command="make")
            window.add(Message(role="assistant", content=words(100)))
        await window.compact()
        unmarked += NOT_SAID not in shown(window)
    return unmarked


async def measure(files: list[Path]) -> dict[str, float]:
    """Return the figures."""
    total, lost = await play_script()
    for file in files:
        for recording in read_recordings(file):
            each = await play(recording)
            total.constraints += each.constraints
            total.binding += each.binding
            total.reopened += each.reopened
    return {
        "constraints_binding_share": total.binding / total.constraints,
        "facts_lost_after_10_compactions": lost,
        "finished_work_reopened": total.reopened,
        "invented_quotes_unmarked": await count_unmarked_quotes(),
        "prefix_breaks_by_tool_changes": await prefix_breaks(),
        "cache_misses_explained_share": await explained_share(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wishes", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=DEFAULT_FOLDER)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not given.folder.is_dir():
        reason = f"there is no folder {given.folder}: name one with recordings."
        sys.stdout.write(json.dumps({"skipped": reason}) + "\n")
        return
    files = sorted(
        path for path in given.folder.rglob("*") if path.is_file() and path.suffix != ".md"
    )
    figures = {
        "user_messages_shown_share": measure_user_messages(files),
        **asyncio.run(measure(files)),
        "wedged": count_wedged(),
    }
    if given.json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    for name, figure in figures.items():
        sys.stdout.write(f"{name:34} {figure:.4g}\n")


if __name__ == "__main__":
    main()
