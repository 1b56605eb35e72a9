"""Each preset on one scripted conversation, through everything that can happen to it; what came of it stands in a file for people to read.

The walks are in `__snapshots__`: what was decided and why, what each request held, and what stood
in the view after each summary.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.presets import PRESETS
from promptkit.compaction.presets.break_even import break_even
from promptkit.compaction.presets.coding_agents import (
    ClaudeCode,
    CopilotCLI,
    GSVProcess,
    OhMyPi,
    OpenCode,
    amp,
    claude_code,
    codex,
    copilot_cli,
    gsv,
    gsv_process,
    off,
    oh_my_pi,
    opencode,
    pi,
    truncate_only,
    vscode,
)
from promptkit.compaction.recall.tool import build_excerpt
from promptkit.compaction.run.branches import SummaryWriter, handoff
from promptkit.compaction.summarizers.defaults import (
    make_fallback_factory,
    make_inline_summarizer,
    make_simple_summarizer,
)
from promptkit.compaction.summarizers.model_summarizers import SimpleSummarizer
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.stores.store import InMemoryStore
from tests.behaviour.walking import TOKENIZER, Walk, cut_off, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from syrupy.assertion import SnapshotAssertion

    from promptkit.agent.session.session import AgentSession
    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.errors import ContextLengthExceededError

SMALL = ContextBudget(window=10_000, reserved_output_tokens=0)
LARGE = ContextBudget(window=200_000)


def walked(walk: Walk, way: Callable[[Walk], Awaitable[None]]) -> str:
    """The log of a walk to its end."""

    async def go() -> None:
        await way(walk)
        await walk.session.close()

    asyncio.run(go())
    return walk.text


async def through_vscode(walk: Walk) -> None:
    say, call = walk.say, walk.call
    await say(100, call(4_000), call(3_900), 20)  # warm, 0.80: begun beside the conversation
    await say(50, 10)  # put in place
    await say(8_950, 100)  # cold, 0.90
    walk.session.compaction.set_budget(attrs.evolve(SMALL, window=20_000))
    await say(10, 10)  # below 0.65: dropped
    walk.session.compaction.set_budget(SMALL)
    walk.hold()
    await say(10, call(100), 10)  # warm: begun again, and not ready
    walk.note("the summary takes its time")
    turn = asyncio.ensure_future(say(2_000, 10))  # overflows: waits for it
    await walk.rest()
    walk.release()
    await turn
    await say(4_000, 10)
    await say(5_950, 10)  # overflows with none: made now
    walk.hold()
    await say(2_090, call(10), 10)

    async def refuses() -> ContextLengthExceededError:
        walk.release()
        await walk.rest()
        return refusal()

    await say(10, refuses, 10)  # refused: the ready one is put in place
    walk.session.compaction.set_budget(SMALL)
    # even with a summary too large: pruned
    await say(10, [call(4_900), call(4_900), call(4_900)], 10)
    leaf = walk.session.transcript.leaf
    await say(12_000)  # fails
    walk.session.rewind(leaf)
    await walk.do("asked for", walk.session.compact("mind the parser"))
    await say(8_000, call(500), 10)
    walk.switch("smaller", attrs.evolve(SMALL, window=5_000))
    await say(10, 10)  # makes room


async def through_copilot_cli(walk: Walk) -> None:
    say = walk.say
    await say(8_500, 10)  # 0.85, but two messages
    await say(10, 10)  # four: begun beside the conversation
    await say(10, 10)  # put in place
    walk.hold()
    await say(6_500, 10)  # 0.80: begun again
    await say(10, 10)  # not ready, and below 0.95: goes on
    walk.note("the summary takes its time")
    turn = asyncio.ensure_future(say(1_000, 10))  # 0.95: waits for it
    await walk.rest()
    walk.release()
    await turn
    await walk.rest()
    await say(7_450, 10)  # 0.95 at once: it is there
    await say(10, refusal(), 10)  # the provider refuses
    walk.switch("larger", attrs.evolve(SMALL, window=20_000))
    await say(10, 10)
    walk.switch("smaller", SMALL)
    await say(10, 10)
    await walk.do("memory is short", walk.session.run_maintenance(memory_pressure=True))
    await walk.do("asked for", walk.session.compact())
    await say(9_700, 10)  # even with a summary too large: the truncator
    fresh = walk.session.transcript.path()[0].id
    walk.session.rewind(fresh)
    await walk.do("asked for, with one message", walk.session.compact())


async def through_pi(walk: Walk) -> None:
    say, call = walk.say, walk.call
    await say(
        1_000,
        call(30_000, path="a.py:1-9"),
        call(60_000, path="b.py"),
        call(10, "write", path="a.py"),
        500,
    )
    # above, mid-turn: nothing; at its end: a turn is cut in two
    await say(1_000, call(60_000), call(30_000), call(5_000), 500)
    await say(100_000, 500)
    await say(78_000, 20)  # before the next request
    await say(10, refusal(), 20)  # once
    await say(100, 20)
    await say(10, refusal(), refusal())
    await walk.do("asked for", walk.session.compact())


async def through_oh_my_pi(walk: Walk) -> None:
    say, call = walk.say, walk.call
    await say(100, call(30_000, "write"), call(30_000, "write"), call(30_000, "write"), 10)
    await say(10, 10)  # 0.45 of what requests may have
    await say(20_000, 10)  # above half: old outputs are taken out
    await say(30_000, cut_off(20), 10)  # the answer was cut off, with room left: asked for again
    await say(100_000, call(80_000), 10, 10)  # mid-turn, above 170,000, and at the end: goes on
    await walk.do("300 seconds", walk.session.run_maintenance(idle_seconds=300))
    await say(60_000, refusal(), 10)  # a larger model
    await say(60_000, refusal(), 10)  # there is none any more


async def through_claude_code(walk: Walk) -> None:
    say, call = walk.say, walk.call
    for _ in range(5):
        await say(10, [call(6_000), call(6_000)], 10)
    await say(100_000, 10)
    await say(10_000, 10)
    await say(60_000, 10)
    await say(10, refusal(), 10)
    await walk.do("asked for", walk.session.compact("mind the parser"))


async def through_failures(walk: Walk) -> None:
    walk.failing = True
    await walk.say(166_900, 10)
    for _ in range(5):
        await walk.say(100, 10)


async def through_codex(walk: Walk) -> None:
    say, call = walk.say, walk.call
    await say(15_000, 10)
    await say(12_000, call(70_000), 10)
    await say(10, call(82_900), call(30), 10)  # mid-turn
    await say(100_000, 10)
    walk.switch("larger", ContextBudget(window=400_000))
    await say(10, 10)
    walk.switch("smaller", ContextBudget(window=100_000))
    await say(10, 10)
    await say(10, refusal(), 10)
    await walk.do("asked for", walk.session.compact())


async def through_opencode(walk: Walk) -> None:
    say, call = walk.say, walk.call
    await say(10, call(60_000), 10)
    await say(10, call(60_000), call(10_000), 10)
    await say(14_000, 17_000)  # at the end of the turn
    await say(130_000, 10)  # before the request
    await say(150_000, 10)
    await say(60_000, 10)
    await say(10, refusal(), 10)
    await walk.do("asked for", walk.session.compact())


async def through_amp(walk: Walk) -> None:
    say = walk.say
    await say(9_000, 10)
    await say(2_000)  # fails
    first = walk.session.transcript.path()[1].id
    walk.note(f"forked at the first answer: {_roles(walk.session.fork(InMemoryStore(), at=first))}")
    walk.session.rewind(first)
    handed = await handoff(
        walk.session.transcript,
        walk.session.compaction.view,
        "mend the parser",
        InMemoryStore(),
        writer=SummaryWriter(summarizer=live_of(walk), max_tokens=100),
    )
    walk.note(f"handed off: {[entry.kind for entry in handed.path()]}")
    found = build_excerpt(
        walk.session.transcript.path(), "what was reply1", max_tokens=40, tokenizer=TOKENIZER
    )
    walk.note(f"read in the other one: {found}")


async def through_gsv(walk: Walk) -> None:
    say, call = walk.say, walk.call
    await say(40_000, call(60_000), 500)
    await say(50_000, call(30_000), 20)  # mid-turn, above 180,000: in two chunks
    await walk.do("asked for", walk.session.compact())
    await say(30_000, 20)
    await say(10, refusal(), 20)
    walk.failing = True
    await say(10_000, 20)
    await say(10_000, call(8_000), 20)  # no summary is to be had: the facts stay


async def through_gsv_process(walk: Walk) -> None:
    say, call = walk.say, walk.call
    # 0.9: summarized, mid-turn, whole blocks stay
    await say(3_500, [call(10), call(10), call(10)], call(3_500), call(2_000), 10)
    await say(10, call(2_000), call(3_000), call(4_500), 10)
    await walk.do("asked for", walk.session.compact())


async def through_break_even(walk: Walk) -> None:
    say, call = walk.say, walk.call
    for _ in range(7):
        # reading these again costs more than a summary long before the window is full
        await say(30, call(8_000), 10)
    await walk.do("asked for", walk.session.compact())


async def through_large_requests(walk: Walk) -> None:
    say, call = walk.say, walk.call
    await say(3_000, call(2_000), 10)
    await say(3_000, call(1_000), 10)
    await say(3_000, 10)
    await say(500, refusal(), 10)
    await say(12_000)
    await walk.do("asked for", walk.session.compact())


WALKS: dict[str, tuple[Callable[[], Preset], ContextBudget, Callable[[Walk], Awaitable[None]]]] = {
    "vscode": (vscode, SMALL, through_vscode),
    "break_even": (break_even, LARGE, through_break_even),
    "copilot_cli": (
        lambda: copilot_cli(CopilotCLI(max_user_message_tokens=500)),
        SMALL,
        through_copilot_cli,
    ),
    "pi": (pi, LARGE, through_pi),
    "oh_my_pi": (
        lambda: oh_my_pi(OhMyPi(idle_enabled=True, idle_tokens=100)),
        LARGE,
        through_oh_my_pi,
    ),
    "claude_code": (lambda: claude_code(ClaudeCode(keep_results=2)), LARGE, through_claude_code),
    "claude_code_failing": (
        lambda: attrs.evolve(
            claude_code(),
            summarizer=make_fallback_factory(
                make_inline_summarizer, make_simple_summarizer, last_resort=False
            ),
        ),
        LARGE,
        through_failures,
    ),
    "codex": (codex, LARGE, through_codex),
    "opencode": (lambda: opencode(OpenCode(prune=True)), LARGE, through_opencode),
    "amp": (amp, SMALL, through_amp),
    "gsv": (gsv, LARGE, through_gsv),
    "gsv_process": (lambda: gsv_process(GSVProcess(keep_last=6)), SMALL, through_gsv_process),
    "gsv_process_fail": (
        lambda: gsv_process(GSVProcess(mode="fail")),
        SMALL,
        through_large_requests,
    ),
    "truncate_only": (truncate_only, SMALL, through_large_requests),
    "off": (off, SMALL, through_large_requests),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_through_everything_that_happens_to_a_preset(
    name: str, snapshot: SnapshotAssertion
) -> None:
    preset, budget, way = WALKS[name]
    assert (
        walked(
            Walk(preset(), budget=budget, promotions=["gpt-4.1"] if name == "oh_my_pi" else []), way
        )
        == snapshot
    )


def test_every_preset_has_a_walk() -> None:
    assert set(PRESETS) <= set(WALKS)


def live_of(walk: Walk) -> Summarizer:
    """A writer of handoffs that asks the walk's model."""
    return SimpleSummarizer(model=walk.session.model, window=10_000, tokenizer=TOKENIZER)


def _roles(session: AgentSession) -> list[str]:
    return [message.role for message in session.compaction.view.messages]
