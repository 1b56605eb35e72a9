"""A prompt at several budgets in one file: the largest in full, of each smaller one what it loses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st
from promptkit_components.demo import load_demo

from promptkit import (
    AssistantMessage,
    Child,
    Image,
    Message,
    PromptElement,
    Reserve,
    Sizing,
    SystemMessage,
    TextChunk,
    ToolCall,
    ToolMessage,
    Truncate,
    UserMessage,
    component,
)
from promptkit.testing.snapshots.documents import (
    SnapshotOptions,
    StabilizeOptions,
    Stabilizer,
    format_prompt,
    render_levels,
)
from promptkit.testing.word_tokenizer import WordTokenizer

PROMPT = (
    SystemMessage(required=True)["Be brief."],
    UserMessage(priority=1)["one one one one"],
    AssistantMessage(priority=2)["two two two two"],
    UserMessage(priority=3)["three three", TextChunk(priority=1)["and more"]],
)


def document(prompt: object, *budgets: int | str, words: bool = True) -> str:
    asked = SnapshotOptions(budgets=budgets, tokenizer=WordTokenizer() if words else None)
    return format_prompt(render_levels(prompt, asked, Stabilizer(StabilizeOptions())))


SHOWN = """\
# 20 tokens

14 of 20 tokens; 4 messages.

```
System
  Be brief.
User
  one one one one
Assistant
  two two two two
User
  three three
  and more
```

# 12 tokens

10 of 12 tokens; 3 messages. Compared with 20 tokens:

```diff
  1 message stays
- User: one one one one
  2 messages stay
```

# 4 tokens

4 of 4 tokens; 2 messages. Compared with 12 tokens:

```diff
  1 message stays
- Assistant: two two two two
! User: three three
```

# 3 tokens

