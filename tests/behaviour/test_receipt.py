"""The receipt: what was removed, why, what another budget would have kept, and which element wrote what."""

from __future__ import annotations

import json
import re
from string import ascii_lowercase

import attrs
import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    CacheBreakpoint,
    Child,
    Chunk,
    First,
    Group,
    Image,
    KeepWith,
    PrioritizedList,
    PromptElement,
    Rendered,
    Reserve,
    Sizing,
    SystemMessage,
    Tag,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    Truncate,
    UserMessage,
    component,
    render,
    tag,
)
from promptkit.cli.output.messages import rendered_to_json
from promptkit.errors import BadPropError
from promptkit.testing import WordTokenizer
from promptkit.tokens import OpenAITokenizer
from promptkit.tracing import trace_to_html
from tests.calls import count_calls

LONG_LABEL = (5 * ascii_lowercase)[:120]


def rendered(prompt: Child, budget: int) -> Rendered:
    return render(prompt, budget=budget, tokenizer=WordTokenizer())


PROMPT = (
    SystemMessage(priority=9)["you help"],
    UserMessage(priority=1)["old question here"],
    AssistantMessage(priority=2)["old answer"],
    UserMessage(priority=8)["new question"],
)


class TestRemovals:
    def test_are_in_the_order_of_removal_with_priority_and_tokens(self) -> None:
        made = rendered(PROMPT, 4)
        assert [
            (r.order, r.path, r.priority, r.tokens, r.reason, r.partner) for r in made.removals
        ] == [
            (1, "UserMessage[1]", 1, 3, "budget", None),
            (2, "AssistantMessage[2]", 2, 2, "budget", None),
        ]

    def test_nothing_removed_leaves_nothing_to_say(self) -> None:
        assert rendered(PROMPT, 9).removals == ()

    def test_of_a_limit_say_so(self) -> None:
        prompt = TokenLimit(max_tokens=2)[
            UserMessage(priority=1)["a a"], UserMessage(priority=2)["b b"]
        ]
        assert [(r.reason, r.tokens) for r in rendered(prompt, 99).removals] == [("limit", 2)]

    def test_of_partners_name_who_took_them_along(self) -> None:
        prompt = (
            KeepWith(group=1, priority=1)[UserMessage()["question"]],
            KeepWith(group=1, priority=7)[AssistantMessage()["answer"]],
            UserMessage(priority=5)["more"],
        )
        made = rendered(prompt, 2)
        assert [(r.reason, r.partner) for r in made.removals] == [
            ("budget", None),
            ("kept-with", made.removals[0].path),
        ]

    def test_of_a_pair_name_who_took_them_along(self) -> None:
        prompt = (
            AssistantMessage(tool_calls=[ToolCall(id="1", name="f")])["said"],
            ToolMessage(tool_call_id="1", priority=1)["r r"],
        )
        made = rendered(prompt, 1)
        assert [r.reason for r in made.removals] == ["budget", "tool-pair"]
        assert made.removals[1].path.startswith("AssistantMessage[0]")
        assert made.removals[1].partner == "ToolMessage[1]"

    def test_of_a_call_and_its_result_are_told_although_only_fallbacks_were_left_in_them(
        self,
    ) -> None:
        prompt = (
            AssistantMessage(priority=3, tool_calls=[ToolCall(id="1", name="f")])[
                TextChunk(priority=1, fallback="[cut]")["said it"]
            ],
            ToolMessage(tool_call_id="1", priority=2)[
                TextChunk(priority=1, fallback="[cut]")["r r"]
            ],
            UserMessage()["more"],
        )
        made = rendered(prompt, 1)
        whole = [removal.path for removal in made.removals if " > " not in removal.path]
        assert sorted(whole) == ["AssistantMessage[0]", "ToolMessage[1]"]


