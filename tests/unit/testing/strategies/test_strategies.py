"""Random prompts, messages and conversations: well-formed all of them, of every kind, and small once hypothesis has shrunk them."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, find, given, note, settings, strategies as st

import promptkit
from promptkit import (
    BudgetExceededError,
    Child,
    First,
    History,
    KeepWith,
    Message,
    PromptElement,
    Rendered,
    TextChunk,
    TokenLimit,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.elements.element import flatten
from promptkit.rendering import from_json, to_json
from promptkit.testing import WordTokenizer, strategies
from promptkit.testing.strategies import MAX_DEPTH, PromptGenerator, has_visible_content
from promptkit.wire import to_anthropic, to_chat, to_responses
from tests.behaviour.nodes import Node, build, is_empty
from tests.behaviour.strategies import FEATURES, prompts, tokenizers
from tests.examples import examples, keep_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.strategies import DrawFn

    from promptkit.tokens import Tokenizer

pytest_plugins = ["pytester"]

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
QUICK = settings(deadline=None, max_examples=examples(40), suppress_health_check=SLOW)
MANY = settings(
    deadline=None,
    max_examples=300,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=SLOW,
)
AMPLE = 10_000


SIGNS: dict[strategies.Feature, str] = {
    "alternatives": "First|IfEmpty",
    "attached": "Reference|Metadata",
    "blank": r"\['(| |\\n)'\]",
    "breakpoint": "CacheBreakpoint",
    "components": "Sized",
    "cuts": "Truncate|break_on|Expandable",
    "documents": "Document",
    "fallback": "fallback=",
    "flex": "flex_",
    "isolate": "Isolate",
    "keep": "KeepWith",
    "legacy": "LegacyPrioritization",
    "limit": "TokenLimit",
    "media": "Image|Opaque",
    "labels": r"label='n\d",
    "pass": "pass_priority",
    "required": "required=True",
    "reserve": "Reserve",
    "rounds": "ToolRound",
    "tags": "Tag",
    "templates": "Template",
    "tools": "ToolMessage",
}
"""What the repr of a prompt has where it has the feature."""


def elements(prompt: Child) -> Iterator[PromptElement]:
    """All elements of a prompt, those in props included."""
    stack: list[object] = list(flatten(prompt, "test"))
    while stack:
        item = stack.pop()
        if isinstance(item, PromptElement):
            yield item
            stack += [getattr(item, field.name) for field in type(item).__attrs_attrs__]
        elif isinstance(item, tuple | list):
            stack += item
        elif isinstance(item, dict):
            stack += item.values()


# Any stands for of prompts or messages
def smallest(strategy: st.SearchStrategy[Any], condition: Callable[[Any], bool]) -> Any:
    quiet = settings(
        deadline=None,
        max_examples=1_000,
        derandomize=True,
        database=None,
        suppress_health_check=SLOW,
    )
    return find(strategy, condition, settings=quiet)


@st.composite
def grown(draw: DrawFn, features: set[strategies.Feature]) -> Child:
    """A prompt that has all of these features, where `prompts` takes some of them."""
    return PromptGenerator(draw, features, draw(st.integers(4, 14))).prompt()


def has_text(element: PromptElement) -> bool:
    return any(isinstance(child, str) for child in element.children)


def is_required_text(element: PromptElement) -> bool:
    return isinstance(element, TextChunk) and element.required


def is_full_group(element: PromptElement) -> bool:
    return isinstance(element, KeepWith) and bool(element.children)


def is_limit_with_text(element: PromptElement) -> bool:
    return isinstance(element, TokenLimit) and has_text(element)


def smallest_with(
    features: list[strategies.Feature], condition: Callable[[PromptElement], bool]
) -> list[PromptElement]:
    """The elements of the smallest prompt that has one of a kind."""
    return list(
        elements(
            smallest(
                strategies.prompts(features=features, size=5),
                lambda prompt: any(map(condition, elements(prompt))),
            )
        )
    )


def rendered(prompt: Child, budget: int, tokenizer: Tokenizer) -> Rendered | None:
    note(f"{prompt!r}\n{tokenizer!r}, {budget}")
    try:
        return render(prompt, budget=budget, tokenizer=tokenizer)
    except BudgetExceededError:
        return None


class TestPrompts:
    @QUICK
    @given(strategies.prompts(), tokenizers(), st.integers(0, 60))
    def test_render_at_every_budget_or_say_what_does_not_fit(
        self, prompt: Child, tokenizer: Tokenizer, budget: int
    ) -> None:
        made = rendered(prompt, budget, tokenizer)
        if made:
            assert made.tokens + made.reserved <= budget
            assert made.explain()

    @QUICK
    @given(
        strategies.prompts(
            features=[
                feature for feature in strategies.FEATURES if feature not in {"limit", "isolate"}
            ]
        ),
        tokenizers(),
    )
    def test_render_where_there_is_room(self, prompt: Child, tokenizer: Tokenizer) -> None:
        assert rendered(prompt, AMPLE, tokenizer)

    @pytest.mark.slow
    @settings(MANY, max_examples=examples(500))
    @given(grown({"alternatives", "tools"}))
    def test_have_calls_and_results_in_one_alternative(self, prompt: Child) -> None:
        for element in elements(prompt):
            if isinstance(element, First):
                assert not any(isinstance(child, ToolMessage) for child in element.children)

    @QUICK
    @given(strategies.prompts(), tokenizers(), st.integers(0, 40))
    def test_are_sent_to_every_provider_or_refused_with_a_reason(
        self, prompt: Child, tokenizer: Tokenizer, budget: int
    ) -> None:
        made = rendered(prompt, budget, tokenizer)
        for emit in (made.to_chat, made.to_responses, made.to_anthropic) if made else ():
            with suppress(promptkit.errors.EmitError):  # a system message may have an image
                emit()

    @QUICK
    @given(strategies.prompts(), tokenizers(), st.integers(0, 60))
    def test_go_through_json(self, prompt: Child, tokenizer: Tokenizer, budget: int) -> None:
        tree = to_json(prompt, tokenizer=tokenizer, budget=budget)
        assert (
            to_json(from_json(json.loads(json.dumps(tree))), tokenizer=tokenizer, budget=budget)[
                "version"
            ]
            == tree["version"]
        )

    @QUICK
    @given(strategies.prompts())
    def test_have_a_mark_of_its_own_in_every_text(self, prompt: Child) -> None:
        made = rendered(prompt, AMPLE, WordTokenizer())
        if made:
            texts = [
                item
                for element in elements(prompt)
                for item in element.children
                if isinstance(item, str) and item.strip()
            ]
            marks = [mark for text in texts for mark in re.findall(r"w\d+", text)]
            assert len(marks) == len(set(marks))
            assert all(
                re.search(r"w\d", text) or text in {"instead", "cut", "…", "short", "one ", "two"}
                for text in texts
            )

    @settings(MANY, max_examples=examples(100))
    @given(
        st.integers(1, 20).flatmap(
            lambda size: st.tuples(st.just(size), strategies.prompts(features=["pass"], size=size))
        )
    )
    def test_are_no_larger_than_asked_for(self, drawn: tuple[int, Child]) -> None:
        size, prompt = drawn
        # A text is a piece, and so is what is left empty.
        pieces = [
            child
            for element in elements(prompt)
            for child in (element.children or (None,))
            if not isinstance(child, PromptElement)
        ]
        assert len(pieces) <= size + MAX_DEPTH  # what was begun is brought to its end

    @pytest.mark.slow
    def test_have_every_feature_every_element_of_the_grammar_and_every_prop_of_it(self) -> None:
        kinds: set[str] = set()
        props: set[str] = set()
        features: set[strategies.Feature] = set()

        @MANY
        @given(strategies.prompts())
        def look(prompt: Child) -> None:
            features.update(
                feature for feature, sign in SIGNS.items() if re.search(sign, repr(prompt))
            )
            for element in elements(prompt):
                kinds.add(type(element).__name__)
                defaults = {field.name: field.default for field in type(element).__attrs_attrs__}
                props.update(
                    name
                    for name, default in defaults.items()
                    if getattr(element, name) not in (default, {})
                )

        look()
        grammar = {
            name
            for name in promptkit.__all__
            if isinstance(kind := getattr(promptkit, name), type)
            and issubclass(kind, PromptElement)
            and kind is not PromptElement
            and kind.__module__.startswith("promptkit.elements.")
        }
        assert features == set(strategies.FEATURES)
        assert grammar - kinds == set()
        assert {
            "priority",
            "pass_priority",
            "flex_grow",
            "flex_basis",
            "flex_reserve",
            "required",
            "fallback",
            "label",
            "name",
        } <= props
        assert {
            "keep_with",
            "alt",
            "descending",
            "local",
            "break_on",
            "break_on_whitespace",
            "keep",
            "ttl",
        } <= props

    @pytest.mark.long
    @pytest.mark.parametrize("feature", keep_first(4, *strategies.FEATURES))
    def test_have_a_feature_only_where_it_is_asked_for(self, feature: strategies.Feature) -> None:
        @settings(MANY, max_examples=30)
        @given(
            strategies.prompts(
                features=[other for other in strategies.FEATURES if other != feature]
            )
        )
        def look(prompt: Child) -> None:
            assert not re.search(SIGNS[feature], repr(prompt))

        look()

    def test_a_feature_that_is_none_is_refused(self) -> None:
        wrong: Any = "tool"  # a checker would refuse it
        with pytest.raises(
            ValueError, match="unknown feature 'tool': use some of alternatives, attached"
        ):
            find(strategies.prompts(features=[wrong]), lambda _: True)

    @settings(MANY, max_examples=examples(150))
    @given(prompts())
    def test_know_as_the_oracle_does_what_says_nothing(self, prompt: Child) -> None:
        for element in elements(prompt):
            root = Node(key=0)
            build(element, root, WordTokenizer(), itertools.count(1))
            assert has_visible_content(element) == (not is_empty(root)), element

    @pytest.mark.parametrize(
        ("features", "condition", "most"),
        [
            pytest.param(["required", "fallback"], is_required_text, 2, marks=pytest.mark.slow),
            pytest.param(["keep", "tools"], is_full_group, 3, marks=pytest.mark.slow),
            pytest.param(["limit", "blank"], is_limit_with_text, 2, marks=pytest.mark.slow),
        ],
    )
    def test_shrink_to_what_matters(
        self,
        features: list[strategies.Feature],
        condition: Callable[[PromptElement], bool],
        most: int,
    ) -> None:
        assert len(smallest_with(features, condition)) <= most


def waiting(messages: tuple[Message, ...]) -> None:
    """Fail where a provider would refuse the messages."""
    asked: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        assert message.role != "system" or index == 0
        if message.role == "tool":
            assert message.tool_call_id in asked
            asked.remove(str(message.tool_call_id))
        else:
            assert asked == []
        for call in message.tool_calls:
            assert call.id not in seen
            seen.add(call.id)
            asked.append(call.id)
        assert message.text.strip() or message.tool_calls
    assert asked == []


class TestConversations:
    @QUICK
    @given(strategies.conversations())
    def test_are_taken_by_every_provider(self, messages: tuple[Message, ...]) -> None:
        waiting(messages)
        before = [one.role for one, other in itertools.pairwise(messages) if other.role == "user"]
        assert set(before) <= {"system", "assistant"}  # every turn but the last has its answer
        to_chat(messages)
        to_responses(messages)
        if len(messages) > 1:
            to_anthropic(messages)

    @QUICK
    @given(strategies.conversations(), st.integers(0, 80))
    def test_need_no_repair(self, messages: tuple[Message, ...], budget: int) -> None:
        turns = messages[1:] if messages and messages[0].role == "system" else messages
        made = rendered(History(turns=turns), AMPLE, WordTokenizer())
        assert made is not None
        assert made.repairs == ()
        assert made.messages == turns
        fewer = rendered(History(turns=turns), budget, WordTokenizer())
        if fewer:
            waiting(fewer.messages)

    @QUICK
    @given(strategies.conversations(system=True, tools=False, turns=2))
    def test_have_what_they_were_asked_for(self, messages: tuple[Message, ...]) -> None:
        assert messages[0].role == "system"
        assert all(not message.tool_calls for message in messages)
        assert sum(message.role == "user" for message in messages) <= 2

    @QUICK
    @given(strategies.conversations(system=False, texts=st.sampled_from(("yes", "no"))))
    def test_say_what_they_were_given(self, messages: tuple[Message, ...]) -> None:
        assert all(message.role != "system" for message in messages)
        assert {message.text for message in messages} <= {"yes", "no", "Done.", ""}

    @pytest.mark.slow
    def test_shrink_to_what_matters(self) -> None:
        made = smallest(
            strategies.conversations(turns=3, texts=st.sampled_from(("a", "b"))),
            lambda messages: any(len(message.tool_calls) > 1 for message in messages),
        )
        assert [message.role for message in made] == ["user", "assistant", "tool", "tool"]


class TestMessages:
    @pytest.mark.parametrize("role", strategies.ROLES)
    def test_have_the_role_asked_for_and_what_it_may_have(
        self, role: promptkit.messages.Role
    ) -> None:
        seen: set[str] = set()

        @settings(MANY, max_examples=80)
        @given(strategies.messages(roles=[role]))
        def look(message: Message) -> None:
            assert message.role == role
            assert message.text.strip()
            assert (message.tool_call_id is not None) == (role == "tool")
            seen.update(type(part).__name__ for part in message.content)
            seen.update("call" for _ in message.tool_calls)
            seen.update("name" for _ in [message.name] if message.name)

        look()
        more = {"user": {"ImagePart", "DocumentPart", "name"}, "assistant": {"call"}}
        assert seen == {"str"} | more.get(role, set())

    def test_have_any_role_unless_asked_otherwise(self) -> None:
        seen: set[promptkit.messages.Role] = set()

        @settings(MANY, max_examples=40)
        @given(strategies.messages())
        def look(message: Message) -> None:
            seen.add(message.role)

        look()
        assert seen == set(strategies.ROLES) == set(get_args(promptkit.messages.Role))

    @QUICK
    @given(strategies.messages(texts=st.just("hello")))
    def test_say_what_they_were_given(self, message: Message) -> None:
        assert message.text == "hello"


def test_the_oracle_knows_features_that_are_some() -> None:
    assert set(FEATURES) < set(strategies.FEATURES)


@pytest.mark.slow
def test_a_failing_example_is_shown_with_its_children(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from hypothesis import given, settings
        from promptkit import UserMessage
        from promptkit.testing import strategies

        @settings(database=None, derandomize=True, deadline=None)
        @given(strategies.prompts(features=[]))
        def test_it(prompt):
            assert "w1" not in repr(prompt)
    """)
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert "prompt=(UserMessage()['w1'],)" in done.stdout.str()


@pytest.mark.long
def test_prompts_are_values() -> None:
    one, two = (
        smallest(
            strategies.prompts(),
            lambda prompt: any(isinstance(each, UserMessage) for each in elements(prompt)),
        )
        for _ in range(2)
    )
    assert one == two