> 4 tokens do not fit a budget of 3 (over by 1), and what would be pruned next is the last user message, UserMessage[3]. \
Largest: SystemMessage[0] 2; UserMessage[3] 2. Give what may go before it a lower priority, shorten one of them, or raise the budget.
"""


def test_all_messages_of_the_largest_then_what_each_smaller_one_loses() -> None:
    assert document(PROMPT, 4, 20, 12, 3, 4) == SHOWN


def test_a_new_wording_changes_the_file_in_one_place() -> None:
    other = (PROMPT[0], UserMessage(priority=1)["one one one two"], *PROMPT[2:])
    before, after = (document(prompt, 20, 12, 4).split("\n") for prompt in (PROMPT, other))
    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new] == [
        ("  one one one one", "  one one one two"),
        ("- User: one one one one", "- User: one one one two"),
    ]


def test_a_model_stands_for_its_window() -> None:
    assert [
        line
        for line in document(PROMPT, 100, "gpt-5", words=False).split("\n")
        if line.startswith("# ")
    ] == [
        "# gpt-5",
        "# 100 tokens",
    ]


def test_the_reserved_tokens_are_said() -> None:
    assert "14 of 30 tokens, 10 reserved; 4 messages." in document(
        (*PROMPT, Reserve(tokens=10)), 30
    )


def test_what_takes_the_place_of_the_gone_is_shown() -> None:
    prompt = (
        UserMessage(fallback=UserMessage()["gone\nor not"])["one two three four"],
        UserMessage(required=True)["now"],
    )
    assert document(prompt, 5, 4).endswith(
        "```diff\n- User: one two three four\n+ User: gone or not\n+1:   gone\n+1:   or not\n  1 message stays\n```\n"
    )


def test_of_a_long_cut_the_place_is_shown() -> None:
    log = "\n".join(f"line {number}" for number in range(1, 101))
    shown = document(UserMessage()["All:\n", Truncate(keep="tail", marker="[…]\n")[log]], 201, 20)
    assert shown.endswith("…\n-2 to 92: 91 lines\n+2:   […]\n```\n")


def test_of_a_long_text_the_ends_are_shown_and_a_hash_of_all_between() -> None:
    log = "\n".join(f"line {number}" for number in range(1, 31))
    shown = document(UserMessage()[log], 60)
    assert "  line 1\n* … 28 lines, sha256 daaa5e747758\n  line 30\n" in shown
    assert document(UserMessage()["x" * 5_000], 60).count("x") == 198


def test_a_message_that_loses_one_of_its_calls_is_a_changed_one() -> None:
    prompt = (
        AssistantMessage(tool_calls=(ToolCall(id="a", name="f"), ToolCall(id="b", name="g"))),
        ToolMessage(tool_call_id="a", priority=1)["one two three"],
        ToolMessage(tool_call_id="b", priority=2)["four"],
    )
    shown = document(prompt, 10, 2)
    assert (
        "! Assistant: calls g {}\n-1: * calls f (a) {}\n- Tool f (a): one two three\n  1 message stays"
        in shown
    )


@component
class Newest(PromptElement):
    """As many of the newest messages as there is room for: at each budget other messages stand in the same places."""

    count: int

    def render(self, sizing: Sizing) -> Child:
        return tuple(
            UserMessage()[f"number {n}"]
            for n in range(self.count - sizing.token_budget // 2, self.count)
        )


def test_a_message_stays_itself_where_another_stood_in_its_place() -> None:
    assert document(Newest(count=9), 12, 6).split("```diff\n")[1] == (
        "- 3 messages, from User: number 3\n  3 messages stay\n```\n"
    )


def test_of_equal_messages_the_oldest_is_the_one_that_is_gone() -> None:
    prompt = tuple(UserMessage(priority=number)["one"] for number in range(3))
    assert document(prompt, 3, 2).split("```diff\n")[1] == "- User: one\n  2 messages stay\n```\n"


def test_of_a_message_of_several_parts_each_part_that_is_gone_is_seen() -> None:
    image = Image(url="data:image/png;base64,AAAA", priority=1)
    log = TextChunk(priority=2)["\n".join(f"line {number}" for number in range(100))]
    shown = document(UserMessage()[log, image, TextChunk(priority=3)["the\nend"]], 500, 2)
    assert shown.endswith("! User: the end\n-1 to 101: 101 lines\n```\n")


def test_a_rendered_prompt_and_no_budget_have_no_sections() -> None:
    levels = render_levels(PROMPT, SnapshotOptions(), Stabilizer(StabilizeOptions()))
    assert format_prompt(levels).startswith("## System\n")
    assert "# " not in re.sub("## ", "", format_prompt(levels))


@pytest.mark.slow
def test_twenty_thousand_messages_are_compared_in_good_time() -> None:
    prompt = tuple(UserMessage(priority=number % 97)["the same words"] for number in range(20_000))
    assert "stay" in document(prompt, 60_000, 29_000)


def message(
    role: type[SystemMessage | UserMessage | AssistantMessage], priority: int, text: str
) -> PromptElement:
    return role(priority=priority)[text]


TREES = st.lists(
    st.builds(
        message,
        st.sampled_from([SystemMessage, UserMessage, AssistantMessage]),
        st.integers(0, 5),
        st.sampled_from(["one", "two two", "three three three", "# four", "```"]),
    ),
    min_size=1,
    max_size=12,
)


@given(TREES, st.lists(st.integers(0, 24), min_size=1, max_size=4))
def test_every_message_of_both_sides_is_accounted_for(
    prompt: list[PromptElement], budgets: list[int]
) -> None:
    tokenizer = WordTokenizer()
    levels = render_levels(
        prompt,
        SnapshotOptions(budgets=tuple(budgets), tokenizer=tokenizer),
        Stabilizer(StabilizeOptions()),
    )
    sections = re.split(r"^# \d+ tokens$", format_prompt(levels), flags=re.MULTILINE)[1:]
    above: tuple[Message, ...] | None = None
    for level, section in zip(levels, sections, strict=True):
        if level.rendered is None:
            assert f"> {level.error}" in section
            continue
        assert f"; {len(level.messages)} message" in section
        listed = re.search(r"^(`{3,})diff\n(.*?)\n\1$", section, re.MULTILINE | re.DOTALL)
        if above is None or not listed:
            assert above is None or above == level.messages
        else:
            lines = listed[2].split("\n")
            stay = sum(int(line.split()[0]) for line in lines if line.startswith("  "))
            gone, new, changed = (
                sum(
                    int(found[1] or 1)
                    for line in lines
                    if (found := re.match(rf"{re.escape(mark)} (?:(\d+) messages, from )?", line))
                )
                for mark in "-+!"
            )
            assert (stay + gone + changed, stay + new + changed) == (
                len(above),
                len(level.messages),
            )
        above = level.messages


TEXTS = st.text("ab \n", max_size=30)


@given(
    st.lists(TEXTS, min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 30),
    st.sampled_from("abc\n "),
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
)
def test_every_change_of_a_character_at_any_budget_changes_the_document(
    texts: list[str], at: int, place: int, letter: str, budgets: list[int]
) -> None:
    def prompts(texts: list[str]) -> tuple[PromptElement, ...]:
        return tuple(
            UserMessage(priority=number)[Truncate(keep="head", marker="…")[text or "-"]]
            for number, text in enumerate(texts)
        )

    at %= len(texts)
    changed = [*texts]
    changed[at] = f"{texts[at][:place]}{letter}{texts[at][place + 1 :]}"
    options = SnapshotOptions(budgets=tuple(budgets), tokenizer=WordTokenizer())
    before, after = (
        render_levels(prompts(each), options, Stabilizer(StabilizeOptions()))
        for each in (texts, changed)
    )
    same = [level.messages for level in before] == [level.messages for level in after]
    assert same or format_prompt(before) != format_prompt(after)


def test_a_coding_agent_at_five_budgets_has_at_most_200_lines() -> None:
    shown = document(load_demo().prompt, 4_000, 2_000, 1_000, 500, 250, words=False)
    assert len(shown.splitlines()) <= 200


def test_of_equal_messages_between_others_those_that_stay_are_not_told_as_gone() -> None:
    turns = [
        UserMessage(priority=1 if at in {2, 4} else 2)[word]
        for at, word in enumerate(("go on", "fix a", "go on", "fix b", "go on", "fix c", "go on"))
    ]
    smaller = document(turns, 40, 10).partition("# 10 tokens")[2]
    assert smaller.count("go on") == 2
    assert "fix" not in smaller