class TestExplain:
    def test_names_the_removed_and_the_sums(self) -> None:
        text = rendered(PROMPT, 4).explain()
        for expected in ("UserMessage[1]", "AssistantMessage[2]", "4"):
            assert expected in text

    def test_is_a_table_of_what_left_below_the_sums(self) -> None:
        prompt = (UserMessage(priority=1)["old one"], UserMessage()["q"], Reserve(tokens=2))
        assert rendered(prompt, 3).explain().splitlines() == [
            "1 of 3 tokens (33%) in 1 message",
            "2 tokens reserved",
            "3 tokens, as given",
            "removed 1, lowest first:",
            "      tokens  priority  element         reason",
            "  1.       2         1  UserMessage[0]  budget",
        ]

    @pytest.mark.parametrize(
        ("label", "partner", "shown"),
        [
            (
                "old",
                "first",
                [
                    "      tokens  priority  element  reason",
                    "  1.       1    lowest  old      budget",
                    "  2.   1,200       1.5  first    kept-with: old",
                ],
            ),
            (
                LONG_LABEL,
                "first",
                [
                    "      tokens  priority  element                                reason",
                    "  1.       1    lowest  abcdefghijkl…stuvwxyzabcdefghijklmnop  budget",
                    "  2.   1,200       1.5  first                                  kept-with: a…stuvwxyzabcdefghijklmnop",
                ],
            ),
            (
                "old",
                LONG_LABEL,
                [
                    "      tokens  priority  element                                                       reason",
                    "  1.       1    lowest  old                                                           budget",
                    "  2.   1,200       1.5  abcdefghijklmnopqrs…cdefghijklmnopqrstuvwxyzabcdefghijklmnop  kept-with: old",
                ],
            ),
        ],
    )
    def test_shortens_long_names_in_the_middle_so_that_a_line_fits(
        self, label: str, partner: str, shown: list[str]
    ) -> None:
        prompt = (
            KeepWith(group=1, priority=1.5, label=partner)[UserMessage()["a " * 1_200]],
            KeepWith(group=1, priority=-(2**53), label=label)[UserMessage()["b"]],
            UserMessage()["q"],
        )
        lines = rendered(prompt, 1).explain().splitlines()
        assert lines[-3:] == shown
        assert max(map(len, lines)) <= 100

    @pytest.mark.parametrize(
        ("priority", "shown"),
        [(-(2**53), "lowest"), (1 - 2**53, "-9.0072e+15"), (2**53 - 2, "9.0072e+15")],
    )
    def test_names_only_the_lowest_and_the_highest_priority_and_writes_others_as_numbers(
        self, priority: float, shown: str
    ) -> None:
        prompt = UserMessage(priority=priority)["old"], UserMessage()["q"]
        assert rendered(prompt, 1).explain().splitlines()[-1].split()[2] == shown

    def test_says_where_the_tokens_are_estimated(self) -> None:
        tokenizers = OpenAITokenizer(exact=False), OpenAITokenizer(exact=True)
        prompt = SystemMessage()["rules"], UserMessage()["q"]
        estimated, exact = (
            render(prompt, budget=99, tokenizer=tokenizer) for tokenizer in tokenizers
        )
        assert (estimated.exact, exact.exact) == (False, True)
        assert "tokens (13%), estimated in 2 messages" in estimated.explain()
        assert "tokens (13%) in 2 messages" in exact.explain()
        image = UserMessage()[Image(url="https://example.org/a.png")]
        assert not render((*prompt, image), budget=9_999, tokenizer=tokenizers[1]).exact

    def test_says_so_when_everything_fits(self) -> None:
        assert "nothing was removed" in rendered(PROMPT, 9).explain()


class TestWhatif:
    def test_equals_a_render_at_that_budget(self) -> None:
        assert rendered(PROMPT, 9).at_budget(4) == rendered(PROMPT, 4)

    def test_shows_another_budget(self) -> None:
        made = rendered(PROMPT, 9)
        assert [message.text for message in made.at_budget(4).messages] == [
            "you help",
            "new question",
        ]
        assert made.at_budget(4).budget == 4
        assert len(made.messages) == 4

    def test_shows_a_larger_one_too(self) -> None:
        assert rendered(PROMPT, 4).at_budget(9).messages == rendered(PROMPT, 9).messages

    @pytest.mark.parametrize("trace", [False, True])
    def test_only_the_render_itself_says_where_its_budget_comes_from(self, trace: bool) -> None:
        made = render(PROMPT, budget=9, tokenizer=WordTokenizer(), trace=trace)
        assert made.context is not None
        assert made.context.tokens == 9
        assert made.at_budget(4).context is None


@component
class Manual(PromptElement):
    page: str

    def render(self, sizing: Sizing) -> Child:
        return "Retrieved:", PrioritizedList()["one", "two"]


GONE = TextChunk(priority=1)["x"]


@component
class Filling(PromptElement):
    def render(self, sizing: Sizing) -> Child:
        return "w " * sizing.token_budget


@component
class Sheet(PromptElement):
    page: str
    text: str

    def render(self, sizing: Sizing) -> Child:
        return UserMessage()[TextChunk(break_on="\n")[self.text]], UserMessage()["q"]


