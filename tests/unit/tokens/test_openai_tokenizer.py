"""`OpenAITokenizer`: what it counts besides text, and which counts are exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit.errors import TextTooLongError
from promptkit.messages import DocumentPart, Message, OpaquePart, ToolCall, ToolDefinition
from promptkit.tokens import OpenAITokenizer, encodings, register_encoding_engine, tokenizer_for
from promptkit.tokens.encodings import get_encoding
from promptkit.tokens.tokenizer import count_message

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENIZER = OpenAITokenizer("o200k_base")
READ = ToolDefinition(name="read", description="Read a file.")
LONG = "☃ begins.\n" + "The quick brown fox jumps over it.\n" * 2_000 + "Fünf Boxer, 𒀀𒀀𒀀.\n" * 2_000


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


def test_the_name_of_a_tool_is_counted_with_the_call_and_not_with_the_result() -> None:
    assert TOKENIZER.count_framing("tool", name="read") == TOKENIZER.count_framing("tool")
    assert TOKENIZER.count_framing("user", name="read") != TOKENIZER.count_framing("user")


def test_a_text_that_is_encoded_in_blocks_has_the_tokens_of_one_piece() -> None:
    whole = len(TOKENIZER.encoding.encode_ordinary(LONG))
    assert OpenAITokenizer("o200k_base", max_text_bytes=200_000).count(LONG) == whole


@pytest.mark.parametrize("text", ["a" * 100, "é" * 50, "😀" * 25])
def test_a_text_above_the_limit_of_bytes_is_refused(text: str) -> None:
    limited = OpenAITokenizer("o200k_base", max_text_bytes=100)
    assert limited.count(text) == TOKENIZER.count(text)
    for longer in (text + "a", "a" + text, text + text[0]):
        with pytest.raises(TextTooLongError, match=r"of at least 10\d bytes .* the limit of 100:"):
            limited.count(longer)


@pytest.mark.parametrize("tokens", [1, 64, 300, 5_000])
@pytest.mark.parametrize("text", [LONG, LONG[::-1], " people" * 1_000])
def test_the_head_and_the_tail_of_a_long_text_are_its_first_and_last_tokens(
    text: str, tokens: int
) -> None:
    encoding = TOKENIZER.encoding
    ids = encoding.encode_ordinary(text)
    head = encoding.decode_bytes(ids[:tokens]).decode("utf-8", "ignore")
    tail = encoding.decode_bytes(ids[-tokens:]).decode("utf-8", "ignore")
    fresh = OpenAITokenizer("o200k_base")
    assert fresh.truncate(text, tokens) == head
    assert fresh.truncate(text, tokens, keep="tail") == tail


def test_a_text_whose_characters_have_several_tokens_each_is_cut_too() -> None:
    assert TOKENIZER.count("𒀀") == 4
    assert [TOKENIZER.truncate("𒀀", tokens) for tokens in (3, 4)] == ["", "𒀀"]


def test_in_the_older_encodings_a_line_break_is_no_safe_place_and_in_unknown_ones_nothing_is() -> (
    None
):
    text = "one\ntwo three"
    assert TOKENIZER.safe_cut is not None
    assert [found.start() for found in TOKENIZER.safe_cut.finditer(text)] == [4, 7]
    older = OpenAITokenizer("p50k_base").safe_cut
    assert older is not None
    assert [found.start() for found in older.finditer(text)] == [7]
    assert OpenAITokenizer("another").safe_cut is None


LINES = st.sampled_from(
    [
        "version six\n",
        "value = 6\n",
        "  indented 6\n",
        "/path\n",
        "six 6 v V",
        "v ",
        " ",
        "\n",
        "\r\n",
    ]
)


@given(st.lists(LINES, min_size=1, max_size=20).map(lambda lines: "".join(lines) * 300))
def test_a_long_text_has_the_tokens_that_it_has_as_a_whole(text: str) -> None:
    assert OpenAITokenizer().count(text) == len(get_encoding("o200k_base").encode_ordinary(text))


@given(
    st.lists(LINES, min_size=1, max_size=20).map(lambda lines: "".join(lines) * 300),
    st.integers(1, 3_000),
)
def test_a_long_text_is_cut_after_as_many_tokens_as_it_may_have(text: str, tokens: int) -> None:
    ids = get_encoding("o200k_base").encode_ordinary(text)
    decode = get_encoding("o200k_base").decode
    assert OpenAITokenizer().truncate(text, tokens) == decode(ids[:tokens])
    assert OpenAITokenizer().truncate(text, tokens, keep="tail") == decode(ids[-tokens:])


class Spy:
    """An engine that remembers the texts that it encodes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode_ordinary(self, text: str) -> list[int]:
        self.texts.append(text)
        return get_encoding("o200k_base").encode_ordinary(text)

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        return get_encoding("o200k_base").decode_bytes(tokens)


def test_a_registered_engine_encodes_every_text_and_gets_no_lone_surrogate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encodings, "_engines", {})
    spy = Spy()
    register_encoding_engine("o200k_base", spy)
    tokenizer = OpenAITokenizer()
    assert tokenizer.count("a lone \ud800") == TOKENIZER.count("a lone \ud800")
    assert tokenizer.truncate("one two three", 2) == "one two"
    assert spy.texts[0] == "a lone \ufffd"
    assert "one two three" in spy.texts
    assert OpenAITokenizer("cl100k_base").count("one") == 1


def test_what_is_counted_ahead_is_encoded_once_as_it_is_counted_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encodings, "_engines", {})
    spy = Spy()
    register_encoding_engine("o200k_base", spy)
    call = ToolCall(id="1", name="read", arguments='{"path": "a.py"}')
    messages = [
        Message(role="user", content=("Hello.", OpaquePart(provider="chat", value={}), LONG)),
        Message(role="assistant", content=("Hello.",), tool_calls=(call,)),
        Message(role="tool", content=("é" * 300,), tool_call_id="1"),
    ]
    tokenizer = OpenAITokenizer()

    tokenizer.count_ahead(messages)

    ahead = ["Hello.", "é" * 300, '{"path":"a.py"}']
    assert spy.texts == ahead
    expected = [count_message(message, TOKENIZER) for message in messages]
    assert [count_message(message, tokenizer) for message in messages] == expected
    assert not set(spy.texts[len(ahead) :]) & set(ahead)


def test_what_is_counted_ahead_is_no_error_yet() -> None:
    tokenizer = OpenAITokenizer(max_text_bytes=40)
    message = Message(role="user", content=("short", "much longer than that " * 9))

    tokenizer.count_ahead([message])

    with pytest.raises(TextTooLongError):
        count_message(message, tokenizer)
