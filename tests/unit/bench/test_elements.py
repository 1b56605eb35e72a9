"""Which element keeps how many of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import Chunk, Group, SystemMessage, TextChunk, TokenLimit, UserMessage, render
from promptkit.bench.elements import kept_by_element, rows
from promptkit.element import Child, PromptElement, Sizing, component

if TYPE_CHECKING:
    from promptkit.tracing.trace import Trace

ROOM = 10_000


@component
class Notes(PromptElement):
    """Notes that leave from the first on, and a word about those that are gone."""

    count: int = 3

    def render(self, sizing: Sizing) -> Child:
        return [UserMessage(priority=n, fallback=UserMessage()["gone"])[f"note {n} " + "and more " * 10] for n in range(self.count)]


def traced(prompt: Child, budget: int = ROOM) -> Trace:
    trace = render(prompt, budget=budget, trace=True).trace
    assert trace is not None
    return trace


def test_elements_are_told_apart_by_their_path_and_not_by_their_position() -> None:
    prompt = Group()[SystemMessage()["Be brief."], Notes(), Notes(name="more"), UserMessage()["Go."]]
    kept = kept_by_element(traced(prompt), 3)
    assert list(kept) == [
        "Group > SystemMessage",
        "Group > Notes > UserMessage",
        "Group > Notes(more) > UserMessage",
        "Group > UserMessage",
    ]


def test_the_tokens_of_all_elements_are_those_of_the_messages() -> None:
    prompt = Group()[SystemMessage()["Be brief."], Notes(), UserMessage()["Go."]]
    for budget in (30, 60, ROOM):
        rendered = render(prompt, budget=budget, trace=True)
        assert rendered.trace is not None
        fallbacks = sum(item.tokens for item in rendered.trace.kept(rendered.trace.state or 0) if item.since)
        assert sum(kept_by_element(rendered.trace, 3).values()) + fallbacks == rendered.tokens - 3  # for the start of the reply


@pytest.mark.parametrize("depth", [1, 2, 3, 9])
def test_a_path_has_no_more_steps_than_the_depth(depth: int) -> None:
    trace = traced(Group()[Group()[Group()[Group()[UserMessage()[TextChunk()["a"], TextChunk()["b"]]]]]])
    kept = kept_by_element(trace, depth)
    assert max(len(path.split(" > ")) for path in kept) == min(depth, 6)
    assert sum(kept.values()) == sum(item.tokens for item in trace.items)


def test_plain_text_belongs_to_the_element_around_it_and_a_chunk_is_its_own() -> None:
    kept = kept_by_element(traced(UserMessage()["plain", TextChunk()["chunk"]]), 3)
    assert list(kept) == ["UserMessage", "UserMessage > TextChunk"]


def test_what_is_gone_counts_nothing_and_keeps_its_place() -> None:
    prompt = Group()[SystemMessage(priority=1)["Be brief, and never say more than you must."], UserMessage(required=True)["Go."]]
    kept = kept_by_element(traced(prompt, 10), 2)
    assert list(kept) == ["Group > SystemMessage", "Group > UserMessage"]
    assert kept["Group > SystemMessage"] == 0
    assert kept["Group > UserMessage"] > 0


def test_what_stands_in_for_something_removed_is_not_kept() -> None:
    trace = traced(Notes(count=1), 10)
    assert [item.text for item in trace.kept(trace.state or 0) if item.text] == ["gone"]
    assert kept_by_element(trace, 9) == {"Notes > UserMessage": 0}


def test_a_limit_that_always_removes_leaves_no_row() -> None:
    limited = UserMessage()[
        TokenLimit(max_tokens=5)[TextChunk(name="long", priority=1)["far too long " * 10], TextChunk(name="short", priority=2)["short"]]
    ]
    kept = kept_by_element(traced(limited), 9)
    assert kept["UserMessage > TokenLimit > TextChunk(long)"] == 0
    assert [row.path for row in rows(kept, [kept])] == ["UserMessage", "UserMessage > TokenLimit > TextChunk(short)"]


def test_names_cannot_move_the_cursor_or_break_a_line() -> None:
    kept = kept_by_element(traced(Group()[Chunk(name="a\nb\x1b[31m\ud800")[UserMessage()["x"]]]), 2)
    assert list(kept) == ["Group > Chunk(a b [31m )"]


def test_an_element_that_is_there_only_when_room_is_short_is_measured_by_the_most_it_has() -> None:
    made = rows({"Long": 100}, [None, {"Long": 0, "Short": 10}, {"Long": 0, "Short": 20}, {"Long": 100}])
    assert [(row.path, row.whole, row.kept) for row in made] == [("Long", 100, (None, 0, 0, 100)), ("Short", 20, (None, 10, 20, 0))]
    assert [made[1].share(at) for at in range(4)] == [None, 0.5, 1.0, 0.0]


def test_a_chain_deeper_than_recursion_is_summed_up() -> None:
    prompt: Child = UserMessage()["deep"]
    for _ in range(3_000):
        prompt = Group()[prompt]
    assert kept_by_element(traced(prompt), 2) == {"Group > Group": kept_by_element(traced(UserMessage()["deep"]), 1)["UserMessage"]}
