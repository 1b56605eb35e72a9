"""Tool results that are too long are truncated: examples of each rule.

The laws: tests/behaviour/test_reduction.py.
"""

from __future__ import annotations

import pytest

from promptkit.compaction.pruning.tool_outputs import CUT_MARKER, cap_result
from promptkit.messages import ImagePart, Message, Part
from promptkit.testing import WordTokenizer
from promptkit.tokens.models import tokenizer_for
from tests.conversations import words

TOKENIZER = WordTokenizer()
MARKER = TOKENIZER.count(CUT_MARKER)
IMAGE = ImagePart(url="https://example.com/x.png")


def result(*content: Part) -> Message:
    return Message(role="tool", content=content, tool_call_id="a")


def test_a_long_result_keeps_forty_percent_head_and_sixty_percent_tail() -> None:
    text = " ".join(f"w{number}" for number in range(1_000))
    done = cap_result(result(text), 100 + MARKER, tokenizer=TOKENIZER)
    head, tail = done.text.split(CUT_MARKER)
    assert head.split() == [f"w{number}" for number in range(40)]
    assert tail.split() == [f"w{number}" for number in range(940, 1_000)]
    assert TOKENIZER.count(done.text) == 100 + MARKER


@pytest.mark.parametrize(("size", "capped"), [(99, False), (100, False), (101, True)])
def test_a_result_is_capped_above_the_limit_and_not_at_it(size: int, capped: bool) -> None:
    whole = result(words(size))
    assert (cap_result(whole, 100, tokenizer=TOKENIZER) is not whole) is capped


@pytest.mark.spec("E79")
@pytest.mark.parametrize("limit", range(1, 60, 7))
def test_a_result_of_several_parts_keeps_its_images_and_is_capped_as_a_whole(limit: int) -> None:
    talk = result(words(30), IMAGE, words(5), words(40), IMAGE)
    done = cap_result(talk, limit, tokenizer=TOKENIZER)
    assert [part for part in done.content if isinstance(part, ImagePart)] == [IMAGE, IMAGE]
    assert [isinstance(part, str) for part in done.content] == [True, False, True, True, False]
    assert sum(TOKENIZER.count(part) for part in done.content if isinstance(part, str)) <= limit
    if limit >= 15:
        assert done.content[2] == words(5)  # the small part is whole while there is room for it


@pytest.mark.parametrize("limit", [20, 40, 77, 200])
def test_what_is_capped_is_whole_characters_within_the_limit(limit: int) -> None:
    tokenizer = tokenizer_for("gpt-4o")
    text = "👩‍👩‍👧 und 🇩🇪 und e\u0301 und 汉字 \ud83d\n" * 300
    capped = cap_result(result(text), limit, tokenizer=tokenizer).text
    assert tokenizer.count(capped) <= limit
    head, tail = capped.split(CUT_MARKER) if CUT_MARKER in capped else (capped, "")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert "\u200d" not in head[-1:] + tail[:1]