@component
class Greeting(PromptElement):
    person: str

    def render(self, sizing: Sizing) -> Child:
        return f"Hello {self.person}!"


class TestSourceMap:
    def test_counts_the_cache_breakpoints_between_texts(self) -> None:
        prompt = UserMessage()["one", CacheBreakpoint(), "two", CacheBreakpoint(), "three"]
        made = rendered(prompt, 9)
        assert [made.messages[0].content[span.part] for span in made.source_map] == [
            "one",
            "two",
            "three",
        ]

    def test_says_which_element_wrote_which_characters(self) -> None:
        made = rendered(
            UserMessage()["Well. ", Greeting(person="Ada"), Group()[TextChunk()["Bye."]]], 99
        )
        text = made.messages[0].text
        assert {
            (text[span.start : span.end].strip(), span.path.split(" > ")[-1].split("[")[0])
            for span in made.source_map
        } == {
            ("Well.", "UserMessage"),
            ("Hello Ada!", "Greeting"),
            ("Bye.", "TextChunk"),
        }

    def test_knows_only_what_survived(self) -> None:
        made = rendered(UserMessage()[Text(priority=1)["a "], Text(priority=2)["b"]], 1)
        assert [(span.message, span.part, span.start, span.end) for span in made.source_map] == [
            (0, 0, 0, 1)
        ]

    def test_paths_hold_labels(self) -> None:
        made = rendered(UserMessage()[Group(label="history")[Text()["a"]]], 9)
        assert made.source_map[0].path == "UserMessage > Group(history) > Text"


class TestLabels:
    def test_a_label_is_what_receipts_show_and_is_not_sent(self) -> None:
        labelled = render(
            (UserMessage(priority=1, label="old")["one"], UserMessage()["two"]),
            budget=8,
            trace=True,
        )
        assert [removal.path for removal in labelled.removals] == ["UserMessage(old)[0]"]
        assert labelled.explain().splitlines()[-1].split() == ["1.", "5", "1", "old", "budget"]
        assert labelled.trace is not None
        assert "UserMessage(old)[0]" in [item.label for item in labelled.trace.items]
        prompt = UserMessage()["Hello"]
        assert render(prompt.replace(label="greeting")).messages == render(prompt).messages

    def test_a_name_is_sent_and_counted_and_is_no_label(self) -> None:
        named, unnamed = (
            render((UserMessage(name=name)["Hello"], UserMessage()["you"]))
            for name in ("ada", None)
        )
        assert named.to_chat()[0] == {"role": "user", "content": "Hello", "name": "ada"}
        assert named.tokens > unnamed.tokens
        assert [span.path for span in named.source_map] == ["UserMessage[0]", "UserMessage[1]"]

    def test_only_messages_have_a_name(self) -> None:
        assert [
            field.name for field in Group.__attrs_attrs__ if field.name in {"name", "label"}
        ] == ["label"]
        with pytest.raises(BadPropError, match="Group has no prop name"):
            Group(name="notes")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # what is tested


@component
class _Step(PromptElement):
    """A private component, which receipts need not show."""


@component
class Named(PromptElement):
    """The docstring of it.

    It has a second paragraph.
    """

    name: str

    def render(self, sizing: Sizing) -> Child:
        return UserMessage()["a"]


@component
class Unnamed(PromptElement):
    def render(self, sizing: Sizing) -> Child:
        return UserMessage()["a"]


