"""The measured use of a context window, by part."""

from __future__ import annotations

import asyncio

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from promptkit import (
    AgentSession,
    ContextBudget,
    ContextWindow,
    Group,
    Message,
    SyncContextWindow,
    SyncSession,
    ToolCall,
    Usage,
)
from promptkit.compaction import PRESETS, UsageByPart, first_match
from promptkit.compaction.policy.rules import compact_at
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens import tokenizer_for
from promptkit.tokens.openai_tokenizer import CountCache
from promptkit.tokens.tokenizer import count_message
from tests.behaviour.conversation_strategies import talks
from tests.conversations import ConversationBuilder, words
from tests.examples import examples
from tests.unit.agent.holding import READ

WIDE = ContextBudget(window=100_000, reserved_output_tokens=0)
FRAMED = WordTokenizer(per_message=3, per_call=2, per_image=5)


def window(talk: ConversationBuilder | None = None, **more: object) -> ContextWindow:
    arguments: dict[str, object] = {
        "model": "m",
        "instructions": "Be brief.",
        "tokenizer": FRAMED,
        "budget": WIDE,
        **more,
    }
    return ContextWindow(transcript=talk.log if talk else None, **arguments)  # type: ignore[arg-type]  # any of the arguments


def user(text: str) -> Message:
    return Message(role="user", content=(text,))


@given(
    talk=talks(),
    instructions=st.sampled_from([None, "Be brief."]),
    tools=st.booleans(),
    preset=st.sampled_from(sorted(PRESETS)),
)
@settings(deadline=None, max_examples=examples(60))
def test_the_parts_sum_up_to_the_next_request(
    talk: ConversationBuilder, instructions: str | None, *, tools: bool, preset: str
) -> None:
    talk.user("and now?")
    each = window(talk, instructions=instructions, tools=(READ,) if tools else (), preset=preset)
    has_system = any(message.role == "system" for message in each.view.messages)
    before = each.context_usage()
    request = asyncio.run(each.request())
    if not has_system:  # only the render knows the framing of a second system message
        assert before.parts.total == request.tokens
    assert each.context_usage().parts.total == request.tokens
    assert min(attrs.astuple(before.parts)) >= 0


def test_each_token_is_in_the_part_that_it_is_spent_on() -> None:
    talk = ConversationBuilder()
    talk.user(words(10, "q"))
    talk.calls("c1", name="read")
    talk.result("c1", words(40, "r"))
    talk.answer(words(20, "a"))
    talk.checkpoint("a summary of seven words in all", first_kept=None)
    talk.user(words(5, "next"))
    talk.calls("c2", name="read")
    talk.result("c2", words(30, "s"))
    each = window(talk, tools=(READ,))
    usage = each.context_usage()
    items = each.view.items
    assert usage.parts.summary == count_message(items[0].message, FRAMED)
    assert usage.parts.results == count_message(items[-1].message, FRAMED)
    assert usage.parts.messages == sum(count_message(item.message, FRAMED) for item in items[1:-1])
    assert usage.parts.tools == FRAMED.count_overhead((READ,)).tokens
    assert usage.parts.system == count_message(
        Message(role="system", content=("Be brief.",)), FRAMED
    )
    assert usage.messages == len(items)


def test_instructions_with_elements_are_counted_once_they_were_rendered() -> None:
    each = window(instructions=Group()["Be brief."])
    each.add(user("question"))
    assert each.context_usage().parts.system == 0
    request = asyncio.run(each.request())
    assert each.context_usage().parts.total == request.tokens


def test_a_window_without_messages_takes_its_instructions_and_tools() -> None:
    parts = window(tools=(READ,)).context_usage().parts
    assert parts.system > 0
    assert parts.total == parts.system + parts.tools


def test_what_is_free_and_cached_is_what_the_provider_said() -> None:
    async def talk() -> None:
        each = window(budget=ContextBudget(window=1_000, reserved_output_tokens=100))
        assert (each.context_usage().cached_share, each.context_usage().last) == (None, None)
        each.add(user(words(50)))
        await each.request()
        said = Usage(input_tokens=200, output_tokens=10, cached_tokens=150)
        each.add_reply(Message(role="assistant", content=("done",)), usage=said)
        usage = each.context_usage()
        assert (usage.window, usage.limit) == (1_000, 900)
        assert usage.last == said
        assert usage.cached_share == 0.75
        assert usage.tokens == usage.reading.provider == 210
        assert usage.free == 900 - 210

    asyncio.run(talk())


def test_an_unknown_window_has_no_limit_and_no_threshold() -> None:
    usage = window(budget=ContextBudget()).context_usage()
    assert (usage.window, usage.limit, usage.free, usage.threshold) == (None, None, None, None)


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"amp", "off", "truncate_only"}))
def test_the_threshold_of_every_preset_that_compacts_by_size_is_known(preset: str) -> None:
    threshold = (
        window(preset=preset, budget=ContextBudget(window=200_000, max_output_tokens=32_000))
        .context_usage()
        .threshold
    )
    assert threshold is not None
    assert 100_000 < threshold <= 200_000


@pytest.mark.parametrize("preset", ["amp", "off", "truncate_only"])
def test_a_preset_that_never_compacts_by_size_has_no_threshold(preset: str) -> None:
    assert window(preset=preset).context_usage().threshold is None


def test_no_threshold_is_told_of_where_nothing_is_compacted_or_the_policy_is_the_program_s_own() -> (
    None
):
    assert window(enabled=False).context_usage().threshold is None
    assert window(policy=first_match([compact_at(0.5)])).context_usage().threshold is None


def test_a_threshold_is_found_without_drawing_random_numbers() -> None:
    drawn: list[float] = []

    def draw() -> float:
        drawn.append(0.5)
        return 0.5

    each = window(rng=draw)
    assert each.context_usage().threshold == 90_000

    async def work() -> None:
        each.add(user("read it"))
        await each.request()
        each.add_reply(
            Message(role="assistant", tool_calls=[ToolCall(id="c1", name="read", arguments="{}")])
        )
        each.add(Message(role="tool", tool_call_id="c1", content="text"))

    asyncio.run(work())
    drawn.clear()  # a threshold is drawn after each reply
    assert each.context_usage().threshold == 80_000
    assert not drawn


def test_nothing_is_tokenized_twice_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    put = CountCache.put

    def counted(cache: CountCache, text: str, tokens: int) -> None:
        texts.append(text)
        put(cache, text, tokens)

    monkeypatch.setattr(CountCache, "put", counted)

    async def talk() -> None:
        each = window(tokenizer=tokenizer_for("gpt-4.1"), tools=(READ,))
        for turn in range(20):
            each.add(user(f"question {turn} {words(5)}"))
            each.context_usage()
            await each.request()
            each.context_usage()
            each.add_reply(Message(role="assistant", content=(f"answer {turn}",)))
            each.context_usage()
        assert len(texts) == len(set(texts))

    asyncio.run(talk())


def test_sessions_and_their_synchronous_twins_tell_the_same() -> None:
    model = ScriptedModel(["Fine."])
    with SyncSession(AgentSession(model=model, tokenizer=WordTokenizer(), budget=WIDE)) as session:
        session.run("How are you?")
        usage = session.context_usage()
        assert (
            usage
            == session.call(lambda inner: inner.context_usage())
            == session.call(lambda inner: inner.window.context_usage())
        )
        assert usage.parts == UsageByPart(messages=4)
    with SyncContextWindow(window()) as each:
        each.add(user("hello"))
        assert each.context_usage() == each.call(lambda inner: inner.context_usage())
