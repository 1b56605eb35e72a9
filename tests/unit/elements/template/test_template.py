"""Templates make the same elements as Python does, and nothing that a value holds can change them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from promptkit.elements.builtin import (
    AssistantMessage,
    CacheBreakpoint,
    Chunk,
    Document,
    First,
    Group,
    IfEmpty,
    Image,
    Isolate,
    KeepWith,
    Metadata,
    PrioritizedList,
    Reference,
    Reserve,
    SystemMessage,
    Tag,
    TextChunk,
    TokenLimit,
    ToolMessage,
    Truncate,
    UserMessage,
)
from promptkit.elements.element import Child, PromptElement, Sizing, flatten
from promptkit.elements.template.template import Template
from promptkit.errors import BadPropError, TemplateError, TextTooLongError
from promptkit.messages import ToolCall
from promptkit.rendering.renderer import render
from promptkit.testing import WordTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PICTURE = Image(url="https://example.org/a.png")


def sizing() -> Sizing:
    return Sizing(lambda: 1000, WordTokenizer())


def children(template: Template) -> tuple[str | PromptElement | None, ...]:
    child = template.render(sizing())
    assert isinstance(child, tuple)
    return flatten(child, "test")


def children_of(source: str, **values: object) -> tuple[str | PromptElement | None, ...]:
    return children(Template(source=source, values=values))


def failure(source: str, **values: object) -> str:
    with pytest.raises(TemplateError) as caught:
        children_of(source, **values)
    return str(caught.value)


class TestText:
    def test_without_message_tags_is_text_for_inside_a_message(self) -> None:
        assert children_of("Hello {{ name }}!", name="Ada") == ("Hello Ada!",)

    def test_loses_the_last_line_break_of_the_template_and_no_other(self) -> None:
        assert children_of("a\n\n{{ b }}\n", b="b\n") == ("a\n\nb\n",)
        assert children_of("{{ b }}", b="b\n") == ("b\n",)

    def test_keeps_the_line_break_after_an_include(self, tmp_path: Path) -> None:
        (tmp_path / "part.md").write_text("one\n", encoding="utf-8")
        assert children(Template(source="{% include 'part.md' %}\ntwo\n", root=tmp_path)) == (
            "one\ntwo",
        )

    def test_shows_no_trace_of_lines_that_hold_a_block_tag(self) -> None:
        assert children_of(
            "{% for x in xs %}\n  {% if x %}\n- {{ x }}\n  {% endif %}\n{% endfor %}\n",
            xs=["a", "", "b"],
        ) == ("- a\n- b",)

    def test_is_never_escaped(self) -> None:
        assert children_of("{{ x }} {{ x | tojson }} <b>", x="<é&>") == ('<é&> "<é&>" <b>',)

    def test_none_is_nothing(self) -> None:
        assert children_of("a{{ x }}b", x=None) == ("ab",)

    def test_numbers_and_lists_print_as_in_jinja(self) -> None:
        assert children_of("{{ n }} {{ xs }} {{ t }}", n=1.5, xs=[], t=(1, 2)) == ("1.5 [] (1, 2)",)


class TestElements:
    def test_stand_where_they_are_inserted(self) -> None:
        assert children_of("a{{ x }}b", x=PICTURE) == ("a", PICTURE, "b")

    def test_in_a_list_or_a_tuple_are_inserted_one_by_one(self) -> None:
        assert children_of("{{ x }}{{ y }}", x=[PICTURE, "t"], y=("u", None, PICTURE)) == (
            PICTURE,
            "tu",
            PICTURE,
        )

    def test_pass_through_macros_set_blocks_callers_and_joins(self) -> None:
        source = "{% macro box() %}[{{ caller() }}]{% endmacro %}{% set kept %}<{{ x }}>{% endset %}{% call box() %}{{ x }}{% endcall %}{{ kept ~ '!' }}"
        assert children_of(source, x=PICTURE) == ("[", PICTURE, "]<", PICTURE, ">!")

    def test_pass_through_inherited_blocks(self, tmp_path: Path) -> None:
        (tmp_path / "base.j2").write_text(
            "{% system %}{% block rules %}be kind{% endblock %}{% endsystem %}\n", encoding="utf-8"
        )
        (tmp_path / "child.j2").write_text(
            "{% extends 'base.j2' %}{% block rules %}{{ x }}{{ super() }}{% endblock %}",
            encoding="utf-8",
        )
        template = Template(file=tmp_path / "child.j2", values={"x": PICTURE})
        assert children(template) == (SystemMessage()[PICTURE, "be kind"],)

    @pytest.mark.parametrize("expression", ["x | upper", "[x] | join", "x | string", "s | trim"])
    def test_are_never_turned_into_text_by_a_filter(self, expression: str) -> None:
        assert "this is an element" in failure(
            "{% set s %}{{ x }}{% endset %}{{ " + expression + " }}", x=PICTURE
        )

    def test_given_to_the_template_are_its_children(self) -> None:
        template = Template(source="{% user %}{{ children }}{% enduser %}")[PICTURE, "x"]
        assert children(template) == (UserMessage()[PICTURE, "x"],)


EVERY_TAG: Sequence[tuple[str, Child]] = [
    ("{% system priority=1000 %}a{% endsystem %}", SystemMessage(priority=1000)["a"]),
    ("{% group label='notes' %}{% user label='note' %}a{% enduser %}{% endgroup %}", Group(label="notes")[UserMessage(label="note")["a"]]),
    ("{% user priority=9.5, name='ada' %}a{% enduser %}", UserMessage(priority=9.5, name="ada")["a"]),
    ("{% assistant required=true %}a{% endassistant %}", AssistantMessage(required=True)["a"]),
    ("{% tool call_id='c1' %}a{% endtool %}", ToolMessage(tool_call_id="c1")["a"]),
    ("{% tool call_id='c1' %}{% endtool %}", ToolMessage(tool_call_id="c1")),
    ("{% user flex_grow=1 flex_basis=2 flex_reserve='/3' pass_priority=true %}{% enduser %}",
     UserMessage(flex_grow=1, flex_basis=2, flex_reserve="/3", pass_priority=True)),
    ("{% group priority=5 %}{% user %}a{% enduser %}{% endgroup %}", Group(priority=5)[UserMessage()["a"]]),
    ("{% chunk %}{% user %}a{% enduser %}{% endchunk %}", Chunk()[UserMessage()["a"]]),
    ("{% limit 2000 %}{% user %}a{% enduser %}{% endlimit %}", TokenLimit(max_tokens=2000)[UserMessage()["a"]]),
    ("{% limit max_tokens=n, priority=1 %}{% user %}a{% enduser %}{% endlimit %}", TokenLimit(max_tokens=7, priority=1)[UserMessage()["a"]]),
    ("{% list descending=true %}{% user %}a{% enduser %}{% endlist %}", PrioritizedList(descending=True)[UserMessage()["a"]]),
    ("{% keep_with 'g' %}{% user %}a{% enduser %}{% endkeep_with %}", KeepWith(group="g")[UserMessage()["a"]]),
    ("{% isolate tokens=9 %}{% user %}a{% enduser %}{% endisolate %}", Isolate(tokens=9)[UserMessage()["a"]]),
    ("{% if_empty alt='none' %}{{ none }}{% endif_empty %}", IfEmpty(alt="none")),
    ("{% reserve 500 %}", Reserve(tokens=500)),
    ("{% reference 'src/a.py' %}", Reference(to="src/a.py")),
    ("{% metadata n, local=true %}", Metadata(value=7, local=True)),
]  # fmt: skip

EVERY_TAG_IN_A_MESSAGE: Sequence[tuple[str, Child]] = [
    ("{% text priority=1, break_on=' ' %}a{% endtext %}", TextChunk(priority=1, break_on=" ")["a"]),
    ("{% truncate keep='tail', max_tokens=100 %}a{% endtruncate %}", Truncate(keep="tail", max_tokens=100)["a"]),
    ("{% tag 'file', path='a.py', name=none, n=3, ok=true, priority=2 %}a{% endtag %}",
     Tag(tag="file", attributes={"path": "a.py", "n": "3", "ok": "true"}, priority=2)["a"]),
    ("{% tag 'file', attributes={'data-x': 'y'}, name='z' %}{% endtag %}", Tag(tag="file", attributes={"data-x": "y", "name": "z"})),
    ("{% image 'https://example.org/a.png', detail='low' %}", Image(url="https://example.org/a.png", detail="low")),
    ("{% document data='QQ==', media_type='application/pdf', tokens=7 %}", Document(data="QQ==", media_type="application/pdf", tokens=7)),
    ("{% cache_breakpoint ttl='1h' %}", CacheBreakpoint(ttl="1h")),
    ("{% first %}{% text %}long{% endtext %}\n{% text %}short{% endtext %}{% endfirst %}", First()[TextChunk()["long"], TextChunk()["short"]]),
]  # fmt: skip


class TestTags:
    @pytest.mark.parametrize(
        ("source", "element"), EVERY_TAG, ids=[source for source, _ in EVERY_TAG]
    )
    def test_make_the_element_of_their_name(self, source: str, element: Child) -> None:
        assert children_of(source, n=7) == (element,)

    @pytest.mark.parametrize(
        ("source", "element"),
        EVERY_TAG_IN_A_MESSAGE,
        ids=[source for source, _ in EVERY_TAG_IN_A_MESSAGE],
    )
    def test_make_the_content_of_a_message(self, source: str, element: Child) -> None:
        assert children_of("{% user %}" + source + "{% enduser %}") == (UserMessage()[element],)

    def test_calls_belong_to_the_assistant_message_around_them(self) -> None:
        source = """
{% assistant %}
I look.
{% for path in paths %}
  {% tool_call id="c" ~ loop.index, name="read", arguments={"path": path}, keep_with="g" %}
{% endfor %}
{% tool_call id="c3", name="list", arguments='{ }' %}
{% endassistant %}
"""
        calls = (
            ToolCall(id="c1", name="read", arguments='{"path": "é"}'),
            ToolCall(id="c2", name="read", arguments='{"path": "b"}'),
            ToolCall(id="c3", name="list", arguments="{ }"),
        )
        assert children_of(source, paths=["é", "b"]) == (
            AssistantMessage(tool_calls=calls, keep_with={"c1": "g", "c2": "g"})["I look."],
        )

    def test_work_in_loops_conditions_macros_and_includes(self, tmp_path: Path) -> None:
        (tmp_path / "turns.j2").write_text(
            "{% macro turn(m) %}\n{% user priority=m.n %}{{ m.text }}{{ caller() }}{% enduser %}\n{% endmacro %}\n",
            encoding="utf-8",
        )
        (tmp_path / "history.j2").write_text(
            "{% from 'turns.j2' import turn %}\n{% for m in history %}\n{% if m.text %}\n{% call turn(m) %}!{% endcall %}\n\n{% endif %}\n{% endfor %}\n",
            encoding="utf-8",
        )
        source = "{% group %}\n\n{% include 'history.j2' %}\n\n{% endgroup %}\n\n"
        history = [{"n": 1, "text": "a"}, {"n": 2, "text": ""}, {"n": 3, "text": "c"}]
        template = Template(source=source, root=tmp_path, values={"history": history})
        assert children(template) == (
            Group()[UserMessage(priority=1)["a!"], UserMessage(priority=3)["c!"]],
        )

    def test_have_a_fallback_that_may_be_a_message(self) -> None:
        source = "{% set marker %}{% user %}[cut]{% enduser %}{% endset %}{% user fallback=marker %}a{% enduser %}"
        assert children_of(source) == (UserMessage(fallback=(UserMessage()["[cut]"],))["a"],)

    def test_evaluate_their_attributes_before_their_body(self) -> None:
        assert children_of(
            "{% set p = 1 %}{% user priority=p %}{% set p = 2 %}{{ p }}{% enduser %}"
        ) == (UserMessage(priority=1)["2"],)

    @pytest.mark.slow
    def test_nest_to_any_depth(self) -> None:
        source = (
            "{% set ns = namespace(x='a') %}{% for _ in range(20000) %}"
            "{% set ns.x %}{% group %}{{ ns.x }}{% endgroup %}{% endset %}{% endfor %}{{ ns.x }}"
        )
        (element,) = children_of(source)
        depth = 0
        while isinstance(element, Group):
            (element,) = element.children
            depth += 1
        assert (depth, element) == (20000, "a")


class TestWhiteSpace:
    def test_between_messages_is_nothing(self) -> None:
        assert children_of("\n{% user %}a{% enduser %} \n\n{% user %}b{% enduser %}\n") == (
            UserMessage()["a"],
            UserMessage()["b"],
        )

    def test_between_messages_is_nothing_when_none_is_rendered(self) -> None:
        assert children_of(
            "{% if x %}{% user %}a{% enduser %}{% endif %}\n\n{{ y }}\n", x=False, y=PICTURE
        ) == (PICTURE,)
        assert children_of(
            "{% group %}{% if x %}{% user %}a{% enduser %}{% endif %}\n\n{% endgroup %}\n", x=False
        ) == (Group(),)

    def test_before_the_end_of_a_message_is_one_line_break_less(self) -> None:
        assert children_of("{% user %}\na\n  {% enduser %}") == (UserMessage()["a"],)
        assert children_of("{% user %}\na\n\n{% enduser %}") == (UserMessage()["a\n"],)
        assert children_of(
            "{% user %}\n{% for x in [1, 2] %}\n{{ x }}\n{% endfor %}\n{% enduser %}"
        ) == (UserMessage()["1\n2"],)

    def test_of_a_block_within_a_message_stays_in_its_line(self) -> None:
        source = "{% user %}\na\n{% chunk %}\nb\n{% endchunk %}\nc\n{% text %}\nd\n{% endtext %}\n{% enduser %}\n"
        assert children_of(source) == (
            UserMessage()["a\n", Chunk()["b\n"], "c\n", TextChunk()["d"]],
        )


def errors() -> list[tuple[str, int, str]]:
    return [
        ("a\n{{ nme }}", 2, "'nme' is undefined"),
        ("a\n\n{% foo %}", 3, "unknown tag 'foo'"),
        ("{% user %}\n{{ 1 / 0 }}{% enduser %}", 2, "division by zero"),
        ("\n{% user prioritty=1 %}{% enduser %}", 2, "did you mean priority?"),
        ("{% if false %}\n{% reserve sizes=1 %}{% endif %}", 2, "no attribute 'sizes'"),
        ("{% tool %}{% endtool %}", 1, "needs call_id=…"),
        ("{% user priority=1, priority=2 %}{% enduser %}", 1, "twice"),
        ("{% user 5 %}{% enduser %}", 1, "takes attributes"),
        ("\n{% user priority='9' %}{% enduser %}", 2, "priority='9': it must be a number or none"),
        ("{% user required=1 %}{% enduser %}", 1, "it must be true or false"),
        ("{% limit true %}{% endlimit %}", 1, "it must be a whole number"),
        (
            "{% user %}{% truncate keep='top' %}{% endtruncate %}{% enduser %}",
            1,
            "one of head, tail, middle",
        ),
        ("\n{% user priority=nme %}{% enduser %}", 2, "'nme' is undefined"),
        ("{% user %}a{% enduser %}\n\n  stray {{ 1 }}", 3, "text outside a message: 'stray'"),
        (
            "{% user %}a{% enduser %}\n{% group %}\n\nstray\n{% endgroup %}",
            4,
            "text outside a message: 'stray'",
        ),
        (
            "{% user %}a{% enduser %}\n{{ none }}\n{{ none }}\n\nstray",
            5,
            "text outside a message: 'stray'",
        ),
        ("{% user %}a{% enduser %}\n{{ x }}", 2, "text outside a message: 'value'"),
        (
            "{% user %}a{% enduser %}\n{% text %}b{% endtext %}",
            2,
            "{% text %} is outside a message",
        ),
        ("{% user %}\n{% user %}a{% enduser %}{% enduser %}", 2, "is inside another message"),
        ("\n{% tool_call id='a', name='b' %}", 2, "must be directly in {% assistant %}"),
        (
            "{% user %}{% first %}\na\n{% endfirst %}{% enduser %}",
            2,
            "text directly in {% first %}",
        ),
        ("{% user %}a", 1, "end of template"),
        ("{% user %}\na{% endsystem %}", 2, "unknown tag 'endsystem'"),
        ("\n{{ [x, y, 3] }}", 2, "numbers are not text"),
        ("\n{% include 'a.j2' %}", 2, "give the Template a `root`"),
        (
            "{% macro m() %}\n{% include 'a.j2' without context %}{% endmacro %}",
            2,
            "without context",
        ),
        ("\n{{ fail() }}", 2, "KeyError: 'why'"),
    ]


class TestErrors:
    @pytest.mark.parametrize(
        ("source", "line", "words"), errors(), ids=[source for source, _, _ in errors()]
    )
    def test_name_the_line_and_the_problem(self, source: str, line: int, words: str) -> None:
        def fail() -> str:
            raise KeyError("why")

        with pytest.raises(TemplateError) as caught:
            children_of(source, x="value", y=PICTURE, fail=fail)
        assert (caught.value.file, caught.value.line) == ("<template>", line)
        assert words in str(caught.value)

    @pytest.mark.parametrize(
        "text",
        [
            "\n\n{{ nme }}",
            "\n\n{% foo %}",
            "\n\n{% user priorty=1 %}{% enduser %}",
            "\n\n{{ 1 / 0 }}",
            "\n\nstray",
        ],
    )
    def test_name_the_included_file(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "part.j2").write_text(text, encoding="utf-8")
        with pytest.raises(TemplateError) as caught:
            children(
                Template(source="{% user %}a{% enduser %}\n{% include 'part.j2' %}", root=tmp_path)
            )
        assert (caught.value.file, caught.value.line) == (str(tmp_path / "part.j2"), 3)

    def test_name_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(TemplateError, match=r"there is no template 'no\.j2' in") as caught:
            children(Template(file=tmp_path / "no.j2"))
        assert (caught.value.file, caught.value.line) == (str(tmp_path / "no.j2"), 0)

    def test_that_are_not_the_templates_pass_unchanged(self) -> None:
        def budget() -> int:
            raise TextTooLongError("elsewhere")

        with pytest.raises(TextTooLongError, match=r"^elsewhere$"):
            Template(source="{{ token_budget() }}").render(Sizing(budget, WordTokenizer()))


class TestFiles:
    def test_are_found_in_the_root(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x.j2").write_text("\ufeffA {% include 'a/y.j2' %}", encoding="utf-8")
        (tmp_path / "a" / "y.j2").write_text("B", encoding="utf-8")
        assert children(Template(file="a/x.j2", root=tmp_path)) == ("A B",)
        assert children(Template(file=tmp_path / "a" / "x.j2", root=tmp_path)) == ("A B",)

    def test_may_come_from_a_package(self) -> None:
        assert children(Template(source="{{ 1 }}", root=files("promptkit"))) == ("1",)

    def test_are_read_again_when_they_have_changed(self, tmp_path: Path) -> None:
        path = tmp_path / "x.j2"
        path.write_text("one", encoding="utf-8")
        assert children(Template(file=path)) == ("one",)
        path.write_text("two", encoding="utf-8")
        os.utime(path, ns=(1, 1))
        assert children(Template(file=path)) == ("two",)

    @pytest.mark.parametrize(
        "name", ["../secret", "in/../../secret", "/etc/hostname", "..\\secret", "in//x", "", "no"]
    )
    def test_outside_the_root_are_not_there(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "secret").write_text("s3cret", encoding="utf-8")
        (tmp_path / "root" / "in").mkdir(parents=True)
        template = Template(
            source="{% include name %}", root=tmp_path / "root", values={"name": name}
        )
        with pytest.raises(TemplateError, match="there is no template"):
            children(template)
        assert (
            children(
                Template(
                    source="{% include name ignore missing %}",
                    root=tmp_path / "root",
                    values={"name": name},
                )
            )
            == ()
        )

    def test_links_out_of_the_root_are_not_followed_and_links_within_it_are(
        self, tmp_path: Path
    ) -> None:
        root = tmp_path / "root"
        (root / "in").mkdir(parents=True)
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "secret").write_text("s3cret", encoding="utf-8")
        (root / "there").write_text("there", encoding="utf-8")
        (root / "in" / "link").symlink_to(tmp_path / "outside" / "secret")
        (root / "folder").symlink_to(tmp_path / "outside")
        (root / "in" / "near").symlink_to(root / "there")
        for name in ("in/link", "folder/secret"):
            with pytest.raises(TemplateError, match="a link that leads out of it is not followed"):
                children(Template(source="{% include name %}", root=root, values={"name": name}))
        assert children(Template(source="{% include 'in/near' %}", root=root)) == ("there",)

    def test_the_named_file_may_be_a_link_and_includes_what_is_beside_its_target(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "x.j2").write_text("A {% include 'y.j2' %}", encoding="utf-8")
        (tmp_path / "real" / "y.j2").write_text("B", encoding="utf-8")
        (tmp_path / "y.j2").write_text("not this one", encoding="utf-8")
        (tmp_path / "link.j2").symlink_to(tmp_path / "real" / "x.j2")
        assert children(Template(file=tmp_path / "link.j2")) == ("A B",)

    def test_never_depend_on_the_current_directory(self) -> None:
        with pytest.raises(BadPropError, match=r"Path\(__file__\)\.with_name\('x\.j2'\)"):
            Template(file="x.j2")
        with pytest.raises(BadPropError, match="absolute"):
            Template(source="a", root="prompts")

    def test_must_be_in_the_root(self, tmp_path: Path) -> None:
        with pytest.raises(BadPropError, match="is not in root"):
            Template(file=tmp_path / "x.j2", root=tmp_path / "a")

    def test_exclude_a_source(self) -> None:
        with pytest.raises(BadPropError, match="either a `file` or a `source`"):
            Template()
        with pytest.raises(BadPropError, match="either a `file` or a `source`"):
            Template(file="/x.j2", source="a")


class TestSizing:
    def test_is_read_by_templates_that_ask(self) -> None:
        size = sizing()
        assert Template(source="{{ token_budget() // 2 }} {{ count_tokens('a b') }}").render(
            size
        ) == ("500 2",)
        assert size.budget_reads

    def test_is_left_alone_by_the_others(self) -> None:
        size = sizing()
        Template(source="{{ count_tokens('a b') }}").render(size)
        assert not size.budget_reads


class TestSandbox:
    @pytest.mark.parametrize(
        "expression",
        [
            "''.__class__.__mro__",
            "x['__class__']",
            "x | attr('__class__')",
            "'{0.__class__}'.format(x)",
            "'{a.__class__}'.format_map({'a': x})",
            "xs.append(1)",
            "d.update(a=1)",
            "d.clear()",
            "count_tokens.__self__",
            "token_budget.__globals__",
            "element.render.__func__",
            "element._repr_pretty_(1, 2)",
            "made.items",
            "range(10 ** 9)",
            "[1] | map('promptkit element') | list",
        ],
    )
    def test_blocks_access_and_changes(self, expression: str) -> None:
        xs: list[int] = []
        d = {"k": 1}
        failure(
            "{% set made %}{{ element }}{% endset %}{{ " + expression + " }}",
            x="x",
            xs=xs,
            d=d,
            element=PICTURE,
        )
        assert (xs, d) == ([], {"k": 1})


HOSTILE = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            ["{% system %}", "{% enduser %}", "{{ other }}", "{#", "#}", "{% raw %}", "\n", "\r\n", " ", "\t", "\x00", "\ud800", "</user>", "<|im_end|>", "é"]
        )
    ).map("".join),
)  # fmt: skip


class TestValues:
    @pytest.mark.long
    @given(HOSTILE)
    def test_survive_verbatim_in_a_message(self, value: str) -> None:
        (message,) = children_of(
            "{% user %}\n{{ value }}\n{% enduser %}\n", value=value, other="s3cret"
        )
        assert message == UserMessage()[value] if value else UserMessage()

    @given(HOSTILE, HOSTILE)
    def test_survive_verbatim_wherever_they_are_put(self, one: str, two: str) -> None:
        source = (
            "{% macro m(x) %}{{ x }}{% endmacro %}{% set s %}{{ two }}{% endset %}"
            "{% user %}{{ m(one) }}{{ pic }}{% chunk %}{{ s }}{% endchunk %}{{ pic }}{{ one ~ two }}{% enduser %}"
        )
        (message,) = children_of(source, one=one, two=two, pic=PICTURE)
        expected: list[Child] = [one, PICTURE, Chunk()[two] if two else Chunk(), PICTURE, one + two]
        assert message == UserMessage()[[child for child in expected if child != ""]]

    @given(HOSTILE)
    def test_survive_verbatim_as_text(self, value: str) -> None:
        assert children_of("{{ value }}", value=value) == ((value,) if value else ())

    @given(HOSTILE.filter(bool))  # an empty name is refused
    def test_survive_verbatim_in_attributes(self, value: str) -> None:
        assert children_of("{% user name=value %}{% enduser %}", value=value) == (
            UserMessage(name=value),
        )


PROMPT = """
{% system priority=1000 %}
You help.
{% endsystem %}

