"""`{% component … %}` inserts a component of the program; a component, a function and a template say the same."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from promptkit import (
    BudgetExceededError,
    Child,
    Chunk,
    Message,
    PromptElement,
    Sizing,
    SystemMessage,
    Template,
    TextChunk,
    UserMessage,
    component,
    lines,
    render,
    tag,
)
from promptkit.errors import TemplateError
from promptkit.testing import WordTokenizer


@component
class Note(PromptElement):
    text: str
    times: int = 1

    def render(self, sizing: Sizing) -> Child:
        return " ".join([self.text] * self.times)


@component
def remark(text: str) -> Child:
    return f"({text})"


VALUES = {"Note": Note, "remark": remark, "text": "hello"}


def shown(source: str) -> str:
    prompt = UserMessage()[Template(source=source, values=VALUES)]
    return render(prompt, budget=50, tokenizer=WordTokenizer()).messages[0].text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% component Note(text=text, times=2) %}", "hello hello"),
        ("A\n{% component remark(text) %}\nB", "A\n(hello)B"),
        (
            "{% for n in [1, 2] %}{% component remark(text=n|string, priority=n) %}{% endfor %}",
            "(1)\n(2)",
        ),
        ('{% macro m() %}{% component remark("x") %}{% endmacro %}{{ m() }}', "(x)"),
    ],
)
def test_a_component_is_inserted_with_its_props(source: str, text: str) -> None:
    assert shown(source) == text


def test_layout_props_stand_beside_the_others() -> None:
    source = '{% component remark("a b", priority=1) %}{% component Note(text="c", priority=2) %}'
    prompt = UserMessage()[Template(source=source, values=VALUES)]
    assert render(prompt, budget=1, tokenizer=WordTokenizer()).messages[0].text == "c"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{% component Note(txt=1) %}", "did you mean text?"),
        ("{% component Note() %}", "Note needs text: write Note(text=…)."),
        ("{% component Note(text=5) %}", "Note(…) has text=5: it must be a text."),
        ("{% component remark(priority=1) %}", "remark needs text"),
        ('{% component Note(text="a", priority="x") %}', "it must be a number or none."),
        ("{% component nothing() %}", "'nothing' is undefined"),
        ("{% component text() %}", "text is no component"),
        ("{% component Note %}", "takes a component with its props"),
        ("{% component Note(**text) %}", "takes each prop by itself, without * and **"),
        ("{% component remark(*text) %}", "takes each prop by itself, without * and **"),
    ],
)
def test_wrong_props_and_names_are_errors_with_their_line(source: str, problem: str) -> None:
    with pytest.raises(TemplateError) as caught:
        shown(f"first line\n{source}")
    assert problem in str(caught.value)
    assert caught.value.line == 2


def _build(rules: str, files: list[str], question: str) -> Child:
    return (
        SystemMessage()[rules],
        UserMessage(priority=5)[
            tag.files()[[TextChunk(priority=at)[file] for at, file in enumerate(files)]]
        ],
        Chunk(priority=3)[UserMessage()[lines("Notes:", *files)]],
        UserMessage()[question],
    )


@component
class ClassPrompt(PromptElement):
    rules: str
    files: list[str]
    question: str

    def render(self, sizing: Sizing) -> Child:
        return _build(self.rules, self.files, self.question)


@component
def function_prompt(rules: str, files: list[str], question: str) -> Child:
    return _build(rules, files, question)


SOURCE = """\
{% system %}{{ rules }}{% endsystem %}
{% user priority=5 %}
{% tag "files" %}
{% for file in files %}
{% text priority=loop.index0 %}{{ file }}{% endtext %}
{% endfor %}
{% endtag %}
{% enduser %}
{% chunk priority=3 %}
{% user %}
Notes:
{%- for file in files %}

{{ file }}
{%- endfor %}
{% enduser %}
{% endchunk %}
{% user %}{{ question }}{% enduser %}
"""

WORDS = st.text("ab ", min_size=1, max_size=8).filter(str.strip).map(str.strip)


def at_every_budget(prompt: Child) -> list[tuple[Message, ...] | str]:
    whole = render(prompt, budget=1_000, tokenizer=WordTokenizer(per_message=1))
    found: list[tuple[Message, ...] | str] = []
    for budget in range(whole.tokens, -1, -1):
        try:
            found.append(
                render(prompt, budget=budget, tokenizer=WordTokenizer(per_message=1)).messages
            )
        except BudgetExceededError:
            found.append("too small")
    return found


@pytest.mark.long
@given(WORDS, st.lists(WORDS, min_size=1, max_size=4), WORDS)
def test_a_class_a_function_and_a_template_give_the_same_messages_at_every_budget(
    rules: str, files: list[str], question: str
) -> None:
    by_class = at_every_budget(ClassPrompt(rules=rules, files=files, question=question))
    values = {"rules": rules, "files": files, "question": question}
    assert by_class == at_every_budget(function_prompt(rules, files, question))
    assert by_class == at_every_budget(Template(source=SOURCE, values=values))
    assert by_class == at_every_budget(
        Template(
            source="{% component function_prompt(rules, files, question=question) %}",
            values={**values, "function_prompt": function_prompt},
        )
    )
