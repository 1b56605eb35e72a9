"""Tags, lines, conditions and provided values: shorter forms of what prompts are full of."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import TYPE_CHECKING, Protocol, cast

import attrs
import pytest

from promptkit import (
    AssistantMessage,
    Child,
    Children,
    If,
    PromptElement,
    Provide,
    Renderer,
    Sizing,
    SystemMessage,
    Tag,
    Text,
    TextChunk,
    UserMessage,
    component,
    lines,
    render,
    tag,
)
from promptkit.errors import BadPropError, NotProvidedError, TreeError

if TYPE_CHECKING:
    from collections.abc import Callable


def put(make: Callable[..., object], child: object) -> None:
    """Call it with a child that its type refuses."""
    make(child)


def show(child: Child, budget: int = 1_000) -> str:
    """Return the text of a message with this child."""
    return render(UserMessage()[child], budget=budget).messages[0].text


class TestTag:
    def test_a_tag_is_written_by_its_name(self) -> None:
        assert tag.file(path="a.py")["x"] == Tag(tag="file", attributes={"path": "a.py"})["x"]
        assert show(tag.file()["x"]) == "<file>\nx\n</file>"

    def test_a_name_that_python_cannot_write_is_a_text(self) -> None:
        assert show(tag("file-part", path="a")["x"]) == '<file-part path="a">\nx\n</file-part>'

    def test_layout_stands_behind_the_attributes(self) -> None:
        element = tag.file(priority="high").layout(priority=3)
        assert (element.attributes, element.priority) == ({"priority": "high"}, 3)

    def test_children_without_parentheses_say_where_they_stand(self) -> None:
        with pytest.raises(TreeError, match=r"write tag\.file\(\)\[…\]"):
            tag.file["x"]

    @pytest.mark.parametrize("name", ["a b", "", "1a", "a>b", "a\n", "<a", "a/"])
    def test_a_name_that_is_no_name_of_a_tag_is_refused(self, name: str) -> None:
        with pytest.raises(BadPropError, match="is no name"):
            tag(name)
        with pytest.raises(BadPropError, match="is no name"):
            Tag(tag="file", attributes={name: "x"})

    @pytest.mark.parametrize("name", ["a", "file_1", "x:y", "été", "a-b.c"])
    def test_names_of_xml_are_names(self, name: str) -> None:
        assert show(tag(name)["x"]) == f"<{name}>\nx\n</{name}>"

    @pytest.mark.parametrize("value", [3, None, True])
    def test_an_attribute_that_is_no_text_is_refused_with_its_place(self, value: object) -> None:
        make = cast("Callable[..., Tag]", tag.file)  # its type refuses the value
        with pytest.raises(
            BadPropError, match=r"UserMessage > Tag: the attribute size must be a text.*str"
        ):
            show(make(size=value)["x"])

    def test_an_attribute_may_have_any_name(self) -> None:
        assert show(tag.file(self="a", name="b", tag="c")["x"]).startswith(
            '<file self="a" name="b" tag="c">'
        )

    def test_the_maker_of_tags_can_be_copied(self) -> None:
        assert copy.copy(tag).a() == Tag(tag="a")
        assert pickle.loads(pickle.dumps(tag.file)) == tag.file  # noqa: S301  # written here


class TestLines:
    def test_children_are_joined_by_line_breaks_and_what_is_false_is_left_out(self) -> None:
        nothing: list[str] = []
        assert show(lines("a", None, "b", "", nothing, len(nothing) > 1 and "x", "c")) == "a\nb\nc"
        assert show(lines("a", ["b", "c"], (letter for letter in "de"))) == "a\nb\nc\nd\ne"
        assert show([lines(), "x"]) == "x"

    def test_a_text_that_ends_with_a_line_break_is_followed_by_an_empty_line(self) -> None:
        assert show(lines("a\n", "b")) == "a\n\nb"

    @pytest.mark.parametrize("length", [1, 2, 3, 4])
    def test_every_mixture_of_texts_and_elements_is_one_item_a_line(self, length: int) -> None:
        """Nothing shows where a Tag or a TextChunk was pruned; for what is written without a
        leading TextChunk before an element, as the docstring says."""
        makers: dict[str, tuple[Callable[[int], Child], Callable[[int], str]]] = {
            "text": (lambda at: f"t{at}", lambda at: f"t{at}"),
            "chunk": (lambda at: TextChunk(priority=1)[f"c{at}"], lambda at: f"c{at}"),
            "tag": (
                lambda at: tag.x().layout(priority=1)[f"x{at}"],
                lambda at: f"<x>\nx{at}\n</x>",
            ),
            "element": (lambda at: Text()[f"e{at}"], lambda at: f"e{at}"),
        }
        for kinds in itertools.product(makers, repeat=length):
            children = [makers[kind][0](at) for at, kind in enumerate(kinds)]
            shown = "\n".join(makers[kind][1](at) for at, kind in enumerate(kinds))
            assert show(lines(*children)) == shown, kinds
            texts = [kind in ("text", "element") for kind in kinds]
            first = texts.index(True) if any(texts) else 0
            if not any(texts) or (kinds[first - 1] == "chunk" and kinds[first] == "element"):
                continue
            joined = lines(*children)
            assert isinstance(joined, list)
            kept = [
                None if isinstance(child, PromptElement) and child.priority == 1 else child
                for child in joined
            ]
            left = "\n".join(
                makers[kind][1](at) for at, kind in enumerate(kinds) if kind in ("text", "element")
            )
            assert show(kept) == left, kinds


class TestIf:
    @pytest.mark.parametrize(
        "empty", [(), list[int](), dict[str, int](), set[int](), 0, 0.0, "", b"", None, False]
    )
    def test_any_value_is_a_condition(self, empty: object) -> None:
        assert show(["a", If(empty)["b"]]) == "a"
        assert show(["a", If([empty])["b"]]) == "ab"

    def test_it_may_stand_around_messages(self) -> None:
        prompt = SystemMessage()["a"], If(1)[UserMessage()["b"], AssistantMessage()["c"]]
        assert len(render(prompt, budget=100).messages) == 3

    def test_its_children_compete_with_its_siblings(self) -> None:
        prompt = UserMessage()[
            If(1)[TextChunk(priority=1)["one " * 5], TextChunk(priority=3)["three " * 5]],
            TextChunk(priority=2)["two " * 5],
        ]
        assert render(prompt, budget=24).messages[0].text.split()[0] == "three"

    @pytest.mark.parametrize("value", [0, 0.0, 1.5, dict[str, int](), set[int](), b"", {"a": 1}])
    def test_a_value_that_is_no_child_asks_whether_it_is_a_condition(self, value: object) -> None:
        if value:
            with pytest.raises(TreeError, match="cannot have"):
                put(UserMessage().__getitem__, ["a", value])
        else:
            with pytest.raises(TreeError, match=r"if it is a condition, write If\(…\)\[…\]"):
                put(UserMessage().__getitem__, ["a", value])

    def test_a_forgotten_bracket_is_reported(self) -> None:
        with pytest.raises(TreeError, match=r"children stand behind it: write If\(…\)\[…\]"):
            put(UserMessage().__getitem__, If(1))


@attrs.frozen
class Workspace:
    """A service."""

    root: str


class HasRoot(Protocol):
    """What Workspace has."""

    @property
    def root(self) -> str:
        """Return a folder."""
        ...


@component
def folder(sizing: Sizing) -> Child:
    """Show the root of the workspace."""
    return sizing.get(Workspace).root


@component
class Deep(PromptElement):
    """Holds a component inside of others."""

    def render(self, sizing: Sizing) -> Child:
        """Return the folder in a group."""
        _ = sizing
        return TextChunk()["in "], folder()


class TestProvide:
    def test_a_component_deep_in_the_tree_gets_the_innermost_value(self) -> None:
        prompt = Provide(Workspace("/a"))[
            SystemMessage()[Deep()],
            Provide(Workspace("/b"))[UserMessage()[Deep()]],
            UserMessage()[folder()],
        ]
        texts = [message.text for message in render(prompt, budget=100).messages]
        assert texts == ["in \n/a", "in \n/b", "/a"]

    def test_values_of_several_classes_are_told_apart(self) -> None:
        @component
        def both(sizing: Sizing) -> Child:
            return f"{sizing.get(Workspace).root} {sizing.get(int)}"

        assert show(Provide(3)[Provide(Workspace("/a"))[both()]]) == "/a 3"

    def test_nothing_provided_is_an_error_with_the_path(self) -> None:
        with pytest.raises(
            NotProvidedError,
            match=r"^UserMessage\[1\] > Deep > folder\[1\]: nothing provides a Workspace here",
        ) as error:
            render(
                (Provide(Workspace("/a"))[SystemMessage()["x"]], UserMessage()[Deep()]), budget=50
            )
        assert error.value.path == "UserMessage[1] > Deep > folder[1]"

    def test_a_pure_component_runs_again_for_another_value(self) -> None:
        runs: list[str] = []

        @component(pure=True)
        def pure_folder(sizing: Sizing) -> Child:
            runs.append(sizing.get(Workspace).root)
            return runs[-1]

        renderer = Renderer(budget=100)
        element = UserMessage()[pure_folder()]
        one, other = Workspace("/a"), Workspace("/b")
        for workspace in (one, one, other, other, one):
            rendered = renderer.render(Provide(workspace)[element])
            assert rendered.messages[0].text == workspace.root
        assert runs == ["/a", "/b", "/a"]

    def test_its_children_compete_with_its_siblings(self) -> None:
        prompt = UserMessage()[
            Provide(1)[TextChunk(priority=1)["one " * 5], TextChunk(priority=3)["three " * 5]],
            TextChunk(priority=2)["two " * 5],
        ]
        assert render(prompt, budget=24).messages[0].text.split()[0] == "three"

    def test_children_that_a_component_passes_on_get_what_is_provided_where_they_stand(
        self,
    ) -> None:
        @component
        def with_other(children: Children) -> Child:
            return Provide(Workspace("/inner"))[children]

        prompt = Provide(Workspace("/outer"))[UserMessage()[with_other()[folder()]]]
        assert render(prompt, budget=50).messages[0].text == "/inner"
