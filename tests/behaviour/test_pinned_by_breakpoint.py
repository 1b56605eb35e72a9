"""A prompt that a cache breakpoint makes too large: the error names the breakpoint and the number of tokens that it protects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    CacheBreakpoint,
    Chunk,
    Group,
    History,
    KeepWith,
    Message,
    PromptElement,
    SystemMessage,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.testing import WordTokenizer, assert_fits

if TYPE_CHECKING:
    from promptkit import Child

QUESTION = UserMessage()["q"]
TURNS = (
    Message(role="user", content=("one two",)),
    Message(role="assistant", content=("three",)),
    Message(role="user", content=("four",)),
)


def failure(prompt: Child, budget: int) -> BudgetExceededError:
    with pytest.raises(BudgetExceededError) as caught:
        render(prompt, budget=budget, tokenizer=WordTokenizer())
    return caught.value


def test_the_error_says_which_breakpoint_keeps_how_much_and_what_to_do() -> None:
    error = failure(
        (
            SystemMessage()["s"],
            UserMessage(priority=1)["word " * 200],
            UserMessage(priority=2)["x", CacheBreakpoint()],
            QUESTION,
        ),
        100,
    )
    assert str(error) == (
        "203 required tokens do not fit a budget of 100 (over by 103). 201 of them stay only because they stand before the cache breakpoint "
        "UserMessage[2] > CacheBreakpoint[1]. Largest: UserMessage[1] 200; SystemMessage[0] 1; UserMessage[2] 1. Move the breakpoint before what "
        "may be pruned, make one of them prunable, give it a shorter variant, or raise the budget."
    )
    assert (error.cache_breakpoint, error.pinned) == ("UserMessage[2] > CacheBreakpoint[1]", 201)


def test_a_result_behind_the_breakpoint_whose_call_stands_before_it_is_kept_by_it() -> None:
    call = ToolCall(id="1", name="read", arguments="{}")
    prompt = (
        SystemMessage()["s"],
        AssistantMessage(priority=1, tool_calls=[call])["I read."],
        UserMessage()["context", CacheBreakpoint()],
        ToolMessage(priority=1, tool_call_id="1")["line " * 50],
        QUESTION,
    )
    error, without = failure(prompt, 20), failure(tuple(map(without_breakpoints, prompt)), 0)
    assert error.required - error.pinned == without.required


def without_breakpoints(child: Child) -> Child:
    if isinstance(child, CacheBreakpoint):
        return None
    if isinstance(child, PromptElement):
        return child.replace(children=tuple(map(without_breakpoints, child.children)))
    return tuple(map(without_breakpoints, child)) if isinstance(child, tuple) else child


MARK = UserMessage(required=True)["end", CacheBreakpoint()]
CALL = ToolCall(id="1", name="read", arguments="{}")


@pytest.mark.parametrize(
    ("prompt", "pinned"),
    [
        ((UserMessage(priority=1)["a b"], MARK), 2),
        ((UserMessage()["a b"], MARK), 2),
        (
            (
                Group()[
                    AssistantMessage()["a"],
                    Chunk()[AssistantMessage()["b"], AssistantMessage()["c"]],
                ],
                MARK,
            ),
            3,
        ),
        (
            (
                SystemMessage()[
                    "rules ",
                    TextChunk(priority=1)["an example"],
                    Chunk()["whole ", TextChunk(priority=1)["chunk"]],
                ],
                MARK,
            ),
            2,
        ),
        (
            (
                SystemMessage()[
                    "rules ", TextChunk(priority=1)["an example"], CacheBreakpoint(), " more"
                ],
                QUESTION,
            ),
            2,
        ),
        (
            (
                UserMessage(priority=1)["a b", CacheBreakpoint(), TextChunk(required=True)["c"]],
                QUESTION,
            ),
            2,
        ),
        (
            (
                Group()[
                    UserMessage(priority=1)["a b", CacheBreakpoint()], UserMessage(priority=1)["c"]
                ],
                QUESTION,
            ),
            2,
        ),
        (
            (
                UserMessage(priority=1)["a b"],
                MARK,
                KeepWith(group=1)[UserMessage()["c"]],
                KeepWith(group=1)[UserMessage(required=True)["d"]],
            ),
            2,
        ),
        (
            (
                UserMessage(priority=1)[TextChunk()["a b"]],
                MARK,
                KeepWith(group=1)[UserMessage()["c"]],
                KeepWith(group=1)[UserMessage(required=True)["d"]],
            ),
            2,
        ),
        (
            (
                UserMessage(priority=1)[TextChunk()["a b"]],
                KeepWith(group=1)[MARK],
                KeepWith(group=1)[UserMessage()["c"]],
                QUESTION,
            ),
            2,
        ),
        ((History(turns=TURNS, keep_turns=1), MARK), 3),
        (
            (
                AssistantMessage(priority=1, tool_calls=[CALL])["a"],
                ToolMessage(priority=1, tool_call_id="1")["r r"],
                MARK,
                UserMessage(priority=1)["behind it"],
            ),
            3,
        ),
        (
            (
                KeepWith(group=1)[UserMessage()["a"], UserMessage()["b"]],
                KeepWith(group=1)[UserMessage()["c d"]],
                KeepWith(group=2)[UserMessage()["e"]],
                MARK,
                KeepWith(group=1)[UserMessage()["f g"], UserMessage()["h"]],
                QUESTION,
            ),
            6,
        ),
        (
            (
                UserMessage(priority=1)["a", CacheBreakpoint()],
                UserMessage(priority=1)["b", CacheBreakpoint()],
                QUESTION,
            ),
            2,
        ),
    ],
)
def test_what_could_be_pruned_without_the_breakpoint_is_counted_and_nothing_else(
    prompt: Child, pinned: int
) -> None:
    error = failure(prompt, 1)
    assert error.pinned == pinned
    assert error.cache_breakpoint.split(" > ")[-1].startswith("CacheBreakpoint")
    assert failure(without_breakpoints(prompt), 0).required == error.required - pinned


@pytest.mark.parametrize(
    "prompt",
    [
        (SystemMessage()["all of it is required", CacheBreakpoint()], QUESTION),
        (UserMessage(required=True)["all of it is required", CacheBreakpoint()], QUESTION),
        (
            Group(required=True)[
                UserMessage()["all of it is required"], AssistantMessage()["too", CacheBreakpoint()]
            ],
            QUESTION,
        ),
        (
            UserMessage(priority=1)[
                CacheBreakpoint(), TextChunk(required=True)["what stands behind it"]
            ],
            QUESTION,
        ),
        (SystemMessage()["there is none"], QUESTION),
    ],
)
def test_a_breakpoint_that_keeps_nothing_by_itself_is_not_named(prompt: Child) -> None:
    error = failure(prompt, 1)
    assert (error.cache_breakpoint, error.pinned) == ("", 0)
    assert "breakpoint" not in str(error)


def test_that_of_a_limit_is_the_last_one_in_the_limit() -> None:
    limited = TokenLimit(max_tokens=2)[
        UserMessage(priority=1)["a b c"], UserMessage(priority=2)["d", CacheBreakpoint()]
    ]
    error = failure((limited, UserMessage()["q", CacheBreakpoint()]), 99)
    assert (error.where, error.cache_breakpoint, error.pinned) == (
        "TokenLimit[0]",
        "TokenLimit[0] > UserMessage[1] > CacheBreakpoint[1]",
        4,
    )
    error = failure(
        (
            TokenLimit(max_tokens=2)[UserMessage(required=True)["a b c"]],
            UserMessage()["q", CacheBreakpoint()],
        ),
        99,
    )
    assert (error.where, error.cache_breakpoint) == ("TokenLimit[0]", "")


def test_it_is_named_beside_the_last_user_message() -> None:
    error = failure(
        (AssistantMessage()["a b", CacheBreakpoint()], UserMessage(priority=1)["the question"]), 2
    )
    assert (error.last_message, error.pinned) == ("UserMessage[1]", 2)
    assert str(error).endswith(
        "Move the breakpoint before what may be pruned, give what may go before it a lower priority, shorten one of them, or raise the budget."
    )


def test_other_budgets_and_assertions_name_it() -> None:
    prompt = (
        UserMessage(priority=1)["a b"],
        UserMessage(priority=2)["c", CacheBreakpoint()],
        QUESTION,
    )
    with pytest.raises(BudgetExceededError) as caught:
        render(prompt, budget=99, tokenizer=WordTokenizer()).at_budget(2)
    assert caught.value.pinned == 3
    with pytest.raises(
        AssertionError,
        match=r"3 tokens stay only because they stand before the cache breakpoint UserMessage\[1\] > CacheBreakpoint\[1\]",
    ):
        assert_fits(prompt, budget=2, tokenizer=WordTokenizer())
