"""What a model is to find in a request behind a summary, in what a session sends."""

from __future__ import annotations

import asyncio
import gc
import itertools
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from promptkit import (
    AgentSession,
    Child,
    ContextBudget,
    ContextWindow,
    Group,
    Message,
    OpaquePart,
    PromptElement,
    Rendered,
    Renderer,
    Sizing,
    SystemMessage,
    ToolDefinition,
    UserMessage,
    component,
    count_request,
)
from promptkit.agent.settings import WindowSettings
from promptkit.agent.window.prompt import ConversationPrompt, ConversationView
from promptkit.agent.window.requests import RequestBuilder, RequestTarget, find_adaptation
from promptkit.compaction.summarizers.model_summarizers import InlineSummarizer
from promptkit.compaction.summarizers.quirks import REMINDER, adapt_messages
from promptkit.elements.builtin import element_from_message
from promptkit.errors import BudgetExceededError
from promptkit.rendering.expand import expansion as expand
from promptkit.rendering.tree import MessageItem
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens import Count, OpenAITokenizer, tokenizer_for
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_summary_message
from tests.behaviour.conversation_strategies import talks
from tests.conversations import ConversationBuilder, summary_reply, summary_text, words
from tests.examples import examples
from tests.unit.agent.holding import READ, calls, held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.agent.window.prompt import Prompt
    from promptkit.messages import Json
    from promptkit.testing.scripted_model import Step

THOUGHT = OpaquePart(value={"type": "thinking", "thinking": "hm", "signature": "s"}, tokens=7)
WIDE = ContextBudget(window=100_000, reserved_output_tokens=0)


def thinking(text: str) -> Message:
    return Message(role="assistant", content=(THOUGHT, text))


def session(
    *steps: Step, model: str, budget: ContextBudget = WIDE, prompt: Prompt | None = None
) -> tuple[AgentSession, ScriptedModel]:
    scripted = ScriptedModel(steps, name=model)
    made = AgentSession(
        model=scripted,
        budget=budget,
        tokenizer=WordTokenizer(),
        summarizer=InlineSummarizer(model=scripted, tokenizer=WordTokenizer()),
        prompt=prompt,
        rng=lambda: 0.5,
    )
    return made, scripted


def texts(model: ScriptedModel, number: int = -1) -> list[str]:
    return [message.text for message in model.requests[number].messages]


def behind_a_summary(name: str, *steps: Step) -> ScriptedModel:
    """Two turns, a summary, and a turn for each step that is left."""
    each, model = session(
        thinking(words(600, "a")), words(50, "b"), summary_reply(), *steps, model=name
    )

    async def talk() -> None:
        await each.run("first")
        await each.run("second")
        assert await each.compact() is not None
        for _ in steps:
            await each.run("more")

    asyncio.run(talk())
    return model


def test_a_model_that_stops_behind_a_summary_is_reminded_in_each_request_once() -> None:
    model = behind_a_summary("gpt-4.1", "c", "d")

    for number in (3, 4):
        summary, *rest = texts(model, number)
        assert summary.startswith(build_summary_message(summary_text()).text)
        assert rest[:2] == [REMINDER, "second"]
        assert texts(model, number).count(REMINDER) == 1
    assert REMINDER not in texts(model, 1)


@pytest.mark.spec("E14")
def test_the_thought_that_was_summarized_leads_the_first_answer_behind_the_summary() -> None:
    model = behind_a_summary("claude-sonnet-4-5", "c", "d")

    first = next(message for message in model.requests[3].messages if message.role == "assistant")
    assert first.content == (THOUGHT, words(50, "b"))
    assert (
        model.requests[4].messages[: len(model.requests[3].messages)] == model.requests[3].messages
    )


def test_another_model_gets_what_was_rendered() -> None:
    model = behind_a_summary("gpt-5", "c")

    assert texts(model)[0].startswith(build_summary_message(summary_text()).text)
    assert texts(model)[1] == "second"
    assert THOUGHT not in [
        part for message in model.requests[3].messages for part in message.content
    ]


