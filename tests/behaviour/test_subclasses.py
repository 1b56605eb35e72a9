"""Classes of users that extend elements of the grammar."""

from __future__ import annotations

import pytest

from promptkit import (
    Child,
    First,
    IfEmpty,
    Metadata,
    PromptElement,
    Sizing,
    Tag,
    Truncate,
    UserMessage,
    component,
    render,
)
from promptkit.errors import BadPropError, TreeError
from promptkit.testing import WordTokenizer


@component
class Section(Tag):
    """A Tag by another name."""


@component
class Either(First):
    """A First by another name."""


@component
class Otherwise(IfEmpty):
    """An IfEmpty by another name."""


@component
class Note(Metadata):
    """Metadata by another name."""


@component
class Greeting(UserMessage):
    who: str

    def render(self, sizing: Sizing) -> Child:
        return f"Hello {self.who}"


@component
class Odd(Truncate):
    def render(self, sizing: Sizing) -> Child:
        return "never"


@component
class Endless(PromptElement):
    runs: list[int]

    def render(self, sizing: Sizing) -> Child:
        self.runs.append(len(self.runs))
        return self


def test_an_extended_element_does_what_the_element_does() -> None:
    prompt = UserMessage()[
        Section(tag="x")["a"], Either()["b b b b", "c"], Otherwise(alt="none")[None], Note(value=3)
    ]
    made = render(prompt, budget=9, tokenizer=WordTokenizer())
    assert made.messages[0].text == "<x>\na\n</x>\nc\nnone"
    assert made.metadata == (3,)


@component
class Remark(UserMessage):
    """A message without a render of its own."""


def test_an_extended_message_has_the_role_of_the_message() -> None:
    made = render((Remark(priority=1)["a"], UserMessage()["q"]), budget=99)
    assert [(each.role, each.text) for each in made.messages] == [("user", "a"), ("user", "q")]


def test_an_extended_message_may_render_its_content() -> None:
    assert (
        render(Greeting(who="Ada"), budget=9, tokenizer=WordTokenizer()).messages[0].text
        == "Hello Ada"
    )


def test_a_render_that_could_not_be_heeded_is_refused() -> None:
    with pytest.raises(BadPropError, match="Odd defines render, and Truncate"):
        render(UserMessage()[Odd()["x"]], budget=9, tokenizer=WordTokenizer())


@pytest.mark.long
def test_a_component_that_renders_itself_is_an_error_and_no_endless_loop() -> None:
    runs: list[int] = []
    with pytest.raises(
        TreeError, match="more than 20,000 deep: one of them probably renders itself"
    ):
        render(Endless(runs=runs), budget=9, tokenizer=WordTokenizer())
    assert len(runs) == 20_000