class TestLabelsInReceipts:
    def test_a_row_is_the_label_of_the_element_without_the_path_to_it(self) -> None:
        call = ToolCall(id="c", name="run_tests", arguments="{}")
        step = KeepWith(group="step", priority=1, label="turn 3 · run_tests")[
            AssistantMessage(tool_calls=(call,))["I test."], ToolMessage(tool_call_id="c")["ok"]
        ]
        prompt = (
            Group()[Chunk()[step]],
            KeepWith(group="step")[UserMessage()["so"]],
            UserMessage()["end"],
        )
        made = render(prompt, budget=1, tokenizer=WordTokenizer(), trace=True)
        assert [(removal.label, removal.partner_label) for removal in made.removals] == [
            ("UserMessage[1]", "turn 3 · run_tests"),
            ("turn 3 · run_tests", None),
        ]
        assert [removal.path for removal in made.removals] == ["KeepWith[1]", "Group[0]"]
        assert made.explain().splitlines()[-1].split() == [
            "2.",
            "3",
            "highest",
            "turn",
            "3",
            "·",
            "run_tests",
            "budget",
        ]
        assert made.trace is not None
        assert [removal.label for removal in made.trace.removals][:2] == [
            removal.label for removal in made.removals
        ]

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            ("abc", "abc"),
            ("a" * 30, "a" * 30),
            ("a" * 60, "a" * 29 + "…"),
            ("a" * 61, "The docstring of it"),
            ("two\nlines", "The docstring of it"),
            ("", "The docstring of it"),
        ],
    )
    def test_a_component_is_shown_with_its_first_prop_or_else_its_docstring(
        self, name: str, shown: str
    ) -> None:
        prompt = Named(name=name, priority=1), Unnamed(priority=2), UserMessage()["end"]
        assert [removal.label for removal in rendered(prompt, 1).removals] == [
            f"Named({shown})[0]",
            "Unnamed[1]",
        ]

    def test_an_only_child_is_called_as_its_group(self) -> None:
        group = KeepWith(group=1, required=True, label="turn 1 · request")[
            Chunk()[UserMessage()["one two"]]
        ]
        with pytest.raises(BudgetExceededError, match=r"Largest: turn 1 · request 2"):
            rendered((group, UserMessage()["three"]), 1)

    def test_what_is_inside_a_labelled_element_is_shown_from_the_label_on(self) -> None:
        notes = [Group(priority=at)[TextChunk()[f"note {at}"]] for at in range(2)]
        everything = rendered(
            UserMessage()[
                Group(label="notes", priority=1)[
                    Chunk()["Notes:"], Tag(tag="list", priority=1)[notes]
                ]
            ],
            99,
        )
        made = everything.at_budget(everything.tokens - 1)
        assert [removal.label for removal in made.removals] == [
            "notes > Tag(list)[1] > content > TextChunk[0]"
        ]

    @pytest.mark.parametrize(
        ("first", "label"),
        [
            (_Step()[UserMessage(priority=1)["a"]], "UserMessage[0]"),
            ((Chunk(priority=1)[KeepWith(group=1)[UserMessage()["a"]]],), "UserMessage[0]"),
            (UserMessage(priority=1)["a"], "UserMessage[0]"),
            (
                _Step()[UserMessage(priority=1)["a"], UserMessage(priority=2)["b"]],
                "Step[0] > UserMessage[0]",
            ),
            (
                AssistantMessage()[Group(priority=1)[Text()["a"], Text()["b"]]],
                "AssistantMessage[0] > Text[0]",
            ),
        ],
    )
    def test_steps_that_only_group_are_left_out_where_the_path_stays_unambiguous(
        self, first: Child, label: str
    ) -> None:
        everything = rendered(Group()[[first], UserMessage()["end"]], 9)
        made = everything.at_budget(everything.tokens - 1)
        assert [removal.label for removal in made.removals] == [label]

    def test_the_largest_elements_of_an_error_are_shown_by_their_labels(self) -> None:
        prompt = (
            UserMessage(required=True, label="rules")["one two three"],
            UserMessage(required=True)["four"],
        )
        with pytest.raises(
            BudgetExceededError, match=r"Largest: rules 3; UserMessage\[1\] 1\."
        ) as caught:
            rendered(prompt, 2)
        assert caught.value.largest == {"rules": 3, "UserMessage[1]": 1}

    def test_what_stays_of_a_fallback_is_shown_in_an_error_as_of_what_it_replaces(self) -> None:
        fallback = [UserMessage(required=True)["x y z"], UserMessage(required=True)["w"]]
        prompt = UserMessage(fallback=fallback)["a b c d"], UserMessage()["end"]
        with pytest.raises(BudgetExceededError) as caught:
            rendered(prompt, 2)
        assert caught.value.largest == {
            "fallback of UserMessage[0] > UserMessage[0]": 3,
            "fallback of UserMessage[0] > UserMessage[1]": 1,
            "UserMessage[2]": 1,
        }

    def test_elements_with_one_label_are_told_apart_by_their_paths_in_an_error(self) -> None:
        prompt = [UserMessage(required=True, label="rules")["one " * (3 - at)] for at in range(2)]
        with pytest.raises(BudgetExceededError) as caught:
            rendered(prompt, 2)
        assert caught.value.largest == {"rules": 3, "UserMessage(rules)[1]": 2}
        with pytest.raises(BudgetExceededError) as caught:
            rendered([_Step()[message] for message in prompt], 2)
        assert caught.value.largest == {"rules": 3, "UserMessage(rules)": 2}

    @pytest.mark.slow
    def test_deep_trees_are_listed_in_linear_time(self) -> None:
        def work(depth: int) -> int:
            deep: Child = "x "
            for level in range(depth):
                deep = Group(priority=level)["y ", deep]
            made = render(UserMessage()[deep], budget=depth // 10, tokenizer=WordTokenizer())
            return count_calls(lambda: made.removals)

        work(10)
        assert work(1_200) <= 4.5 * work(300)


WITH_MARKER = (
    UserMessage(priority=1, fallback=UserMessage()["[gone]"])["old question here"],
    UserMessage()["another old one"],
    UserMessage(required=True)["new question"],
)


class TestTheUsersWords:
    def test_a_marker_that_replaces_something_is_no_row_of_its_own(self) -> None:
        made = render(WITH_MARKER, budget=2, tokenizer=WordTokenizer(), trace=True)
        # the marker was removed, too
        assert [message.text for message in made.messages] == ["new question"]
        assert [(removal.order, removal.path) for removal in made.removals] == [
            (1, "UserMessage[0]"),
            (2, "UserMessage[2]"),
        ]
        assert made.trace is not None
        assert [removal.path for removal in made.trace.removals] == [
            "UserMessage[0]",
            "UserMessage[2]",
        ]
        assert "fallback" not in made.explain()

    def test_the_highest_priority_is_a_word_and_never_a_number(self) -> None:
        made = render(WITH_MARKER, budget=2, tokenizer=WordTokenizer(), trace=True)
        assert [removal.priority for removal in made.removals] == [1, None]
        assert made.explain().splitlines()[-1].split() == [
            "2.",
            "3",
            "highest",
            "UserMessage[2]",
            "budget",
        ]
        report = json.dumps(rendered_to_json(made))
        assert '"priority": null' in report
        assert made.trace is not None
        shown = (
            repr(made.removals),
            made.explain(),
            report,
            str(attrs.asdict(made.trace)),
            trace_to_html(made.trace),
        )
        assert [text for text in shown if re.search(r"9[,.]?007[,.]?199", text)] == []


class TestNotes:
    def test_say_where_only_literal_text_is_left(self) -> None:
        prompt = (
            UserMessage(priority=1, label="manual")["Retrieved:", PrioritizedList()["one", "two"]],
            UserMessage()["q"],
        )
        whole = render(prompt, budget=99, tokenizer=WordTokenizer())
        assert [whole.at_budget(budget).notes for budget in (4, 3, 2, 1)] == [
            (),
            (),
            ("of manual only its literal text is left.",),
            (),
        ]

    @pytest.mark.parametrize(
        ("message", "label"),
        [
            (UserMessage(priority=1)[Manual(page="parser")], "UserMessage[0] > Manual(parser)"),
            (UserMessage(priority=1)[TextChunk(priority=1)["one two"], "."], "UserMessage[0]"),
        ],
    )
    def test_name_an_element_as_the_receipt_does(self, message: Child, label: str) -> None:
        made = rendered((message, UserMessage()["q"]), 2)
        assert made.notes == (f"of {label} only its literal text is left.",)

    @pytest.mark.parametrize(
        "prompt",
        [
            UserMessage()["q", Group()],
            UserMessage()["q", TextChunk(priority=1)["a b c"], TextChunk(priority=2)["d"]],
            UserMessage()["q", TextChunk(priority=1)["a b c"], Group(priority=2)[Text()["d"]]],
            [
                AssistantMessage(tool_calls=[ToolCall(id="1", name="f")])[
                    "q", TextChunk(priority=1)["a b c"]
                ],
                ToolMessage(tool_call_id="1")["d"],
            ],
        ],
    )
    def test_are_none_where_something_else_is_left_or_nothing_was_removed(
        self, prompt: Child
    ) -> None:
        made = render(prompt, budget=2, tokenizer=WordTokenizer(), defaults="prompt-tsx")
        assert (made.tokens in {1, 2}, made.notes) == (True, ())

    @pytest.mark.parametrize(
        ("between", "notes"),
        [
            ((Group(),), 0),
            ((TextChunk(priority=2)[" "],), 0),
            ((Group(), GONE), 1),
            ((GONE, Group()), 1),
        ],
    )
    def test_are_about_what_has_left_and_not_about_what_never_had_content(
        self, between: tuple[Child, ...], notes: int
    ) -> None:
        end = TextChunk(priority=9)["end"]
        prompt = UserMessage()["a ", between, "b ", end, TextChunk(priority=0)["z"], GONE]
        whole = render(prompt, budget=50, tokenizer=WordTokenizer())
        assert whole.notes == ()
        without = whole.at_budget(3)
        assert without.messages[0].text.split() == ["a", "b", "end"]
        expected = "in UserMessage nothing is left between literal texts."
        assert without.notes == (expected,) * notes

    def test_tell_of_an_element_whose_share_is_too_small_for_anything_in_it(self) -> None:
        first = First()["w " * 100, None]
        prompt = UserMessage()["a", first, "b", TextChunk()["end"]]
        made = render(prompt, budget=50, tokenizer=WordTokenizer())
        assert made.notes == ("in UserMessage nothing is left between literal texts.",)

    @pytest.mark.parametrize(("words", "notes"), [(8, 1), (7, 0)])
    def test_of_a_share_are_those_where_most_of_it_is_used(self, words: int, notes: int) -> None:
        text = "a " * words + "\n" + "b " * 9
        prompt = UserMessage()[TextChunk(break_on="\n")[text]], UserMessage()["q"]
        made = render(prompt, budget=20, tokenizer=WordTokenizer())
        assert (made.tokens, len(made.notes)) == (words + 1, notes)
        alone = render(prompt[0], budget=10, tokenizer=WordTokenizer())
        assert (alone.tokens, alone.notes) == (words, ())
        (*shown,) = render(Sheet(page="one", text=text), budget=20, tokenizer=WordTokenizer()).notes
        assert [note.startswith("Sheet(one) > UserMessage[0] has") for note in shown] == [
            True
        ] * notes

    def test_of_a_share_look_at_all_children(self) -> None:
        prompt = UserMessage()[TextChunk()["p"], Filling(flex_grow=1)], UserMessage()["q"]
        (note,) = render(prompt, budget=20, tokenizer=WordTokenizer()).notes
        assert note.startswith("UserMessage[0] has no flex_grow, so it shares the budget with 1")

    def test_say_that_a_message_without_flex_grow_cut_a_text_to_an_equal_share(self) -> None:
        text = "\n".join(f"line {number}" for number in range(2_000))

        def notes(*, flex_grow: float | None, cut: Truncate | TextChunk) -> tuple[str, ...]:
            prompt = (
                SystemMessage()["rules"],
                UserMessage(flex_grow=flex_grow)[tag.files()[cut[text]]],
                UserMessage()["q"],
            )
            return render(prompt, budget=900).notes

        for cut in (Truncate(), TextChunk(break_on="\n")):
            (note,) = notes(flex_grow=None, cut=cut)
            assert note.startswith("UserMessage[1] has no flex_grow, so it shares the budget")
            assert notes(flex_grow=1, cut=cut) == ()
        assert notes(flex_grow=None, cut=Truncate(max_tokens=100)) == ()

    def test_say_where_a_share_of_nothing_leaves_only_literal_text(self) -> None:
        prompt = (
            SystemMessage()["rules"],
            UserMessage(priority=1, flex_grow=1)["Files:", TextChunk(break_on=" ")["a b c"]],
            UserMessage()["q"],
        )
        assert render(prompt, budget=3, tokenizer=WordTokenizer()).notes == (
            "of UserMessage[1] only its literal text is left.",
        )

    def test_say_that_a_message_without_flex_grow_gave_its_flexible_children_an_equal_share(
        self,
    ) -> None:
        text = "\n".join(f"line {number}" for number in range(2_000))

        def prompt(flex_grow: float | None) -> Child:
            return (
                SystemMessage()["rules"],
                UserMessage(flex_grow=flex_grow)["Files:", Truncate(flex_grow=1)[text]],
                UserMessage()["q"],
            )

        made = render(prompt(None), budget=900, trace=True)
        assert made.notes == (
            "UserMessage[1] has no flex_grow, so it shares the budget with 2 siblings and got 299 tokens for its flexible children: write flex_grow=1 to give it what they leave.",
        )
        assert made.trace is not None
        assert made.trace.notes == made.notes
        assert all(len(line) <= 100 for line in made.explain().splitlines())
        grown = render(prompt(1), budget=900, trace=True)
        assert grown.notes == ()
        assert grown.tokens > 2 * made.tokens
        grouped = UserMessage()[Group()["Files:"], Truncate(flex_grow=1)[text]]
        assert len(render((grouped, UserMessage()["q"]), budget=900).notes) == 1