def test_a_call_that_stands_alone_is_not_sent_to_a_model_that_refuses_it() -> None:
    lonely = Message(role="assistant", content=("I look.",), tool_calls=tuple(calls(9)))
    each, model = session("fine", model="gemini-2.5-pro", prompt=None)
    with_orphan = Message(role="tool", content=("out",), tool_call_id="gone")
    adaptation = find_adaptation("gemini-2.5-pro", each.transcript, None, tokenizer=WordTokenizer())

    assert adapt_messages((lonely, with_orphan), adaptation.quirks) == (
        Message(role="assistant", content=("I look.",)),
    )
    asyncio.run(each.run("go"))
    assert texts(model) == ["go"]


def test_the_requests_between_two_summaries_only_grow() -> None:
    for name in ("gpt-4.1", "claude-opus-4-1", "gemini-2.5-pro"):
        model = behind_a_summary(name, *("c", "d", "e"))
        for before, after in itertools.pairwise(model.requests[3:]):
            assert after.messages[: len(before.messages)] == before.messages


def test_the_next_summary_is_asked_for_behind_the_same_bytes() -> None:
    each, model = session(
        words(600, "a"),
        words(600, "b"),
        summary_reply(),
        words(600, "c"),
        "d",
        summary_reply("S2"),
        model="gpt-4.1",
    )

    async def talk() -> None:
        await each.run("first")
        await each.run("second")
        await each.compact()
        await each.run("third")
        await each.run("fourth")
        await each.compact()

    asyncio.run(talk())
    last, asked = model.requests[-2:]
    assert asked.messages[: len(last.messages)] == last.messages
    assert REMINDER in [message.text for message in asked.messages]


@pytest.mark.parametrize("more", [0, 10])
def test_what_is_added_is_counted_and_has_its_room(more: int) -> None:
    reminder = WordTokenizer().count(REMINDER)
    size = 400
    steps = (words(150, "a"), words(120, "b"), summary_reply(), "done", "done", "done")
    each, model = session(*steps, model="gpt-4.1", budget=attrs.evolve(WIDE, window=size))

    async def talk() -> None:
        await each.run("first")
        await each.run("second")
        await each.compact()
        # With the summary, its tags, the user's words, "second" and its answer there is just room, or too little, and
        # that answer leaves.
        await each.run(words(size - 170 - reminder + more, "ask"))

    asyncio.run(talk())
    (sent,) = (request for request in model.requests if request.messages[-1].text.startswith("ask"))
    assert REMINDER in [message.text for message in sent.messages]
    assert (
        size - (130 if more else 10)
        <= sum(WordTokenizer().count(message.text) for message in sent.messages)
        <= size
    )
    assert (words(120, "b") in [message.text for message in sent.messages]) is not bool(more)


def test_the_tools_of_the_conversation_are_named_to_who_summarizes_a_copy_of_it() -> None:
    each = held(words(600, "a"))
    asyncio.run(each.session.run("first"))
    # it has sent nothing yet, and goes on with a turn that was cut short
    later = held("done", transcript=each.session.transcript)

    async def talk() -> None:
        await later.session.run("second")
        # what was sent to another model is of no use
        later.session.compaction.set_model("other", WIDE, tokenizer=WordTokenizer())
        await later.session.compact()

    asyncio.run(talk())
    (task,) = later.writer.tasks
    # the transcript's requests had no other tools a moment ago
    assert (task.last_request, task.tools) == (None, (READ,))


def test_what_is_added_depends_on_the_model_and_the_checkpoint() -> None:
    log = Transcript()
    assert find_adaptation("gpt-4.1", log, None, tokenizer=WordTokenizer()).tokens == 0
    (entry,) = log.append(
        Checkpoint(summary="S", facts={"thinking": {"value": THOUGHT.value, "tokens": 7}})
    )

    assert find_adaptation(
        "gpt-4.1", log, entry.id, tokenizer=WordTokenizer()
    ).tokens == WordTokenizer().count(REMINDER)
    assert (
        find_adaptation("claude-opus-4", log, entry.id, tokenizer=WordTokenizer()).thinking
        == THOUGHT
    )


