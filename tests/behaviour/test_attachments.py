"""References and metadata live and die with the element around them."""

from __future__ import annotations

import pytest

from promptkit import (
    Child,
    Chunk,
    First,
    Group,
    IfEmpty,
    Metadata,
    Reference,
    Rendered,
    Text,
    TextChunk,
    UserMessage,
    render,
    tag,
)
from promptkit.messages import Repair
from promptkit.testing import WordTokenizer


def rendered(prompt: Child, budget: int) -> Rendered:
    return render(prompt, budget=budget, tokenizer=WordTokenizer())


def test_a_reference_survives_with_its_element() -> None:
    made = rendered(UserMessage()[TextChunk()["a", Reference(to="a.py")]], 9)
    assert ([r.to for r in made.references], made.omitted_references) == (["a.py"], ())


def test_a_reference_whose_element_was_pruned_is_omitted() -> None:
    prompt = UserMessage()[
        TextChunk(priority=1)["a", Reference(to="a.py")],
        TextChunk(priority=2)["b", Reference(to="b.py")],
    ]
    made = rendered(prompt, 1)
    assert ([r.to for r in made.references], [r.to for r in made.omitted_references]) == (
        ["b.py"],
        ["a.py"],
    )


def test_a_source_that_is_still_referred_to_is_not_omitted() -> None:
    prompt = UserMessage()[
        TextChunk(priority=1)["a", Reference(to="a.py")],
        TextChunk(priority=2)["b", Reference(to="a.py")],
    ]
    made = rendered(prompt, 1)
    assert ([r.to for r in made.references], made.omitted_references) == (["a.py"], ())


def test_one_source_is_reported_once() -> None:
    prompt = UserMessage()[
        TextChunk()["a", Reference(to="a.py")], TextChunk()["b", Reference(to="a.py")]
    ]
    assert [r.to for r in rendered(prompt, 9).references] == ["a.py"]


def test_references_of_a_chunk_go_with_it() -> None:
    prompt = UserMessage()[
        Chunk(priority=1)[Reference(to="c.py"), TextChunk()["a"]], TextChunk(priority=2)["b"]
    ]
    assert [r.to for r in rendered(prompt, 1).omitted_references] == ["c.py"]


def test_a_detail_is_carried_along() -> None:
    made = rendered(UserMessage()["a", Reference(to="a.py", detail={"line": 3})], 9)
    assert made.references[0].detail == {"line": 3}


def test_metadata_survives_the_pruning_of_its_element() -> None:
    prompt = UserMessage()[
        TextChunk(priority=1)["a", Metadata(value="m")], TextChunk(priority=2)["b"]
    ]
    assert rendered(prompt, 1).metadata == ("m",)


def test_local_metadata_dies_with_its_element() -> None:
    prompt = UserMessage()[
        TextChunk(priority=1)["a", Metadata(value="m", local=True)], TextChunk(priority=2)["b"]
    ]
    assert (rendered(prompt, 2).metadata, rendered(prompt, 1).metadata) == (("m",), ())


def test_metadata_comes_in_written_order() -> None:
    prompt = (
        Metadata(value=1),
        Group()[Metadata(value=2), UserMessage()["a", Metadata(value=3)]],
        Metadata(value=4),
    )
    assert sorted(str(value) for value in rendered(prompt, 9).metadata) == ["1", "2", "3", "4"]


def test_any_value_is_carried_as_it_is() -> None:
    value = object()
    assert rendered(UserMessage()["a", Metadata(value=value)], 9).metadata[0] is value


def test_repairs_are_told_apart() -> None:
    repair = Repair(kind="orphan", detail="a result without a call was left out")
    assert rendered(
        UserMessage()["a", Metadata(value=repair), Metadata(value="other")], 9
    ).repairs == (repair,)


def test_what_rides_along_costs_nothing_and_breaks_no_line() -> None:
    made = rendered(UserMessage()["a", Metadata(value="m"), Reference(to="x"), "b"], 9)
    assert (made.messages[0].text, made.tokens) == ("ab", 1)


def test_a_reference_of_a_fallback_is_kept_while_the_fallback_is_shown() -> None:
    prompt = (
        UserMessage(
            priority=1,
            fallback=UserMessage()["short", Reference(to="short"), Metadata(value=1, local=True)],
        )["a long text", Reference(to="long")],
        UserMessage(priority=2)["other", Group()[Text()["more", Reference(to="other")]]],
        UserMessage()["q"],
    )
    for made in (rendered(prompt, 1), rendered(prompt, 6)):
        for budget in range(1, 7):
            shown = made.at_budget(budget)
            text = " ".join(message.text for message in shown.messages)
            assert {reference.to for reference in shown.references} == {
                name for name in ("short", "long", "other") if name in text
            }
            assert {reference.to for reference in shown.omitted_references} == {
                name for name in ("short", "long", "other") if name not in text
            }
            assert shown.metadata == ((1,) if "short" in text else ())


ATTACHED = [Reference(to="x"), Metadata(value="local", local=True), Metadata(value="kept")]


@pytest.mark.parametrize(
    "without_it",
    [
        First()[Text()["too long " * 9, *ATTACHED], Text()["short"]],
        IfEmpty(alt=Text()["an alternative", *ATTACHED])[Text()["short"]],
        IfEmpty(alt=Text()["short"])[Text()[" ", *ATTACHED]],
        Group()[tag.note()[Text()[" ", *ATTACHED]], Text()["short"]],
        Group()[tag.note()[First()[Text()["too long " * 9, *ATTACHED], None]], Text()["short"]],
    ],
)
def test_of_what_is_not_shown_metadata_that_is_not_local_is_kept(without_it: Child) -> None:
    other = Metadata(value="other", local=True)
    made = rendered(UserMessage()["a ", Group()[without_it, other], Metadata(value="own")], 9)
    assert made.messages[0].text.split() == ["a", "short"]
    assert {*made.metadata} == {"kept", "other", "own"}
    assert (made.references, made.omitted_references) == ((), ())
