"""Playing a conversation: the requests of the real context window, counted exactly and the same in every run; invalid requests."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import AgentSession, BudgetExceededError, Message, ToolCall, Transcript
from promptkit.agent.window.prompt import Conversation, ConversationView
from promptkit.compaction import PRESETS, ExtractiveSummarizer, Preset
from promptkit.compaction.planning.selection import Keep, KeepLastMessages, KeepNothing
from promptkit.compaction.presets.coding_agents import vscode
from promptkit.compaction.pruning.processors import RequestLimits, truncate_history
from promptkit.errors import SettingsError, ToolsFillBudgetError
from promptkit.lab.replay import runner
from promptkit.lab.replay.oracle import find_lower_bound, find_optimum
from promptkit.lab.replay.policies import (
    POLICY_GROUPS,
    TRANSCRIPT_PATH,
    PresetRun,
    ReplayPolicy,
    UnknownPolicyError,
    find_policy,
    make_preset,
    parse_policy_names,
)
from promptkit.lab.replay.prompt_cache import MessageCounts, cache_rule_for
from promptkit.lab.replay.recordings import recording_from_messages
from promptkit.lab.replay.runner import ReplayOptions, ReplayRules, Simulation, find_fault
from promptkit.messages import ToolDefinition
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.renderer import Renderer
from promptkit.testing import ScriptedModel
from promptkit.tokens import tokenizer_for
from promptkit.tokens.budget import ContextBudget
from promptkit.tokens.prices import Price, read_prices
from promptkit.tools import Tool
from promptkit.transcript import InMemoryStore
from tests.conversations import assistant_message, result_message, user_message
from tests.examples import keep_first
from tests.unit.lab.replay.conversations import (
    long_conversation,
    price_of,
    recording_of,
    run_call,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.lab.replay.prompt_cache import MessageCount


WINDOW = 8_000


def rules(window: int = WINDOW, cache: str = "openai") -> ReplayRules:
    return ReplayRules(model="gpt-5", window=window, cache=cache)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[list[Message]]:
    """Every request that is played, without the system's messages."""
    seen: list[list[Message]] = []
    real = runner.find_fault

    def record(messages: Sequence[MessageCount], *, first_message: int | None = None) -> str | None:
        seen.append([message.message for message in messages if message.role != "system"])
        return real(messages, first_message=first_message)

    monkeypatch.setattr(runner, "find_fault", record)
    return seen


def test_every_answer_is_a_request_and_nothing_is_left_out_while_all_fits(
    requests: list[list[Message]],
) -> None:
    talk = long_conversation(2)
    tally = (
        Simulation(recording_of(talk), rules(128_000)).run(find_policy("vscode"), seed="s").totals
    )
    answers = [at for at, message in enumerate(talk) if message.role == "assistant"]
    assert requests == [talk[:at] for at in answers]
    assert tally.requests == len(answers)
    assert (tally.checkpoints, tally.overflows, tally.invalid_requests, tally.foreground_waits) == (
        0,
        0,
        0,
        0,
    )
    assert tally.cuts == 0


def test_tokens_are_those_of_the_real_renderer(requests: list[list[Message]]) -> None:
    talk = long_conversation(12)
    system = Message(role="system", content=("You mend things.",))
    tally = (
        Simulation(recording_of([system, *talk]), rules())
        .run(find_policy("vscode"), seed="s")
        .totals
    )
    renderer = Renderer(budget=1 << 30, model="gpt-5")
    sizes = [
        renderer.render(Conversation(view=ConversationView(messages=(system, *each)))).tokens
        for each in requests
    ]
    assert tally.requests_billed.input_tokens == sum(sizes)
    assert tally.longest_request == max(sizes)
    assert tally.checkpoints > 1


