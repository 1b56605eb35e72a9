"""The figures of each preset: where it begins to do something, to the token, its defaults, and what its settings may be."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from promptkit.compaction.planning.selection import KeepLastTurns, KeepNothing
from promptkit.compaction.policy.state import Attempts, Phase, PolicyState
from promptkit.compaction.presets import PRESETS
from promptkit.compaction.presets.coding_agents import (
    GSV,
    ClaudeCode,
    Codex,
    CopilotCLI,
    GSVProcess,
    OhMyPi,
    OpenCode,
    Pi,
    VSCode,
    gsv_process,
    oh_my_pi,
    opencode,
    pi,
)
from promptkit.compaction.presets.settings import load_settings
from promptkit.compaction.summarizers.defaults import SummarizerContext
from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer, PlaceholderSummarizer
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.model_summarizers import ChunkedSummarizer
from promptkit.errors import SettingsError
from promptkit.messages import Message, ToolCall
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.transcript import Transcript
from tests.behaviour.walking import Walk

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.compaction.presets.preset import Preset

WINDOW = ContextBudget(window=200_000)


# Any stands for fields of a state
def decided(
    preset: Preset, phase: Phase, tokens: int, *, budget: ContextBudget = WINDOW, **more: Any
) -> str:
    state = PolicyState(
        phase=phase,
        budget=preset.adjust_budget(budget),
        tokens=tokens,
        messages=more.pop("messages", 10),
        **more,
    )
    return type(preset.policy(lambda: 0.5).decide(state)).__name__


EDGES: list[tuple[str, Phase, int, str, dict[str, Any]]] = [  # Any: fields of a state
    ("vscode", "rendered", 120_000, "StartBackground", {"warm": True}),
    ("vscode", "rendered", 135_000, "StartBackground", {}),
    ("vscode", "before_render", 97_500, "ApplySummary", {"background": "ready"}),
    ("copilot_cli", "rendered", 120_000, "StartBackground", {}),
    ("copilot_cli", "before_render", 142_500, "Compact", {}),
    ("copilot_cli", "before_render", 142_500, "Wait", {"background": "running"}),
    ("pi", "turn_end", 183_617, "Compact", {}),
    ("pi", "before_render", 183_617, "Compact", {}),
    ("oh_my_pi", "turn_end", 170_001, "Compact", {}),
    ("oh_my_pi", "before_render", 170_001, "Compact", {"warm": True}),
    ("claude_code", "before_render", 167_000, "Compact", {}),
    ("codex", "before_render", 180_000, "Compact", {"warm": True}),
    ("codex", "model_switch", 180_000, "Compact", {}),
    ("opencode", "turn_end", 148_000, "Compact", {}),
    ("opencode", "before_render", 148_000, "Compact", {}),
    ("gsv", "before_render", 180_001, "Compact", {}),
    ("gsv_process", "before_render", 135_000, "Compact", {}),
]


@pytest.mark.parametrize(("name", "phase", "tokens", "decision", "more"), EDGES)
def test_a_threshold_is_where_the_system_has_it_to_the_token(
    name: str,
    phase: Phase,
    tokens: int,
    decision: str,
    more: dict[str, Any],  # Any: fields of a state
) -> None:
    preset = PRESETS[name]()
    assert decided(preset, phase, tokens, **more) == decision
    assert decided(preset, phase, tokens - 1, **more) != decision


def test_pi_does_nothing_between_calls_of_tools() -> None:
    assert decided(PRESETS["pi"](), "before_render", 199_000, mid_turn=True) == "NoAction"


def test_copilot_leaves_short_conversations_alone() -> None:
    copilot = PRESETS["copilot_cli"]()
    assert [decided(copilot, "before_render", 149_000, messages=count) for count in (3, 4)] == [
        "NoAction",
        "Compact",
    ]
    assert [decided(copilot, "manual", 149_000, messages=count) for count in (1, 2)] == [
        "NoAction",
        "Compact",
    ]


@pytest.mark.parametrize("name", ["copilot_cli", "codex"])
def test_only_a_smaller_model_makes_room(name: str) -> None:
    preset = PRESETS[name]()
    assert decided(preset, "model_switch", 100_000) == "NoAction"
    assert (decided(preset, "model_switch", 100_000, to_smaller_window=True) == "Compact") == (
        name == "copilot_cli"
    )


def test_claude_code_tries_three_times_in_a_row() -> None:
    preset = PRESETS["claude_code"]()
    tries = [
        decided(
            preset, "before_render", 180_000, attempts=Attempts(consecutive_unsuccessful=failed)
        )
        for failed in range(4)
    ]
    assert tries == ["Compact", "Compact", "Compact", "NoAction"]


def test_gsv_compacts_only_more_than_two_messages_unless_the_request_does_not_fit() -> None:
    preset = PRESETS["gsv"]()
    assert [decided(preset, "before_render", 190_000, messages=count) for count in (2, 3)] == [
        "NoAction",
        "Compact",
    ]
    assert decided(preset, "overflow", 199_000, messages=2) == "Compact"


def test_gsv_asks_in_three_tiers() -> None:
    context = SummarizerContext(model=ScriptedModel([]), budget=WINDOW, tokenizer=WordTokenizer())
    chain = GSV().make_summarizer(context)
    assert isinstance(chain, FallbackSummarizer)
    first, second, *last = chain.summarizers
    assert isinstance(first, ChunkedSummarizer)
    assert (first.max_chunk_share, first.memories) == (None, True)
    assert second == attrs.evolve(first, max_chunk_share=0.5)
    assert [type(each) for each in last] == [ExtractiveSummarizer, PlaceholderSummarizer]


def test_gsv_process_summarizes_once_a_turn_and_fails_then() -> None:
    once = Attempts(ended_this_turn=1, last="not enough")
    assert decided(gsv_process(), "overflow", 160_000) == "Compact"
    assert decided(gsv_process(), "overflow", 160_000, attempts=once) == "Fail"
    assert decided(gsv_process(), "before_render", 149_000, attempts=once) == "NoAction"
    assert decided(gsv_process(GSVProcess(mode="fail")), "overflow", 160_000) == "Fail"


def test_gsv_process_keeps_eighty_messages_and_no_half_of_a_block() -> None:
    log = Transcript()
    for number in range(60):
        log.append_messages(Message(role="user", content=(f"ask{number}",)))
        calls = tuple(ToolCall(id=f"c{number}.{at}", name="read") for at in range(3))
        log.append_messages(Message(role="assistant", tool_calls=calls))
        log.append_messages(
            *(Message(role="tool", content=("result",), tool_call_id=call.id) for call in calls)
        )
    walk = Walk(gsv_process(), budget=ContextBudget(window=10_000, reserved_output_tokens=0))
    walk.session.compaction.compactor.transcript = log
    plan = walk.session.compaction.compactor.plan()
    assert len(plan.kept) == 80
    assert plan.kept[0].message.role == "user"
    log.append_messages(*(Message(role="user", content=("more",)) for _ in range(3)))
    plan = walk.session.compaction.compactor.plan()
    assert len(plan.kept) == 82  # the cut would be behind the first result of three
    assert plan.kept[0].message.role == "assistant"


def test_oh_my_pi_waits_for_five_minutes_of_silence() -> None:
    idle = oh_my_pi(OhMyPi(idle_enabled=True))
    assert (
        decided(idle, "idle", 200_000, budget=ContextBudget(window=1_000_000), idle_seconds=300)
        == "Compact"
    )
    assert (
        decided(idle, "idle", 199_999, budget=ContextBudget(window=1_000_000), idle_seconds=300)
        == "NoAction"
    )
    assert (
        decided(idle, "idle", 200_000, budget=ContextBudget(window=1_000_000), idle_seconds=299)
        == "NoAction"
    )
    assert (
        decided(
            oh_my_pi(), "idle", 900_000, budget=ContextBudget(window=1_000_000), idle_seconds=999
        )
        == "NoAction"
    )


def test_oh_my_pi_prunes_old_outputs_but_never_what_was_read_nor_a_skill() -> None:
    walk = Walk(oh_my_pi(), budget=WINDOW)

    async def go() -> None:
        await walk.say(
            10,
            walk.call(30_000),
            walk.call(30_000, "skill"),
            walk.call(25_000, "write"),
            walk.call(41_000, "write"),
            10,
        )
        await walk.say(10, 10)

    asyncio.run(go())
    results = [
        message.text for message in walk.session.compaction.view.messages if message.role == "tool"
    ]
    assert [text.startswith("[old tool output removed") for text in results] == [
        False,
        False,
        True,
        False,
    ]


def test_the_threshold_comes_before_the_overflow() -> None:
    names = ("pi", "oh_my_pi", "claude_code", "codex", "opencode", "gsv", "gsv_process")
    late: list[tuple[object, ...]] = []
    for name, output, window, tools in itertools.product(
        names,
        (None, 4_000, 32_000, 128_000),
        (32_000, 64_000, 200_000, 1_000_000),
        (0, 3_000),
    ):
        preset = PRESETS[name]()
        budget = ContextBudget(window=window, max_output_tokens=output, tools=tools)
        limit = preset.adjust_budget(budget).render_budget
        assert limit is not None
        if decided(preset, "before_render", limit, budget=budget) != "Compact":
            late.append((name, output, window, tools))
    assert late == []


def test_a_reserve_that_the_user_chose_stays() -> None:
    assert [
        PRESETS[name]()
        .adjust_budget(ContextBudget(window=200_000, reserved_output_tokens=60_000))
        .limit
        for name in PRESETS
    ] == [140_000] * len(PRESETS)


def test_half_of_what_a_system_keeps_free_is_the_replys() -> None:
    limits = {
        name: PRESETS[name]()
        .adjust_budget(ContextBudget(window=200_000, max_output_tokens=128_000))
        .limit
        for name in ("pi", "codex", "claude_code")
    }
    assert limits == {"pi": 191_808, "codex": 190_000, "claude_code": 183_500}


def test_what_opencode_keeps_is_a_quarter_within_limits() -> None:
    kept = [
        opencode().keep(ContextBudget(window=window))
        for window in (10_000, 40_000, 100_000, 1_000_000)
    ]
    assert [attrs.asdict(each)["tokens"] for each in kept] == [2_000, 5_000, 13_750, 15_000]


def test_opencode_keeps_one_reserve_free_or_two() -> None:
    window, with_input = (
        ContextBudget(window=200_000, max_output_tokens=32_000),
        ContextBudget(window=400_000, max_input=272_000),
    )
    two, one = OpenCode(), OpenCode(second_reserve=False)
    assert [two.max_tokens(window), one.max_tokens(window)] == [148_000, 168_000]
    assert [two.max_tokens(with_input), one.max_tokens(with_input)] == [252_000, 252_000]
    assert OpenCode(reserved=5_000).max_tokens(window) == 163_000


def test_opencode_keeps_messages_of_so_many_turns() -> None:
    kept = [OpenCode(tail_turns=turns).keep_recent(WINDOW) for turns in (0, 2)]
    assert kept == [KeepNothing(), KeepLastTurns(count=2, max_tokens=15_000)]


def test_claude_code_begins_at_about_ninety_five_percent_of_what_the_output_leaves_or_at_another_share() -> (
    None
):
    shares = [
        (ClaudeCode().max_tokens(ContextBudget(window=window)) or 0) / (window - 20_000)
        for window in (200_000, 300_000, 1_000_000)
    ]
    assert shares == [
        pytest.approx(0.928, abs=1e-3),
        pytest.approx(0.954, abs=1e-3),
        pytest.approx(0.987, abs=1e-3),
    ]
    assert ClaudeCode(threshold=0.5).max_tokens(WINDOW) == 90_000
    assert ClaudeCode(threshold=0.95).max_tokens(WINDOW) == 171_000
    assert ClaudeCode(threshold=0.99).max_tokens(WINDOW) == 178_200
    small = ContextBudget(window=16_000)
    assert ClaudeCode(threshold=0.5).max_tokens(small) == 6_400


def test_a_summary_is_no_longer_than_in_the_system() -> None:
    def limit(preset: Preset) -> int:
        return Walk(preset, budget=WINDOW).session.compaction.compactor.max_summary_tokens

    assert {
        name: limit(PRESETS[name]())
        for name in ("pi", "oh_my_pi", "opencode", "gsv", "gsv_process", "vscode")
    } == {
        "pi": 13_107,
        "oh_my_pi": 13_107,
        "opencode": 4_096,
        "gsv": 16_384,
        "gsv_process": 768,
        "vscode": 16_384,
    }
    assert limit(pi(Pi(reserve_tokens=0))) == 16_384
    walk = Walk(PRESETS["opencode"](), budget=WINDOW)
    walk.session.set_model("smaller", budget=ContextBudget(window=10_000))
    assert walk.session.compaction.compactor.max_summary_tokens < 4_096


DEFAULTS: dict[type, dict[str, object]] = {
    VSCode: {
        "enabled": True,
        "mode": "auto",
        "context_size": None,
        "threshold": None,
        "warm": 0.78,
        "jitter": 0.04,
        "cold": 0.9,
        "apply": 0.65,
        "wait_seconds": 60.0,
        "summary_model": None,
        "summary_model_filter": (),
    },
    CopilotCLI: {
        "enabled": True,
        "background": 0.8,
        "block": 0.95,
        "user_message_tokens": 20_000,
        "max_user_message_tokens": 2_000,
        "min_messages": 4,
        "min_messages_manual": 2,
    },
    Pi: {"enabled": True, "reserve_tokens": 16_384, "keep_recent_tokens": 20_000},
    OhMyPi: {
        "enabled": True,
        "threshold": None,
        "reserve_tokens": 16_384,
        "keep_recent_tokens": 20_000,
        "idle_enabled": False,
        "idle_tokens": 200_000,
        "idle_seconds": 300.0,
        "auto_continue": True,
        "strategy": "context-full",
        "remote_enabled": None,
        "remote_endpoint": None,
        "promote": True,
    },
    ClaudeCode: {
        "enabled": True,
        "output_tokens": 20_000,
        "margin_tokens": 13_000,
        "threshold": None,
        "keep_results": None,
        "breaker": 3,
    },
    Codex: {"enabled": True, "auto_compact_tokens": None, "user_message_tokens": 20_000},
    OpenCode: {
        "enabled": True,
        "reserved": None,
        "second_reserve": True,
        "preserve_recent_tokens": None,
        "tail_turns": None,
        "auto_continue": True,
        "prune": False,
    },
    GSV: {
        "enabled": True,
        "reserve_tokens": 20_000,
        "keep_recent_tokens": 20_000,
        "extract_memories": True,
        "reset": "daily",
        "reset_hour": 4,
        "reset_idle_minutes": 60.0,
    },
    GSVProcess: {"mode": "auto-compact", "compact_at_pressure": 0.9, "keep_last": 80},
}


@pytest.mark.parametrize("cls", DEFAULTS)
# Any stands for attrs knows no closer type
def test_the_defaults_are_those_of_the_system(cls: type[Any]) -> None:
    assert attrs.asdict(cls()) == DEFAULTS[cls]


@pytest.mark.parametrize(
    ("expected", "toml", "variable", "wrong"),
    [
        (VSCode(threshold=0.5, cold=0.85), "threshold = 0.5", {"P_COLD": "0.85"}, "threshold = 50"),
        (
            CopilotCLI(block=0.9, min_messages=6),
            "block = 0.9",
            {"P_MIN_MESSAGES": "6"},
            "background = 80",
        ),
        (
            Pi(reserve_tokens=8_000, enabled=False),
            "reserve_tokens = 8000",
            {"P_ENABLED": "no"},
            'reserve_tokens = "16 thousand"',
        ),
        (
            OhMyPi(threshold=100_000, promote=False),
            "threshold = 100000",
            {"P_PROMOTE": "off"},
            "threshold = 85",
        ),
        (
            ClaudeCode(keep_results=5, breaker=2),
            "keep_results = 5",
            {"P_BREAKER": "2"},
            "breaker = 0",
        ),
        (
            Codex(auto_compact_tokens=0.8, user_message_tokens=100),
            "auto_compact_tokens = 0.8",
            {"P_USER_MESSAGE_TOKENS": "100"},
            "auto_compact_tokens = 90",
        ),
        (
            OpenCode(reserved=10_000, prune=True),
            "reserved = 10000",
            {"P_PRUNE": "yes"},
            "prune = 1",
        ),
        (
            GSV(reserve_tokens=5_000, reset="idle"),
            "reserve_tokens = 5000",
            {"P_RESET": "idle"},
            "reset_hour = 24",
        ),
        (
            GSVProcess(mode="fail", keep_last=20),
            'mode = "fail"',
            {"P_KEEP_LAST": "20"},
            "compact_at_pressure = 90",
        ),
    ],
)
def test_settings_come_from_a_file_and_from_variables_and_none_is_guessed(
    tmp_path: Path, expected: object, toml: str, variable: dict[str, str], wrong: str
) -> None:
    cls: type[Any] = type(expected)  # Any: attrs knows no closer type
    file = tmp_path / "settings.toml"
    file.write_text(toml, encoding="utf-8")
    assert load_settings(cls, prefix="P_", file=file, environ=variable) == expected
    file.write_text(wrong, encoding="utf-8")
    with pytest.raises(SettingsError, match=wrong.split(" = ", maxsplit=1)[0]):
        load_settings(cls, prefix="P_", file=file)


@pytest.mark.slow
def test_pi_lists_files_and_puts_a_summary_of_the_turns_beginning_behind_that_of_what_was_before() -> (
    None
):
    walk = Walk(PRESETS["pi"](), budget=WINDOW)

    async def go() -> None:
        await walk.say(
            10, walk.call(50_000, path="a.py:1-9"), walk.call(10, "write", path="a.py"), 10
        )
        await walk.say(10, walk.call(90_000, path="b.py"), walk.call(46_000, path="c.py"), 10)

    asyncio.run(go())
    (checkpoint,) = walk.checkpoints
    assert len(walk.asked) == 2
    assert "The turn that is cut in two" in checkpoint.summary
    assert (
        "<read-files>\nb.py\nc.py\n</read-files>\n\n<modified-files>\na.py\n</modified-files>"
        in checkpoint.summary
    )
