from __future__ import annotations

import math
from typing import Any, cast

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit.errors import (
    ContextWindowFullError,
    InvalidArgumentError,
    ToolsFillBudgetError,
    UnknownModelError,
)
from promptkit.messages import ToolDefinition
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens import parse_tokens
from promptkit.tokens.budget import (
    DEFAULT_BUDGET,
    DEFAULT_RESERVE,
    LAPSE_SUCCESSES,
    ContextBudget,
    LearnedBudget,
    RenderBudget,
    fit_reserve,
    read_budget,
    resolve_budget,
    resolve_render_budget,
    resolve_threshold,
)
from promptkit.tokens.models import model_info, register_model, tokenizer_for

TOKENIZER = tokenizer_for(None)


def learned(**figures: Any) -> LearnedBudget:  # Any: of a ContextBudget
    return LearnedBudget(given=ContextBudget(**figures))


def budget(
    model: str | None = None, given_: int | None = None, reply: int | None = None
) -> RenderBudget:
    return resolve_render_budget(
        given_, model=model, reserved_output_tokens=reply, tokenizer=TOKENIZER, tools=[]
    )


def test_a_bare_budget_wins() -> None:
    assert budget("gpt-4o", 500).tokens == 500
    assert budget("no such model", 500, reply=100).tokens == 500


@pytest.mark.parametrize(
    ("model", "reply", "tokens"),
    [
        ("gpt-4o", None, 128_000 - 16_384),
        ("gpt-4o", 1_000, 127_000),
        ("gpt-4", None, 8_192 - 2_048),
        ("gpt-5", None, 272_000),
        ("gpt-5", 200_000, 200_000),
    ],
)
def test_the_window_less_the_reply_is_what_a_prompt_may_have(
    model: str, reply: int | None, tokens: int
) -> None:
    assert budget(model, reply=reply).tokens == tokens


@given(
    model=st.sampled_from(["gpt-4o", "gpt-5", "gpt-5.4", "gemini-2.5-pro", "claude-opus-4-6"]),
    reply=st.integers(0, 100_000),
)
def test_prompt_and_reply_fit_the_window(model: str, reply: int) -> None:
    tokens, known = budget(model, reply=reply).tokens, model_info(model)
    assert known.window is not None
    assert tokens + reply <= known.window
    assert known.max_input is None or tokens <= known.max_input


@pytest.mark.parametrize("bad", [-1, math.nan])
def test_impossible_figures_are_refused(bad: float) -> None:
    figure = cast("int", bad)  # NaN is no int, and comes all the same
    with pytest.raises(InvalidArgumentError, match="budget must be at least 0 tokens"):
        budget(given_=figure)
    with pytest.raises(
        InvalidArgumentError, match="reserved_output_tokens must be at least 0 tokens"
    ):
        budget("gpt-4o", reply=figure)


def test_a_budget_is_finite() -> None:
    with pytest.raises(
        InvalidArgumentError, match="budget must be at least 1 tokens, and finite, not inf"
    ):
        resolve_budget(cast("int", math.inf))


def test_a_reply_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="leaves nothing of a window of 8,192 tokens"):
        budget("gpt-4", reply=8_192)


@pytest.mark.parametrize("model", ["nobody-knows-it", "gpt-77"])
def test_without_a_window_a_budget_is_asked_for(model: str) -> None:
    with pytest.raises(UnknownModelError, match="a `budget`, or"):
        budget(model)


def test_without_anything_there_is_a_default() -> None:
    assert budget().tokens == DEFAULT_BUDGET == 128_000
    assert budget(reply=200_000).tokens == 0


def test_it_prints_how_it_got_there() -> None:
    tools = [ToolDefinition(name="read")]
    with_tools = resolve_render_budget(8_000, model=None, tools=tools, tokenizer=TOKENIZER)
    assert (
        str(with_tools)
        == f"8,000 tokens, as given; {TOKENIZER.count_overhead(tools).tokens} of them for the request and its tools"
    )
    assert str(budget("gpt-5")).startswith(
        "272,000 tokens: gpt-5 has a window of 400,000 tokens, less 100,000 for the reply, and takes at most 272,000 of input"
    )
    assert "default" in budget().explain()


