"""The checks that every summary must pass, and the summary in what a model answered."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal

import attrs
import pytest

from promptkit.compaction.planning.breadcrumb import add_breadcrumb
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import Plan, Summary, SummaryTask
from promptkit.compaction.planning.worker import run_in_worker
from promptkit.compaction.summarizers.summarizer import (
    SECTIONS,
    TEMPLATE,
    collect_dropped_messages,
    extract_summary,
    get_previous_summary,
    give_way,
    limit_output,
    split_memories,
    strip_analysis,
    sum_usage,
    summary_from_reply,
    updated_facts,
)
from promptkit.errors import SummaryError
from promptkit.messages import Message, ToolCall, ToolDefinition, Usage
from promptkit.providers.model import Reply
from promptkit.transcript import ViewItem
from tests.conversations import ConversationBuilder, words
from tests.unit.compaction.summarizers.tasks import (
    SUMMARY,
    TAGGED,
    TOKENIZER,
    nothing_new,
    parser_talk,
    task_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

TASK = task_of(parser_talk(), max_tokens=21)
USED = Usage(input_tokens=100, output_tokens=10, cached_tokens=90)


def reply(
    text: str,
    *calls: ToolCall,
    finish: Literal["stop", "tool_calls", "length", "content_filter"] = "stop",
) -> Reply:
    return Reply(
        message=Message(role="assistant", content=(text,) if text else (), tool_calls=calls),
        usage=USED,
        finish=finish,
    )


def taken(
    answer: Reply, *, tagged: bool = True, task: SummaryTask = TASK, sections: Sequence[str] = ()
) -> Summary:
    return summary_from_reply(
        answer,
        task,
        mode="live",
        model="m",
        tokenizer=TOKENIZER,
        require_tags=tagged,
        sections=sections,
    )


def refused(answer: Reply, *, tagged: bool = True, sections: Sequence[str] = ()) -> SummaryError:
    with pytest.raises(SummaryError) as caught:
        taken(answer, tagged=tagged, sections=sections)
    return caught.value


class TestAccepted:
    def test_a_tagged_summary_is_one(self) -> None:
        summary = taken(reply(TAGGED))

        assert (summary.text, summary.mode, summary.model, summary.usage) == (
            SUMMARY,
            "live",
            "m",
            USED,
        )

    @pytest.mark.spec("E57", "E60")
    @pytest.mark.parametrize("tagged", [True, False])
    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (reply("<summary></summary>"), "empty"),
            (reply("<analysis>A</analysis><summary> \n</summary>"), "empty"),
            (reply(TAGGED, ToolCall(id="c", name="read")), "tool_call"),
            (reply(TAGGED, finish="content_filter"), "withheld"),
            (reply(f"<summary>{words(22)}</summary>"), "too_large"),
        ],
    )
    def test_what_is_no_summary_is_a_failure(
        self, answer: Reply, reason: str, *, tagged: bool
    ) -> None:
        error = refused(answer, tagged=tagged)

        assert error.reason == reason
        assert error.usage == USED

    @pytest.mark.spec("E57")
    @pytest.mark.parametrize(
        "text", ["", " \n", "<analysis>only thoughts", "<analysis>only thoughts</analysis>"]
    )
    def test_an_answer_without_text_is_empty(self, text: str) -> None:
        assert refused(reply(text), tagged=False).reason == "empty"

    def test_without_tags_a_reply_counts_as_it_is_where_that_is_allowed(self) -> None:
        answer = reply("<analysis>A</analysis>The parser was read.")

        assert taken(answer, tagged=False).text == "The parser was read."
        assert refused(answer).reason == "untagged"

    def test_the_size_is_that_of_the_summary_and_not_of_the_thoughts(self) -> None:
        assert taken(
            reply(f"<analysis>{words(500)}</analysis><summary>{words(20)}</summary>")
        ).text == words(20)

    @pytest.mark.parametrize("tagged", [True, False])
    @pytest.mark.parametrize("text", ["<summary>The parser", "The parser", "<analysis>The", ""])
    def test_an_answer_that_ran_into_the_output_limit_is_cut_and_no_summary(
        self, text: str, *, tagged: bool
    ) -> None:
        error = refused(reply(text, finish="length"), tagged=tagged)

        assert (error.reason, error.usage) == ("cut", USED)

    def test_a_summary_that_was_complete_before_the_output_limit_is_taken(self) -> None:
        assert taken(reply(f"{TAGGED}\nAnything el", finish="length")).text == SUMMARY

    @pytest.mark.parametrize(
        ("headings", "reason"), [(0, "no_sections"), (3, "no_sections"), (4, None), (8, None)]
    )
    def test_a_summary_needs_half_of_the_headings_that_were_asked_for(
        self, headings: int, reason: str | None
    ) -> None:
        answer = reply(
            f"<summary>{' '.join(f'**{name.upper()}**' for name in SECTIONS[:headings])} S</summary>"
        )
        asked_for_none = attrs.evolve(TASK, headings=False)

        if reason is None:
            assert taken(answer, sections=SECTIONS).text.endswith("S")
        else:
            assert refused(answer, sections=SECTIONS).reason == reason
        assert taken(answer, sections=SECTIONS, task=asked_for_none).text.endswith("S")

    @pytest.mark.parametrize(
        "text",
        ["I'm sorry, but I can't assist with that.", "Let me continue with the tests.", "ok"],
    )
    def test_a_refusal_or_small_talk_is_no_summary(self, text: str) -> None:
        assert refused(reply(text), sections=SECTIONS).reason == "untagged"
        assert (
            refused(reply(f"<summary>{text}</summary>"), sections=SECTIONS).reason == "no_sections"
        )

    @pytest.mark.parametrize(
        "under",
        ["", "N/A", "None.", "[describe here]", "- ...", "{{ what the person wants }}", "**TBD**"],
    )
    @pytest.mark.parametrize("form", ["{0}\n{1}", "{0}: {1}", "## {0}\n{1}", "1. **{0}**: {1}"])
    def test_headings_with_nothing_of_their_own_under_them_are_no_summary(
        self, form: str, under: str
    ) -> None:
        text = "\n".join(form.format(name, under) for name in SECTIONS)

        assert (
            refused(reply(f"<summary>\n{text}\n</summary>"), sections=SECTIONS).reason
            == "no_sections"
        )

    def test_the_words_of_the_template_are_no_summary(self) -> None:
        asked = TEMPLATE.read_text(encoding="utf-8")
        text = asked[asked.index("1. ") : asked.index("Be exact")]

        assert (
            refused(reply(f"<summary>{text}</summary>"), sections=SECTIONS).reason == "no_sections"
        )

    def test_what_a_part_does_not_have_may_be_said_in_a_word(self) -> None:
        text = "\n".join(
            f"{name}: {'The parser scatters.' if name == SECTIONS[0] else 'None.'}"
            for name in SECTIONS
        )

        assert (
            "scatters"
            in taken(
                reply(f"<summary>{text}</summary>"),
                sections=SECTIONS,
                task=attrs.evolve(TASK, max_tokens=100),
            ).text
        )


class TestTask:
    @pytest.mark.spec("E69")
    def test_the_summary_before_is_not_summarized_as_a_message(self) -> None:
        task = task_of(parser_talk("S1"))

        assert task.plan.dropped[0].kind == "summary"
        assert collect_dropped_messages(task)[0].text == "Read the parser."

    def test_the_summary_before_comes_without_its_breadcrumb(self) -> None:
        assert (
            get_previous_summary(task_of(parser_talk(add_breadcrumb("S1", location="/t.jsonl"))))
            == "S1"
        )
        assert get_previous_summary(task_of(parser_talk())) is None

    @pytest.mark.spec("E20")
    def test_the_prefix_of_a_turn_is_summarized_though_nothing_was_before(self) -> None:
        whole = task_of(parser_talk())
        task = attrs.evolve(whole, plan=Plan(leaf="e1", prefix=whole.plan.dropped))

        assert collect_dropped_messages(task) == collect_dropped_messages(whole)

    @pytest.mark.spec("E20")
    def test_where_nothing_is_new_there_is_no_task(self) -> None:
        with pytest.raises(SummaryError) as caught:
            collect_dropped_messages(nothing_new())

        assert caught.value.reason == "nothing"

    @pytest.mark.spec("I38", "E107")
    def test_facts_grow_from_checkpoint_to_checkpoint(self) -> None:
        first = task_of(parser_talk())
        talk = ConversationBuilder()
        talk.user("And now?")
        talk.answer("Now this.")
        talk.user("Good.")

        facts = updated_facts(attrs.evolve(task_of(talk), facts=updated_facts(first)))

        assert facts.requests == ("Read the parser.", "And now?")
        assert facts.messages == len(first.plan.dropped) + 2


@attrs.frozen(kw_only=True)
class Adjustable:
    """A model that takes options."""

    name: str
    options: dict[str, object] = attrs.field(factory=dict[str, object])

    def with_options(self, **options: object) -> Adjustable:
        return attrs.evolve(self, options=options)

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        raise NotImplementedError  # only the options are tested


class TestOutputLimit:
    def limit(self, name: str, *, max_tokens: int = 1_000, room: int | None = None) -> object:
        limited = limit_output(
            Adjustable(name=name), attrs.evolve(TASK, max_tokens=max_tokens), room=room
        )
        assert isinstance(limited, Adjustable)
        assert limited.options["temperature"] == 0
        return limited.options["max_output_tokens"]

    def test_it_allows_for_the_summary_and_the_analysis_before_it(self) -> None:
        assert self.limit("gpt-4.1") == 2 * 1_000 + 2_000

    @pytest.mark.parametrize("name", ["gpt-5", "o3", "a-model-of-ones-own"])
    def test_a_model_that_may_reason_has_room_for_that_apart(self, name: str) -> None:
        assert self.limit(name) == 2 * 1_000 + 2_000 + 8_000

    @pytest.mark.parametrize(
        ("room", "limit"), [(100_000, 4_000), (4_000, 3_000), (1_200, 1_000), (10, 1_000)]
    )
    def test_it_takes_three_quarters_of_the_room_in_the_window_and_never_less_than_the_summary_may_have(
        self, room: int, limit: int
    ) -> None:
        assert self.limit("gpt-4.1", room=room) == limit

    def test_it_is_no_more_than_the_model_can_write(self) -> None:
        assert self.limit("gpt-4o", max_tokens=16_000) == 16_384

    def test_a_model_without_options_is_asked_as_it_is(self) -> None:
        class Plain:
            name = "plain"

            async def complete(
                self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
            ) -> Reply:
                raise NotImplementedError  # only the options are tested

        model = Plain()
        assert limit_output(model, TASK) is model


def test_usage_is_added_up_where_it_is_known() -> None:
    assert sum_usage([USED, None, USED]) == Usage(
        input_tokens=200, output_tokens=20, cached_tokens=180
    )
    assert sum_usage([None]) is None
    assert sum_usage([]) is None


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("<summary>S</summary>", "S"),
        ("Here it is:\n<summary>\n S\n</summary>\nAnything else?", "S"),
        ("<SUMMARY>S</Summary>", "S"),
        ("<summary></summary>", ""),
        ("<summary> \n </summary>", ""),
        ("no tags at all", None),
        ("", None),
        ("</summary>", None),
        ("<summary>cut sho", "cut sho"),
        ("<analysis>A</analysis><summary>cut sho", "cut sho"),
        ("<summary>first</summary><summary>second</summary>", "first"),
        ("<analysis>A</analysis><summary>first</summary><summary>second</summary>", "first"),
        ("<analysis>In <summary>s I list</summary> files.</analysis><summary>S</summary>", "S"),
        ("<analysis>In <summary> I list files.</analysis>\n\n<summary>S</summary>", "S"),
        ("<analysis>A</analysis>\nSo:\n<summary>S</summary>", "S"),
        (
            "<analysis>A</analysis><summary>S <analysis>inner</analysis> T</summary>",
            "S <analysis>inner</analysis> T",
        ),
        (
            "<analysis>A</analysis>\nSo:\n<summary>S <analysis>inner</analysis> T</summary>",
            "S <analysis>inner</analysis> T",
        ),
        ("<analysis>I close with </analysis> later.</analysis>So <summary>S</summary>", "S"),
        (
            "<analysis>A</analysis><summary>They asked for </analysis> and <summary> in it</summary>",
            "They asked for </analysis> and <summary> in it",
        ),
        ("<summary>S</summary><analysis>late</analysis>", "S"),
        ("<analysis>never closed <summary>S</summary>", "S"),
        ("<analysis>Next I write the <summary> with", None),
    ],
)
def test_the_block_behind_the_thoughts_counts(text: str, summary: str | None) -> None:
    assert extract_summary(text) == summary


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("S", "S"),
        ("<analysis>A</analysis>\nS", "S"),
        ("S<analysis>A</analysis> and <analysis>B</analysis>T", "S and T"),
        ("<analysis>cut sho", ""),
        ("S <analysis>cut sho", "S"),
        (" ", ""),
    ],
)
def test_thoughts_are_no_summary(text: str, rest: str) -> None:
    assert strip_analysis(text) == rest


@pytest.mark.parametrize(
    ("text", "memories", "summary"),
    [
        ("<summary>S</summary>\n<memories>\n- a\n- b\n</memories>", "- a\n- b", "S"),
        (
            "<analysis>In <memories> I list them.</analysis><summary>S</SUMMARY><Memories>- a < b</memories> Done.",
            "- a < b",
            "S",
        ),
        ("<summary>S</summary><memories>- cut sho", "- cut sho", "S"),
        ("<summary>S <memories>- a</memories>T</summary>", "- a", "S T"),
        ("<memories>- a</memories><summary>S</summary>", "", "S"),
        ("<summary>S</summary><memories></memories>", "", "S"),
        ("<summary>S</summary>", "", "S"),
        ("S <memories>- a</memories>", "- a", "S"),
    ],
)
def test_memories_are_taken_from_the_answer_where_they_were_asked_for(
    text: str, memories: str, summary: str
) -> None:
    asked = taken(reply(text), tagged=False, task=attrs.evolve(TASK, memories=True))
    assert (asked.text, asked.facts) == (summary, Facts(memories=memories))
    assert taken(reply(text), tagged=False).facts == Facts()


def test_hostile_replies_cost_linear_time() -> None:
    for piece in (
        "</analysis>",
        "</analysis> ",
        "<analysis>",
        "<summary",
        "</analysis>\n\n\n<summary",
        " " * 10,
    ):
        extract_summary(piece * 100_000)
        strip_analysis(piece * 100_000)
    for piece in ("<memories>", "</memories>", "<memories", "</summary><memories>", "<"):
        split_memories(piece * 100_000, piece * 100_000)


def test_finding_facts_lets_go_of_the_interpreter_once_in_a_millisecond_and_loses_no_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, pauses = 0.0, list[float]()
    items = [
        ViewItem(message=Message(role="user", content=f"{at}"), entry_id=f"e{at}")
        for at in range(100)
    ]

    def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(time, "sleep", pause)

    def work() -> list[ViewItem]:
        nonlocal now
        seen: list[ViewItem] = []
        for item in give_way(items):
            seen.append(item)
            now += 0.000_3
        return seen

    assert work() == items
    assert pauses == []  # in a thread of the program, such as that of the event loop
    assert asyncio.run(run_in_worker(work)) == items
    assert len(pauses) == 25
    assert all(0 < seconds < 0.001 for seconds in pauses)
