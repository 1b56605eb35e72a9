"""`OpenAITokenizer`: what it counts besides text, and which counts are exact."""

from __future__ import annotations

import attrs
from hypothesis import given, strategies as st

from promptkit.messages import DocumentPart, OpaquePart, ToolDefinition
from promptkit.tokens import OpenAITokenizer, tokenizer_for

TOKENIZER = OpenAITokenizer("o200k_base")
READ = ToolDefinition(name="read", description="Read a file.")


def test_without_more_the_framing_is_that_of_gpt_4o_and_exact() -> None:
    assert TOKENIZER.count_framing("user") == tokenizer_for("gpt-4o").count_framing("user")
    assert TOKENIZER.count_framing("user") == (4, True)
    assert OpenAITokenizer("o200k_base", exact=False).count_framing("user") == (4, False)


@given(st.text())
def test_a_text_has_at_least_its_lower_bound(text: str) -> None:
    assert 0 <= TOKENIZER.lower_bound(text) <= TOKENIZER.count(text)


def test_the_lower_bound_is_that_of_a_text_of_the_longest_tokens() -> None:
    assert [TOKENIZER.lower_bound("a" * size) for size in (0, 1, 128, 129, 256)] == [0, 1, 1, 2, 2]


def test_a_document_costs_its_tokens_and_an_opaque_part_its_text() -> None:
    document = DocumentPart(data="eHh4eA==", media_type="application/pdf")
    assert TOKENIZER.count_part(document) == (0, False)
    assert TOKENIZER.count_part(attrs.evolve(document, tokens=7)) == (7, True)
    thinking = {"type": "thinking", "thinking": "Fix the parser."}
    assert TOKENIZER.count_part(OpaquePart(value=thinking)) == (4, False)


def test_tools_beside_an_unknown_system_message_cost_rather_one_token_too_many() -> None:
    alone = TOKENIZER.count_overhead([READ])
    assert alone.exact
    # definitions need no framing of their own then
    assert TOKENIZER.count_overhead([READ], system=True) == (alone.tokens + 1 - 4, False)
    costs = {
        text: TOKENIZER.count_overhead([READ], system=text)
        for text in ("Be brief.", "Be brief\n", "Be")
    }
    assert all(each.exact for each in costs.values())
    assert {each.tokens - alone.tokens + 4 for each in costs.values()} <= {0, 1}
    assert TOKENIZER.count_overhead(system=True) == (3, True)
