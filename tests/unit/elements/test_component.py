"""What `@component` makes of classes and functions, and what it refuses."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import pydoc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import cast

import attrs
import pytest

from promptkit import (
    Child,
    Children,
    PromptElement,
    Renderer,
    Sizing,
    Tag,
    Template,
    TextChunk,
    Truncate,
    UserMessage,
    component,
    render,
)
from promptkit.errors import BadPropError, InvalidArgumentError, TreeError


def show(child: Child, budget: int = 1_000) -> str:
    """Return the text of a message with this child."""
    return render(UserMessage()[child], budget=budget).messages[0].text


@component
def selection(path: str, code: str, *, language: str = "python") -> Child:
    """Show a part of a file."""
    return f"{path} ({language}): {code}"


@component
def section(children: Children, name: str) -> Child:
    """Show children between two lines."""
    return f"<{name}>\n", children, f"\n</{name}>"


@component
def budget_line(sizing: Sizing, prefix: str = "budget") -> Child:
    """Show the budget."""
    return f"{prefix} {sizing.token_budget}"


@component
def framed(sizing: Sizing, children: Children, name: str) -> Child:
    """Show children and the model."""
    return name, f" {sizing.model} ", children


@component
async def loaded(path: str) -> Child:
    """Load a text."""
    return f"loaded {path}"


@component
def listed(items: Sequence[str]) -> Iterator[Child]:
    """Yield the lines of a list."""
    for item in items:
        yield f"- {item}\n"


class Namespace:
    """Holds a component that is no name of the module."""

    @staticmethod
    @component
    def inner(text: str) -> Child:
        """Show a text."""
        return text


def test_a_function_takes_its_props_by_position_and_by_name() -> None:
    assert show(selection("a.py", "x = 1")) == "a.py (python): x = 1"
    assert show(selection("a.py", code="x", language="c")) == "a.py (c): x"


def test_a_function_gets_the_sizing_and_the_children_that_it_names() -> None:
    assert show(section("x")["a", "b"]) == "<x>\nab\n</x>"
    assert show(section(name="x")) == "<x>\n\n</x>"
    assert show(budget_line(), budget=50).startswith("budget ")
    rendered = render(UserMessage()[framed("n")["c"]], model="gpt-4o", budget=100)
    assert rendered.messages[0].text == "n gpt-4o c"


def test_a_function_may_be_async_and_may_yield() -> None:
    assert show(loaded("a")) == "loaded a"
    assert show(listed(["a", "b"])) == "- a\n- b\n"


def test_what_is_async_and_yields_is_refused() -> None:
    async def yields(path: str) -> AsyncIterator[str]:
        yield path

    make = cast("Callable[..., object]", component)  # its type refuses the function
    with pytest.raises(InvalidArgumentError, match=r"yields is async and yields.*list"):
        make(yields)


def test_a_method_is_refused() -> None:
    def method(self: object, path: str) -> Child:
        return f"{self} {path}"

    with pytest.raises(InvalidArgumentError, match="a method is no component"):
        component(method)


def test_own_props_stand_before_layout_props_in_a_repr() -> None:
    element = Truncate(priority=3, keep="tail", label="log")["x"]
    assert repr(element) == "Truncate(keep='tail', priority=3, label='log')['x']"


def test_a_function_and_a_class_render_the_same_at_every_budget() -> None:
    @component
    class Selection(PromptElement):
        path: str
        code: str

        def render(self, sizing: Sizing) -> Child:
            _ = sizing
            return TextChunk(priority=1)[self.path], TextChunk(priority=2)[self.code]

    @component
    def small_selection(path: str, code: str) -> Child:
        return TextChunk(priority=1)[path], TextChunk(priority=2)[code]

    for budget in range(12, 40):
        by_class, by_function = (
            render(UserMessage()["Look:", element], budget=budget).messages
            for element in (
                Selection(path="a.py " * 5, code="x = 1 " * 5, priority=3),
                small_selection("a.py " * 5, "x = 1 " * 5).layout(priority=3),
            )
        )
        assert by_class == by_function


def test_the_signature_and_the_help_of_a_function_show_its_props_alone() -> None:
    assert list(inspect.signature(selection).parameters) == ["path", "code", "language"]
    assert list(inspect.signature(framed).parameters) == ["name"]
    text = pydoc.plain(pydoc.render_doc(selection))
    assert """selection(path: 'str', code: 'str', *, language: 'str' = 'python')""" in text
    assert "Show a part of a file." in text


@pytest.mark.parametrize(
    ("create", "args", "props", "problem"),
    [
        (selection, "a", {}, r"selection needs code: write selection\(code=…\)\."),
        (selection, "ab", {"lang": "c"}, "no prop lang: did you mean language"),
        (selection, "ab", {"priority": 1}, r"write selection\(…\)\.layout\(priority=…\)"),
        (selection, "abc", {}, "takes at most 2 values by position, not 3"),
        (selection, "ab", {"path": "c"}, "given path by position and by name"),
        (section, "a", {"children": "c"}, r"children of section stand in brackets"),
        (budget_line, "", {"sizing": 1}, r"has no prop sizing: its props are prefix"),
        (Tag, "", {"tag": "x", "attrs": {}}, "Tag has no prop attrs: did you mean attributes"),
        (Tag, "", {"tag": "x", "flexgrow": 1}, "did you mean flex_grow"),
        (Tag, "", {"name": "x"}, "Tag has no prop name: its props are tag, attributes"),
        (Tag, "", {}, r"Tag needs tag: write Tag\(tag=…\)"),
        (Tag(tag="x").replace, "", {"tags": "y"}, "did you mean tag"),
    ],
)
def test_wrong_props_say_what_was_meant(
    create: Callable[..., PromptElement], args: str, props: Mapping[str, object], problem: str
) -> None:
    with pytest.raises(BadPropError, match=problem):
        create(*args, **props)


def test_a_function_without_a_parameter_for_children_refuses_them() -> None:
    with pytest.raises(TreeError, match="selection takes no children"):
        selection("a", "b")["c"]


def test_layout_props_stand_at_the_place_of_use() -> None:
    element = selection("a", "b").layout(priority=5, flex_grow=1, label="first", required=True)
    assert (element.priority, element.flex_grow, element.label) == (5, 1, "first")
    assert element.layout(priority=2).required
    assert element == selection("a", "b").layout(
        priority=5, flex_grow=1, label="first", required=True
    )
    assert element != selection("a", "c")
    assert (
        repr(selection("a", "b").layout(priority=5)) == "selection(path='a', code='b', priority=5)"
    )


@pytest.mark.parametrize(
    "element",
    [
        selection("a", "b").layout(priority=3),
        section("x")["a", TextChunk()["b"]],
        Namespace.inner("text"),
    ],
    ids=repr,
)
def test_an_element_of_a_function_survives_pickling(element: PromptElement) -> None:
    assert pickle.loads(pickle.dumps(element)) == element  # noqa: S301  # written here


def test_a_pure_function_runs_once_for_one_element() -> None:
    runs: list[str] = []

    @component(pure=True)
    def counted(text: str) -> Child:
        runs.append(text)
        return text

    @component(pure=False)
    def always(text: str) -> Child:
        runs.append(text)
        return text

    renderer = Renderer(budget=100)
    prompt = UserMessage()[counted("pure"), always("not")]
    for _ in range(3):
        renderer.render(prompt)
    assert sorted(runs) == ["not"] * 3 + ["pure"]


def test_a_pure_component_is_not_async() -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be pure"):

        @component(pure=True)
        async def wrong() -> Child:
            return ""


def call(function: Callable[..., object], value: object) -> None:
    """Call a function as a program without a type checker does."""
    function(value)


def declare_sizing_second() -> None:
    @component
    def wrong(path: str, sizing: Sizing) -> Child:
        return path


def declare_children_before_sizing() -> None:
    @component
    def wrong(children: Children, sizing: Sizing) -> Child:
        return children


def declare_var_keywords() -> None:
    @component
    def wrong(**attributes: str) -> Child:
        return str(attributes)


def declare_positional_only() -> None:
    @component
    def wrong(path: str, /) -> Child:
        return path


def declare_layout_prop() -> None:
    @component
    def wrong(priority: int) -> Child:
        return str(priority)


def declare_child_first() -> None:
    @component
    def wrong(body: Child, title: str) -> Child:
        return body, title


def declare_mutable_default() -> None:
    @component
    def wrong(names: Sequence[str] = []) -> Child:
        return names


def declare_mutable_prop() -> None:
    @component
    class Wrong(PromptElement):
        names: Mapping[str, str] = {}


def declare_dataclass_field() -> None:
    @component
    class Wrong(PromptElement):
        names: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])


def declare_misspelt_render() -> None:
    @component
    class Wrong(PromptElement):
        def rendr(self, sizing: Sizing) -> Child:
            return "x"


def declare_no_return() -> None:
    @component
    class Wrong(PromptElement):
        def render(self, sizing: Sizing) -> Child:
            "forgotten"


def declare_function_without_return() -> None:
    @component
    def wrong(path: str) -> Child:  # type: ignore[return]  # what is tested
        selection(path, "")


def declare_other_class() -> None:
    make: Callable[..., object] = component

    @make
    class Wrong:
        pass

    _ = Wrong


def declare_value() -> None:
    call(component, 3)


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (declare_sizing_second, "must take `sizing` first"),
        (declare_children_before_sizing, "must take `sizing` first"),
        (declare_var_keywords, r"takes \*\*attributes.*, but each prop has a name"),
        (declare_positional_only, "remove the `/`"),
        (declare_layout_prop, "cannot have a prop priority"),
        (declare_child_first, "call it `children`"),
        (declare_mutable_default, r"wrong\(names=…\) is a list, which all elements would share"),
        (declare_mutable_prop, r"Wrong.names is a dict.*attrs.field\(factory=dict\)"),
        (declare_dataclass_field, r"dataclasses.field.*attrs.field\(factory=…\)"),
        (declare_misspelt_render, "no `render`, but rendr"),
        (declare_no_return, "Wrong.render returns nothing"),
        (declare_function_without_return, "wrong returns nothing"),
        (declare_other_class, r"class Wrong\(PromptElement\)"),
        (declare_value, "a class or a function, not 3"),
    ],
)
def test_what_cannot_work_is_refused_when_the_component_is_made(
    declare: Callable[[], None], problem: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        declare()


def test_return_none_and_raise_are_no_forgotten_return() -> None:
    @component
    class Nothing(PromptElement):
        def render(self, sizing: Sizing) -> Child:
            _ = sizing
            return None

    @component
    def unfinished() -> Child:
        raise NotImplementedError

    assert show(["a", Nothing()]) == "a"
    with pytest.raises(NotImplementedError):
        show(unfinished())


def test_a_factory_makes_a_default_of_its_own_for_each_element() -> None:
    @component
    class Listed(PromptElement):
        names: list[str] = attrs.field(factory=list[str])

        def render(self, sizing: Sizing) -> Child:
            _ = sizing
            return ",".join(self.names)

    one = Listed()
    one.names.append("a")
    assert show([one, Listed()]) == "a"


def test_own_props_come_before_layout_props_in_the_signature() -> None:
    assert list(inspect.signature(Tag).parameters)[:3] == ["tag", "attributes", "priority"]
    assert list(inspect.signature(Tag.__init__).parameters)[:2] == ["self", "tag"]


@component
class Named(PromptElement):
    key: str = attrs.field(alias="name")
    """What it is called."""

    def render(self, sizing: Sizing) -> Child:
        return self.key


def test_a_prop_whose_attribute_has_another_name_is_written_by_its_own() -> None:
    element = Named(name="a")
    assert repr(element) == "Named(name='a')"
    assert element.replace(name="b") == Named(name="b")
    assert "name: What it is called." in (Named.__doc__ or "")
    template = Template(source="{% component Named(name='c') %}", values={"Named": Named})
    assert show(template) == "c"
    make = cast("Callable[[], Named]", Named)
    with pytest.raises(BadPropError, match=r"Named needs name: write Named\(name=…\)"):
        make()
    with pytest.raises(BadPropError, match="Named has no prop key: its props are name"):
        element.replace(key="b")


class TestDocumentation:
    def test_help_shows_own_props_first_and_the_docstring_under_each(self) -> None:
        shown = pydoc.plain(pydoc.render_doc(Described))
        # Python 3.13 writes one parameter a line
        line = " ".join(shown.replace("|", " ").split())
        assert "*, user: 'str', times: 'int' = 1, priority:" in line
        assert "A greeting." in shown
        assert "user: The user's name, which may be long." in shown
        assert "times:" not in shown.split("Props:")[1].split("Method")[0]

    def test_a_class_without_source_keeps_its_docstring(self) -> None:
        namespace: dict[str, object] = {"PromptElement": PromptElement}
        exec('class Made(PromptElement):\n    "Made here."\n    x: int', namespace)  # noqa: S102  # a class without source
        made = namespace["Made"]
        assert isinstance(made, type)
        assert issubclass(made, PromptElement)
        assert inspect.getdoc(component(made)) == "Made here."


@component
class Described(PromptElement):
    """A greeting."""

    user: str
    """The user's name,
    which may be long."""

    times: int = 1

    def render(self, sizing: Sizing) -> Child:
        return f"Hello {self.user}"
