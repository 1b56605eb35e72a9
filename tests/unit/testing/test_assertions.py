"""Assertions about rendered prompts: what they let pass, what they fail, and what their messages show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import (
    AssistantMessage,
    CacheBreakpoint,
    Child,
    Chunk,
    First,
    Group,
    IfEmpty,
    Image,
    KeepWith,
    Message,
    PromptElement,
    Rendered,
    Reserve,
    Sizing,
    SystemMessage,
    Tag,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
    component,
    render,
)
from promptkit.elements.builtin import Rounds
from promptkit.testing import (
    WordTokenizer,
    assert_dropped,
    assert_fits,
    assert_kept,
    assert_stable_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = WordTokenizer()


@component
class History(PromptElement):
    """Turns, the newest kept longest."""

    turns: int

    def render(self, sizing: Sizing) -> Child:
        return tuple(
            UserMessage(priority=index)[f"turn {index} of many"] for index in range(self.turns)
        )


PROMPT = (
    SystemMessage(required=True, label="rules")["You are terse."],
    History(turns=4, priority=5),
    UserMessage(priority=9)["Fix the parser.", TextChunk(priority=1)["Be quick about it."]],
)
"""3, 4 times 4, 3 and 4 words."""


# Any stands for what a render takes
def at(budget: int, prompt: Child = PROMPT, **arguments: Any) -> Rendered:
    return render(prompt, budget=budget, tokenizer=WORDS, **arguments)


def failure(run: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        run()
    return str(caught.value)


class TestFits:
    def test_gives_the_prompt_as_rendered(self) -> None:
        assert assert_fits(PROMPT, budget=14, tokenizer=WORDS) == at(14)

    def test_an_element_fits_if_what_is_required_does(self) -> None:
        assert assert_fits(PROMPT, budget=6, tokenizer=WORDS).tokens == 6

    def test_what_has_to_stay_and_does_not_fit_is_shown_largest_first(self) -> None:
        prompt = (
            SystemMessage(required=True)["a b c"],
            UserMessage(required=True)["d " * 9],
            UserMessage(priority=1)["old"],
        )
        lines = failure(lambda: assert_fits(prompt, budget=10, tokenizer=WORDS)).splitlines()
        assert lines == [
            "12 tokens have to stay, and do not fit 10 (over by 2). The largest:",
            "          9  UserMessage[1]",
            "          3  SystemMessage[0]",
            "Nothing else may be removed; removed already: 1.",
        ]

    def test_the_last_user_message_is_named(self) -> None:
        lines = failure(
            lambda: assert_fits(
                (UserMessage(priority=1)["a b c"], UserMessage(priority=2)["d e"]),
                budget=1,
                tokenizer=WORDS,
            )
        ).splitlines()
        assert (
            lines[-1]
            == "The next to be removed would be the last message, UserMessage[1]; removed already: 1."
        )

    def test_a_limit_that_does_not_hold_is_named(self) -> None:
        prompt = TokenLimit(max_tokens=1)[UserMessage(required=True)["two words"]]
        assert "do not fit 1 at TokenLimit (over by 1)" in failure(
            lambda: assert_fits(prompt, budget=99, tokenizer=WORDS)
        )

    def test_the_window_of_a_model_is_a_budget_too(self) -> None:
        assert assert_fits(PROMPT, model="gpt-4o").budget > 90_000
        long = UserMessage(required=True)["word " * 200_000]
        assert "have to stay" in failure(lambda: assert_fits(long, model="gpt-4o"))

    def test_tools_take_room(self) -> None:
        tools = [ToolDefinition(name="read", description="Read a file. " * 20)]
        prompt = UserMessage(required=True)["Hello"]
        assert_fits(prompt, budget=20)
        assert "tools" in failure(lambda: assert_fits(prompt, budget=20, tools=tools))

    def test_a_rendered_is_compared_and_not_rendered_again(self) -> None:
        rendered = at(26)
        assert assert_fits(rendered, budget=26) is rendered
        assert assert_fits(rendered) is rendered
        lines = failure(lambda: assert_fits(rendered, budget=25)).splitlines()
        assert lines[:3] == [
            "26 tokens do not fit 25 (over by 1).",
            "The largest:",
            "          7  5  user: Fix the parser. Be quick about it.",
        ]
        assert "The receipt:" in lines

    def test_what_is_reserved_has_to_fit_as_well(self) -> None:
        rendered = at(20, (UserMessage()["two words"], Reserve(tokens=10)))
        assert_fits(rendered, budget=12)
        assert "12 tokens (10 of them reserved) do not fit 11" in failure(
            lambda: assert_fits(rendered, budget=11)
        )

    def test_as_a_whole_it_fits_if_nothing_was_removed(self) -> None:
        assert_fits(PROMPT, budget=26, tokenizer=WORDS, nothing_removed=True)
        text = failure(
            lambda: assert_fits(PROMPT, budget=25, tokenizer=WORDS, nothing_removed=True)
        )
        assert text.startswith(
            "The prompt does not fit 25 tokens as a whole: 1 removed.\nThe receipt:\n"
        )
        assert "History(Turns, the newest kept longest)[1] > UserMessage[0]" in text
        assert "1 removed" in failure(lambda: assert_fits(at(25), nothing_removed=True))

    def test_without_a_budget_it_says_what_it_needs(self) -> None:
        with pytest.raises(TypeError, match="needs a budget, or a model"):
            assert_fits(PROMPT)


class TestKept:
    def test_finds_text_of_messages_as_sent(self) -> None:
        assert_kept(at(26), "You are terse.", "turn 0", "parser.\nBe quick")
        assert_kept(at(10), "terse", "Fix the parser.")

    def test_text_that_was_dropped_is_shown_with_its_removal_and_the_receipt(self) -> None:
        lines = failure(lambda: assert_kept(at(18), "terse", "turn 1 of")).splitlines()
        assert lines[:3] == [
            "'turn 1 of' was dropped.",
            "  History[1] > UserMessage[1]: removal 2, budget",
            "The receipt:",
        ]
        assert lines[3:] == [f"  {line}" for line in at(18).explain().splitlines()]

    def test_text_over_several_pieces_is_found_to_be_dropped_too(self) -> None:
        assert failure(lambda: assert_kept(at(6), "parser.\nBe quick")).startswith(
            "'parser.\\nBe quick' was dropped.\n"
        )

    def test_text_that_is_nowhere_shows_the_lines_that_come_near(self) -> None:
        lines = failure(lambda: assert_kept(at(26), "Fix the lexer.")).splitlines()
        assert (
            lines[0]
            == "'Fix the lexer.' is nowhere in the prompt, and was not before anything was removed."
        )
        assert lines[1:3] == ["Near:", "  5  user: Fix the parser."]

    def test_what_took_something_along_is_named(self) -> None:
        prompt = (
            KeepWith(group=1, priority=1)[UserMessage()["question"]],
            KeepWith(group=1, priority=7)[AssistantMessage()["answer"]],
            UserMessage(priority=5)["more"],
        )
        text = failure(lambda: assert_kept(at(2, prompt), "answer"))
        assert (
            "KeepWith[1] > AssistantMessage: removal 2, kept-with: KeepWith[0], of KeepWith[1]"
            in text
        )

    @pytest.mark.parametrize(
        "path",
        [
            "SystemMessage",
            "SystemMessage(rules)",
            "rules",
            "rules[0]",
            "SystemMessage(rules)[0]",
            "History",
            "History[1]",
            "History > UserMessage[3]",
            "History[1] > UserMessage[3]",
            "History > *[3]",
            "Sys*",
        ],
    )
    def test_finds_elements_by_the_end_of_their_path(self, path: str) -> None:
        assert_kept(at(14), path=path)

    @pytest.mark.parametrize(
        "path",
        [
            "UserMessage > History",
            "UserMessage[9]",
            "History > History",
            "userMessage",
            "story",
            "[1]",
            " > ",
        ],
    )
    def test_a_path_that_nothing_has_is_a_failure(self, path: str) -> None:
        assert failure(lambda: assert_kept(at(26), path=path)).startswith(
            f"No element is at {path!r}."
        )

    def test_a_misspelt_path_shows_those_that_come_near(self) -> None:
        lines = failure(lambda: assert_kept(at(26), path="Hstory")).splitlines()
        assert lines[:3] == ["No element is at 'Hstory'.", "Near:", "  History[1]"]

    def test_every_element_at_the_path_has_to_be_kept(self) -> None:
        lines = failure(lambda: assert_kept(at(18), path="History > UserMessage")).splitlines()
        assert lines[:3] == [
            "Of 'History > UserMessage', 2 of 4 were dropped:",
            "  History[1] > UserMessage[0]: removal 1, budget",
            "  History[1] > UserMessage[1]: removal 2, budget",
        ]

    def test_an_element_is_kept_as_long_as_something_of_it_is(self) -> None:
        assert_kept(at(14), path="History")
        assert "History[1]: removal" in failure(lambda: assert_kept(at(6), path="History"))

    def test_an_element_of_which_everything_went_was_dropped(self) -> None:
        prompt = UserMessage()[
            "stays",
            Group(label="notes", priority=3)[
                TextChunk(priority=1)["a"], TextChunk(priority=2)["b"]
            ],
        ]
        assert_kept(at(2, prompt), path="notes")
        assert_dropped(at(1, prompt), path="notes")

    def test_an_element_that_rendered_nothing_was_not_kept(self) -> None:
        prompt = (
            UserMessage()["hello"],
            Group(label="empty")[None],
            Group(label="blank")[UserMessage()[" "]],
        )
        text = failure(lambda: assert_kept(at(9, prompt), path="empty"))
        assert text.startswith(
            "Of 'empty', 1 of 1 rendered nothing to begin with:\n  Group(empty)[1]\n"
        )
        assert "rendered nothing" in failure(lambda: assert_kept(at(9, prompt), path="blank"))

    def test_elements_without_text_are_found(self) -> None:
        prompt = (
            UserMessage(priority=1)["look", Image(url="https://example.org/a.png")],
            AssistantMessage(tool_calls=[ToolCall(id="c", name="f")]),
            ToolMessage(tool_call_id="c"),
            Reserve(tokens=1),
            SystemMessage()[CacheBreakpoint(), Tag(tag="x")],
        )
        for path in ("Image", "AssistantMessage", "ToolMessage", "Reserve", "Tag"):
            assert_kept(at(99, prompt), path=path)

    def test_what_an_element_writes_around_its_children_is_no_element(self) -> None:
        prompt = UserMessage()[Tag(tag="x")["a"]]
        assert_kept(at(9, prompt), "<x>", path="Tag > content > text[0]")
        assert "No element" in failure(lambda: assert_kept(at(9, prompt), path="Tag > text[0]"))

    def test_fallbacks_are_found_only_where_they_took_their_place(self) -> None:
        prompt = (
            UserMessage(priority=1, fallback=UserMessage()["[cut]"])["one two three"],
            UserMessage()["four"],
        )
        assert_kept(at(2, prompt), "[cut]", path="fallback > *")
        assert_dropped(at(2, prompt), "two three", path="UserMessage[0]")
        assert failure(lambda: assert_kept(at(4, prompt), path="fallback")).startswith(
            "No element is at 'fallback'."
        )

    def test_alternatives_that_were_not_taken_are_no_part_of_the_prompt(self) -> None:
        prompt = UserMessage()[
            First()["one two three", "one"], IfEmpty(alt="nothing")[Group()[None]]
        ]
        assert_kept(at(2, prompt), "nothing")
        assert "nowhere in the prompt" in failure(lambda: assert_kept(at(2, prompt), "two three"))

    def test_what_a_limit_removed_was_dropped(self) -> None:
        prompt = TokenLimit(max_tokens=1)[
            UserMessage(priority=1)["old"], UserMessage(priority=2)["new"]
        ]
        assert_dropped(at(9, prompt), "old", path="TokenLimit > UserMessage[0]")
        assert "UserMessage[0]: removal 1, limit" in failure(
            lambda: assert_kept(at(9, prompt), "old")
        )


class TestDropped:
    def test_finds_text_that_was_there_and_is_not_sent(self) -> None:
        assert_dropped(at(18), "turn 0", "turn 1 of many")

    def test_text_that_is_still_sent_is_shown_with_its_element(self) -> None:
        lines = failure(lambda: assert_dropped(at(18), "turn 0", "turn 3")).splitlines()
        assert lines[:4] == [
            "'turn 3' was kept.",
            "In message",
            "  2  user: turn 3 of many",
            "  History[1] > UserMessage[3]",
        ]
        assert "The receipt:" in lines

    def test_text_that_stands_twice_is_dropped_with_both(self) -> None:
        prompt = (
            UserMessage(priority=1)["same text"],
            UserMessage(priority=2)["same text"],
            UserMessage()["end"],
        )
        assert "was kept" in failure(lambda: assert_dropped(at(3, prompt), "same text"))
        assert_dropped(at(1, prompt), "same text")

    def test_text_that_was_never_there_was_not_dropped(self) -> None:
        lines = failure(lambda: assert_dropped(at(18), "turn 7 of many")).splitlines()
        assert lines[0] == "'turn 7 of many' was never in the prompt, so nothing dropped it."
        assert lines[2] == "  1  user: turn 0 of many"

    def test_every_element_at_the_path_has_to_be_dropped(self) -> None:
        assert_dropped(at(18), path="UserMessage[1]")
        lines = failure(lambda: assert_dropped(at(18), path="History > UserMessage")).splitlines()
        assert lines[:2] == [
            "Of 'History > UserMessage', 2 of 4 were kept:",
            "  History[1] > UserMessage[2]",
        ]

    def test_what_is_inside_something_dropped_is_dropped(self) -> None:
        prompt = (
            Chunk(priority=1)[UserMessage(label="a")["one"], UserMessage(label="b")["two"]],
            UserMessage()["end"],
        )
        assert_dropped(at(1, prompt), path="a")
        assert_dropped(at(1, prompt), path="Chunk > *")

    def test_an_element_that_rendered_nothing_was_not_dropped(self) -> None:
        prompt = (UserMessage()["hello"], Group(label="empty")[None])
        assert "so nothing dropped it" in failure(
            lambda: assert_dropped(at(9, prompt), path="empty")
        )

    def test_a_misspelt_path_is_a_failure(self) -> None:
        assert "No element is at 'Hystory'." in failure(
            lambda: assert_dropped(at(6), path="Hystory")
        )

    def test_every_removal_of_the_receipt_was_dropped(self) -> None:
        rendered = at(6)
        for removal in rendered.removals:
            assert_dropped(rendered, path=removal.path)


@pytest.mark.parametrize("check", [assert_kept, assert_dropped])
@pytest.mark.parametrize(
    ("texts", "path"), [((), None), (("",), None), (("terse", ""), None), ((), "")]
)
def test_nothing_to_look_for_is_a_mistake(
    check: Callable[..., None], texts: tuple[str, ...], path: str | None
) -> None:
    with pytest.raises(TypeError, match=check.__name__):
        check(at(26), *texts, path=path)


@pytest.mark.parametrize("check", [assert_kept, assert_dropped])
def test_a_prompt_that_is_not_rendered_is_a_mistake(check: Callable[..., None]) -> None:
    with pytest.raises(TypeError, match=r"takes what render\(prompt, budget=…\) returns"):
        check(UserMessage()["terse"], "terse")


def test_what_is_long_is_folded() -> None:
    rendered = at(4, tuple(UserMessage(priority=index)[f"turn {index}"] for index in range(500)))
    lines = failure(lambda: assert_kept(rendered, "turn 3")).splitlines()
    assert len(lines) < 80
    assert any(re.fullmatch(r"  … \d+ more …", line) for line in lines)


class TestStablePrefix:
    FIRST = (SystemMessage()["You are terse."], UserMessage()["Hello there."])

    def test_passes_if_the_later_request_begins_like_the_earlier_one(self) -> None:
        later = at(99, (*self.FIRST, UserMessage()["And now?"]))
        assert_stable_prefix(at(99, self.FIRST), later, min_tokens=5)
        assert_stable_prefix(at(99, self.FIRST), later, min_tokens=0)

    def test_counts_the_tokens_of_whole_messages_with_their_framing(self) -> None:
        framed = WordTokenizer(per_message=10)
        earlier, later = (
            render(prompt, budget=99, tokenizer=framed)
            for prompt in (self.FIRST, (*self.FIRST, UserMessage()["x"]))
        )
        assert_stable_prefix(earlier, later, min_tokens=25)
        assert "The first 25 tokens are stable, but at least 26" in failure(
            lambda: assert_stable_prefix(earlier, later, min_tokens=26)
        )

    def test_the_first_message_that_differs_is_shown_from_where_it_does(self) -> None:
        earlier = at(999, (*self.FIRST, UserMessage()["word " * 50 + "It is 09:14."]))
        later = at(999, (*self.FIRST, UserMessage()["word " * 50 + "It is 09:15."]))
        lines = failure(lambda: assert_stable_prefix(earlier, later, min_tokens=50)).splitlines()
        assert lines[:4] == [
            "The first 5 tokens are stable, but at least 50 must be.",
            "Message 2 is the first to differ:",
            "  earlier  …word word word word It is 09:14.",
            "  later    …word word word word It is 09:15.",
        ]
        assert lines[4] == "The receipt:"

    def test_a_request_that_became_shorter_says_so(self) -> None:
        text = failure(
            lambda: assert_stable_prefix(at(99, self.FIRST), at(99, self.FIRST[:1]), min_tokens=5)
        )
        assert "  earlier  user: Hello there." in text
        assert "  later    (no more messages)" in text

    def test_what_differs_in_no_text_is_shown_as_well(self) -> None:
        named = (self.FIRST[0], UserMessage(name="Ada")["Hello there."])
        text = failure(
            lambda: assert_stable_prefix(at(99, self.FIRST), at(99, named), min_tokens=5)
        )
        assert "name='Ada'" in text

    def test_with_other_tools_nothing_is_stable(self) -> None:
        earlier = at(99, self.FIRST, tools=[ToolDefinition(name="read")])
        later = at(
            99, self.FIRST, tools=[ToolDefinition(name="read"), ToolDefinition(name="write")]
        )
        lines = failure(lambda: assert_stable_prefix(earlier, later, min_tokens=1)).splitlines()
        assert lines[:4] == [
            "The first 0 tokens are stable, but at least 1 must be.",
            "The tools differ, in their names or elsewhere:",
            "  earlier  read",
            "  later    read, write",
        ]
        assert_stable_prefix(earlier, earlier, min_tokens=5)


def test_a_failure_points_at_the_line_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from promptkit import UserMessage, render
        from promptkit.testing import assert_kept

        def test_it():
            assert_kept(render(UserMessage()["a b c"], budget=99), "d")
    """)
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    done.stdout.fnmatch_lines(
        [
            ">*assert_kept(render*",
            "E*AssertionError: 'd' is nowhere in the prompt*",
            "E*The receipt:",
        ]
    )
    done.stdout.no_fnmatch_line("*asserts.py*")