@pytest.mark.parametrize(
    "talk",
    keep_first(
        1,
        long_conversation(14, rounds=4),
        long_conversation(3, rounds=25),
        long_conversation(60, rounds=0, words=500),
    ),
)
def test_requests_are_those_of_a_session(
    requests: list[list[Message]], talk: list[Message]
) -> None:
    definition = ToolDefinition(
        name="run", description="Run a command.", parameters={"type": "object"}
    )
    recording = recording_from_messages([(message, None) for message in talk], tools=[definition])
    Simulation(recording, rules()).run(find_policy("vscode"), seed="s")
    tokenizer = tokenizer_for("gpt-5")
    results = iter([message.text for message in talk if message.role == "tool"])

    async def run(arguments: Mapping[str, object]) -> str:
        _ = arguments
        return next(results)

    async def run_session() -> list[list[Message]]:
        with ScriptedModel(
            [message for message in talk if message.role == "assistant"],
            name="gpt-5",
            tokenizer=tokenizer,
        ) as model:
            session = AgentSession(
                model=model,
                transcript=Transcript(InMemoryStore(address=TRANSCRIPT_PATH)),
                tools=[Tool(definition=definition, run=run)],
                budget=ContextBudget.for_model(
                    "gpt-5", tokenizer=tokenizer, tools=[definition], window=WINDOW
                ),
                tokenizer=tokenizer,
                summarizer=ExtractiveSummarizer(tokenizer=tokenizer),
                rng=_Draws(),
                recall=False,
            )
            for message in talk:
                if message.role == "user":
                    await session.run(message.text)
                    await session.compaction.background.wait()
            await session.close()
            return [list(request.messages) for request in model.requests]

    assert requests == asyncio.run(run_session())
    assert any("<conversation-summary>" in request[0].text for request in requests)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    keep_first(
        3,
        "vscode",
        "pi",
        "truncate_only",
        "copilot_cli",
        "oh_my_pi",
        "claude_code",
        "codex",
        "opencode",
        "gsv",
        "gsv_process",
    ),
)
def test_presets_send_what_providers_take_and_keep_within_the_window(name: str) -> None:
    tally = (
        Simulation(recording_of(long_conversation(25)), rules())
        .run(find_policy(name), seed="s")
        .totals
    )
    assert (tally.invalid_requests, tally.overflows) == (0, 0)
    assert tally.longest_request <= 6_000


@pytest.mark.long
@pytest.mark.parametrize("name", keep_first(1, "amp", "off"))
def test_presets_that_rather_fail_overflow_and_send_nothing_ill_formed(name: str) -> None:
    tally = (
        Simulation(recording_of(long_conversation(60)), rules())
        .run(find_policy(name), seed="s")
        .totals
    )
    assert tally.overflows
    assert tally.invalid_requests == 0


def test_a_huge_result_is_capped_and_a_round_that_outgrows_the_window_is_rendered_pruned(
    requests: list[list[Message]],
) -> None:
    talk = [user_message("Read it all.")]
    for number in range(4):
        talk += [run_call(f"c{number}"), result_message(f"c{number}", f"line {number} " * 3_000)]
    talk.append(assistant_message("Read."))
    tally = Simulation(recording_of(talk), rules()).run(find_policy("vscode"), seed="s").totals
    assert (tally.overflows, tally.invalid_requests) == (0, 0)
    assert all(message.text != talk[2].text for request in requests for message in request)


@pytest.mark.slow
def test_a_pruned_request_is_that_of_the_whole_conversation(requests: list[list[Message]]) -> None:
    talk = long_conversation(14)
    tally = (
        Simulation(recording_of(talk), rules())
        .run(
            policy_of(attrs.evolve(vscode(), name="pruned", enabled=False, processors=())),
            seed="s",
        )
        .totals
    )
    renderer, tokenizer = Renderer(budget=6_000, model="gpt-5"), tokenizer_for("gpt-5")
    overhead = tokenizer.count_overhead().tokens
    answers = [at for at, message in enumerate(talk) if message.role == "assistant"]
    pruned = 0
    for at, sent in zip(answers, requests, strict=True):
        try:
            whole = renderer.render(Conversation(view=ConversationView(messages=tuple(talk[:at]))))
        except BudgetExceededError:
            pruned += 1
            limits = RequestLimits(
                limit=6_000, fixed_tokens=overhead, tokenizer=tokenizer, pruned=True
            )
            fitted = tuple(truncate_history()(talk[:at], limits))
            whole = renderer.render(
                Conversation(view=ConversationView(messages=fitted, may_prune=True))
            )
        assert sent == list(whole.messages)
    assert pruned > 15
    assert tally.overflows == 0


