"""A component runs in every render and in every request, so that a prompt shows what is true then; in the retries of a request it runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from promptkit_components import Instructions

from promptkit import (
    AgentSession,
    Child,
    ContextWindow,
    Message,
    PromptElement,
    Renderer,
    Sizing,
    SystemMessage,
    Template,
    UserMessage,
    component,
)
from promptkit.agent import Conversation, ConversationView
from promptkit.errors import ContextLengthExceededError
from promptkit.rendering.expand.render_cache import RequestRuns
from promptkit.rendering.expand.sizing import Sizer
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens import CalibratedTokenizer, ContextBudget, Tokenizer
from tests.conversations import words

if TYPE_CHECKING:
    from pathlib import Path

WORDS = WordTokenizer()
LOCALE = ContextVar("locale", default="en")


@component
class Ask(PromptElement):
    """Shows what a function returns."""

    get: Callable[[], object]

    def render(self, sizing: Sizing) -> Child:
        return str(self.get())


@component
class AskAsync(PromptElement):
    """Shows what a function returns, after a pause."""

    get: Callable[[], object]

    async def render(self, sizing: Sizing) -> Child:
        await asyncio.sleep(0)
        return str(self.get())


@component
class AskContext(PromptElement):
    """Shows a context variable, without any prop."""

    def render(self, sizing: Sizing) -> Child:
        return LOCALE.get()


@component
class Show(PromptElement):
    """Shows a value."""

    value: object

    def render(self, sizing: Sizing) -> Child:
        return str(self.value)


@dataclass(frozen=True)
class Results:
    found: dict[str, int]


@dataclass
class Service:
    number: int = 0

    def read(self) -> int:
        self.number += 1
        return self.number


def texts(
    renderer: Renderer,
    prompt: Callable[[], Child],
    change: Callable[[int], object],
    *,
    async_: bool = False,
) -> list[str]:
    """The texts of three renders, with a change before each."""

    def once(number: int) -> str:
        change(number)
        made = asyncio.run(renderer.render_async(prompt())) if async_ else renderer.render(prompt())
        return " | ".join(message.text for message in made.messages)

    return [once(number) for number in (1, 2, 3)]


NOTHING: Callable[[int], object] = lambda _: None  # noqa: E731  # a default


class TestARendererThatIsKept:
    @pytest.mark.parametrize("anew", [False, True])
    @pytest.mark.parametrize("cls", [Ask, AskAsync])
    def test_asks_a_service_again_also_by_the_same_element(
        self, cls: type[Ask | AskAsync], *, anew: bool
    ) -> None:
        kept = UserMessage()[cls(get=(service := Service()).read)]
        prompt: Callable[[], Child] = lambda: UserMessage()[cls(get=service.read)] if anew else kept  # noqa: E731  # one of two
        assert texts(Renderer(budget=50, tokenizer=WORDS), prompt, NOTHING) == ["1", "2", "3"]

    def test_awaits_a_search_again(self) -> None:
        kept = UserMessage()[AskAsync(get=Service().read)]
        assert texts(Renderer(budget=50, tokenizer=WORDS), lambda: kept, NOTHING, async_=True) == [
            "1",
            "2",
            "3",
        ]

    def test_reads_a_context_variable_again(self) -> None:
        kept = SystemMessage()[AskContext()], UserMessage()["q"]
        found = texts(
            Renderer(budget=50, tokenizer=WORDS),
            lambda: kept,
            lambda number: LOCALE.set("aa" * number),
        )
        assert found == ["aa | q", "aaaa | q", "aaaaaa | q"]

    def test_looks_into_a_frozen_value_again(self) -> None:
        results = Results({})
        kept = UserMessage()[Show(value=results.found), " ", Show(value=results)]
        found = texts(
            Renderer(budget=50, tokenizer=WORDS),
            lambda: kept,
            lambda number: results.found.update({"a": number}),
        )
        assert found == [
            f"{{'a': {number}}} Results(found={{'a': {number}}})" for number in (1, 2, 3)
        ]

    def test_reads_instruction_files_again(self, tmp_path: Path) -> None:
        file = tmp_path / "AGENTS.md"
        kept = Instructions(files=["AGENTS.md"], root=tmp_path)["You edit."], UserMessage()["q"]
        found = texts(
            Renderer(budget=50, tokenizer=WORDS),
            lambda: kept,
            lambda number: file.write_text(f"Rule {number}."),
        )
        assert ["Rule 1." in found[0], "Rule 2." in found[1], "Rule 3." in found[2]] == [True] * 3

    def test_reads_a_template_again(self, tmp_path: Path) -> None:
        file = tmp_path / "prompt.j2"
        kept = UserMessage()[Template(file=file)]
        change: Callable[[int], object] = lambda number: file.write_text("x" * number)  # noqa: E731  # in a line
        assert texts(Renderer(budget=50, tokenizer=WORDS), lambda: kept, change) == [
            "x",
            "xx",
            "xxx",
        ]

    def test_runs_a_component_inside_elements_that_are_kept(self) -> None:
        inner = UserMessage()[Show(value="a"), Ask(get=Service().read)]

        @component(pure=True)
        class Frame(PromptElement):
            def render(self, sizing: Sizing) -> Child:
                return inner

        kept = Frame()
        assert texts(Renderer(budget=50, tokenizer=WORDS), lambda: kept, NOTHING) == [
            "a\n1",
            "a\n2",
            "a\n3",
        ]


def test_a_session_shows_in_each_turn_what_is_true_then(tmp_path: Path) -> None:
    file, clock, files = tmp_path / "AGENTS.md", ["09:00"], ["a.md"]
    file.write_text("Use TABS.")

    def build(view: ConversationView) -> Child:
        return (
            Instructions(files=["AGENTS.md"], root=tmp_path)["You edit."],
            Conversation(view=view),
            UserMessage()[
                Ask(get=lambda: f"It is {clock[0]}."),
                " ",
                AskAsync(get=lambda: "Open files: " + ", ".join(files)),
            ],
        )

    model = ScriptedModel(["one", "two", "three"])

    async def talk() -> None:
        async with AgentSession(model=model, prompt=build) as session:
            await session.run("first")
            file.write_text("Use SPACES.")
            clock[0] = "17:30"
            files.append("b.md")
            await session.run("second")
            file.write_text("Use NOTHING.")
            await session.run("third")

    asyncio.run(talk())
    shown = [
        (request.messages[0].text.split()[5], request.messages[-1].text)
        for request in model.requests
    ]
    assert shown == [
        ("TABS.", "It is 09:00. Open files: a.md"),
        ("SPACES.", "It is 17:30. Open files: a.md, b.md"),
        ("NOTHING.", "It is 17:30. Open files: a.md, b.md"),
    ]


def test_instructions_of_a_window_are_rendered_in_every_request() -> None:
    each = ContextWindow(
        model="m", tokenizer=WORDS, budget=1_000, instructions=Ask(get=Service().read)
    )
    each.add(Message(role="user", content=("Hello.",)))
    requests = [asyncio.run(each.request()) for _ in range(3)]
    assert [request.messages[0].text for request in requests] == ["1", "2", "3"]


@attrs.define
class Watched:
    """A window whose prompt has components, with what ran."""

    service: Service = attrs.field(factory=Service)
    views: list[ConversationView] = attrs.field(factory=list[ConversationView])
    budgets: list[int] = attrs.field(factory=list[int])

    def build(self, view: ConversationView) -> Child:
        """The prompt. All elements are created anew for each view."""
        self.views.append(view)
        return (
            SystemMessage()[
                Ask(get=self.service.read),
                " ",
                AskAsync(get=self.service.read),
                " ",
                Ask(get=self.service.read),
            ],
            Conversation(view=view),
        )

    def window(self, prompt: Callable[[ConversationView], Child] | None = None) -> ContextWindow:
        """A window of a thousand words that is nearly full."""
        each = ContextWindow(
            model="some-model",
            tokenizer=WORDS,
            budget=ContextBudget(window=1_000, reserved_output_tokens=0),
            prompt=prompt or self.build,
            rng=lambda: 0.5,
        )
        for number in range(8):
            each.add(
                Message(role="user", content=(f"question {number}",)),
                Message(role="assistant", content=(words(150, f"{number}"),)),
            )
        each.add(Message(role="user", content=("last",)))
        return each


class TestTheRetriesOfARequest:
    def test_run_no_component_twice(self) -> None:
        watched = Watched()
        request = asyncio.run(watched.window().request())
        assert len(watched.views) > 1, "the first view does not fit, so it is rendered again"
        assert len(watched.views[0].messages) > len(watched.views[-1].messages)
        assert sorted(request.messages[0].text.split()) == ["1", "2", "3"], (
            "equal components get different runs"
        )
        assert watched.service.number == 3

    def test_run_no_component_twice_after_a_refusal(self) -> None:
        watched = Watched()
        each = watched.window()

        async def talk() -> list[str]:
            first = await each.request()
            assert await each.recover(ContextLengthExceededError("too large"))
            again = await each.request()
            assert again.tokens < first.tokens
            each.add_reply(Message(role="assistant", content=("done",)))
            each.add(Message(role="user", content=("more",)))
            return [request.messages[0].text for request in (first, again, await each.request())]

        first, again, later = asyncio.run(talk())
        assert first == again
        assert sorted(later.split()) == ["4", "5", "6"], "the next request asks again"

    def test_run_a_component_again_whose_props_or_budget_have_changed(self) -> None:
        seen: list[tuple[int, int]] = []

        @component
        class Room(PromptElement):
            messages: int

            def render(self, sizing: Sizing) -> Child:
                seen.append((self.messages, sizing.token_budget))
                return "room"

        watched = Watched()

        def build(view: ConversationView) -> Child:
            watched.views.append(view)
            return (
                Conversation(view=view, flex_grow=1),
                SystemMessage(flex_grow=0)[Room(messages=0)],
                UserMessage()[Room(messages=len(view.messages))],
            )

        asyncio.run(watched.window(build).request())
        assert {messages for messages, _ in seen} == {
            0,
            *(len(view.messages) for view in watched.views),
        }
        assert len({budget for messages, budget in seen if not messages}) > 1
        assert len(seen) == len(set(seen)), "nothing ran twice with the same props and budget"

    def test_take_no_component_of_another_model_or_tokenizer(self) -> None:
        @component
        class Describe(PromptElement):
            def render(self, sizing: Sizing) -> Child:
                return f"{sizing.model}, {sizing.count_tokens('one two')}"

        runs = RequestRuns()
        double = CalibratedTokenizer(WORDS, 2)

        def shown(model: str, tokenizer: Tokenizer, prompt: Child) -> str:
            made = asyncio.run(
                Renderer(budget=50, tokenizer=tokenizer, model=model).render_request(
                    UserMessage()[prompt], runs, Sizer(tokenizer)
                )
            )
            return made.messages[0].text

        assert shown("gpt-5", WORDS, Describe()) == "gpt-5, 2"
        assert shown("gpt-5", WORDS, Show(value="without it")) == "without it"
        assert shown("gpt-4.1", WORDS, Describe()) == "gpt-4.1, 2"
        assert shown("gpt-5", double, Describe()) == "gpt-5, 4"
        assert shown("gpt-5", WORDS, Describe()) == "gpt-5, 2"

    def test_run_a_component_again_whose_props_cannot_be_compared(self) -> None:
        class Array:
            __hash__ = None  # type: ignore[assignment]  # as arrays have it

            def __eq__(self, other: object) -> Any:  # Any: as arrays have it
                raise ValueError("the truth value of an array is ambiguous")

            def __str__(self) -> str:
                return "array"

        runs = RequestRuns()
        for _ in range(2):
            made = asyncio.run(
                Renderer(budget=50, tokenizer=WORDS).render_request(
                    UserMessage()[Show(value=Array())], runs, Sizer(WORDS)
                )
            )
            assert made.messages[0].text == "array"


class NeverEqual:
    """As an array, it has no hash, and its `==` is no condition."""

    __hash__ = None  # type: ignore[assignment]  # as the hash of a list

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        raise ValueError(self.name)


@component
class NameOf(PromptElement):
    of: NeverEqual

    def render(self, sizing: Sizing) -> Child:
        return UserMessage()[self.of.name]


def test_in_a_request_a_component_runs_again_if_its_props_cannot_be_compared() -> None:
    renderer, runs = Renderer(budget=50, tokenizer=WordTokenizer()), RequestRuns()
    sizer = Sizer(WordTokenizer())
    for name in ("one", "two"):
        made = asyncio.run(renderer.render_request(NameOf(of=NeverEqual(name)), runs, sizer))
        assert made.messages[0].text == name
