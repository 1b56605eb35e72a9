"""Flex: who gets how much, and that no member gets more than there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit import (
    AssistantMessage,
    Child,
    Expandable,
    First,
    Group,
    History,
    Image,
    Message,
    PrioritizedList,
    PromptElement,
    Renderer,
    Sizing,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    ToolMessage,
    UserMessage,
    component,
    render,
)
from promptkit.elements import Opaque
from promptkit.errors import BadPropError
from promptkit.testing import WordTokenizer


@component
class Probe(PromptElement):
    """Notes the budget that it was given, and fills up to `use` words of it."""

    seen: list[tuple[float, int, int]]
    use: int = 0

    def render(self, sizing: Sizing) -> Child:
        words = min(self.use, sizing.token_budget)
        grow = float("inf") if self.flex_grow is None else self.flex_grow
        self.seen.append((grow, sizing.token_budget, words))
        return " ".join(["w"] * words) or None


@attrs.frozen
class Spec:
    grow: float | None
    basis: float
    reserve: int | str | None
    use: int


specs = st.builds(
    Spec,
    st.sampled_from((None, 1, 2, 2.5)),
    st.sampled_from((0, 0.5, 1, 1, 2, 3)),
    st.sampled_from((None, None, 0, 7, "/2", "/3")),
    st.integers(0, 40),
)


@given(st.lists(specs, max_size=8), st.integers(0, 100))
def test_the_shares_of_a_group_never_exceed_what_earlier_groups_left(
    made: list[Spec], budget: int
) -> None:
    seen: list[tuple[float, int, int]] = []
    probes = [
        Probe(seen=seen, use=s.use, flex_grow=s.grow, flex_basis=s.basis, flex_reserve=s.reserve)
        for s in made
    ]
    rendered = render(UserMessage()[probes], budget=budget, tokenizer=WordTokenizer())
    assert rendered.tokens <= budget
    left = budget
    for group in sorted({grow for grow, _, _ in seen}, reverse=True):
        shares = [(share, used) for grow, share, used in seen if grow == group]
        assert sum(share for share, _ in shares) <= left
        assert all(share >= 0 for share, _ in shares)
        left -= sum(used for _, used in shares)


def budgets(*probes: tuple[int, Mapping[str, object]], budget: int = 100) -> list[int]:
    seen: list[list[tuple[float, int, int]]] = [[] for _ in probes]
    made = [Probe(seen=seen[index], use=use, **props) for index, (use, props) in enumerate(probes)]  # type: ignore[arg-type]  # layout props of mixed types  # pyright: ignore[reportArgumentType]
    render(UserMessage()[made], budget=budget, tokenizer=WordTokenizer())
    return [notes[0][1] for notes in seen]


class TestShares:
    def test_a_group_shares_by_basis(self) -> None:
        assert budgets((0, {"flex_basis": 1}), (0, {"flex_basis": 3})) == [25, 75]

    def test_later_groups_share_what_is_left(self) -> None:
        assert budgets((10, {}), (0, {"flex_grow": 1}), (0, {"flex_grow": 1})) == [100, 45, 45]

    def test_a_proportional_reserve_is_held_back_from_earlier_groups(self) -> None:
        grow = {"flex_grow": 1, "flex_reserve": "/4"}
        assert budgets((10, {}), (0, grow), (0, grow)) == [50, 45, 45]

    def test_reserves_of_several_groups_add_up(self) -> None:
        shares = budgets(
            (10, {}),
            (20, {"flex_basis": 2}),
            (10, {"flex_grow": 2, "flex_reserve": 20}),
            (17, {"flex_grow": 1, "flex_reserve": 10}),
            (0, {"flex_grow": 1, "flex_reserve": 10, "flex_basis": 2}),
            (25, {"flex_grow": 2, "flex_reserve": 20}),
        )
        assert shares == [13, 26, 25, 11, 23, 25]

    def test_a_reserve_larger_than_the_budget_leaves_nothing(self) -> None:
        assert budgets((0, {}), (0, {"flex_grow": 1, "flex_reserve": 200})) == [0, 100]

    @pytest.mark.parametrize("reserve", [0, "/" + "9" * 19])
    def test_a_reserve_of_nothing_holds_nothing_back(self, reserve: int | str) -> None:
        assert budgets((0, {}), (0, {"flex_grow": 1, "flex_reserve": reserve})) == [100, 100]

    @pytest.mark.parametrize(
        ("reserve", "shown"),
        [("50 % " * 4, "'" + "50 % " * 4 + "'"), ("50 % " * 5, "'" + "50 % " * 4 + "…'")],
    )
    def test_a_reserve_that_is_no_share_is_shown_with_twenty_characters(
        self, reserve: str, shown: str
    ) -> None:
        with pytest.raises(BadPropError, match=f"not {shown}: write 500"):
            render(UserMessage(flex_reserve=reserve)["a"])

    def test_a_basis_of_nothing_gets_nothing(self) -> None:
        assert budgets((0, {"flex_basis": 0}), (0, {})) == [0, 100]
        assert budgets((0, {"flex_basis": 0}), (0, {"flex_basis": 0})) == [0, 0]

    def test_an_image_has_a_share_and_of_an_opaque_part_the_tokens_are_taken_before(self) -> None:
        def budget_beside(part: Child) -> int:
            seen: list[tuple[float, int, int]] = []
            render(UserMessage()[part, Probe(seen=seen)], budget=100, tokenizer=WordTokenizer())
            return seen[0][1]

        assert budget_beside(Image(url="https://example.org/a.png")) == 50
        assert budget_beside(Opaque(value={}, tokens=10)) == (100 - 10) // 2

    def test_an_empty_text_takes_nothing(self) -> None:
        seen: list[tuple[float, int, int]] = []
        rooms: list[int] = []

        def value(sizing: Sizing) -> str:
            rooms.append(sizing.token_budget)
            return ""

        prompt = UserMessage()[Expandable(value=value), Probe(seen=seen, flex_grow=1)]
        render(prompt, budget=100, tokenizer=WordTokenizer())
        assert [share for _, share, _ in seen] == rooms[:1] == rooms[1:] == [100]

    def test_a_container_of_texts_or_messages_takes_what_each_has_up_to_its_share(self) -> None:
        long, short = "w " * 70, "w"
        for container, left in (
            (UserMessage()["own ", TextChunk()[long], TextChunk()[short]], 100 - 1 - 49 - 1),
            (Group()[AssistantMessage()[long], AssistantMessage()[short]], 100 - 50 - 1),
        ):
            seen: list[tuple[float, int, int]] = []
            render(
                (container, UserMessage(flex_grow=1)[Probe(seen=seen)]),
                budget=100,
                tokenizer=WordTokenizer(),
                defaults="prompt-tsx",
            )
            assert seen[0][1] == left

    def test_one_of_a_group_does_not_see_what_another_took(self) -> None:
        assert budgets((50, {}), (50, {})) == [50, 50]


class TestWhatIsTakenBefore:
    def test_literals_and_framing_are_taken_from_the_children(self) -> None:
        seen: list[tuple[float, int, int]] = []
        render(
            UserMessage()["three words here", Probe(seen=seen)],
            budget=40,
            tokenizer=WordTokenizer(per_message=4),
        )
        assert seen[0][1] == 33

    def test_a_tool_message_is_framed_like_any_other(self) -> None:
        seen: list[tuple[float, int, int]] = []
        render(
            ToolMessage(tool_call_id="1")[Probe(seen=seen)],
            budget=40,
            tokenizer=WordTokenizer(per_message=4),
            pairing="lenient",
        )
        assert seen[0][1] == 36

    def test_a_limit_caps_the_share_and_gives_the_rest_to_its_siblings(self) -> None:
        free: list[tuple[float, int, int]] = []
        capped: list[tuple[float, int, int]] = []
        render(
            UserMessage()[Probe(seen=free), TokenLimit(max_tokens=10)[Probe(seen=capped)]],
            budget=100,
            tokenizer=WordTokenizer(),
        )
        assert (free[0][1], capped[0][1]) == (90, 10)

    def test_a_limit_above_its_share_changes_nothing(self) -> None:
        free: list[tuple[float, int, int]] = []
        capped: list[tuple[float, int, int]] = []
        render(
            UserMessage()[Probe(seen=free), TokenLimit(max_tokens=1000)[Probe(seen=capped)]],
            budget=100,
            tokenizer=WordTokenizer(),
        )
        assert (free[0][1], capped[0][1]) == (50, 50)

    @pytest.mark.parametrize(
        ("budget", "members", "shares"),
        [
            (101, [(1, 33), (1, None), (1, None)], [33, 34, 34]),
            (90, [(2, 50), (1, None)], [50, 40]),
            (100, [(1, 80), (1, None)], [50, 50]),
            (10, [(1, 0), (1, None)], [0, 10]),
            (100, [(1, 5), (0, None)], [5, 0]),
            (100, [(1, 5), (0, 3)], [5, 0]),
            (30, [(0.1, None), (0.2, None)], [10, 20]),
        ],
    )
    def test_what_a_limit_gives_up_is_shared_by_basis_without_an_error_of_rounding(
        self, budget: int, members: list[tuple[float, int | None]], shares: list[int]
    ) -> None:
        seen: list[tuple[float, int, int]] = []
        made = [
            Group(flex_basis=basis)[Probe(seen=seen)]
            if limit is None
            else TokenLimit(max_tokens=limit, flex_basis=basis)[Probe(seen=seen)]
            for basis, limit in members
        ]
        render(UserMessage()[made], budget=budget, tokenizer=WordTokenizer())
        assert [share for _, share, _ in seen] == shares

    def test_flex_says_nothing_about_order(self) -> None:
        rendered = render(
            UserMessage()[Text(flex_grow=1)["a "], Text()["b "], Text(flex_grow=2)["c"]],
            budget=9,
            tokenizer=WordTokenizer(),
        )
        assert rendered.messages[0].text.split() == ["a", "b", "c"]

    def test_across_messages_each_sees_what_the_earlier_ones_left(self) -> None:
        seen: list[tuple[float, int, int]] = []
        render(
            (UserMessage(flex_grow=1)[Probe(seen=seen)], SystemMessage()["ten " * 10]),
            budget=50,
            tokenizer=WordTokenizer(per_message=1),
        )
        assert seen[0][1] == 50 - 11 - 1


@pytest.mark.spec("D14")
class TestWhatStays:
    """Elements that no pruning makes smaller count in full, whatever their share is."""

    def budget_beside(
        self, *siblings: PromptElement, defaults: Literal["promptkit", "prompt-tsx"] = "promptkit"
    ) -> int:
        seen: list[tuple[float, int, int]] = []
        render(
            (*siblings, UserMessage(flex_grow=1)[Probe(seen=seen)]),
            budget=100,
            tokenizer=WordTokenizer(),
            defaults=defaults,
        )
        return seen[0][1]

    def test_what_is_required_counts_above_its_share_and_other_content_up_to_it(self) -> None:
        small = UserMessage(priority=1)["a b c"]
        assert self.budget_beside(small, UserMessage(required=True)["w " * 70]) == 100 - 3 - 70
        assert self.budget_beside(small, UserMessage(priority=1)["w " * 70]) == 100 - 3 - 50

    def test_system_and_user_messages_without_a_priority_count_above_their_share(self) -> None:
        small = UserMessage(priority=1)["a b c"]
        for message in (
            SystemMessage()["w " * 70],
            UserMessage()["w " * 70],
            UserMessage()["w " * 69, TextChunk()["w"]],
            UserMessage()["w " * 60, Group()["w " * 10]],
        ):
            assert self.budget_beside(small, message) == 100 - 3 - 70
            assert self.budget_beside(small, message, defaults="prompt-tsx") == 100 - 3 - 50

    def test_a_container_counts_what_must_stay_in_it(self) -> None:
        small = UserMessage(priority=1)["a b c"]
        group = Group()[UserMessage(required=True)["w " * 70], UserMessage(priority=1)["w " * 20]]
        assert self.budget_beside(small, group) == 100 - 3 - 70

    def test_a_user_message_without_a_priority_in_a_component_with_one_does_not_stay(self) -> None:
        small = UserMessage(priority=2)["a b c"]
        for inner in (UserMessage()["w " * 150], Group()[UserMessage()["w " * 150]]):
            part = Contents(children_of=(inner,)).layout(priority=1)
            assert self.budget_beside(small, part) == 100 - 3 - 50


@component
class Contents(PromptElement):
    children_of: tuple[Child, ...]

    def render(self, sizing: Sizing) -> Child:
        return self.children_of


def test_a_list_that_is_pruned_before_the_conversation_leaves_the_newest_turn_whole() -> None:
    turns = [
        message
        for number in range(1, 6)
        for message in (
            Message(role="user", content=(f"question {number} of five",)),
            Message(role="assistant", content=(f"answer {number} of five",)),
        )
    ]
    files = Contents(children_of=(UserMessage()[PrioritizedList()[["file"] * 100]],))
    prompt = (
        files.layout(priority=1),
        History(turns=turns, priority=2),
        UserMessage(required=True)["Where?"],
    )
    shown = render(prompt, budget=60, tokenizer=WordTokenizer())
    assert shown.messages[-3:-1] == tuple(turns[-2:])


def test_shares_are_the_same_in_each_render_of_a_renderer() -> None:
    messages = [UserMessage()["a"] for _ in range(4)]
    renderer = Renderer(budget=100, tokenizer=WordTokenizer())
    for _ in range(3):
        made = renderer.render((messages, ToldShare()))
        assert [message.text for message in made.messages] == [*["a"] * 4, "20"]


@component
class ToldShare(PromptElement):
    def render(self, sizing: Sizing) -> Child:
        return UserMessage()[str(sizing.token_budget)]


def test_an_expandable_that_is_not_shown_takes_no_room_from_the_others() -> None:
    some = Expandable(value=lambda sizing: "s " * min(sizing.token_budget, 30))
    rest = Expandable(value=lambda sizing: "e " * sizing.token_budget)
    first = First()[Group()[some, "l " * 100], "short"]
    fallback = UserMessage()[some]
    for prompt in (
        UserMessage()[first, TextChunk()["x"], rest],
        (UserMessage(priority=1, fallback=fallback)["short"], UserMessage()["q", rest]),
    ):
        assert render(prompt, budget=50, tokenizer=WordTokenizer()).tokens == 50
