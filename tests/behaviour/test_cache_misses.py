"""A session says why the provider's prompt cache served less of a request than it could have: what is evidenced, and nothing else."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import attrs
import pytest

from benchmarks.wishes_cache import RULES, SCENARIOS, TTL, CachingModel, Clock, Talk
from promptkit import (
    AgentSession,
    ContextBudget,
    ContextWindow,
    Message,
    SystemMessage,
    Transcript,
    Usage,
    UserMessage,
)
from promptkit.agent import Conversation, TurnHooks
from promptkit.cli.commands.transcript_stats import collect_stats, print_stats
from promptkit.compaction import CacheMissed, Events
from promptkit.compaction.policy.state import NoAction, Reason
from promptkit.lab.replay import LogOptions, log_path
from promptkit.messages import CacheBreakpointPart
from promptkit.providers import AnthropicModel
from promptkit.testing import ScriptedModel, WordTokenizer, assert_cache_stable
from promptkit.tokens import read_prices
from promptkit.transcript import InMemoryStore, JsonlStore, MessageEntry
from tests.conversations import assistant_message, user_message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from promptkit import Child
    from promptkit.agent import ConversationView, WindowRequest
    from promptkit.compaction import Decision, PolicyState


def misses(transcript: Transcript) -> list[CacheMissed]:
    """The misses that a transcript has."""
    payloads = (entry.payload for entry in transcript.path())
    return [
        each.cache_miss
        for each in payloads
        if isinstance(each, MessageEntry) and each.cache_miss is not None
    ]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_each_miss_is_told_with_its_cause_and_nothing_is_told_of_a_hit(
    scenario: Callable[[], Awaitable[Talk]],
) -> None:
    talk = asyncio.run(_run(scenario))
    assert talk.misses
    assert talk.explained == talk.misses == len(talk.told)
    assert misses(talk.window.transcript) == talk.told


async def _run(scenario: Callable[[], Awaitable[Talk]]) -> Talk:
    return await scenario()


def test_the_element_that_changed_is_named_by_its_path() -> None:
    (clock,) = [each for each in SCENARIOS if each.__name__ == "clock_in_system_message"]
    first = asyncio.run(clock()).told[0]
    assert (first.block, first.path) == (
        "messages[0] (system)",
        "SystemMessage[0] > Clock[0]",
    )
    assert first.common < 10
    assert first.expected > 1_500


def test_after_a_pause_a_difference_is_the_cause_only_if_the_cache_still_held_what_is_before_it() -> (
    None
):
    kept = asyncio.run(_pause(lambda talk: setattr(talk, "now", talk.now + TTL + 1)))
    assert [each.reason for each in kept.told] == ["expired"]
    assert kept.told[0].block == "messages[1] (user)"
    longer = asyncio.run(_pause(_pause_with_a_cache_that_keeps_longer))
    assert [(each.reason, each.change) for each in longer.told] == [("changed", "prompt")]


def _pause_with_a_cache_that_keeps_longer(talk: Talk) -> None:
    talk.now += TTL + 1
    talk.model.clock = lambda: 0.0


async def _pause(wait: Callable[[Talk], None]) -> Talk:
    """Change a message of the prompt behind long instructions, after a pause."""
    note = ["a"]

    def prompt(view: ConversationView) -> Child:
        return SystemMessage()[RULES], UserMessage()[note[0]], Conversation(view=view)

    talk = Talk("expired").open(instructions=None, prompt=prompt)
    await talk.turn()
    await talk.turn()
    note[0] = "b"
    wait(talk)
    await talk.turn()
    return talk


def test_nothing_is_said_of_a_provider_that_has_never_read_from_a_cache() -> None:
    async def converse() -> ContextWindow:
        window = ContextWindow(model="some-model", instructions=RULES, budget="50k")
        for _ in range(3):
            window.add(user_message("On."))
            await window.request()
            window.add_reply(assistant_message("Yes."), usage=Usage(input_tokens=3_000))
        return window

    assert not misses(asyncio.run(converse()).transcript)


@pytest.mark.parametrize(("tokens", "reasons"), [(900, []), (3_000, ["provider"])])
def test_nothing_is_expected_in_the_cache_of_a_request_that_is_too_small_for_it(
    tokens: int, reasons: list[str]
) -> None:
    async def converse() -> ContextWindow:
        window = ContextWindow(model="some-model", instructions="Be brief.", budget="50k")
        for cached in (0, tokens - 10, 0):
            window.add(user_message("On."))
            await window.request()
            usage = Usage(input_tokens=tokens, cached_tokens=cached)
            window.add_reply(assistant_message("Yes."), usage=usage)
        return window

    assert [each.reason for each in misses(asyncio.run(converse()).transcript)] == reasons


async def _continue_on_another_branch() -> Talk:
    talk = Talk("branch").open()
    await talk.turn()
    leaf = talk.window.transcript.leaf
    await talk.turn(user_message("One."))
    talk.window.rewind(leaf)
    await talk.turn(user_message("Another."))
    return talk


async def _reset() -> Talk:
    talk = Talk("reset").open()
    await talk.turn(user_message("One."))
    await talk.window.reset()
    await talk.turn(user_message("Another."))
    return talk


async def _exceed_the_limit() -> Talk:
    budget = ContextBudget(window=6_000, reserved_output_tokens=0)
    talk = Talk("limit").open(preset="truncate_only", budget=budget)
    for number in range(8):
        await talk.read(number)
    return talk


@pytest.mark.parametrize(
    ("converse", "change"),
    [
        (_continue_on_another_branch, "branch"),
        (_reset, "reset"),
        (_exceed_the_limit, "limit"),
    ],
)
def test_what_changed_the_messages_is_named(
    converse: Callable[[], Awaitable[Talk]], change: str
) -> None:
    told = asyncio.run(_run(converse)).told
    assert {(each.reason, each.change) for each in told} == {("changed", change)}


def test_another_model_after_a_start_is_told() -> None:
    async def converse() -> Talk:
        store = InMemoryStore()
        first = Talk("").open(transcript=Transcript(store))
        await first.turn()
        again = Talk("model")
        await again.open(transcript=Transcript(store), model=again.make_model("model-b")).turn()
        return again

    assert [each.reason for each in asyncio.run(converse()).told] == ["model"]


def test_of_two_elements_of_a_message_the_one_that_differs_is_named() -> None:
    async def converse() -> Talk:
        def prompt(view: ConversationView) -> Child:
            return SystemMessage()[Clock(now=0.0), RULES, Clock(now=talk.now)], Conversation(
                view=view
            )

        talk = Talk("prompt").open(instructions=None, prompt=prompt)
        await talk.turn()
        await talk.turn()
        return talk

    assert [each.path for each in asyncio.run(converse()).told] == ["SystemMessage[0] > Clock[2]"]


def test_a_request_that_hooks_change_names_the_hook() -> None:
    class Stamp(TurnHooks):
        count = 0

        async def before_request(self, request: WindowRequest) -> WindowRequest:
            self.count += 1
            first = Message(role="system", content=(f"Request {self.count}.",))
            return attrs.evolve(request, messages=(first, *request.messages[1:]))

    async def converse() -> AgentSession:
        session = AgentSession(
            model=ScriptedModel(["a", "b"]), instructions=RULES, turn_hooks=Stamp()
        )
        await session.run("One.")
        await session.run("Two.")
        return session

    (missed,) = misses(asyncio.run(converse()).transcript)
    assert (missed.cause, missed.block) == ("hook", "messages[0] (system)")


def test_a_mark_that_moves_is_no_difference() -> None:
    def prompt(view: ConversationView) -> Child:
        return SystemMessage()[RULES], Conversation(view=view)

    async def converse() -> ContextWindow:
        window = ContextWindow(model="some-model", prompt=prompt, budget="50k")
        for number in range(3):
            window.add(user_message("On."))
            request = await window.request()
            messages = list(request.messages)
            place = number % len(messages)
            marked = (*messages[place].content, CacheBreakpointPart(kind="ephemeral"))
            messages[place] = attrs.evolve(messages[place], content=marked)
            window.replace_request(attrs.evolve(request, messages=tuple(messages)))
            window.add_reply(assistant_message("Yes."))
        return window

    assert not misses(asyncio.run(converse()).transcript)


def test_text_behind_the_conversation_is_no_difference_and_is_not_expected_in_the_cache() -> None:
    def prompt(view: ConversationView) -> Child:
        return (
            SystemMessage()[RULES],
            Conversation(view=view),
            UserMessage()[f"{len(view.messages)} messages. " * 300],
        )

    async def converse() -> Talk:
        talk = Talk("").open(instructions=None, prompt=prompt)
        for _ in range(4):
            await talk.turn()
        return talk

    talk = asyncio.run(converse())
    assert talk.misses  # the model counts the text behind
    assert not talk.told
    assert_cache_stable(talk.window)


def test_assert_cache_stable_names_the_request_and_what_changed_it() -> None:
    async def converse(*, tells_time: bool) -> AgentSession:
        now = [0.0]

        def prompt(view: ConversationView) -> Child:
            now[0] += tells_time
            return SystemMessage()[Clock(now=now[0]), RULES], Conversation(view=view)

        session = AgentSession(model=ScriptedModel(["a", "b", "c"]), prompt=prompt)
        for text in ("One.", "Two.", "Three."):
            await session.run(text)
        return session

    assert_cache_stable(asyncio.run(converse(tells_time=False)))
    session = asyncio.run(converse(tells_time=True))
    with pytest.raises(AssertionError) as raised:
        assert_cache_stable(session.transcript)
    headline, *lines = str(raised.value).splitlines()
    assert headline == "2 of 3 requests do not begin with the request before:"
    assert lines[0].startswith(
        "  request 1: messages[0] (system) differs: prompt, at SystemMessage[0] > Clock[0]; "
    )
    assert_cache_stable(session, allow=("prompt",))


def test_stats_count_the_misses_of_a_file_by_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "talk.jsonl"

    async def converse() -> None:
        talk = Talk("model").open(transcript=Transcript(JsonlStore(file)))
        await talk.turn()
        talk.window.set_model(talk.make_model("model-b"), budget=talk.window.budget)
        await talk.turn()
        await talk.window.close()

    asyncio.run(converse())
    figures, _ = collect_stats(file, model=None)
    assert figures["cache_misses"] == {"model": 1}
    print_stats(figures)
    assert "cache misses  1 (1 model)" in capsys.readouterr().out


def test_the_page_of_a_conversation_has_the_reason_at_its_request() -> None:
    async def converse() -> Talk:
        talk = Talk("model").open()
        await talk.turn()
        talk.window.set_model(talk.make_model("model-b"), budget=talk.window.budget)
        await talk.turn()
        return talk

    path = asyncio.run(converse()).window.transcript.path()
    log = log_path(path, LogOptions(prices=read_prices()))
    noted = [log.messages[request.reply].missed for request in log.logs[0].requests]
    assert noted == [None, "another model answered the request before"]


class Recording:
    """A policy that does nothing and keeps what it was told."""

    def __init__(self) -> None:
        self.states: list[PolicyState] = []

    def decide(self, state: PolicyState) -> Decision:
        self.states.append(state)
        return NoAction(reason=Reason(why="nothing is due"))


def test_the_policy_knows_the_time_to_live_the_time_since_the_last_request_and_its_cached_tokens() -> (
    None
):
    async def converse() -> list[PolicyState]:
        policy = Recording()
        talk = Talk("").open(policy=policy)
        await talk.turn()
        await talk.turn()
        policy.states.clear()
        await talk.turn()
        return policy.states

    state = asyncio.run(converse())[0]
    assert (state.phase, state.cache_seconds) == ("before_render", TTL)
    assert state.seconds_since_request == 10
    assert state.cached_tokens is not None
    assert state.cached_tokens > 1_500


def test_a_model_that_writes_its_cache_for_an_hour_is_known_to_keep_it_for_an_hour() -> None:
    policy = Recording()
    window = ContextWindow(
        model=AnthropicModel("claude-sonnet-4-5", options={"cache_ttl": "1h"}),
        policy=policy,
        tokenizer=WordTokenizer(),
    )
    window.add(user_message("On."))
    asyncio.run(window.request())
    assert policy.states[0].cache_seconds == 3_600


def test_a_conversation_that_is_opened_again_knows_how_long_ago_its_last_request_was() -> None:
    async def converse(ago: float) -> tuple[list[PolicyState], list[CacheMissed]]:
        store, told = InMemoryStore(), list[CacheMissed]()
        model = CachingModel()
        first = Talk("").open(
            transcript=Transcript(store, clock=lambda: time.time() - ago), model=model
        )
        await first.turn()
        await first.turn()
        policy = Recording()
        again = ContextWindow(
            model=model,
            transcript=Transcript(store),
            tokenizer=WordTokenizer(),
            policy=policy,
            events=Events(
                lambda each: told.append(each) if isinstance(each, CacheMissed) else None
            ),
            budget="50k",
        )
        again.add(user_message("On."))
        await again.request()
        return policy.states, told

    (state, *_), _ = asyncio.run(converse(30))
    assert state.warm
    assert state.seconds_since_request == pytest.approx(30, abs=5)
    (state, *_), _ = asyncio.run(converse(1_000))
    assert not state.warm