def test_a_session_that_is_resumed_has_the_same_additions() -> None:
    each, model = session(
        thinking(words(600, "a")), words(50, "b"), summary_reply(), "c", model="claude-sonnet-4-5"
    )

    async def talk() -> None:
        await each.run("first")
        await each.run("second")
        await each.compact()
        await each.run("third")
        other = ScriptedModel(["d"], name="claude-sonnet-4-5")
        await AgentSession(model=other, transcript=each.transcript, budget=WIDE).run("fourth")
        (again,) = other.requests
        assert again.messages[: len(model.requests[-1].messages)] == model.requests[-1].messages

    asyncio.run(talk())


@given(
    talk=talks(),
    system=st.sampled_from([None, "Be brief.", " "]),
    budget=st.none() | st.integers(1, 60),
    tools=st.booleans(),
)
@settings(deadline=None, max_examples=examples(100))
def test_a_request_shows_a_whole_conversation_as_if_each_message_were_an_element(
    talk: ConversationBuilder, system: str | None, budget: int | None, *, tools: bool
) -> None:
    tokenizer = WordTokenizer(per_message=1, per_call=2, per_image=5)

    async def build(prompt: Prompt | None) -> tuple[object, ...]:
        instructions = None if prompt else system
        settings = WindowSettings(
            prompt=prompt, instructions=instructions, tools=(READ,) if tools else ()
        )
        target = RequestTarget(model="m", tokenizer=tokenizer, fixed_tokens=0)
        builder = RequestBuilder(talk.log, settings)
        try:
            request = await builder.build(talk.view, target, budget=budget)
        except BudgetExceededError as error:
            return ("refused", error.required)
        assert request.messages == request.rendered.messages
        assert request.tokens == request.rendered.tokens
        return request.messages, request.tokens, request.rendered.stable_prefix

    def write_elements(view: ConversationView) -> Child:
        messages = Group(required=True)[
            [element_from_message(message) for message in view.messages]
        ]
        return None if system is None else SystemMessage(required=True)[system], messages

    assert asyncio.run(build(None)) == asyncio.run(build(write_elements))


def test_a_system_message_with_a_component_is_rendered_in_every_request() -> None:
    seen: list[int] = []

    @component
    class Size(PromptElement):
        def render(self, sizing: Sizing) -> Child:
            seen.append(sizing.token_budget)
            return f"You have {sizing.token_budget} tokens."

    each = ContextWindow(model="m", tokenizer=WordTokenizer(), budget=1_000, instructions=Size())
    each.add(Message(role="user", content=("Hello.",)))
    for _ in range(2):
        asyncio.run(each.request())
    assert len(seen) == 2
    assert each.last_rendered is not None
    assert each.last_rendered.messages[0].text == f"You have {seen[0]} tokens."


def test_a_request_of_exactly_its_budget_has_a_render_with_the_same_figures() -> None:
    tokenizer, tools = tokenizer_for("gpt-5"), (READ,)
    view = ConversationBuilder()
    view.user("Hello.")
    for instructions in ("Be brief.", "x\n", "You run tests.\n"):
        builder = RequestBuilder(view.log, WindowSettings(instructions=instructions, tools=tools))

        async def build(each: RequestBuilder, budget: int) -> tuple[int, int]:
            target = RequestTarget(model="gpt-5", tokenizer=tokenizer, fixed_tokens=0)
            request = await each.build(view.view, target, budget=budget)
            return request.tokens, request.rendered.tokens

        tokens, _ = asyncio.run(build(builder, 1_000))
        assert asyncio.run(build(builder, tokens)) == (tokens, tokens)
        with pytest.raises(BudgetExceededError) as refused:
            asyncio.run(build(builder, tokens - 1))
        assert refused.value.required == tokens


def test_a_prompt_class_with_a_message_of_its_own_is_rendered() -> None:
    class Reminding(ConversationPrompt):
        def __call__(self, view: ConversationView) -> Child:
            return super().__call__(view), UserMessage(required=True)["Remember."]

    each = ContextWindow(model="m", tokenizer=WordTokenizer(), budget=1_000, prompt=Reminding())
    each.add(Message(role="user", content=("Hello.",)))
    assert [message.text for message in asyncio.run(each.request()).messages] == [
        "Hello.",
        "Remember.",
    ]