WINDOW = 100_000


def made(**figures: Any) -> ContextBudget:
    """A budget of the figures in a table."""
    return ContextBudget(**figures)


def plain(**figures: Any) -> ContextBudget:
    """A budget of which nothing is kept for the reply, so that the limit is the window."""
    return ContextBudget(window=WINDOW, reserved_output_tokens=0, **figures)


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (None, None),
        (0, None),
        (-0.5, None),
        (-5, None),
        (math.nan, None),
        (0.5, 50_000),
        (0.85, 85_000),
        (1, WINDOW),
        (1.0, WINDOW),
        (0.000_001, 1),
        (100, 100),
        (99_999, 99_999),
        (100_000, 100_000),
        (250_000, 250_000),
        (math.inf, WINDOW),
    ],
)
def test_a_threshold_is_a_share_up_to_1_and_tokens_from_100_on(
    value: float | None, tokens: int | None
) -> None:
    assert resolve_threshold(value, WINDOW) == tokens


@pytest.mark.spec("E52")
@pytest.mark.parametrize("value", [1.000_001, 1.5, 2, 80, 99, 99.999])
def test_a_threshold_between_1_and_100_is_refused_with_both_legal_forms(value: float) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"compact_at=.*ratio above 0 and up to 1.*at least 100 tokens"
    ):
        resolve_threshold(value, WINDOW, setting="compact_at")
    with pytest.raises(InvalidArgumentError, match="threshold="):
        plain(threshold=value)


def test_80_that_means_80_percent_is_told_what_to_write() -> None:
    with pytest.raises(InvalidArgumentError, match=r"\(0\.8 for 80 %\)"):
        plain(threshold=80)


@pytest.mark.parametrize(
    ("chosen", "limit"),
    [
        (None, WINDOW),
        (64_000, 64_000),
        (64_000.9, 64_000),
        (WINDOW - 1, WINDOW - 1),
        (WINDOW, WINDOW),
        (WINDOW + 1, WINDOW),
        (0, WINDOW),
        (-1, WINDOW),
        (math.nan, WINDOW),
        (math.inf, WINDOW),
        (True, WINDOW),
    ],
)
def test_a_chosen_limit_counts_where_it_is_a_number_below_the_limit_of_the_model(
    chosen: float | None, limit: int
) -> None:
    assert plain(max_tokens=chosen).limit == limit


@pytest.mark.parametrize(
    ("figures", "limit"),
    [
        ({"window": 16_000, "reserved_output_tokens": 4_000}, 12_000),
        ({"window": 16_000}, 12_000),
        ({"window": 16_000, "max_output_tokens": 1_000}, 15_000),
        ({"window": 16_000, "max_output_tokens": 100_000}, 12_000),
        ({"window": 16_000, "reserved_output_tokens": 0}, 16_000),
        ({"window": 400_000, "max_input": 272_000, "max_output_tokens": 128_000}, 272_000),
        ({"window": 400_000, "max_input": 272_000, "reserved_output_tokens": 200_000}, 200_000),
        ({"max_input": 50_000}, 50_000),
        ({}, None),
    ],
)
def test_the_limit_is_what_the_window_leaves_beside_the_reply(
    figures: dict[str, int], limit: int | None
) -> None:
    assert made(**figures).limit == limit


@pytest.mark.parametrize(
    ("figures", "base"),
    [
        ({}, WINDOW),
        ({"threshold": 0.8}, 80_000),
        ({"threshold": 60_000}, 60_000),
        ({"threshold": 160_000}, WINDOW),  # never above the window
        ({"max_tokens": 50_000, "threshold": 0.8}, 40_000),  # a share is of what was chosen
        ({"max_tokens": 50_000, "threshold": 60_000}, 50_000),
        ({"reserve_tokens": 16_384}, WINDOW - 16_384),
        ({"reserve_tokens": 0}, WINDOW),
        ({"reserve_tokens": 16_384, "threshold": 0.5}, 50_000),  # the lower of the two
        ({"reserve_tokens": 60_000, "threshold": 0.85}, 40_000),
    ],
)
def test_the_base_is_the_limit_or_a_threshold_below_it(
    figures: dict[str, float], base: int
) -> None:
    assert plain(**figures).base == base


