"""Tokens by characters: a constant for images, never less than the plain quotient, no jump where text grows."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from promptkit.compaction.policy.usage import UsageMeter
from promptkit.errors import InvalidArgumentError
from promptkit.messages import DocumentPart, ImagePart, Message, OpaquePart, ToolCall, ToolDefinition, Usage
from promptkit.rendering.sizing import Sizer
from promptkit.tokens.heuristic import HeuristicTokenizer
from tests.conversations import ConversationBuilder

EXACT = HeuristicTokenizer(margin=1.0)
USUAL = HeuristicTokenizer()


def test_four_characters_are_a_token_and_the_margin_comes_on_top() -> None:
    assert EXACT.count("x" * 400) == 100
    assert USUAL.count("x" * 400) == 120
    assert EXACT.count("xxxxx") == 2
    assert EXACT.count("") == 0
    assert USUAL.name == "characters/4*1.2"


def test_letters_beyond_latin_script_are_a_token_each() -> None:
    assert EXACT.count("漢字漢字") == 4
    assert EXACT.count("größe") == 2


def test_every_image_costs_the_same_wherever_it_stands_and_calls_cost_their_arguments() -> None:
    image = ImagePart(url="https://example.org/a.png")
    sizer = Sizer(EXACT)
    asked = sizer.count_message(Message(role="user", content=(image,)))
    returned = sizer.count_message(Message(role="tool", content=(image,), tool_call_id="c"))
    assert asked == EXACT.image_tokens + EXACT.message_tokens
    assert returned == asked + 1  # the call id
    call = Message(role="assistant", tool_calls=(ToolCall(id="c1c1", name="read", arguments="x" * 400),))
    assert sizer.count_message(call) >= 102


def test_opaque_parts_documents_and_tools_are_counted() -> None:
    assert EXACT.count_part(OpaquePart(value={"thinking": "x" * 400})).tokens > 100
    assert EXACT.count_part(OpaquePart(value=None, tokens=7)) == (7, False)
    assert EXACT.count_part(DocumentPart(data="x" * 300, media_type="application/pdf")).tokens == 100
    assert EXACT.count_overhead([ToolDefinition(name="read", description="x" * 400)]).tokens > 100


@given(text=st.text(), more=st.text())
def test_more_text_never_has_fewer_tokens(text: str, more: str) -> None:
    assert USUAL.count(text) <= USUAL.count(text + more) <= (USUAL.upper_bound(text + more) or 0)


@given(text=st.text(), tokens=st.integers(min_value=0, max_value=30), keep=st.sampled_from(["head", "tail"]))
def test_a_cut_fits_and_is_the_longest_that_does(text: str, tokens: int, keep: str) -> None:
    kept = USUAL.truncate(text, tokens, keep="head" if keep == "head" else "tail")
    assert USUAL.count(kept) <= tokens
    if kept != text:
        longer = text[: len(kept) + 1] if keep == "head" else text[len(text) - len(kept) - 1 :]
        assert USUAL.count(longer) > tokens


@pytest.mark.parametrize("wrong", [{"characters_per_token": 0.0}, {"margin": -1.0}])
def test_figures_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match="above 0"):
        HeuristicTokenizer(**wrong)  # type: ignore[arg-type]  # both are figures


def test_the_provider_s_count_goes_first_and_the_estimate_is_for_what_came_since() -> None:
    talk = ConversationBuilder()
    talk.user("x" * 4_000)
    meter = UsageMeter(EXACT)
    assert meter.read(talk.path, talk.view).tokens == 1_004  # nothing else is known
    talk.answer("y" * 40, used=Usage(input_tokens=1_500, output_tokens=10))
    talk.user("z" * 400)
    assert meter.read(talk.path, talk.view).provider == 1_500 + 10 + 104