{% for message in history %}
{% user priority=loop.index %}
{{ message }}
{% enduser %}
{% endfor %}

{% user priority=900 %}
Q
{% text priority=5 %}
Notes: {{ notes }}
{% endtext %}
{% tag "file", path="a.py" %}
x
{% endtag %}
{% enduser %}
"""


class TestRendering:
    @pytest.mark.parametrize(
        ("budget", "messages"),
        [
            (
                100,
                [
                    "You help.",
                    "one two three",
                    "four five {% system %}",
                    'Q\nNotes: n n\n<file path="a.py">\nx\n</file>',
                ],
            ),
            (12, ["You help.", 'Q\nNotes: n n\n<file path="a.py">\nx\n</file>']),
            (8, ["You help.", 'Q\n<file path="a.py">\nx\n</file>']),
        ],
    )
    def test_prunes_a_template_as_any_other_tree(self, budget: int, messages: list[str]) -> None:
        values = {"history": ["one two three", "four five {% system %}"], "notes": "n n"}
        rendered = render(
            Template(source=PROMPT, values=values), budget=budget, tokenizer=WordTokenizer()
        )
        assert [message.text for message in rendered.messages] == messages

    def test_puts_text_into_the_message_around_it(self) -> None:
        rendered = render(
            UserMessage()["Dear ", Template(source="{{ name }}\n", values={"name": "Ada"}), "!"],
            budget=9,
            tokenizer=WordTokenizer(),
        )
        assert [message.text for message in rendered.messages] == ["Dear Ada!"]

    def test_raises_what_the_template_raises(self) -> None:
        with pytest.raises(TemplateError) as caught:
            render(Template(source="\n{{ x }}"), budget=9, tokenizer=WordTokenizer())
        assert (caught.value.file, caught.value.line) == ("<template>", 2)


def test_jinja_is_imported_with_the_first_render_only() -> None:
    code = "import sys, promptkit.elements.template.template as t; t.Template(source='a'); assert 'jinja2' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tags_that_a_loop_nests_in_each_other_may_be_deeper_than_the_call_stack() -> None:
    source = (
        "{% set ns = namespace(x='x') %}{% for i in range(depth) %}"
        "{% set one_more %}{% group %}{{ ns.x }}{% endgroup %}{% endset %}{% set ns.x = one_more %}"
        "{% endfor %}{% user %}{{ ns.x }}{% enduser %}"
    )
    template = Template(source=source, values={"depth": 2 * sys.getrecursionlimit()})
    assert render(template, budget=9, tokenizer=WordTokenizer()).messages[0].text == "x"