@pytest.mark.parametrize(
    ("tools", "messages", "render"),
    [
        (0, 100_000, 100_000),
        (1, 89_999, 90_000),
        (20_000, 72_000, 92_000),
        (50_000, 45_000, 95_000),
        (99_999, 1, 100_000),
    ],
)
def test_tools_leave_nine_tenths_of_the_rest_to_messages(
    tools: int, messages: int, render: int
) -> None:
    budget = plain(tools=tools)
    assert (budget.message_budget, budget.render_budget) == (messages, render)
    assert budget.ratio(render) == 1.0


def test_the_base_limits_a_render_with_and_without_tools() -> None:
    assert plain(threshold=0.5).render_budget == 50_000
    assert plain(threshold=0.5, tools=10_000).render_budget == 46_000


@given(base=st.integers(1, 2_000_000), tools=st.integers(0, 2_000_000))
def test_a_render_never_gets_more_than_the_base_and_messages_never_nothing(
    base: int, tools: int
) -> None:
    if tools >= base:
        with pytest.raises(ToolsFillBudgetError):
            ContextBudget(window=base, reserved_output_tokens=0, tools=tools)
        return
    budget = ContextBudget(window=base, reserved_output_tokens=0, tools=tools)
    assert budget.message_budget is not None
    assert budget.render_budget is not None
    assert 1 <= budget.message_budget <= budget.render_budget <= base


@pytest.mark.spec("E32")
@pytest.mark.parametrize("tools", [50_000, 50_001, 200_000])
def test_tools_that_fill_the_budget_have_an_error_of_their_own(tools: int) -> None:
    with pytest.raises(
        ToolsFillBudgetError, match=rf"{tools:,} tokens of a budget of 50,000.*offer fewer tools"
    ) as caught:
        plain(threshold=0.5, tools=tools)
    assert (caught.value.tools, caught.value.budget) == (tools, 50_000)
    assert plain(threshold=0.5, tools=49_999).message_budget == 1


@pytest.mark.parametrize(
    ("tokens", "ratio"), [(0, 0.0), (23_000, 0.5), (46_000, 1.0), (69_000, 1.5), (None, None)]
)
def test_a_ratio_is_a_share_of_the_size_that_overflows_and_counts_the_tools_in(
    tokens: int | None, ratio: float | None
) -> None:
    assert plain(threshold=0.5, tools=10_000).ratio(tokens) == ratio


@pytest.mark.spec("E51")
def test_of_an_unknown_window_nothing_is_invented() -> None:
    budget = ContextBudget(tools=5_000)
    assert (budget.limit, budget.base, budget.message_budget, budget.render_budget) == (None,) * 4
    assert budget.ratio(1_000_000) is None
    assert budget.result_tokens is None
    assert budget.explain().startswith("unknown")
    assert ContextBudget(threshold=0.8).base is None  # a share of the unknown is unknown
    assert ContextBudget(threshold=60_000).base == 60_000  # what somebody said is known
    assert ContextBudget.for_model("a model nobody knows", tokenizer=WordTokenizer()).window is None