def test_a_conversation_that_cannot_fit_is_counted_as_an_overflow() -> None:
    talk = [user_message("word " * 9_000), assistant_message("Too long.")]
    for name in ("vscode", "drop_oldest", "langchain"):
        assert (
            Simulation(recording_of(talk), rules())
            .run(find_policy(name), seed="s")
            .totals.overflows
            == 1
        )


@pytest.mark.parametrize(
    "names",
    [
        ("vscode", "pi", "gsv", "langchain"),
        pytest.param(POLICY_GROUPS["all"], marks=pytest.mark.slow),
    ],
)
def test_the_same_seed_gives_the_same_result_whatever_was_played_before(
    names: Sequence[str],
) -> None:
    recording = recording_of(long_conversation(8))
    simulation = Simulation(recording, rules())
    before = [simulation.run(find_policy(name), seed="s") for name in names]
    after = [
        Simulation(recording, rules()).run(find_policy(name), seed="s") for name in reversed(names)
    ]
    assert before == after[::-1]


def test_summaries_are_billed_as_a_models_behind_the_live_request() -> None:
    tally = (
        Simulation(recording_of(long_conversation(20)), rules())
        .run(find_policy("vscode"), seed="s")
        .totals
    )
    assert tally.checkpoints
    assert tally.summaries_billed.output_tokens > 100 * tally.checkpoints
    assert tally.summaries_billed.input_tokens > 500 * tally.checkpoints
    assert tally.summaries_billed.cached_tokens > tally.summaries_billed.input_tokens // 2
    without = (
        Simulation(recording_of(long_conversation(20)), rules(cache="off"))
        .run(find_policy("vscode"), seed="s")
        .totals
    )
    assert without.summaries_billed.cached_tokens == without.requests_billed.cached_tokens == 0
    assert without.checkpoints  # at other places: a cold cache lets a conversation grow longer


def test_thinking_without_its_text_is_billed_as_it_was_reported() -> None:
    talk = [
        user_message("one"),
        assistant_message("two"),
        user_message("three"),
        assistant_message("four " * 50),
    ]
    plain = recording_of(talk)
    thinking = attrs.evolve(plain, reported=(0, 500, 0, 10))
    simulation = Simulation(plain, rules())
    counted = simulation.run(find_policy("vscode"), seed="s").totals.requests_billed
    billed = (
        Simulation(thinking, rules()).run(find_policy("vscode"), seed="s").totals.requests_billed
    )
    text = Sizer(tokenizer_for("gpt-5")).count_message(talk[1])
    assert billed == attrs.evolve(counted, output_tokens=counted.output_tokens - text + 500)


def test_time_that_passes_between_requests_empties_the_cache() -> None:
    talk = [
        each
        for turn in range(4)
        for each in (user_message(f"request {turn} " + "word " * 1_200), assistant_message("Done."))
    ]
    near = (
        Simulation(recording_of(talk, [float(at) for at in range(8)]), rules(128_000))
        .run(find_policy("vscode"), seed="s")
        .totals
    )
    far = (
        Simulation(recording_of(talk, [at * 1_000.0 for at in range(8)]), rules(128_000))
        .run(find_policy("vscode"), seed="s")
        .totals
    )
    unknown = (
        Simulation(recording_of(talk), rules(128_000)).run(find_policy("vscode"), seed="s").totals
    )
    assert far.requests_billed.cached_tokens == 0
    assert near.requests_billed.cached_tokens == unknown.requests_billed.cached_tokens > 5_000