def test_of_a_long_conversation_that_is_pruned_only_what_is_new_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[MessageItem] = []

    def build(*fields: Any) -> MessageItem:  # Any: as MessageItem takes them
        built.append(MessageItem(*fields))
        return built[-1]

    monkeypatch.setattr(expand, "MessageItem", build)
    each = ContextWindow(model="m", tokenizer=WordTokenizer(), budget=200, preset="truncate_only")
    for number in range(800):
        each.add(
            Message(role="user", content=(f"question {number}",)),
            Message(role="assistant", content=(f"answer {number}",)),
        )
    for _ in range(3):
        built.clear()
        each.add(Message(role="user", content=("and now?",)))
        request = asyncio.run(each.request())
        assert request.pruned
        each.add_reply(Message(role="assistant", content=("nothing",)))
    assert len(built) < 10


def test_a_conversation_that_is_shown_whole_is_rendered_when_its_receipt_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rendered: list[Child] = []
    render = Renderer.render

    def count(self: Renderer, prompt: Child) -> Rendered:
        rendered.append(prompt)
        return render(self, prompt)

    monkeypatch.setattr(Renderer, "render", count)
    each = ContextWindow(
        model="m", tokenizer=WordTokenizer(), budget=1_000, instructions="Be brief."
    )
    for number in range(3):
        each.add(Message(role="user", content=("Is it", f" {number}?")))
        asyncio.run(each.request())
        each.add_reply(Message(role="assistant", content=("It is.",)))
    assert not rendered
    request = each.last_request
    assert request is not None
    assert request.rendered.messages == request.messages
    assert request.rendered.tokens == request.tokens
    assert len(rendered) == 1


def test_tool_definitions_are_counted_once_until_a_schema_is_changed_in_place() -> None:
    counted: list[Sequence[ToolDefinition]] = []

    class Counting(OpenAITokenizer):
        def count_overhead(
            self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
        ) -> Count:
            counted.append(tools)
            return super().count_overhead(tools, system=system)

    line: dict[str, Json] = {"type": "number", "minimum": 1}
    names: dict[str, Json] = {"path": {"type": "string"}, "line": line}
    parameters: dict[str, Json] = {"type": "object", "properties": names}
    tool = ToolDefinition(name="read", description="Read a file.", parameters=parameters)
    each = ContextWindow(
        model="m", tokenizer=Counting(), budget="8k", instructions="Be brief.", tools=[tool]
    )

    def ask() -> int:
        each.add(Message(role="user", content=("Is it?",)))
        request = asyncio.run(each.request())
        each.add_reply(Message(role="assistant", content=("It is.",)))
        assert request.tokens == count_request(request.chat_arguments(), model="gpt-4o").tokens
        return request.tokens

    first = ask()
    counted.clear()
    more = ask() - first
    assert not any(counted)
    names["encoding"] = {"type": "string", "description": "How the bytes of the file are read."}
    third = ask()
    assert third > first + 2 * more
    line["minimum"] = 1.0  # equal, but longer
    assert ask() > third + more


def test_a_receipt_that_is_read_late_is_of_the_tools_and_the_limit_of_its_request() -> None:
    each = ContextWindow(
        model="gpt-4o", budget=1_000, instructions="Be brief.", tools=[READ], freeze_tools=False
    )
    each.add(Message(role="user", content=("Is it?",)))
    request, limit = asyncio.run(each.request()), each.budget.render_budget
    each.add_reply(Message(role="assistant", content=("It is.",)))
    each.set_tools([])
    each.set_model("gpt-4.1", budget=900)
    each.add(Message(role="user", content=("Really?",)))
    assert not asyncio.run(each.request()).tools
    assert (request.rendered.tokens, request.rendered.budget) == (request.tokens, limit)
    assert request.rendered.messages == request.messages


def test_a_first_request_keeps_one_object_for_each_message_that_the_garbage_collector_looks_through() -> (
    None
):
    number = 4_000
    transcript = Transcript()
    transcript.append_messages(
        *(Message(role="user", content=(f"question {at}",)) for at in range(number))
    )
    each = ContextWindow(
        model="m", tokenizer=WordTokenizer(), transcript=transcript, budget="1m", instructions="Hi."
    )
    gc.collect()
    before = len(gc.get_objects())
    gc.disable()
    try:
        asyncio.run(each.request())
        gc.collect()
        assert len(gc.get_objects()) - before < 1.5 * number
    finally:
        gc.enable()
