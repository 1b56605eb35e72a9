"""Old tool outputs are pruned from the view: examples of each rule.

The laws: tests/behaviour/test_reduction.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from promptkit.compaction.presets.coding_agents import oh_my_pi
from promptkit.compaction.pruning.tool_outputs import (
    CappedView,
    OutputRules,
    Pruning,
    ReduceToolResults,
    ResultLimits,
    prune_outputs,
)
from promptkit.errors import InvalidArgumentError
from promptkit.messages import ImagePart, Message, Part, ToolCall
from promptkit.testing import WordTokenizer
from promptkit.tokens import CalibratedTokenizer
from promptkit.tools import ToolResult
from promptkit.transcript.log.entries import PRUNED_REASON, SUPERSEDED_REASON
from promptkit.transcript.log.transcript import Transcript
from tests.conversations import ConversationBuilder, words

TOKENIZER = WordTokenizer(per_image=100)
PLACEHOLDER = 6  # "[old tool output removed: 100 tokens]"
IMAGE = ImagePart(url="https://example.com/x.png")


# Any stands for figures
def prune(
    talk: ConversationBuilder,
    *,
    protect: int = 1_000,
    tools: tuple[str, ...] = ("notes",),
    **more: Any,
) -> Pruning:
    reduce = ReduceToolResults(
        protect_tokens=protect, protected_tools=tools, **{"superseded": False, **more}
    )
    return prune_outputs(talk.path, talk.view, reduce, tokenizer=TOKENIZER)


def pruned(made: Pruning) -> list[str]:
    return [edit.target for edit in made.edits]


def outputs(*sizes: int, name: str = "read") -> ConversationBuilder:
    """A question, then a round for each size: the results are the entries e3, e5, … ; then a round without text, and an answer."""
    talk = ConversationBuilder()
    talk.user("q")
    for number, size in enumerate(sizes):
        talk.round(f"c{number}", words(size), name=name)
    talk.round("newest", IMAGE)
    talk.answer("done")
    return talk


@pytest.mark.parametrize(
    ("sizes", "targets"),
    [
        ((100, 100, 400, 600), ["e3", "e5"]),  # the newest two are exactly what is protected
        ((100, 100, 400, 601), ["e3", "e5", "e7"]),  # the one on the edge goes
        ((100, 100, 400, 599), ["e3", "e5"]),
        ((1_000,), []),
        ((1_001,), ["e3"]),
        ((), []),
    ],
)
def test_the_newest_outputs_are_protected(sizes: tuple[int, ...], targets: list[str]) -> None:
    assert pruned(prune(outputs(*sizes))) == targets


def test_what_pruning_saves_is_what_was_there_without_the_placeholders() -> None:
    made = prune(outputs(200, 200, 1_000))  # 400, less two placeholders of six words
    assert (pruned(made), made.superseded_tokens, made.saved_tokens) == (["e3", "e5"], 0, 388)


def test_a_pruned_output_says_what_it_was_and_keeps_its_call() -> None:
    talk = outputs(100, 1_000)
    talk.append(*prune(talk).edits)
    assert [message.text for message in talk.view.messages][
        2
    ] == "[old tool output removed: 100 tokens]"
    assert [message.tool_call_id for message in talk.view.messages if message.role == "tool"] == [
        "c0",
        "c1",
        "newest",
    ]
    assert talk.log.get("e3").message == talk.log.path()[2].message
    assert (
        talk.path[-1].payload
        == prune_outputs(
            list(talk.path)[:-1],
            outputs(100, 1_000).view,
            ReduceToolResults(protect_tokens=1_000, superseded=False),
            tokenizer=TOKENIZER,
        ).edits[0]
    )
    assert not talk.view.repairs


def test_outputs_of_protected_tools_stay_and_are_not_counted() -> None:
    talk = outputs(5_000, 5_000, name="notes")
    assert pruned(prune(talk)) == []
    talk.round("x", words(900))
    talk.round("y", words(200))
    talk.answer("done")
    assert pruned(prune(talk)) == ["e10"]
    assert pruned(prune(talk, tools=())) == ["e3", "e5", "e10"]


@pytest.mark.parametrize("name", ["skill", "Skill", "load_skill", "mcp__host__use_skill"])
def test_a_skill_is_never_old_whatever_the_tool_is_called_that_loads_it(name: str) -> None:
    assert pruned(prune(outputs(5_000, 5_000, name=name), tools=())) == []


@pytest.mark.spec("E74")
def test_what_was_pruned_before_does_not_hide_older_outputs() -> None:
    talk = outputs(100, 100, 100, 1_000)
    talk.edit("e5", "[old tool output removed: 100 tokens]", reason=PRUNED_REASON)
    assert pruned(prune(talk)) == ["e3", "e7"]


@pytest.mark.spec("E76")
@pytest.mark.parametrize(
    ("size", "gone"), [(1, False), (6, False), (7, False), (49, False), (50, True)]
)
def test_an_output_that_is_hardly_more_than_its_placeholder_stays(size: int, gone: bool) -> None:
    assert bool(prune(outputs(size, 1_001)).edits[:-1]) is gone


@pytest.mark.spec("E77")
def test_nothing_before_the_checkpoint_is_touched() -> None:
    talk = outputs(500, 500, 500)
    talk.checkpoint("S", first_kept="e4")
    talk.user("on")
    talk.round("x", words(500))
    talk.round("y", words(900))
    talk.answer("done")
    assert pruned(prune(talk)) == ["e14"]
    assert {entry.id for entry in talk.path[:11]}.isdisjoint(pruned(prune(talk, protect=0)))


@pytest.mark.spec("E79")
@pytest.mark.parametrize(
    ("content", "after"),
    [
        ((words(50), IMAGE, words(60)), ("[old tool output removed: 110 tokens]", IMAGE)),
        ((IMAGE, words(80)), (IMAGE, "[old tool output removed: 80 tokens]")),
    ],
)
def test_images_stay_and_only_text_is_saved(
    content: tuple[Part, ...], after: tuple[Part, ...]
) -> None:
    talk = ConversationBuilder()
    talk.round("a", *content)
    talk.round("b", words(1_000))
    talk.answer("done")
    made = prune(talk)
    assert made.edits[0].content == after
    assert (
        made.saved_tokens
        == sum(TOKENIZER.count(part) for part in content if isinstance(part, str)) - PLACEHOLDER
    )


def test_an_output_of_images_alone_stays() -> None:
    talk = ConversationBuilder()
    talk.round("a", IMAGE, IMAGE)
    talk.round("b", words(2_000))
    talk.round("c", IMAGE)
    talk.answer("done")
    assert pruned(prune(talk)) == ["e4"]


def test_what_the_model_has_not_answered_to_stays_however_large_it_is() -> None:
    talk = ConversationBuilder()
    talk.user("q")
    talk.round("a", words(500))
    talk.round("b", words(90_000))
    assert pruned(prune(talk)) == []
    assert pruned(prune(talk, protect=0)) == ["e3"]
    talk.user("what does it say?")
    assert pruned(prune(talk, protect=0)) == ["e3"]
    talk.answer("I read it")
    assert pruned(prune(talk)) == ["e3"]
    talk.round("c", words(1))
    assert pruned(prune(talk)) == ["e3", "e5"]


def test_a_result_that_was_never_written_has_no_entry_to_prune() -> None:
    talk = ConversationBuilder()
    talk.calls("a", "b")
    talk.result("a", words(500))
    talk.answer("never mind")
    talk.round("c", words(1))
    assert pruned(prune(talk, protect=0)) == ["e2"]


def test_what_has_no_entry_after_the_checkpoint_is_not_edited() -> None:
    talk = ConversationBuilder()
    talk.round("a", words(500))
    talk.round("b", words(500))
    talk.checkpoint("S", first_kept="e3")
    talk.round("c", words(500))
    talk.round("d", words(1))
    talk.answer("yes")
    assert pruned(prune(talk, protect=0)) == ["e7"]


def called(*calls: tuple[str, str, int]) -> ConversationBuilder:
    """A question, then a round for each tool, arguments and size: the results are the entries e3, e5, … ."""
    talk = ConversationBuilder()
    talk.user("q")
    for number, (tool, arguments, size) in enumerate(calls):
        talk.say(
            Message(
                role="assistant",
                tool_calls=(ToolCall(id=f"c{number}", name=tool, arguments=arguments),),
            )
        )
        talk.result(f"c{number}", words(size))
    return talk


A, B = '{"path": "a.py"}', '{"path": "b.py"}'
RANGE = '{"path": "a.py", "offset": 10, "limit": 50}'
LAST = ("run", "{}", 1)


@pytest.mark.parametrize(
    ("calls", "targets"),
    [
        ([("read", A, 100), ("read", A, 100)], ["e3"]),  # the newer one may be of the newest round
        ([("read", A, 100), ("read", A, 90), ("read", A, 100)], ["e3", "e5"]),
        ([("read", A, 100), ("read", B, 100), LAST], []),
        # the same file, with another tool
        ([("read", A, 100), ("mcp__files__view_file", '{"file_path": "a.py"}', 100), LAST], ["e3"]),
        ([("read", RANGE, 100), ("read", A, 300), LAST], ["e3"]),  # the whole file has the range
        ([("read", A, 300), ("read", RANGE, 290), LAST], []),
        (
            [
                ("read", RANGE, 100),
                ("read", '{"limit": 50, "path": "a.py", "offset": 10}', 100),
                LAST,
            ],
            ["e3"],
        ),
        # what was changed is not what is in the file now
        ([("edit", A, 100), ("read", A, 100), LAST], []),
        (
            [
                ("bash", '{"command": "make test"}', 100),
                ("bash", '{"command": "make test"}', 80),
                LAST,
            ],
            ["e3"],
        ),
        (
            [
                ("bash", '{"command": "make test"}', 100),
                ("run", '{"command": "make test"}', 100),
                LAST,
            ],
            [],
        ),
        ([("read", A, 100), ("read", A, 50), LAST], ["e3"]),
        ([("read", A, 100), ("read", A, 49), LAST], []),  # a failure, or "not changed since"
        ([("read", A, 49), ("read", A, 49), LAST], []),
        ([("odd", "{broken", 100), ("odd", "{broken", 100), LAST], ["e3"]),
        ([("odd", "{broken", 100), ("odd", "{ broken", 100), LAST], []),
    ],
)
def test_a_result_is_superseded_by_a_newer_one_of_the_same_call_or_file(
    calls: list[tuple[str, str, int]], targets: list[str]
) -> None:
    talk = called(*calls)
    made = prune(talk, protect=10_000, superseded=True)
    assert [edit.target for edit in made.superseded] == targets
    assert made.old == ()
    assert all(edit.reason == SUPERSEDED_REASON for edit in made.edits)
    assert prune(talk, protect=10_000).edits == ()


def test_superseded_results_of_protected_tools_are_replaced_and_say_that_a_newer_one_follows() -> (
    None
):
    talk = called(("skill", A, 100), ("skill", A, 100), LAST)
    talk.append(*prune(talk, superseded=True).edits)
    assert [message.text for message in talk.view.messages if message.role == "tool"] == [
        "[removed: a newer output of this call follows; 100 tokens]",
        words(100),
        words(1),
    ]


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("read", True),
        ("Read", True),
        ("view_file", True),
        ("mcp__files__cat", True),
        ("edit", False),
    ],
)
def test_results_of_calls_that_read_files_can_be_protected_whatever_the_tool_is_called(
    name: str, stays: bool
) -> None:
    talk = called((name, A, 5_000), LAST, LAST)
    assert (pruned(prune(talk, protect_reads=True)) == []) is stays
    assert pruned(prune(talk)) == ["e3"]


@pytest.mark.parametrize(
    ("name", "arguments"), [("read_file", '{"filePath": "a.py"}'), ("Skill", '{"command": "pdf"}')]
)
def test_oh_my_pi_never_prunes_what_was_read_nor_skills_by_any_name(
    name: str, arguments: str
) -> None:
    reduce = oh_my_pi().reduce
    assert reduce is not None
    talk = called((name, arguments, 90_000), ("grep", A, 90_000), LAST, LAST)
    assert pruned(prune_outputs(talk.path, talk.view, reduce, tokenizer=TOKENIZER)) == ["e5"]


def test_a_tool_is_asked_once_for_each_call_what_it_supersedes() -> None:
    asked: list[object] = []

    def supersedes(arguments: Mapping[str, object]) -> str:
        asked.append(arguments)
        return "all of it"

    made = prune_outputs(
        (talk := outputs(100, 100)).path,
        talk.view,
        ReduceToolResults(superseded=False),
        tokenizer=TOKENIZER,
        rules=OutputRules(supersedes={"read": supersedes}),
    )
    assert [edit.target for edit in made.superseded] == ["e3", "e5"]
    assert len(asked) == sum(bool(each.message.tool_calls) for each in talk.view.items)


def test_a_failed_call_supersedes_nothing() -> None:
    talk = called(("read", A, 100))
    failed = ToolCall(id="again", name="read", arguments=A)
    talk.say(Message(role="assistant", tool_calls=(failed,)))
    talk.say(ToolResult(words(100), is_error=True).to_message(failed))
    talk.answer("it cannot be read again")
    assert pruned(prune(talk, protect=10_000, superseded=True)) == []
    talk.round("newest", words(1))
    talk.say(Message(role="assistant", tool_calls=(attrs.evolve(failed, id="third"),)))
    talk.result("third", words(100))
    assert pruned(prune(talk, protect=10_000, superseded=True)) == ["e3", "e5"]


@pytest.mark.parametrize(
    ("age", "targets"), [(0, ["e3", "e5", "e7"]), (1, ["e3", "e5"]), (2, ["e3"]), (3, [])]
)
def test_results_of_a_certain_age_are_old_however_few_tokens_follow(
    age: int, targets: list[str]
) -> None:
    assert pruned(prune(outputs(100, 100, 100), protect=10_000, max_age=age)) == targets


@pytest.mark.parametrize(
    "figure", [{"protect_tokens": -1}, {"least_saving": -1}, {"max_age": -1}, {"warm_ratio": -0.1}]
)
def test_a_figure_below_zero_is_refused(figure: dict[str, Any]) -> None:  # Any: a figure
    with pytest.raises(InvalidArgumentError, match=r"must be at least 0"):
        ReduceToolResults(**figure)


def test_a_tool_has_its_limit_on_a_branch_where_another_tool_had_the_id_of_its_call() -> None:
    log = Transcript()
    capped = CappedView(TOKENIZER, limits=ResultLimits(by_tool={"read": 100}))

    def add(*messages: Message) -> str:
        *_, last = log.append_messages(*messages)
        capped.build_view(log.path())
        return last.id

    def call(name: str) -> Message:
        return Message(role="assistant", tool_calls=[ToolCall(id="c1", name=name)])

    result = Message(role="tool", content=words(300), tool_call_id="c1")
    called = add(Message(role="user", content="Go."), call("read"))
    add(result, call("list"), result)
    log.rewind(called)
    add(result)
    assert TOKENIZER.count(capped.build_view(log.path()).messages[-1].text) <= 100


def test_a_short_result_has_its_limit_with_a_tokenizer_of_a_high_margin() -> None:
    tokenizer = CalibratedTokenizer(TOKENIZER, margin=30)
    capped = CappedView(tokenizer, result_tokens=2_400)
    log = Transcript()
    log.append_messages(
        Message(role="user", content="Go."),
        Message(role="assistant", tool_calls=[ToolCall(id="c1", name="read")]),
        Message(role="tool", content="x " * 100, tool_call_id="c1"),
    )
    assert tokenizer.count(capped.build_view(log.path()).messages[-1].text) <= 2_400