def deep_cut(budget: ContextBudget) -> Keep:
    _ = budget
    return KeepNothing()


def shallow_cut(budget: ContextBudget) -> Keep:
    _ = budget
    return KeepLastMessages(count=8)


def policy_of(preset: Preset) -> ReplayPolicy:
    return ReplayPolicy(name=preset.name, start=partial(PresetRun, preset))


def test_a_policy_of_other_figures_can_be_played() -> None:
    recording = recording_of(long_conversation(20))
    simulation = Simulation(recording, rules())
    deep = simulation.run(
        policy_of(attrs.evolve(vscode(), name="deep", keep=deep_cut)), seed="s"
    ).totals
    shallow = simulation.run(
        policy_of(attrs.evolve(vscode(), name="shallow", keep=shallow_cut)), seed="s"
    ).totals
    assert deep != shallow
    assert deep.invalid_requests == shallow.invalid_requests == 0


def test_tools_that_leave_nothing_of_the_window_are_refused() -> None:
    tool = ToolDefinition(name="run", description="word " * 3_000)
    with pytest.raises(ToolsFillBudgetError):
        Simulation(
            recording_of(long_conversation(1)).__class__(
                messages=tuple(long_conversation(1)), times=(None,) * 8, tools=(tool,)
            ),
            rules(2_000),
        )


def test_names_of_policies() -> None:
    assert parse_policy_names("vscode, naive,vscode") == ("vscode", *POLICY_GROUPS["naive"])
    assert set(parse_policy_names("all")) == {*POLICY_GROUPS["all"]}
    with pytest.raises(UnknownPolicyError, match=r"no policy 'langchan'.*Did you mean 'langchain'"):
        parse_policy_names("langchan")
    with pytest.raises(UnknownPolicyError, match=r"presets, naive, all\.$"):
        parse_policy_names("x")
    # a group is not a policy
    with pytest.raises(
        UnknownPolicyError, match=r"no policy 'presets'\. Use one of: .*langchain\.$"
    ):
        find_policy("presets")


def test_an_empty_recording_has_no_requests() -> None:
    for talk in ([], [user_message("Hello")], [assistant_message("Hello")]):
        assert (
            Simulation(recording_of(talk), rules())
            .run(find_policy("vscode"), seed="s")
            .totals.requests
            == 0
        )


class _Draws:
    """The random numbers of a replay with the seed `s` under the policy `vscode`."""

    def __init__(self) -> None:
        import hashlib
        import random

        self._draw = random.Random(hashlib.sha256(b"s\0vscode").digest()).random

    def __call__(self) -> float:
        return self._draw()


SYSTEM = Message(role="system", content=("Rules.",))
BOTH = Message(
    role="assistant", tool_calls=(ToolCall(id="a", name="run"), ToolCall(id="b", name="run"))
)


@pytest.mark.parametrize(
    "messages",
    [
        [user_message("Hello")],
        [SYSTEM, user_message("Hello"), assistant_message("Yes."), user_message("Go on.")],
        [user_message("Hello"), run_call("a"), result_message("a", "out"), user_message("And?")],
        [user_message("Hello"), BOTH, result_message("b", "out"), result_message("a", "out")],
    ],
)
def test_proper_requests_have_no_fault(messages: list[Message]) -> None:
    assert find_fault(MessageCounts(tokenizer_for(None)).count_messages(messages)) is None


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "no message but"),
        ([SYSTEM], "no message but"),
        (
            [SYSTEM, assistant_message("Yes."), user_message("Hello")],
            "begins with a message of the role 'assistant'",
        ),
        (
            [result_message("a", "out"), user_message("Hello")],
            "begins with a message of the role 'tool'",
        ),
        ([user_message("Hello"), result_message("a", "out")], "'a' answers no call"),
        (
            [
                user_message("Hello"),
                run_call("a"),
                result_message("a", "out"),
                result_message("a", "out"),
            ],
            "'a' answers no call",
        ),
        (
            [
                user_message("Hello"),
                run_call("a"),
                user_message("And?"),
                result_message("a", "out"),
            ],
            "'a' is not answered",
        ),
        ([user_message("Hello"), BOTH, result_message("b", "out")], "'a' is not answered"),
        (
            [
                user_message("Hello"),
                BOTH,
                result_message("b", "out"),
                assistant_message("Well"),
                result_message("a", "out"),
            ],
            "'a' is not answered",
        ),
    ],
)
def test_faults_are_found_and_named(messages: list[Message], why: str) -> None:
    assert why in (find_fault(MessageCounts(tokenizer_for(None)).count_messages(messages)) or "")