@pytest.mark.parametrize("name", ["window", "max_input", "max_output_tokens"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_size_is_positive_or_unknown_and_never_0(name: str, value: int) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"{name} must be positive, or None where it is unknown"
    ):
        made(**{name: value})


@pytest.mark.parametrize("name", ["reserved_output_tokens", "reserve_tokens", "tools"])
def test_what_is_kept_free_is_not_negative(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} must be at least 0 tokens, not -1"):
        made(**{name: -1})


@pytest.mark.parametrize("name", ["reserved_output_tokens", "reserve_tokens"])
def test_what_leaves_nothing_of_the_window_is_refused(name: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"{name} of 8,000 leaves nothing of a window of 8,000 tokens"
    ):
        made(window=8_000, **{name: 8_000})


@pytest.mark.parametrize("safety", [0, -1, 1.1, math.nan])
def test_the_safety_is_a_share(safety: float) -> None:
    with pytest.raises(InvalidArgumentError, match="safety must be above 0 and at most 1"):
        ContextBudget(safety=safety)


@pytest.mark.spec("E49")
@pytest.mark.parametrize(
    ("window", "reserve"),
    [
        (1_000_000, DEFAULT_RESERVE),
        (DEFAULT_RESERVE + 1, DEFAULT_RESERVE),
        (DEFAULT_RESERVE, 2_457),
        (8_000, 1_200),
        (4, 1),
        (1, 1),
    ],
)
def test_a_reserve_that_nobody_asked_for_shrinks_with_a_tiny_window(
    window: int, reserve: int
) -> None:
    assert fit_reserve(window) == reserve
    assert DEFAULT_RESERVE == 16_384


@pytest.mark.spec("E49")
def test_a_reserve_that_somebody_asked_for_is_honoured_even_if_it_equals_the_default() -> None:
    assert (
        ContextBudget(window=20_000, reserved_output_tokens=0, reserve_tokens=DEFAULT_RESERVE).base
        == 20_000 - DEFAULT_RESERVE
    )
    with pytest.raises(InvalidArgumentError, match="leaves nothing"):
        ContextBudget(window=8_000, reserve_tokens=DEFAULT_RESERVE)


@pytest.mark.spec("E49")
@pytest.mark.parametrize("window", [1, 2, 3, 5, 10, 100, 1_000, 4_096])
def test_the_caps_of_a_tiny_window_are_proportional_and_leave_room(window: int) -> None:
    budget = ContextBudget(window=window, reserved_output_tokens=0)
    assert 1 <= budget.summary_tokens <= max(1, window // 5)
    assert budget.result_tokens == max(1, window // 2)


def test_a_summary_may_have_a_fifth() -> None:
    assert plain(max_tokens=10_000).summary_tokens == 2_000


def test_all_that_tools_leave_may_be_for_messages() -> None:
    assert plain(tools=20_000, safety=1).message_budget == 80_000


def test_without_tools_nothing_of_a_conversation_is_for_tools() -> None:
    tools = [ToolDefinition(name="read")]
    assert ContextBudget.for_model("gpt-4o").tools == 0
    assert resolve_budget(8_000).tools == 0
    assert (
        resolve_budget(8_000, tools=tools, tokenizer=TOKENIZER).tools
        == TOKENIZER.count_overhead(tools).tokens
    )


def test_a_budget_of_nothing_is_a_budget_where_nothing_is_asked_for() -> None:
    assert read_budget(0) == read_budget("0") == 0


def test_a_budget_is_a_whole_number() -> None:
    assert read_budget(8_000.0) == 8_000
    with pytest.raises(
        InvalidArgumentError,
        match=r"budget must be a whole number of tokens, such as 20, not 20\.9",
    ):
        read_budget(20.9)


@pytest.mark.spec("E50")
def test_the_caps_of_a_huge_window_are_absolute() -> None:
    for window in (1_000_000, 10_000_000):
        budget = ContextBudget(window=window)
        assert budget.summary_tokens == 16_384
    assert ContextBudget(window=1_000_000, max_output_tokens=4_096).summary_tokens == 4_096
    assert ContextBudget().summary_tokens == 16_384


def test_a_tool_result_may_have_half_of_what_messages_may() -> None:
    assert plain().result_tokens == 50_000
    assert plain(tools=20_000).result_tokens == 36_000


def test_the_budget_of_a_model_is_what_its_table_and_the_render_say() -> None:
    tokenizer = tokenizer_for("gpt-4o")
    tools = [ToolDefinition(name="read", description="Read a file.", parameters={"type": "object"})]
    budget = ContextBudget.for_model("gpt-4o", tokenizer=tokenizer, tools=tools, threshold=0.9)
    assert (budget.window, budget.output_reserve, budget.limit) == (128_000, 16_384, 111_616)
    assert budget.base == 100_454
    assert (
        budget.tools
        == tokenizer.count_overhead(tools).tokens
        == ContextBudget.for_model("gpt-4o", tools=tools).tools
    )
    assert ContextBudget.for_model("gpt-4o", tokenizer=WordTokenizer(), tools=tools).tools == 0
    assert ContextBudget.for_model("gpt-5", tokenizer=tokenizer).limit == 272_000
    assert ContextBudget.for_model("gpt-5", tokenizer=tokenizer, window=64_000).limit == 48_000
    with pytest.raises(InvalidArgumentError):
        ContextBudget.for_model("gpt-5", tokenizer=tokenizer, window=0)


EXPLAINED = {
    "12,000 tokens: a window of 16,000, less 4,000 for the reply; overflows above 12,000": ContextBudget(
        window=16_000
    ),
    "231,200 tokens: gpt-5 has a window of 400,000, less 100,000 for the reply; at most 272,000 of input; "
    "the threshold is 0.85 of it, 231,200; 20,000 for tools and 0.9 of the rest, 190,080, for messages; "
    "overflows above 210,080": ContextBudget(
        model="gpt-5",
        window=400_000,
        max_input=272_000,
        max_output_tokens=128_000,
        threshold=0.85,
        tools=20_000,
    ),
    "64,000 tokens: a window of 200,000, less 0 for the reply; the chosen limit 64,000; 16,384 kept free; "
    "overflows above 64,000": ContextBudget(
        window=200_000, reserved_output_tokens=0, max_tokens=64_000, reserve_tokens=16_384
    ),
    "12,000 tokens: a window of 16,000, less 4,000 for the reply; the threshold is 1 of it, 12,000; "
    "overflows above 12,000": ContextBudget(window=16_000, threshold=1),
    "1,200,000 tokens: no window is known; the threshold is 1,200,000; overflows above 1,200,000": ContextBudget(
        threshold=1_200_000
    ),
}


@pytest.mark.parametrize("text", EXPLAINED)
def test_a_budget_says_how_it_came_about(text: str) -> None:
    assert EXPLAINED[text].explain() == text
    assert str(EXPLAINED[text]) == text


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("8000", 8_000),
        ("8_000", 8_000),
        ("8k", 8_000),
        (" 1.5K ", 1_500),
        ("1m", 1_000_000),
        ("0", 0),
    ],
)
def test_tokens_are_read_as_people_write_them(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens
    assert resolve_render_budget(text, model=None, tokenizer=TOKENIZER, tools=[]).tokens == tokens


@pytest.mark.parametrize("text", ["8q", "", "k", "-5", "1.5", "1e3", "1.0001k5", "9" * 16, "8 k"])
def test_a_text_that_is_no_number_of_tokens_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"^invalid token count '.*': use 8000, 8k or 1m\.$"
    ):
        parse_tokens(text)


@pytest.mark.parametrize("wrong", [True, [8_000], {"tokens": 8_000}, b"8k"])
def test_what_is_no_budget_is_refused_with_what_to_write(wrong: Any) -> None:
    with pytest.raises(
        TypeError,
        match="budget must be a number of tokens, text such as '8k', or a ContextBudget, not",
    ):
        resolve_budget(wrong)


def test_a_context_budget_counts_the_tools_beside_it_unless_it_says_what_they_take() -> None:
    tools = [ToolDefinition(name="read", description="Read a file.")]
    size = TOKENIZER.count_overhead(tools).tokens
    budget = ContextBudget(window=16_000, reserved_output_tokens=0)
    counted = resolve_budget(budget, model="gpt-5", tools=tools, tokenizer=TOKENIZER)
    assert counted.tools == size
    assert counted.message_budget == int((16_000 - size) * 0.9)
    own = attrs.evolve(budget, tools=300)
    assert resolve_budget(own, tools=tools, tokenizer=TOKENIZER) == own


def test_a_context_budget_without_tools_is_used_as_it_is() -> None:
    budget = ContextBudget(window=16_000, threshold=0.8)
    assert resolve_budget(budget, model="gpt-5") == budget
    with pytest.raises(
        InvalidArgumentError, match="give reserved_output_tokens to the ContextBudget"
    ):
        resolve_render_budget(
            budget, model=None, tokenizer=TOKENIZER, tools=[], reserved_output_tokens=100
        )


def test_in_a_conversation_a_number_lowers_the_limit_of_the_model() -> None:
    assert resolve_budget("8k", model="gpt-5").limit == 8_000
    assert resolve_budget(8_000_000, model="gpt-5").limit == 272_000
    assert resolve_budget(8_000, model="a model nobody knows").limit == 8_000
    with pytest.raises(InvalidArgumentError, match="at least 1 token"):
        resolve_budget(0, model="gpt-5")


def test_in_a_render_a_number_is_exactly_the_limit() -> None:
    tools = [ToolDefinition(name="read")]
    for tokens in (0, 1, 500, 8_000_000):
        budget = resolve_render_budget(tokens, model="gpt-5", tokenizer=TOKENIZER, tools=tools)
        assert budget.tokens == tokens


def test_the_budget_of_a_render_by_an_unknown_model_needs_a_window() -> None:
    assert ContextBudget.for_model("nobody-knows", window=10_000).window == 10_000
    with pytest.raises(UnknownModelError, match="nobody-knows"):
        budget("nobody-knows")
    register_model("half-known", max_input=5_000)
    with pytest.raises(UnknownModelError, match="No window is known for 'half-known'"):
        budget("half-known")


def test_the_budget_of_a_render_may_be_that_of_a_conversation_if_it_has_a_limit() -> None:
    given = ContextBudget(max_tokens=1_000, tools=100, safety=0.9)
    assert resolve_render_budget(given, model=None, tokenizer=TOKENIZER, tools=[]) == (
        RenderBudget(910, given.explain())
    )
    with pytest.raises(InvalidArgumentError, match=r"no limit: write ContextBudget\(max_tokens="):
        resolve_render_budget(ContextBudget(), model=None, tokenizer=TOKENIZER, tools=[])


def test_without_a_model_tools_are_counted_by_the_tokenizer_that_is_given_or_the_default_one() -> (
    None
):
    tools = [ToolDefinition(name="read", description="Read a file.")]
    words = WordTokenizer()
    for tokenizer, counting in ((None, TOKENIZER), (words, words)):
        resolved = resolve_budget("8k", tokenizer=tokenizer, tools=tools)
        assert resolved.tools == counting.count_overhead(tools).tokens
    assert TOKENIZER.count_overhead(tools) != words.count_overhead(tools)


def test_a_model_may_be_an_object_with_a_name() -> None:
    assert ContextBudget.for_model(ScriptedModel(["a"], name="gpt-5")) == ContextBudget.for_model(
        "gpt-5"
    )
    with pytest.raises(
        TypeError,
        match=r"model must be a model's name such as 'gpt-5', or a model object such as OpenAIModel.*, not 5",
    ):
        ContextBudget.for_model(cast("str", 5))


# A refused request of 1,000 tokens, the budget it was made with, the window that the error names,
# and the window and limit from then on.
@pytest.mark.parametrize(
    ("figures", "window", "left", "limit"),
    [
        ({}, None, None, 800),  # the provider counts differently, so four fifths are tried
        ({"max_tokens": 1_200}, None, None, 800),
        ({"max_tokens": 1_000}, None, None, 800),
        ({"max_tokens": 999}, None, None, 999),
        ({}, 900, 900, 675),
        ({}, 0, None, 800),
        ({"window": 4_000}, 900, 900, 675),
        ({"window": 900}, 4_000, 900, 675),  # a larger window than is known teaches nothing
        ({"window": 1_400, "reserved_output_tokens": 0}, None, 1_400, 800),
        # not below half of a window that is known
        ({"window": 1_800, "reserved_output_tokens": 0}, None, 1_800, 900),
        ({"window": 4_000, "reserved_output_tokens": 0}, None, 4_000, 4_000),
        ({"window": 4_000, "reserved_output_tokens": 0}, 3_000, 3_000, 3_000),
        ({"window": 4_000, "reserved_output_tokens": 100}, 900, 900, 800),
        # what no longer fits into the window is forgotten
        ({"window": 4_000, "reserved_output_tokens": 900}, 900, 900, 675),
        ({"window": 4_000, "reserve_tokens": 900}, 900, 900, 675),
    ],
)
def test_a_refusal_teaches_the_window_that_it_names_or_a_buffer(
    figures: dict[str, Any], window: int | None, left: int | None, limit: int
) -> None:
    after = learned(**figures).after_refusal(1_000, window=window).budget
    assert (after.window, after.limit) == (left, limit)


@given(
    size=st.none() | st.integers(1, 10_000),
    chosen=st.none() | st.integers(1, 10_000),
    refused=st.integers(2, 10_000),
    window=st.none() | st.integers(-1, 10_000),
    tools=st.integers(0, 2_000),
    least=st.integers(0, 5_000),
)
def test_a_buffer_never_goes_below_what_every_request_has_nor_below_half_of_a_known_window(
    *,
    size: int | None,
    chosen: int | None,
    refused: int,
    window: int | None,
    tools: int,
    least: int,
) -> None:
    try:
        before = learned(window=size, max_tokens=chosen, tools=tools)
    except ToolsFillBudgetError:
        return
    try:
        after = before.after_refusal(refused, window=window, least=least).budget
    except ContextWindowFullError as error:
        assert f"refused a request of {refused:,} tokens, and no smaller one is possible" in str(  # noqa: PT017  # or none is raised
            error
        )
        return
    named = attrs.evolve(after, max_tokens=chosen)
    if after == named:
        return
    assert after.limit is not None
    assert after.limit < refused
    assert after.limit <= (named.limit or refused)
    assert after.limit >= (after.window or 0) // 2
    assert after.render_budget is not None
    assert after.render_budget >= min(least, refused) or after.limit >= refused


def test_a_buffer_grows_with_each_refusal_and_lapses_with_requests_that_succeed() -> None:
    known = learned(window=10_000, reserved_output_tokens=0)
    once = known.after_refusal(9_000)
    twice = once.after_refusal(7_100)
    assert (once.budget.limit, twice.budget.limit) == (7_200, 5_680)
    limits = [twice.budget.limit]
    for _ in range(4 * LAPSE_SUCCESSES):
        twice = twice.after_success()
        if twice.budget.limit != limits[-1]:
            limits.append(twice.budget.limit)
    assert limits == [5_680, 7_100, 8_875, 10_000]
    assert twice == known


def test_a_buffer_becomes_smaller_after_ten_requests_that_succeed_in_a_row() -> None:
    each = learned(max_tokens=10_000).after_refusal(10_000)
    for _ in range(9):
        each = each.after_success()
    each = each.after_refusal(8_000)
    limits: list[int | None] = []
    for _ in range(20):
        each = each.after_success()
        limits.append(each.budget.limit)
    assert limits == [*[6_400] * 9, *[8_000] * 10, 10_000]
    assert each == learned(max_tokens=10_000)


def test_a_buffer_leaves_room_for_what_every_request_has_beside_the_tools() -> None:
    known = learned(tools=100, safety=0.5)
    large = known.after_refusal(1_000, least=500).budget
    assert (large.limit, large.render_budget) == (900, 500)
    assert known.after_refusal(102).budget.limit == 101
    assert known.after_refusal(101) == known


def test_a_buffer_of_an_unknown_window_lapses_too() -> None:
    each = learned().after_refusal(1_000).after_refusal(790)
    limits = [each.budget.limit]
    for _ in range(2 * LAPSE_SUCCESSES):
        each = each.after_success()
    limits.append(each.budget.limit)
    for _ in range(LAPSE_SUCCESSES):
        each = each.after_success()
    assert [*limits, each.budget.limit] == [632, 987, None]


def test_a_window_that_the_provider_named_stays() -> None:
    each = learned(window=10_000, reserved_output_tokens=0).after_refusal(9_000, window=1_000)
    for _ in range(10 * LAPSE_SUCCESSES):
        each = each.after_success()
    assert (each.budget.window, each.budget.limit) == (1_000, 1_000)


def test_a_window_of_one_token_that_the_provider_names_is_believed() -> None:
    known = learned(window=100, reserved_output_tokens=0)
    assert known.after_refusal(50, window=1).budget.limit == 1


def test_an_overflow_keeps_the_figures_that_still_fit() -> None:
    before = ContextBudget(
        window=4_000, reserved_output_tokens=100, reserve_tokens=200, tools=50, threshold=0.5
    )
    after = LearnedBudget(given=before).after_refusal(1_000, window=900).budget
    assert (after.reserved_output_tokens, after.reserve_tokens, after.tools, after.threshold) == (
        100,
        200,
        50,
        0.5,
    )
