"""The laws of selection, for every conversation.

Examples of each rule: tests/unit/compaction/planning/test_selection.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import given, strategies as st

from promptkit.compaction.planning.blocks import find_open_user_requests, group_blocks, is_summary
from promptkit.compaction.planning.selection import (
    Keep,
    KeepLastMessages,
    KeepLastRound,
    KeepLastTurns,
    KeepRecentTokens,
    KeepUserMessages,
    select,
)
from promptkit.transcript.log.view import ViewBuilder, build_view
from tests.behaviour.conversation_strategies import TOKENIZER, keeps, talks

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import Plan
    from promptkit.transcript.log.view import ViewItem
    from tests.conversations import ConversationBuilder

Key: TypeAlias = "tuple[str, str, str | None, tuple[str, ...]]"
PARTS = ("dropped", "prefix", "kept", "pinned", "replayed")


def plan(
    talk: ConversationBuilder,
    keep: Keep,
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


def key(item: ViewItem) -> Key:
    """What tells a message from all others of its view, even if it was shortened."""
    message = item.message
    return (
        item.entry_id,
        message.role,
        message.tool_call_id,
        tuple(call.id for call in message.tool_calls),
    )


def numbered(made: Plan, talk: ConversationBuilder) -> dict[str, list[int]]:
    """The places of each part's messages in the view.

    Messages of one checkpoint are told apart by their order.
    """
    places: dict[Key, list[int]] = {}
    for at, item in enumerate(talk.view.items):
        places.setdefault(key(item), []).append(at)
    found: dict[str, list[int]] = {}
    for part in PARTS:
        items: tuple[ViewItem, ...] = getattr(made, part)
        found[part] = []
        for item in items:
            same = [at for at in places[key(item)] if _is(talk.view.items[at], item)] or places[
                key(item)
            ]
            found[part].append(same[0])
            places[key(item)].remove(same[0])
    return found


def _is(shown: ViewItem, item: ViewItem) -> bool:
    return shown.message == item.message


@given(talk=talks(), keep=keeps(), split=st.booleans())
def test_a_plan_is_a_partition_of_the_view_in_its_order(
    talk: ConversationBuilder, keep: Keep, split: bool
) -> None:
    found = numbered(plan(talk, keep, split=split), talk)
    assert sorted(at for part in PARTS for at in found[part]) == list(range(len(talk.view.items)))
    assert all(places == sorted(places) for places in found.values())
    # Older than everything kept is what is not kept; older than the prefix what is dropped.
    rest = [at for part in PARTS if part != "kept" for at in found[part]]
    assert not found["kept"] or not rest or max(rest) < min(found["kept"])
    assert (
        not found["prefix"] or not found["dropped"] or max(found["dropped"]) < min(found["prefix"])
    )


@pytest.mark.spec("E03", "E04")
@given(talk=talks(), keep=keeps(), split=st.booleans())
def test_calls_and_their_results_are_in_one_part(
    talk: ConversationBuilder, keep: Keep, split: bool
) -> None:
    found = numbered(plan(talk, keep, split=split), talk)
    part_of = {at: part for part, places in found.items() for at in places}
    for block in group_blocks(talk.view.items):
        assert len({part_of[at] for at in range(block.start, block.end)}) == 1


@pytest.mark.spec("E25")
@given(talk=talks(), keep=keeps())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    talk: ConversationBuilder, keep: Keep
) -> None:
    if isinstance(keep, KeepLastRound) and keep.background:
        return  # covers a turn's only round, which another plan may have kept
    made = plan(talk, keep)
    if not made.is_empty:
        talk.compact(made)
        again = plan(talk, keep)
        assert again.is_empty
        assert again.previous == "S"
        assert again.kept == talk.view.items


@given(talk=talks(), keep=keeps())
def test_in_the_end_nothing_is_left_to_do_in_the_background_either(
    talk: ConversationBuilder, keep: Keep
) -> None:
    for _ in range(3):
        made = plan(talk, keep)
        if made.is_empty:
            return
        talk.compact(made)
    raise AssertionError("a third plan in a row is not empty")


@given(talk=talks(), keep=keeps(), split=st.booleans())
def test_what_was_carried_out_is_a_view_without_repairs_that_starts_with_one_summary(
    talk: ConversationBuilder, keep: Keep, split: bool
) -> None:
    made = plan(talk, keep, split=split)
    if made.is_empty:
        return
    repairs = talk.view.repairs
    talk.compact(made, "the new summary")
    view = talk.view
    assert sum(is_summary(item) for item in view.items) == 1
    assert len(view.repairs) <= len(repairs)
    assert ViewBuilder().build(talk.path) == build_view(talk.path) == view
    tail = (
        [item.message for item in view.items[len(view.items) - len(made.kept) :]]
        if made.kept
        else []
    )
    assert tail == [item.message for item in made.kept]


@given(
    talk=talks(),
    less=st.integers(0, 70),
    more=st.integers(0, 70),
    kind=st.sampled_from(["tokens", "messages", "turns", "rounds", "background"]),
)
def test_who_may_keep_more_keeps_no_less(
    talk: ConversationBuilder, less: int, more: int, kind: str
) -> None:
    less, more = sorted((less, more))

    def kept(amount: int) -> int:
        wanted: dict[str, Keep] = {
            "tokens": KeepRecentTokens(tokens=amount),
            "messages": KeepLastMessages(count=amount),
            "turns": KeepLastTurns(count=amount),
            "rounds": KeepLastRound(count=amount),
            "background": KeepLastRound(count=amount, background=True),
        }
        return len(plan(talk, wanted[kind]).kept)

    assert kept(less) <= kept(more)


@given(talk=talks(), tokens=st.integers(0, 80))
def test_of_recent_tokens_no_more_are_kept_than_asked_or_it_is_said(
    talk: ConversationBuilder, tokens: int
) -> None:
    made = plan(talk, KeepRecentTokens(tokens=tokens))
    size = sum(tokens_of(item) for item in made.kept)
    assert made.oversized_tokens == (size if size > tokens else None) or made.is_empty
    if not made.is_empty and made.oversized_tokens is None:
        assert size <= tokens


def tokens_of(item: ViewItem) -> int:
    message = item.message
    content = sum(TOKENIZER.count(part) if isinstance(part, str) else 5 for part in message.content)
    return content + 2 * len(message.tool_calls) + int(bool(message.text) or not message.tool_calls)


@pytest.mark.spec("E05")
@given(talk=talks(), keep=keeps(), split=st.booleans())
def test_what_the_model_works_on_is_never_only_in_the_summary(
    talk: ConversationBuilder, keep: Keep, split: bool
) -> None:
    made = plan(talk, keep, split=split)
    found = numbered(made, talk)
    summarized = {*found["dropped"], *found["prefix"]}
    assert not summarized & {
        at
        for block in group_blocks(talk.view.items)
        if block.running
        for at in range(block.start, block.end)
    }
    assert not summarized & {
        at for at, item in enumerate(talk.view.items) if item.message.role == "system"
    }
    if not isinstance(keep, KeepUserMessages):
        assert not summarized & set(find_open_user_requests(talk.view.items))


@given(talk=talks(), keep=keeps())
def test_a_plan_asks_for_a_summary_only_where_there_is_something_new(
    talk: ConversationBuilder, keep: Keep
) -> None:
    made = plan(talk, keep)
    new = [
        item
        for item in (*made.dropped, *made.prefix)
        if item.kind not in {"summary", "replacement"}
    ]
    assert bool(new) is not made.is_empty
    assert made.is_empty is (made.kept == talk.view.items)
