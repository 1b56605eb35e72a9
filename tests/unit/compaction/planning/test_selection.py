"""Where a compaction cuts: examples of each rule.

The laws that hold for every conversation: tests/behaviour/test_selection.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit.compaction.planning.selection import (
    Keep,
    KeepAfter,
    KeepLastMessages,
    KeepLastRound,
    KeepLastTurns,
    KeepNothing,
    KeepRecentTokens,
    KeepUserMessages,
    limit_keep,
    select,
)
from promptkit.errors import InvalidArgumentError
from promptkit.messages import ImagePart
from promptkit.rendering.expand.sizing import Sizer
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.view import build_summary_message, build_view
from tests.conversations import ConversationBuilder, words

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import Plan

TOKENIZER = WordTokenizer()


def plan(
    talk: ConversationBuilder,
    keep: Keep | None = None,
    *,
    split: bool = False,
) -> Plan:
    return select(
        talk.view,
        leaf=talk.leaf,
        tokenizer=TOKENIZER,
        keep=keep,
        split=split,
    )


def entries(made: Plan) -> dict[str, str]:
    """The parts of a plan that are not empty, with the entries in each."""
    parts = ("dropped", "prefix", "kept", "pinned", "replayed")
    return {
        part: " ".join(item.entry_id for item in getattr(made, part))
        for part in parts
        if getattr(made, part)
    }


def conversation(history: int, rounds: int) -> ConversationBuilder:
    """Turns of a request, a round and an answer each (4 messages); then a request with rounds of a call and a result each."""
    talk = ConversationBuilder()
    for number in range(history):
        talk.user(f"question {number}")
        talk.round(f"h{number}", f"output {number}")
        talk.answer(f"answer {number}")
    talk.user("the task")
    for number in range(rounds):
        talk.round(f"c{number}", f"result {number}")
    return talk


# -- one table: what each way to keep makes of a conversation


FOREGROUND, BACKGROUND = KeepLastRound(), KeepLastRound(background=True)


@pytest.mark.parametrize(
    ("history", "rounds", "keep", "parts"),
    [
        # in the foreground the last round stays, and a turn that has only one stays whole (VS Code)
        (0, 0, FOREGROUND, {"kept": "e1"}),
        (0, 1, FOREGROUND, {"kept": "e1 e2 e3"}),
        (0, 2, FOREGROUND, {"dropped": "e2 e3", "kept": "e4 e5", "replayed": "e1"}),
        (0, 4, FOREGROUND, {"dropped": "e2 e3 e4 e5 e6 e7", "kept": "e8 e9", "replayed": "e1"}),
        (1, 0, FOREGROUND, {"dropped": "e1 e2 e3 e4", "kept": "e5"}),
        (1, 1, FOREGROUND, {"dropped": "e1 e2 e3 e4", "kept": "e5 e6 e7"}),
        (1, 2, FOREGROUND, {"dropped": "e1 e2 e3 e4 e6 e7", "kept": "e8 e9", "replayed": "e5"}),
        (2, 0, FOREGROUND, {"dropped": "e1 e2 e3 e4 e5 e6 e7 e8", "kept": "e9"}),
        (
            2,
            3,
            FOREGROUND,
            {
                "dropped": "e1 e2 e3 e4 e5 e6 e7 e8 e10 e11 e12 e13",
                "kept": "e14 e15",
                "replayed": "e9",
            },
        ),
        # in the background a single round is covered as well
        (0, 0, BACKGROUND, {"kept": "e1"}),
        (0, 1, BACKGROUND, {"dropped": "e2 e3", "replayed": "e1"}),
        (0, 2, BACKGROUND, {"dropped": "e2 e3", "kept": "e4 e5", "replayed": "e1"}),
        (0, 3, BACKGROUND, {"dropped": "e2 e3 e4 e5", "kept": "e6 e7", "replayed": "e1"}),
        (1, 0, BACKGROUND, {"dropped": "e1 e2 e3 e4", "kept": "e5"}),
        (1, 1, BACKGROUND, {"dropped": "e1 e2 e3 e4 e6 e7", "replayed": "e5"}),
        (1, 2, BACKGROUND, {"dropped": "e1 e2 e3 e4 e6 e7", "kept": "e8 e9", "replayed": "e5"}),
        # the number of rounds
        (0, 1, KeepLastRound(count=0), {"dropped": "e2 e3", "replayed": "e1"}),
        (0, 2, KeepLastRound(count=0), {"dropped": "e2 e3 e4 e5", "replayed": "e1"}),
        (0, 2, KeepLastRound(count=2), {"kept": "e1 e2 e3 e4 e5"}),
        (
            0,
            3,
            KeepLastRound(count=2),
            {"dropped": "e2 e3", "kept": "e4 e5 e6 e7", "replayed": "e1"},
        ),
        # turns start at the user's message
        (2, 0, KeepLastTurns(count=0), {"dropped": "e1 e2 e3 e4 e5 e6 e7 e8", "replayed": "e9"}),
        (2, 0, KeepLastTurns(count=1), {"dropped": "e1 e2 e3 e4 e5 e6 e7 e8", "kept": "e9"}),
        (2, 0, KeepLastTurns(count=2), {"dropped": "e1 e2 e3 e4", "kept": "e5 e6 e7 e8 e9"}),
        (2, 0, KeepLastTurns(count=3), {"kept": "e1 e2 e3 e4 e5 e6 e7 e8 e9"}),
        (2, 0, KeepLastTurns(count=4), {"kept": "e1 e2 e3 e4 e5 e6 e7 e8 e9"}),
    ],
)
def test_each_way_to_keep_cuts_where_its_rule_says(
    history: int, rounds: int, keep: Keep, parts: dict[str, str]
) -> None:
    made = plan(conversation(history, rounds), keep)
    assert entries(made) == parts
    assert made.is_empty is ("dropped" not in parts)
    assert made.previous is None


def test_the_default_is_the_last_round() -> None:
    assert plan(conversation(2, 3)) == plan(conversation(2, 3), FOREGROUND)


@pytest.mark.spec("E20")
@pytest.mark.parametrize(
    ("history", "rounds", "keep", "parts"),
    [
        (
            1,
            3,
            KeepLastMessages(count=2),
            {
                "dropped": "e1 e2 e3 e4",
                "prefix": "e6 e7 e8 e9",
                "kept": "e10 e11",
                "replayed": "e5",
            },
        ),
        # between turns
        (2, 0, KeepLastMessages(count=5), {"dropped": "e1 e2 e3 e4", "kept": "e5 e6 e7 e8 e9"}),
        # without a history
        (
            0,
            3,
            KeepLastMessages(count=2),
            {"prefix": "e2 e3 e4 e5", "kept": "e6 e7", "replayed": "e1"},
        ),
    ],
)
def test_a_turn_that_is_split_has_a_prefix_of_its_own(
    history: int, rounds: int, keep: Keep, parts: dict[str, str]
) -> None:
    made = plan(conversation(history, rounds), keep, split=True)
    assert entries(made) == parts
    assert not made.is_empty


def test_where_nothing_is_shown_there_is_nothing_to_do() -> None:
    nothing = ConversationBuilder()
    assert entries(plan(nothing)) == {}
    assert plan(nothing).is_empty


@pytest.mark.parametrize("background", [False, True])
def test_a_cut_stops_at_the_previous_summary(background: bool) -> None:
    talk = conversation(1, 0)
    talk.checkpoint("S1", first_kept="e5")  # the summary, then the task
    for number in range(3):
        talk.round(f"c{number}", f"result {number}")
    made = plan(talk, KeepLastRound(background=background))
    assert entries(made) == {"dropped": "e6 e7 e8 e9 e10", "kept": "e11 e12", "replayed": "e5"}
    assert made.previous == "S1"
    assert [item.kind for item in made.dropped] == ["summary", *["message"] * 4]


def test_a_summary_in_the_middle_of_a_turn_is_compounded_and_the_request_said_again() -> None:
    talk = conversation(0, 3)
    first = talk.compact(plan(talk))
    assert [item.message.text for item in talk.view.items][:2] == [
        build_summary_message("S").text,
        "the task",
    ]
    for number in range(3, 6):
        talk.round(f"c{number}", f"result {number}")
    made = plan(talk)
    assert made.previous == "S"
    assert entries(made)["replayed"] == first
    assert made.replayed[0].message.text == "the task"
    assert made.dropped[0].kind == "summary"
    assert [item.message.text for item in made.dropped[1:] if item.message.text] == [
        "result 2",
        "result 3",
        "result 4",
    ]


def test_what_was_asked_in_between_is_said_again_with_the_request() -> None:
    talk = conversation(1, 2)
    talk.user("and be quick")
    talk.round("x", "r")
    talk.round("y", "r")
    assert [item.message.text for item in plan(talk).replayed] == ["the task", "and be quick"]


@pytest.mark.parametrize(
    ("most", "said"),
    [
        (0, ["and test"]),
        (2, ["and test"]),
        (4, ["and test"]),
        (5, ["and be quick", "and test"]),
        (7, ["the task", "and be quick", "and test"]),
    ],
)
def test_of_many_open_requests_the_newest_within_the_limit_are_said_again(
    most: int, said: list[str]
) -> None:
    talk = conversation(1, 1)
    for request in ("and be quick", "and test"):
        talk.user(request)
        talk.round(request, "r")
    talk.round("x", "r")
    made = select(talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, max_replayed_tokens=most)
    assert [item.message.text for item in made.replayed] == said
    asked = [
        item.message.text for item in (*made.dropped, *made.replayed) if item.message.role == "user"
    ]
    assert asked == ["question 0", "the task", "and be quick", "and test"]


def test_a_request_that_was_answered_is_not_said_again() -> None:
    talk = conversation(1, 3)
    talk.answer("done")
    assert plan(talk, KeepLastMessages(count=1)).replayed == ()
    assert entries(plan(talk, KeepNothing())).keys() == {"dropped"}


# -- blocks


@pytest.mark.spec("E05")
def test_a_call_that_nobody_answers_any_more_does_not_hold_the_cut() -> None:
    talk = ConversationBuilder()
    talk.user("q")
    talk.calls("lost")
    talk.answer("never mind")
    talk.user("next")
    assert entries(plan(talk)) == {"dropped": "e1 e2 e2 e3", "kept": "e4"}


@pytest.mark.spec("E06")
@pytest.mark.parametrize(
    ("count", "first"),
    [
        (1, "e8"),
        (2, "e8"),
        (3, "e6"),
        (4, "e6"),
        (5, "e5"),
        (6, "e4"),
        (7, "e2"),
        (8, "e2"),
        (9, "e1"),
        (99, "e1"),
    ],
)
def test_last_messages_keep_no_fewer_than_asked(count: int, first: str) -> None:
    talk = conversation(1, 2)
    made = plan(talk, KeepLastMessages(count=count))
    assert made.first_kept == first
    assert len(made.kept) >= min(count, 9)


@pytest.mark.spec("E06")
@pytest.mark.parametrize(
    ("entry", "first"),
    [("e1", "e2"), ("e2", "e4"), ("e3", "e4"), ("e4", "e5"), ("e6", "e8"), ("e7", "e8")],
)
def test_through_an_entry_drops_no_less_than_asked(entry: str, first: str) -> None:
    talk = conversation(1, 2)
    made = plan(talk, KeepAfter(entry_id=entry))
    assert made.first_kept == first
    assert entry in {item.entry_id for item in (*made.dropped, *made.replayed)}


@pytest.mark.spec("E23")
def test_a_cut_through_what_is_not_shown_is_refused() -> None:
    talk = conversation(2, 1)
    talk.checkpoint("S", first_kept="e5")
    for entry in ("nowhere", "e1"):
        with pytest.raises(InvalidArgumentError, match=f"'{entry}': it is not in the view"):
            plan(talk, KeepAfter(entry_id=entry))
    # the checkpoint: only its own summary is before the cut
    assert plan(talk, KeepAfter(entry_id="e12")).is_empty


def test_a_cut_through_running_calls_is_refused() -> None:
    talk = conversation(1, 0)
    running = talk.calls("x")
    with pytest.raises(InvalidArgumentError, match="tool calls without results"):
        plan(talk, KeepAfter(entry_id=running))
    assert not plan(talk, KeepAfter(entry_id="e4")).is_empty


@pytest.mark.spec("E23")
def test_where_the_first_entry_is_kept_all_is_kept() -> None:
    talk = conversation(1, 1)
    made = plan(talk, KeepLastMessages(count=7))
    assert (made.first_kept, made.is_empty) == ("e1", True)


# -- budgets


@pytest.mark.spec("E15")
def test_a_last_result_larger_than_the_budget_stays_alone_and_is_reported() -> None:
    talk = conversation(2, 1)
    talk.calls("big")
    talk.result("big", words(500))
    made = plan(talk, KeepRecentTokens(tokens=100))
    assert entries(made)["kept"] == "e12 e13"
    assert made.oversized_tokens == 500
    assert len(made.dropped) == 10


@pytest.mark.spec("E16")
def test_a_last_message_larger_than_the_budget_does_not_leave_an_empty_tail() -> None:
    talk = conversation(2, 0)
    talk.answer(words(500))
    made = plan(talk, KeepRecentTokens(tokens=100))
    assert (made.first_kept, made.oversized_tokens) == (talk.leaf, 500)
    assert plan(talk, KeepRecentTokens(tokens=500)).oversized_tokens is None


@pytest.mark.spec("E17")
def test_where_everything_fits_there_is_nothing_to_do() -> None:
    talk = conversation(2, 2)
    total = sum(TOKENIZER.count(item.message.text) for item in talk.view.items)
    made = plan(talk, KeepRecentTokens(tokens=total))
    assert (made.is_empty, made.kept, made.oversized_tokens) == (True, talk.view.items, None)
    assert not plan(talk, KeepRecentTokens(tokens=total - 1)).is_empty


@pytest.mark.spec("E18")
def test_reminders_and_branches_count_and_can_be_cut_at() -> None:
    talk = ConversationBuilder()
    talk.user(words(10))
    talk.answer(words(10))
    talk.reminder(words(10))
    talk.branch(words(8))  # ten with its tags
    talk.answer(words(10))
    assert [
        plan(talk, KeepRecentTokens(tokens=tokens)).first_kept for tokens in (10, 20, 30, 40)
    ] == ["e5", "e4", "e3", "e2"]
    assert plan(talk, KeepLastTurns(count=1)).first_kept == "e3"


@pytest.mark.spec("E19")
def test_settings_beside_the_cut_do_not_move_it() -> None:
    talk = conversation(1, 0)
    talk.setting()
    talk.setting("effort")
    talk.user("more")
    made = plan(talk, KeepLastMessages(count=1))
    assert made.first_kept == "e8"
    assert {entry.id for entry in talk.path} >= {"e6", "e7"}


# -- turns that are cut in two


def test_the_request_of_a_split_turn_that_was_answered_is_in_its_prefix() -> None:
    talk = conversation(1, 3)
    talk.answer("done")
    made = plan(talk, KeepLastMessages(count=1), split=True)
    assert entries(made) == {
        "dropped": "e1 e2 e3 e4",
        "prefix": "e5 e6 e7 e8 e9 e10 e11",
        "kept": "e12",
    }


@pytest.mark.spec("E21")
def test_where_no_turn_starts_none_is_split() -> None:
    talk = ConversationBuilder()
    talk.answer("hello")
    talk.answer("still here")
    talk.answer("anybody?")
    made = plan(talk, KeepLastMessages(count=1), split=True)
    assert entries(made) == {"dropped": "e1 e2", "kept": "e3"}


# -- pinned


def test_system_messages_stay() -> None:
    talk = ConversationBuilder()
    talk.system("be brief")
    talk.user("first")
    talk.answer("yes")
    talk.system("be briefer")
    talk.user("second")
    talk.answer("no")
    talk.user("third")
    assert entries(plan(talk)) == {"dropped": "e2 e3 e5 e6", "kept": "e7", "pinned": "e1 e4"}


def test_what_is_pinned_takes_its_block_with_it() -> None:
    talk = conversation(2, 0)
    made = select(
        talk.view,
        leaf=talk.leaf,
        tokenizer=TOKENIZER,
        pin=lambda item: item.message.text == "output 0",
    )
    assert entries(made) == {"dropped": "e1 e4 e5 e6 e7 e8", "kept": "e9", "pinned": "e2 e3"}


def test_what_is_pinned_and_nothing_else_is_nothing_to_do() -> None:
    talk = ConversationBuilder()
    talk.system("be brief")
    talk.answer("hello")
    made = select(
        talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, keep=KeepNothing(), pin=lambda _: True
    )
    assert (made.is_empty, made.kept, made.oversized_tokens) == (True, talk.view.items, None)


# -- user messages only


def test_of_the_users_messages_the_newest_stay() -> None:
    talk = conversation(3, 2)
    made = plan(talk, KeepUserMessages(tokens=8))
    assert [item.message.text for item in made.pinned] == [
        "[answered] […]",
        "[answered] question 2",
        "the task",
    ]
    # the model has not replied to this round
    assert [item.message.role for item in made.kept] == ["assistant", "tool"]
    assert entries(plan(talk, KeepUserMessages(tokens=100)))["pinned"] == "e1 e5 e9 e13"


@pytest.mark.spec("E71")
def test_a_message_on_the_edge_keeps_its_beginning_and_its_end() -> None:
    talk = ConversationBuilder()
    talk.user(
        " ".join(f"w{number}" for number in range(100)), ImagePart(url="https://example.com/x.png")
    )
    talk.answer("ok")
    talk.user("go on")
    talk.answer("ok")
    made = plan(talk, KeepUserMessages(tokens=11))
    cut = made.pinned[0].message
    assert cut.text.startswith("[answered] w0 w1 w2")
    assert cut.text.endswith("w98 w99")
    assert "[…]" in cut.text
    assert cut.text.encode()
    assert sum(TOKENIZER.count(item.message.text) for item in made.pinned) <= 11
    assert [item.entry_id for item in made.pinned] == ["e1", "e3"]


@pytest.mark.spec("E71")
@pytest.mark.parametrize("tokens", range(0, 40, 3))
def test_what_is_cut_is_whole_characters(tokens: int) -> None:
    talk = ConversationBuilder()
    talk.user("👩‍👩‍👧 🇩🇪 é " * 20)
    talk.answer("ok")
    for item in plan(talk, KeepUserMessages(tokens=tokens)).pinned:
        assert item.message.text.encode().decode() == item.message.text


@pytest.mark.spec("E69")
def test_an_earlier_summary_is_not_taken_for_a_users_message() -> None:
    talk = conversation(2, 0)
    talk.answer("done")
    talk.compact(plan(talk, KeepUserMessages(tokens=100)))
    assert [message.text for message in talk.view.messages] == [
        "[answered] question 0",
        "[answered] question 1",
        "[answered] the task",
        build_summary_message("S").text,
    ]
    talk.user("more")
    talk.answer("and more")
    made = plan(talk, KeepUserMessages(tokens=100))
    assert [item.message.text for item in made.pinned] == [
        "[answered] question 0",
        "[answered] question 1",
        "[answered] the task",
        "[answered] more",
    ]
    assert [item.kind for item in made.dropped] == ["summary", "message"]
    assert made.previous == "S"


# -- what a view holds


@pytest.mark.spec("E01")
def test_a_second_compaction_covers_what_the_first_one_kept() -> None:
    talk = conversation(3, 0)
    talk.checkpoint("S1", first_kept="e5")
    talk.answer("done")
    talk.user("next")
    made = plan(talk, KeepLastTurns(count=1))
    assert entries(made)["dropped"].split()[1:] == [
        "e5",
        "e6",
        "e7",
        "e8",
        "e9",
        "e10",
        "e11",
        "e12",
        "e13",
        "e15",
    ]


@pytest.mark.spec("E22")
def test_what_is_on_another_branch_is_in_no_plan() -> None:
    talk = conversation(1, 0)
    talk.answer("left behind")
    talk.log.rewind("e4")
    talk.user("other way")
    made = plan(talk)
    shown = {
        item.entry_id
        for part in ("dropped", "kept", "pinned", "replayed")
        for item in getattr(made, part)
    }
    assert shown == {"e1", "e2", "e3", "e4", talk.leaf}


@pytest.mark.spec("E24")
def test_nothing_before_a_reset_is_in_a_plan() -> None:
    talk = conversation(2, 0)
    talk.checkpoint("S1")
    talk.reset()
    talk.user("fresh")
    talk.answer("start")
    talk.user("on")
    made = plan(talk)
    assert entries(made) == {"dropped": "e12 e13", "kept": "e14"}
    assert made.previous is None


@pytest.mark.spec("E112")
def test_what_was_taken_back_is_in_no_plan() -> None:
    talk = conversation(2, 0)
    mark = talk.checkpoint("S1", first_kept="e9")
    talk.edit(mark, reason="undone")
    talk.edit("e1", reason="undone")
    made = plan(talk)
    assert made.previous is None
    assert entries(made) == {"dropped": "e2 e3 e4 e5 e6 e7 e8", "kept": "e9"}


def test_a_plan_is_made_for_a_leaf() -> None:
    talk = conversation(1, 0)
    leaf = talk.setting()
    assert plan(talk).leaf == leaf


def test_a_plan_of_a_view_of_the_past_is_the_plan_of_then() -> None:
    talk = conversation(2, 0)
    then = plan(talk)
    talk.round("x", "r")
    again = select(build_view(list(talk.path)[:9]), leaf=then.leaf, tokenizer=TOKENIZER)
    assert again == then


def long_turns() -> ConversationBuilder:
    """Three turns of a request and four rounds with results of a hundred words."""
    talk = ConversationBuilder()
    for turn in range(3):
        talk.user(f"wish {turn}")
        for number in range(4):
            talk.round(f"c{turn}{number}", words(100))
        talk.answer(f"done {turn}")
    return talk


@pytest.mark.parametrize(
    "keep", [KeepLastTurns(count=2, max_tokens=250), KeepLastMessages(count=15, max_tokens=250)]
)
def test_what_stays_has_a_bound_in_tokens_too(keep: KeepLastTurns | KeepLastMessages) -> None:
    made = plan(long_turns(), keep)
    kept = sum(Sizer(WordTokenizer()).count_message(item.message) for item in made.kept)
    assert 0 < kept <= 250
    assert made.kept[-1].message.text == "done 2"


def test_a_turn_of_any_size_is_summarized_by_default() -> None:
    assert limit_keep(KeepLastTurns(count=2), 500) == KeepLastTurns(count=2, max_tokens=500)
    assert limit_keep(KeepLastTurns(count=2, max_tokens=900), 500) == KeepLastTurns(
        count=2, max_tokens=500
    )
    assert limit_keep(KeepLastTurns(count=2, max_tokens=300), 500) == KeepLastTurns(
        count=2, max_tokens=300
    )
    assert limit_keep(KeepNothing(), 500) == KeepNothing()
    assert limit_keep(KeepLastTurns(count=2), None) == KeepLastTurns(count=2)


def test_pi_keeps_at_least_its_recent_tokens() -> None:
    talk = long_turns()
    most, least = (
        plan(talk, KeepRecentTokens(tokens=150, at_least=at_least)).kept
        for at_least in (False, True)
    )
    count = Sizer(WordTokenizer()).count_message
    assert (
        sum(count(item.message) for item in most)
        <= 150
        <= sum(count(item.message) for item in least)
    )
    assert len(least) > len(most)