def test_a_recording_that_begins_with_a_greeting_may_go_on_so() -> None:
    greeted = MessageCounts(tokenizer_for(None)).count_messages(
        [assistant_message("Hello, what can I do?"), user_message("Mend it.")]
    )
    assert find_fault(greeted, first_message=greeted[0].number) is None
    assert find_fault(greeted) is not None


def test_settings_stand_behind_the_name_of_a_preset_and_are_checked() -> None:
    assert (
        find_policy("break_even:beta=1:tail_tokens=4000").name
        == "break_even:beta=1:tail_tokens=4000"
    )
    for name, why in (
        ("break_even:bet=1", "did you mean beta"),
        ("vscode:warm=x", "must be a number"),
        ("off:warm=1", "has no settings"),
        ("off:names_tokens=x", "must be a whole number"),
    ):
        with pytest.raises(SettingsError, match=why):
            find_policy(name)


def test_every_preset_can_have_a_list_of_names() -> None:
    for name in PRESETS:
        assert find_policy(f"{name}:names_tokens=1234").name == f"{name}:names_tokens=1234"
        assert make_preset(name, ["names_tokens=1234"]).replacement.names_tokens == 1_234


def test_a_look_up_is_billed_for_each_answer_that_lacks_a_line_and_reads_the_request_once_more() -> (
    None
):
    talk: list[Message] = []
    for message in long_conversation(30):
        talk.append(message)
        if message.role == "assistant" and not message.tool_calls:
            turn = len(talk) // 10
            quote = assistant_message(f"It has this line:\ndef load_row_{turn // 2}(): # line 0")
            talk += [user_message("And before?"), quote]
    found = (
        Simulation(recording_of(talk), rules(4_000))
        .run(find_policy("drop_oldest"), seed="s")
        .totals
    )
    lacking = found.retention.answers_lacking
    assert 0 < lacking < found.requests
    billed = found.lookups_billed
    assert billed.output_tokens == lacking * runner.LOOKUP_CALL_TOKENS
    assert billed.input_tokens > lacking * runner.LOOKUP_RESULT_TOKENS
    price = Price(input=1.0, output=1.0)
    without, twice = (
        ReplayOptions(policies=("x",), rules=rules(4_000), price=price, lookups=count).price_totals(
            "x", found
        )
        for count in (0, 2)
    )
    assert without.price_with_lookups == without.price
    assert twice.price_with_lookups == pytest.approx(without.price + 2 * price.cost(billed))


@pytest.mark.parametrize("model", ["gpt-5", "claude-sonnet-4-5"])
def test_the_simulation_behind_the_optimum_costs_what_a_replay_with_the_same_compactions_does(
    model: str,
) -> None:
    talk = long_conversation(40)
    terms = ReplayRules(model=model, window=16_000, cache=cache_rule_for(model))
    played = Simulation(recording_of(talk), terms)
    price = read_prices().for_model(model)
    result = played.run(find_policy("vscode"), seed="s")
    options = ReplayOptions(policies=("vscode",), rules=terms, price=price)
    replayed = options.price_totals("vscode", result.totals)
    conversation = played.measure(price, result)

    simulated = price_of(
        conversation, [at for at, request in enumerate(result.timeline) if request.checkpoint]
    )

    assert simulated == pytest.approx(replayed.price, rel=0.03)
    best, _ = find_optimum(conversation)
    assert find_lower_bound(conversation) < best <= simulated
