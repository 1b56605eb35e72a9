"""Summaries asked for at the end of the conversation itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.planning.plan import LastRequest, SummaryTask
from promptkit.compaction.planning.selection import KeepLastRound, select
from promptkit.compaction.summarizers.model_summarizers import InlineSummarizer
from promptkit.messages import Message, ToolCall, ToolDefinition
from promptkit.testing import ScriptedModel
from promptkit.tokens.models import tokenizer_for
from tests.conversations import ConversationBuilder, summary_reply, words
from tests.unit.compaction.summarizers.tasks import (
    SUMMARY,
    TAGGED,
    TOKENIZER,
    nothing_new,
    parser_talk,
    refusal,
    shown,
    summarized,
    task_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit.providers.model import Reply

TOOLS = (ToolDefinition(name="read"), ToolDefinition(name="run", description="Runs."))
SYSTEM = Message(role="system", content=("You help.",))


def live_task(
    talk: ConversationBuilder | None = None, *, instructions: str | None = None
) -> SummaryTask:
    """The task of a conversation of which all was sent."""
    talk = talk or parser_talk()
    return task_of(
        talk,
        instructions=instructions,
        last=LastRequest(messages=(SYSTEM, *talk.view.messages), tools=TOOLS),
    )


def live(model: ScriptedModel) -> InlineSummarizer:
    return InlineSummarizer(model=model, tokenizer=TOKENIZER)


def test_the_request_is_the_last_one_byte_for_byte_with_one_message_behind_it() -> None:
    task = live_task()
    with ScriptedModel([TAGGED]) as model:
        summary = summarized(live(model), task)

    (request,) = model.requests
    assert task.last_request is not None
    assert request.messages[:-1] == task.last_request.messages
    assert all(
        sent is said
        for sent, said in zip(request.messages[:-1], task.last_request.messages, strict=True)
    )
    assert request.messages[-1].role == "user"
    assert request.tools == TOOLS
    assert (summary.text, summary.mode, summary.model) == (SUMMARY, "live", "scripted")


def test_the_prompt_cache_pays_for_the_conversation() -> None:
    task = live_task(_long())
    with ScriptedModel(["Sure.", TAGGED]) as model:
        assert task.last_request is not None
        asyncio.run(model.complete(task.last_request.messages, tools=task.last_request.tools))
        usage = summarized(live(model), task).usage

    assert usage is not None
    assert usage.cached_tokens / usage.input_tokens > 0.9


def _long() -> ConversationBuilder:
    talk = parser_talk()
    talk.answer(words(4_000))
    talk.user("go on")
    return talk


class TestWhatWasSaidSince:
    def test_an_answer_that_is_to_be_summarized_stands_before_the_question(self) -> None:
        talk = ConversationBuilder()
        talk.user("Read the parser.")
        last = LastRequest(messages=(SYSTEM, *talk.view.messages), tools=TOOLS)
        talk.answer("It is a recursive descent parser.")
        plan = select(
            talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, keep=KeepLastRound(background=True)
        )

        with ScriptedModel([TAGGED]) as model:
            summarized(live(model), SummaryTask(plan=plan, max_tokens=100, last_request=last))

        sent = model.requests[0].messages
        assert sent[:2] == last.messages
        assert [message.text for message in sent[2:-1]] == ["It is a recursive descent parser."]

    def test_an_answer_in_words_that_were_said_before_is_a_new_one(self) -> None:
        talk = ConversationBuilder()
        talk.user("Read the parser.")
        talk.round("c1", "ok")
        talk.answer("Done.")
        talk.user("Run the tests.")
        last = LastRequest(messages=talk.view.messages)
        talk.round("c2", "ok")
        talk.answer("Done.")
        talk.user("Good.")

        with ScriptedModel([TAGGED]) as model:
            summarized(live(model), task_of(talk, last=last))

        assert model.requests[0].messages[:-1] == talk.view.messages[:-1]

    def test_results_that_were_cut_in_the_request_count_as_sent(self) -> None:
        task = live_task()
        assert task.last_request is not None
        cut = tuple(
            attrs.evolve(m, content=("cut",)) if m.role == "tool" else m
            for m in task.last_request.messages
        )

        with ScriptedModel([TAGGED]) as model:
            summarized(
                live(model), attrs.evolve(task, last_request=LastRequest(messages=cut, tools=TOOLS))
            )

        assert model.requests[0].messages[:-1] == cut

    def test_a_prompt_that_rewords_everything_is_not_added_to(self) -> None:
        task = live_task()
        last = LastRequest(
            messages=(SYSTEM, Message(role="user", content=("All of it, told in other words.",)))
        )

        with ScriptedModel([TAGGED]) as model:
            summarized(live(model), attrs.evolve(task, last_request=last))

        assert model.requests[0].messages[:-1] == last.messages


def test_what_the_user_wants_is_in_the_question_and_tools_are_forbidden_in_words() -> None:
    with ScriptedModel([TAGGED]) as model:
        summarized(live(model), live_task(instructions="Keep the <b> file names {{ x }}."))

    question = model.requests[0].messages[-1].text
    assert "Keep the <b> file names {{ x }}." in question
    assert "call no tools" in question
    assert "<summary>" in question


def test_a_model_that_calls_tools_all_the_same_is_told_once_more() -> None:
    said: list[bool] = []
    for name in ("claude-opus-4-1", "gpt-5"):
        with ScriptedModel([TAGGED], name=name) as model:
            summarized(live(model), live_task())
        said.append("Answer with text alone." in shown(model))

    assert said == [True, False]


@pytest.mark.spec("E57", "E60")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ToolCall(id="c9", name="read"), "tool_call"),
        ("Sure, I go on.", "untagged"),
        ("<summary></summary>", "empty"),
        ("<summary>Sure, I go on.</summary>", "no_sections"),
        (summary_reply(words(501)), "too_large"),
    ],
)
def test_what_is_no_summary_is_a_failure(answer: str | ToolCall, reason: str) -> None:
    with ScriptedModel([answer]) as model:
        assert refusal(live(model), live_task()).reason == reason


def test_without_a_last_request_no_model_is_asked() -> None:
    with ScriptedModel([]) as model:
        assert refusal(live(model), task_of(parser_talk())).reason == "no_request"


@pytest.mark.spec("E20")
def test_where_nothing_is_new_no_model_is_asked() -> None:
    task = attrs.evolve(nothing_new(), last_request=LastRequest(messages=(SYSTEM,)))
    with ScriptedModel([]) as model:
        assert refusal(live(model), task).reason == "nothing"


@pytest.mark.spec("E56")
def test_a_request_that_would_not_fit_is_not_sent() -> None:
    task, tokenizer = live_task(), tokenizer_for("gpt-4o")
    with ScriptedModel([TAGGED] * 2, name="gpt-4o", tokenizer=tokenizer) as model:
        usage = summarized(InlineSummarizer(model=model), task).usage
        assert usage is not None
        needed = usage.input_tokens + task.max_tokens

        assert (
            refusal(InlineSummarizer(model=model, window=needed - 1), task).reason == "does_not_fit"
        )
        assert summarized(InlineSummarizer(model=model, window=needed), task).mode == "live"


def test_what_cancels_passes_through() -> None:
    with pytest.raises(asyncio.CancelledError), ScriptedModel([asyncio.CancelledError()]) as model:
        summarized(live(model), live_task())


def test_a_template_of_ones_own_is_the_question(tmp_path: Path) -> None:
    file = tmp_path / "mine.md.j2"
    file.write_text("Sum up{% if live %} here{% endif %}: {{ instructions }}", encoding="utf-8")
    with ScriptedModel([TAGGED]) as model:
        summarized(
            InlineSummarizer(model=model, tokenizer=TOKENIZER, template=file),
            live_task(instructions="files"),
        )

    assert model.requests[0].messages[-1].text == "Sum up here: files"


class Adjusted:
    """A model that says how it is asked."""

    name = "adjustable"

    def __init__(
        self, seen: list[dict[str, object]], options: dict[str, object] | None = None
    ) -> None:
        self.seen = seen
        self.options = options or {}

    def with_options(self, **options: object) -> Adjusted:
        return Adjusted(self.seen, {**self.options, **options})

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        self.seen.append(self.options)
        return await ScriptedModel([TAGGED]).complete(messages, tools=tools)


def test_the_way_to_call_tools_is_not_changed_since_that_is_cached() -> None:
    seen: list[dict[str, object]] = []

    summarized(InlineSummarizer(model=Adjusted(seen), tokenizer=TOKENIZER), live_task())

    # neither the purpose nor where the cache is marked is a part of what the model reads
    assert set(seen[0]) == {"temperature", "max_output_tokens", "purpose", "cache_messages"}
