"""`Truncate` cuts text to its share, marker included, and never inside a character."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given, strategies as st

from promptkit import (
    BudgetExceededError,
    Child,
    Chunk,
    Group,
    PromptElement,
    Reference,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    Truncate,
    UserMessage,
    render,
)
from promptkit.elements import Metadata
from promptkit.rendering import from_json, to_json
from promptkit.testing import WordTokenizer
from tests.behaviour.tokenizers import Chars, Runs

if TYPE_CHECKING:
    from promptkit.tokens import Tokenizer

TEXT = "\n".join(f"line {index}" for index in range(1, 11))


def cut(truncate: PromptElement, budget: int, tokenizer: Tokenizer | None = None) -> str:
    message = truncate if isinstance(truncate, UserMessage) else UserMessage()[truncate]
    made = render(message, budget=budget, tokenizer=tokenizer or WordTokenizer())
    return "".join(message.text for message in made.messages)


def test_what_fits_is_left_alone() -> None:
    assert cut(Truncate()[TEXT], 20) == TEXT


def test_the_head_stays() -> None:
    made = cut(Truncate(keep="head", marker="[cut]")[TEXT], 9)
    assert made.startswith("line 1\nline 2")
    assert "[cut]" in made
    assert "line 10" not in made


def test_the_tail_stays() -> None:
    made = cut(Truncate(keep="tail", marker="[cut]")[TEXT], 9)
    assert made.endswith("line 9\nline 10")
    assert "[cut]" in made
    assert "line 1\n" not in made


def test_head_and_tail_stay_and_the_middle_goes() -> None:
    made = cut(Truncate(keep="middle", ratio=0.5, marker="\n[cut]\n")[TEXT], 9)
    assert made.startswith("line 1\n")
    assert made.endswith("line 10")
    assert "[cut]" in made


@pytest.mark.parametrize(
    ("truncate", "head"),
    [
        (Truncate(keep="head", max_tokens=21), 20),
        (Truncate(keep="tail", max_tokens=21), 0),
        (Truncate(keep="middle", max_tokens=21), 8),
        (Truncate(keep="middle", ratio=0, max_tokens=21), 0),
        (Truncate(keep="middle", ratio=1, max_tokens=21), 20),
    ],
)
def test_head_and_tail_have_their_parts_of_the_room(truncate: Truncate, head: int) -> None:
    words = [f"w{index}" for index in range(100)]
    made = cut(truncate.replace(marker=" […] ")[" ".join(words)], 1_000)
    assert made.split() == [*words[:head], "[…]", *words[80 + head :]]


@pytest.mark.parametrize("tokens", [30, 60, 200, 5_000])
def test_what_was_cut_to_its_own_limit_shrinks_further(tokens: int) -> None:
    prompt = (UserMessage(priority=5)[Truncate(max_tokens=tokens)[FILE]], UserMessage()["q"])
    whole = render(prompt, budget=10_000, tokenizer=WordTokenizer())
    made = [whole.at_budget(budget) for budget in range(whole.tokens, 1, -1)]
    texts = [pruned.messages[0].text for pruned in made if len(pruned.messages) == 2]
    assert FILE.startswith(texts[0].removesuffix("[…]"))
    assert texts[-1] == "[…]"
    assert len({*texts}) > 2
    kept = [len(text.removesuffix("[…]")) for text in dict.fromkeys(texts)]
    assert all(5 * shorter <= 2 * longer for longer, shorter in pairwise(kept))


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [(903, [900, 300, 100, 0]), (579, [576, 192, 64, 0]), (5_000, [3_000, 1_000, 333, 111, 0])],
)
def test_each_shorter_text_keeps_a_third_of_the_one_before(tokens: int, kept: list[int]) -> None:
    prompt = (
        UserMessage(priority=5)[Truncate(max_tokens=tokens)["0123456789" * 300]],
        UserMessage()["q"],
    )
    whole = render(prompt, budget=10_000, tokenizer=Chars())
    made = [whole.at_budget(budget) for budget in range(whole.tokens, 1, -1)]
    texts = [pruned.messages[0].text for pruned in made if len(pruned.messages) == 2]
    assert [*dict.fromkeys(len(text.removesuffix("[…]")) for text in texts)] == kept


def test_without_a_share_the_marker_stands_beside_literal_text_alone() -> None:
    def shown(*children: Child) -> str:
        return render(UserMessage()[children], tokenizer=WordTokenizer()).messages[0].text

    without_share = Truncate(flex_basis=0)[FILE]
    assert shown("a ", without_share, Text()["b"]).split() == ["a", "[…]", "b"]
    assert shown("a ", Group(flex_basis=0)[without_share], Text()["b"]).split() == ["a", "[…]", "b"]
    assert shown(TextChunk()["a"], without_share) == "a"


def test_of_nothing_it_leaves_the_texts_around_it() -> None:
    assert cut(UserMessage()["<a> ", Truncate()[Group()[()]], "</a>"], 9) == "<a> </a>"


def test_a_limit_of_its_own_comes_before_the_share() -> None:
    assert len(cut(Truncate(max_tokens=5)[TEXT], 100).split()) <= 5


def test_a_later_group_cuts_to_what_is_left() -> None:
    prompt = (SystemMessage()["four words of system"], UserMessage(flex_grow=1)[Truncate()[TEXT]])
    made = render(prompt, budget=10, tokenizer=WordTokenizer())
    assert made.messages[0].text == "four words of system"
    assert made.messages[1].text.startswith("line 1")


characters = st.text(st.sampled_from("ab c1\n.é👨\u200d👩🇩🇪e\u0301"), max_size=60)


@given(
    characters,
    st.integers(0, 40),
    st.sampled_from(("head", "tail", "middle")),
    st.sampled_from((WordTokenizer(), Chars(), Runs())),
)
def test_never_costs_more_than_its_share(
    text: str, tokens: int, keep: str, tokenizer: Tokenizer
) -> None:
    made = cut(Truncate(keep=keep, max_tokens=tokens, marker="…")[text], 1_000, tokenizer)  # type: ignore[arg-type]  # one of the three  # pyright: ignore[reportArgumentType]
    assert tokenizer.count(made) <= tokens


@given(characters, st.integers(0, 40))
def test_the_head_is_a_prefix_and_the_tail_a_suffix(text: str, tokens: int) -> None:
    head = cut(Truncate(keep="head", max_tokens=tokens, marker="")[text], 1_000, Chars())
    tail = cut(Truncate(keep="tail", max_tokens=tokens, marker="")[text], 1_000, Chars())
    assert text.startswith(head) or not head.strip()
    assert text.endswith(tail) or not tail.strip()


@pytest.mark.parametrize("grapheme", ["👨\u200d👩\u200d👧", "🇩🇪", "e\u0301", "\r\n"])
def test_a_grapheme_is_never_cut(grapheme: str) -> None:
    text = f"x{grapheme}" * 8
    for tokens in range(1, len(text)):
        made = cut(Truncate(keep="head", max_tokens=tokens, marker="")[text], 1_000, Chars())
        assert made.replace(f"x{grapheme}", "") in {"", "x"}


@pytest.mark.parametrize("tokens", [64, 65, 66, 67, 99, 100, 101])
def test_a_long_row_of_flags_is_cut_between_two(tokens: int) -> None:
    made = cut(Truncate(keep="head", max_tokens=tokens, marker="")["🇩🇪" * 60], 1_000, Chars())
    assert len(made) == tokens - tokens % 2


def test_it_is_pruned_like_anything_else() -> None:
    prompt = UserMessage()[
        Truncate(priority=1, max_tokens=3)[TEXT], Text(priority=2, flex_grow=1)["kept"]
    ]
    assert render(prompt, budget=1, tokenizer=WordTokenizer()).messages[0].text == "kept"


FILE = "\n".join(f"def function_{index}(value): return value + {index}" for index in range(60))
LATER = UserMessage(priority=9)["kept longer " * 20]


@pytest.mark.parametrize("keep", ["head", "tail", "middle"])
@pytest.mark.parametrize("tokenizer", [WordTokenizer(per_message=1), Runs(), None])
def test_it_shrinks_at_its_place_in_the_removal_order_and_leaves_with_the_text_around_it(
    keep: Literal["head", "tail", "middle"], tokenizer: Tokenizer | None
) -> None:
    prompt = (
        UserMessage(priority=5)["<file>\n", Truncate(keep=keep)[FILE], "\n</file>"],
        LATER,
        UserMessage()["q"],
    )
    whole = render(prompt, budget=10_000, tokenizer=tokenizer)
    shown: list[str] = []
    made = whole
    for budget in range(whole.tokens, 0, -1):
        made = whole.at_budget(budget)
        assert made.tokens <= budget
        file, *rest = (message.text for message in made.messages)
        if file == LATER.children[0]:
            break
        assert rest == [LATER.children[0], "q"]
        assert file.startswith("<file>\n")
        assert file.endswith("\n</file>")
        shown.append(file.removeprefix("<file>\n").removesuffix("\n</file>"))
    assert shown[0] == FILE
    assert "[…]" in shown
    assert len(set(shown)) > 3
    assert all(map(str.strip, shown))
    lengths = list(map(len, shown))
    assert lengths == sorted(lengths, reverse=True)
    assert [message.text for message in made.messages] == [LATER.children[0], "q"]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_what_a_smaller_budget_shows_of_it_a_larger_one_shows_too(share: float) -> None:
    prompt = (UserMessage(priority=5)[Truncate(keep="head")[FILE]], LATER, UserMessage()["q"])
    whole = render(prompt, budget=10_000)
    made = whole.at_budget(int(whole.tokens * share))
    larger = whole.at_budget(int(whole.tokens * (share + 0.1)))
    assert made.messages[0].text.removesuffix("[…]") in larger.messages[0].text


def test_a_share_of_nothing_leaves_the_marker() -> None:
    prompt = UserMessage()["a b", Truncate(flex_grow=1)[FILE]]
    assert render(prompt, budget=3, tokenizer=WordTokenizer()).messages[0].text == "a b[…]"


@pytest.mark.parametrize(
    "around",
    [(Group(),), (Group(), Group()), (TokenLimit(max_tokens=100, flex_grow=1),)],
    ids=["group", "two groups", "limit"],
)
def test_a_share_of_nothing_in_a_container_never_leaves_the_text_around_it_empty(
    around: tuple[PromptElement, ...],
) -> None:
    inner: PromptElement = Truncate(keep="middle")[FILE]
    for container in around:
        inner = container[inner]
    prompt = (
        SystemMessage()["s"],
        UserMessage(priority=1, flex_grow=1)["<file>\n", inner, "\n</file>"],
        UserMessage()["q"],
    )
    for budget in range(15, 60):
        file = [message.text for message in render(prompt, budget=budget).messages][1:-1]
        assert all("[…]" in text for text in file)


def test_the_receipt_calls_it_cut_before_it_is_removed() -> None:
    prompt = (UserMessage(priority=5)["File: ", Truncate()[FILE]], LATER, UserMessage()["q"])
    whole = render(prompt, budget=10_000, tokenizer=WordTokenizer())
    cut = whole.at_budget(whole.tokens // 2)
    assert [(removal.reason, removal.path) for removal in cut.removals] == [
        ("cut", "UserMessage[0] > Truncate[1]")
    ]
    budgets = range(whole.tokens, 0, -1)
    gone = next(made for made in map(whole.at_budget, budgets) if made.messages[0].text == "File: ")
    assert [(removal.reason, removal.path) for removal in gone.removals] == [
        ("cut", "UserMessage[0] > Truncate[1]"),
        ("budget", "UserMessage[0] > Truncate[1]"),
    ]
    assert gone.notes == ("of UserMessage[0] only its literal text is left.",)
    assert gone.notes[0] in gone.explain()


def test_in_a_chunk_it_stays_as_it_is_until_the_chunk_leaves() -> None:
    prompt = (
        UserMessage()[Chunk(priority=5)["File: ", Truncate()[FILE]], TextChunk()["kept"]],
        UserMessage()["q"],
    )
    whole = render(prompt, budget=10_000)
    assert whole.at_budget(whole.tokens - 1).messages[0].text == "kept"


def test_a_required_one_is_never_shortened() -> None:
    prompt = (UserMessage(priority=5)[Truncate(required=True)[FILE]], UserMessage()["q"])
    whole = render(prompt, budget=10_000)
    with pytest.raises(BudgetExceededError):
        whole.at_budget(whole.tokens - 1)


def test_in_a_fallback_and_through_json_it_shrinks_as_well() -> None:
    prompt = (
        UserMessage(priority=5, fallback=UserMessage()[Truncate()[FILE]])["long " * 2_000],
        LATER,
        UserMessage()["q"],
    )
    direct = render(prompt, budget=10_000)
    read_back = render(from_json(to_json(prompt, budget=10_000)), budget=10_000)
    for budget in (900, 600, 300, 150):
        made = direct.at_budget(budget)
        assert made.messages == read_back.at_budget(budget).messages
        assert made.tokens <= budget
        assert made.messages[0].text.startswith("def function_0") or budget < 300


def test_its_references_stay_until_it_leaves() -> None:
    prompt = (
        UserMessage(priority=5)["See ", Truncate()[FILE, Reference(to="a.py")]],
        LATER,
        UserMessage()["q"],
    )
    whole = render(prompt, budget=10_000)
    half, small = whole.at_budget(whole.tokens // 2), whole.at_budget(55)
    assert [reference.to for reference in half.references] == ["a.py"]
    assert [reference.to for reference in small.omitted_references] == ["a.py"]


def test_references_and_metadata_of_the_elements_in_it_stay_when_it_is_cut() -> None:
    first = Text()["a b c d e f", Reference(to="x.py"), Metadata(value=1, local=True)]
    second = Text()["g", Reference(to="y.py")]
    made = render(UserMessage()[Truncate(max_tokens=3)[first, second]], tokenizer=WordTokenizer())
    assert made.messages[0].text == "a b […]"
    assert [reference.to for reference in made.references] == ["x.py", "y.py"]
    assert made.metadata == (1,)