pytest_plugins = ["pytester"]


def test_a_path_may_be_written_as_a_receipt_shows_it() -> None:
    prompt = (
        KeepWith(group=1, priority=1)[UserMessage()["one"]],
        UserMessage(priority=2, label="today")["two"],
        UserMessage()["three"],
    )
    rendered = render(prompt, budget=1, tokenizer=WordTokenizer())
    assert [removal.label for removal in rendered.removals] == ["UserMessage[0]", "today"]
    for removal in rendered.removals:
        assert_dropped(rendered, path=removal.label)
        assert_dropped(rendered, path=removal.path)


@pytest.mark.parametrize("text", ["Where", "I look", "Here", "Bye"])
def test_where_a_text_of_a_message_was_dropped_is_said_also_of_a_recorded_round(text: str) -> None:
    call = ToolCall(id="c", name="f")
    rounds: list[Message | list[Message]] = [
        Message(role="user", content=("Where?",)),
        [
            Message(role="assistant", content=("I look.",), tool_calls=(call,)),
            Message(role="tool", content=("Here.",), tool_call_id="c"),
        ],
    ]
    recorded = Rounds(rounds=rounds, order=[0, 1], priorities=[0, 1])
    bye = AssistantMessage(priority=0)["Bye."]
    prompt = (recorded, bye, UserMessage()[TextChunk(required=True)["Thanks."]])
    made = render(prompt, budget=1, tokenizer=WORDS)
    with pytest.raises(AssertionError, match="was dropped") as caught:
        assert_kept(made, text)
    path = "AssistantMessage[1]" if text == "Bye" else "Rounds[0] > turn 1"
    assert path in str(caught.value).split("tokens", 1)[0]
