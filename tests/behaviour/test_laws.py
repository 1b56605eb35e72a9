"""Laws of a render that hold for every prompt, tokenizer and budget."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, note, strategies as st

from promptkit import BudgetExceededError, Message, Rendered, render
from promptkit.rendering import from_json, to_json
from tests.behaviour.assembly import assembled, count_messages
from tests.behaviour.nodes import walk
from tests.behaviour.oracle import oracle
from tests.behaviour.strategies import FEATURES, prompts, tokenizers
from tests.behaviour.trees import planted

if TYPE_CHECKING:
    from promptkit import Child
    from promptkit.testing.strategies import Feature
    from promptkit.tokens import Tokenizer

AMPLE = 10_000
WITHOUT_FALLBACK: tuple[Feature, ...] = tuple(
    feature for feature in FEATURES if feature != "fallback"
)
SHARES = st.sampled_from((0.0, 0.2, 0.5, 0.8, 0.95, 1.0, 1.1))


def rendered(prompt: Child, tokenizer: Tokenizer, budget: int) -> Rendered | None:
    """The render, or None where what is required does not fit."""
    note(f"prompt = {prompt!r}\ntokenizer = {tokenizer!r}\nbudget = {budget}")
    try:
        return render(prompt, budget=budget, tokenizer=tokenizer)
    except BudgetExceededError:
        return None


def full(prompt: Child, tokenizer: Tokenizer) -> Rendered:
    made = rendered(prompt, tokenizer, AMPLE)
    assume(made is not None)
    assert made is not None
    return made


def at_share(prompt: Child, tokenizer: Tokenizer, share: float) -> Rendered:
    whole = full(prompt, tokenizer)
    made = rendered(prompt, tokenizer, int((whole.tokens + whole.reserved) * share))
    assume(made is not None)
    assert made is not None
    return made


@given(prompts(), tokenizers(), SHARES)
def test_never_exceeds_the_budget(prompt: Child, tokenizer: Tokenizer, share: float) -> None:
    made = at_share(prompt, tokenizer, share)
    assert made.tokens + made.reserved <= made.budget


@given(prompts(), tokenizers(), SHARES)
def test_tokens_are_what_an_independent_recount_of_the_messages_says(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    made = at_share(prompt, tokenizer, share)
    system = any(message.role == "system" for message in made.messages)
    around = tokenizer.count_overhead(system=system).tokens if made.messages else 0
    assert made.tokens == count_messages(made.messages, tokenizer) + around


def marks(made: Rendered) -> list[str]:
    """The marks that each generated text bears, in the order of the messages."""
    return re.findall(r"w\d+", "\n".join(message.text for message in made.messages))


@given(prompts(WITHOUT_FALLBACK), tokenizers(), SHARES, SHARES)
def test_a_smaller_budget_never_brings_content_back(
    prompt: Child, tokenizer: Tokenizer, one: float, other: float
) -> None:
    large = at_share(prompt, tokenizer, max(one, other))
    small = at_share(prompt, tokenizer, min(one, other))
    assert set(marks(small)) <= set(marks(large))


def orphans(messages: tuple[Message, ...]) -> list[str]:
    """Ids of calls without result and of results without call."""
    waiting: list[str] = []
    lost: list[str] = []
    for message in messages:
        waiting += [call.id for call in message.tool_calls]
        if message.tool_call_id is None:
            continue
        if message.tool_call_id in waiting:
            waiting.remove(message.tool_call_id)
        else:
            lost.append(message.tool_call_id)
    return lost + waiting


@given(
    prompts(("tools", "fallback", "keep", "required", "limit", "breakpoint", "blank")),
    tokenizers(),
    SHARES,
)
def test_never_leaves_a_call_or_a_result_alone(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    assert orphans(at_share(prompt, tokenizer, share).messages) == []


def is_subsequence(few: list[str], many: list[str]) -> bool:
    rest = iter(many)
    return all(item in rest for item in few)


@given(prompts(WITHOUT_FALLBACK), tokenizers(), SHARES)
def test_survivors_stand_in_written_order(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    assert is_subsequence(marks(at_share(prompt, tokenizer, share)), marks(full(prompt, tokenizer)))


@given(prompts(), tokenizers(), SHARES)
def test_rendering_twice_gives_the_same(prompt: Child, tokenizer: Tokenizer, share: float) -> None:
    one = at_share(prompt, tokenizer, share)
    two = at_share(prompt, tokenizer, share)
    assert one == two
    assert one.removals == two.removals
    assert repr(one.messages) == repr(two.messages)


@given(prompts(), tokenizers(), SHARES)
def test_whatif_is_a_render_at_that_budget(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    whole = full(prompt, tokenizer)
    direct = at_share(prompt, tokenizer, share)
    imagined = whole.at_budget(direct.budget)
    assert (imagined.messages, imagined.tokens, imagined.budget) == (
        direct.messages,
        direct.tokens,
        direct.budget,
    )
    assert imagined.removals == direct.removals
    assert direct.at_budget(whole.budget).messages == whole.messages


@given(prompts(), tokenizers(), SHARES)
def test_a_tree_that_went_through_json_renders_the_same(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    direct = at_share(prompt, tokenizer, share)
    travelled = from_json(
        json.loads(json.dumps(to_json(prompt, tokenizer=tokenizer, budget=direct.budget)))
    )
    made = render(travelled, budget=direct.budget, tokenizer=tokenizer)
    assert (made.messages, made.tokens, made.reserved) == (
        direct.messages,
        direct.tokens,
        direct.reserved,
    )


@given(
    prompts(("required", "pass", "blank", "legacy", "keep", "tools", "media")), tokenizers(), SHARES
)
def test_what_is_required_always_survives(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    nodes = planted(prompt, tokenizer).nodes()
    texts = [
        leaf.text.strip()
        for node in nodes
        if node.required
        for leaf in walk(node)
        if leaf.kind == "text"
    ]
    kept = "\n".join(message.text for message in at_share(prompt, tokenizer, share).messages)
    assert [text for text in texts if text not in kept] == []


@given(prompts(WITHOUT_FALLBACK), tokenizers(), SHARES)
def test_what_is_kept_and_what_the_receipt_names_is_everything(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    whole = full(prompt, tokenizer)
    made = at_share(prompt, tokenizer, share)
    gone = {removal.path for removal in made.removals}
    kept = {span.path for span in made.source_map}
    for path in {span.path for span in whole.source_map}:
        # A span names the element that wrote it, a removal the piece: one element may have lost
        # some of its literals.
        if path in kept:
            assert not any(f"{path} > ".startswith(f"{other} > ") for other in gone), path
        else:
            assert any(
                f"{path} > ".startswith(f"{other} > ") or other.startswith(f"{path} > ")
                for other in gone
            ), path


@given(prompts(), tokenizers(), SHARES)
def test_the_receipt_counts_removals_in_order(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    made = at_share(prompt, tokenizer, share)
    assert [removal.order for removal in made.removals] == list(range(1, len(made.removals) + 1))
    assert all(removal.tokens >= 0 for removal in made.removals)
    assert {removal.reason for removal in made.removals} <= {
        "budget",
        "limit",
        "kept-with",
        "tool-pair",
    }
    assert made.explain()


@given(prompts(), tokenizers(), SHARES)
def test_the_source_map_says_where_each_character_came_from(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    made = at_share(prompt, tokenizer, share)
    ends: dict[tuple[int, int], int] = {}
    for span in made.source_map:
        part = made.messages[span.message].content[span.part]
        assert isinstance(part, str)
        assert ends.get((span.message, span.part), 0) <= span.start < span.end <= len(part)
        ends[span.message, span.part] = span.end


@given(prompts(), tokenizers())
def test_what_cannot_fit_raises_with_the_receipt(prompt: Child, tokenizer: Tokenizer) -> None:
    answers = oracle(prompt, tokenizer)
    smallest = min(state.tokens + state.reserved for state in answers.states)
    assume(smallest > 0 and answers.fits)
    note(f"prompt = {prompt!r}\ntokenizer = {tokenizer!r}")
    with pytest.raises(BudgetExceededError) as caught:
        render(prompt, budget=smallest - 1, tokenizer=tokenizer)
    error = caught.value
    assert error.budget == smallest - 1
    assert error.over == error.required - error.budget > 0
    assert error.messages == assembled(planted(prompt, tokenizer).root)


CUTS: tuple[Feature, ...] = (*WITHOUT_FALLBACK, "cuts", "tags", "isolate")


@given(prompts(CUTS), tokenizers(), SHARES)
def test_a_text_that_is_cut_is_counted_as_it_is_sent_within_the_budget(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    whole = full(prompt, tokenizer)
    try:
        made = whole.at_budget(int((whole.tokens + whole.reserved) * share))
    except BudgetExceededError:
        return
    assert made.tokens + made.reserved <= made.budget
    assert made.tokens == count_messages(made.messages, tokenizer)
    assert set(marks(made)) <= set(marks(whole))
