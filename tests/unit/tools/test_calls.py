"""A function is a tool: its arguments are checked, its result is text, parts or JSON, and what it raises is told to the model."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import attrs
import pytest
from pydantic import BaseModel, Field

from promptkit import AgentSession, ImagePart, Tool, ToolCall, tool
from promptkit.errors import InvalidArgumentError, ToolError
from promptkit.testing import ScriptedModel
from promptkit.tools import ToolResult


class Unit(enum.Enum):
    METRE = "m"


@attrs.frozen
class Place:
    x: int
    _y: int = 7
    tags: list[str] = attrs.field(factory=list[str])
    size: int = attrs.field(default=attrs.Factory(lambda self: self.x + 1, takes_self=True))


@attrs.define
class Route:
    start: Place
    stops: list[Place] | None = None


@dataclass
class Speed:
    value: float
    """Of a day."""
    unit: Unit = Unit.METRE


class Car(BaseModel):
    name: str


@attrs.define
class Loop:
    inner: Loop | None = None


def run(made: Tool, arguments: Mapping[str, object]) -> Any:
    return made.run(arguments)


def test_nested_attrs_classes_are_made_from_the_arguments_with_their_own_defaults() -> None:
    got: list[Route] = []
    drive = tool(name="drive")(_keep(got))
    run(drive, {"route": {"start": {"x": 1, "y": 2}, "stops": [{"x": 3}]}})
    assert got == [Route(Place(1, 2), [Place(3)])]
    assert got[0].stops == [Place(3, 7, [], 4)]


def _keep(got: list[Route]) -> Callable[[Route], None]:
    def drive(route: Route) -> None:
        got.append(route)

    return drive


def test_every_argument_arrives_as_what_it_is_annotated_with() -> None:
    @tool
    def look(
        speed: Speed, car: Car, at: dt.date, unit: Unit, /, *rest: int, more: bool, **others: str
    ) -> str:
        return repr((speed, car.name, at, unit, rest, more, others))

    arguments = {
        "speed": {"value": 1},
        "car": {"name": "c"},
        "at": "2026-11-22",
        "unit": "m",
        "rest": [1, 2],
        "more": True,
        "z": "t",
    }
    assert run(look, arguments) == repr(
        (Speed(1.0), "c", dt.date(2026, 11, 22), Unit.METRE, (1, 2), True, {"z": "t"})
    )


def test_of_wrong_arguments_the_model_is_told_which_and_why() -> None:
    @tool
    def search(words: str, limit: int = 3) -> str:
        return words * limit

    with pytest.raises(ToolError) as error:
        run(search, {"limit": "ten", "page": 2})
    assert str(error.value).splitlines() == [
        "these arguments of search are wrong:",
        "words: Field required.",
        "limit: Input should be a valid integer, not 'ten'.",
        "page: Extra inputs are not permitted.",
    ]


def order(
    n: int,
    *,
    s: str = "a",
    mode: Literal["r", "w"] = "r",
    xs: list[int] = [],  # noqa: B006  # as models of pydantic have it
    flag: bool = False,
    opt: int | None = None,
    ratio: float = 1.0,
) -> str:
    return repr((n, s, mode, xs, flag, opt, ratio))


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        ({"n": "5"}, "(5, 'a', 'r', [], False, None, 1.0)"),
        ({"n": 1, "flag": "true"}, "(1, 'a', 'r', [], True, None, 1.0)"),
        ({"n": 1, "flag": "false", "opt": "3"}, "(1, 'a', 'r', [], False, 3, 1.0)"),
        ({"n": "-2", "ratio": "0.5"}, "(-2, 'a', 'r', [], False, None, 0.5)"),
        # what the schema allows
        ({"n": 5.0, "xs": [1.0, 2], "ratio": 2}, "(5, 'a', 'r', [1, 2], False, None, 2.0)"),
        ({"n": 2**80, "s": "5"}, f"({2**80}, '5', 'r', [], False, None, 1.0)"),
    ],
)
def test_a_number_or_a_boolean_in_quotes_is_read(arguments: dict[str, object], got: str) -> None:
    assert run(tool(order), arguments) == got


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"n": True}, "n: Input should be a valid integer, not True."),
        ({"n": "five"}, "n: Input should be a valid integer, not 'five'."),
        ({"n": "5.5"}, "n: Input should be a valid integer, not '5.5'."),
        ({"n": "true"}, "n: Input should be a valid integer, not 'true'."),
        ({"n": 5.5}, "n: Input should be a valid integer"),
        ({"n": 1, "s": 5}, "s: Input should be a valid string, not 5."),
        ({"n": 1, "mode": "x"}, "mode: Input should be 'r' or 'w', not 'x'."),
        ({"n": 1, "xs": ["1"]}, "xs.0: Input should be a valid integer, not '1'."),
        ({"n": 1, "xs": [True]}, "xs.0: Input should be a valid integer, not True."),
        ({"n": 1, "xs": "12"}, "xs: Input should be a valid array, not '12'."),
        ({"n": 1, "flag": "yes"}, "flag: Input should be a valid boolean, not 'yes'."),
        ({"n": 1, "flag": 1}, "flag: Input should be a valid boolean, not 1."),
        ({"n": 1, "ratio": True}, "ratio: Input should be a valid number, not True."),
        ({"n": 1, "ratio": "NaN"}, "ratio: Input should be a finite number, not nan."),
        ({"n": 1, "s": "\ud800"}, "have half of a character, '\\ud800'"),
        ({"n": 1, "self": 1}, "self: Extra inputs are not permitted."),
        ({"n": None}, "n: Input should be a valid integer, not None."),
    ],
)
def test_all_else_that_the_schema_refuses_is_refused(
    arguments: dict[str, object], problem: str
) -> None:
    with pytest.raises(ToolError) as error:
        run(tool(order), arguments)
    assert problem in str(error.value)


def test_with_a_strict_schema_nothing_is_read_in_quotes() -> None:
    made = tool(strict=True)(_add_one)
    assert run(made, {"number": 1}) == "2"
    with pytest.raises(ToolError, match="should be a valid integer"):
        run(made, {"number": "1"})


def _add_one(number: int) -> int:
    return number + 1


def test_a_long_list_of_wrong_arguments_is_cut() -> None:
    @tool
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    with pytest.raises(ToolError, match=r"\n15 more arguments are wrong\.$") as error:
        run(add, {"numbers": ["x" * 1_000] * 20})
    assert len(str(error.value)) < 1_000


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("text", "text"),
        (None, None),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (["a", "b"], '["a","b"]'),
        ([], "[]"),
        (3.5, "3.5"),
        (True, "true"),
        (dt.date(2026, 11, 22), '"2026-11-22"'),
        (Speed(2.0), '{"value":2.0,"unit":"m"}'),
        (Car(name="c"), '{"name":"c"}'),
        (Place(1), '{"x":1,"_y":7,"tags":[],"size":2}'),
        (
            ImagePart(url="data:image/png;base64,AA=="),
            (ImagePart(url="data:image/png;base64,AA=="),),
        ),
        (
            ["a", ImagePart(url="data:image/png;base64,AA==")],
            ("a", ImagePart(url="data:image/png;base64,AA==")),
        ),
        (ToolResult("no", is_error=True), ToolResult("no", is_error=True)),
    ],
)
def test_a_result_is_text_parts_or_a_value_as_json(value: object, result: object) -> None:
    def give() -> object:
        return value

    assert run(tool(give), {}) == result


def test_a_result_that_json_cannot_hold_is_an_error_that_says_so() -> None:
    def give() -> object:
        return object()

    with pytest.raises(
        TypeError, match="the tool returned object, which cannot be written as JSON: return text"
    ):
        run(tool(give), {})


def test_methods_partials_and_objects_are_functions_too() -> None:
    class Counter:
        def add(self, by: int) -> int:
            """Count on."""
            return by + 1

        def __call__(self, by: int) -> int:
            """Count back."""
            return by - 1

    assert (tool(Counter().add).definition.name, run(tool(Counter().add), {"by": 1})) == (
        "add",
        "2",
    )
    assert (tool(Counter()).definition.description, run(tool(Counter()), {"by": 1})) == (
        "Count back.",
        "0",
    )
    assert run(tool(name="five")(functools.partial(Counter().add, 5)), {}) == "6"


def test_a_name_is_needed_that_providers_accept() -> None:
    nameless: Callable[[str], str] = lambda path: path  # noqa: E731  # has no name
    with pytest.raises(
        InvalidArgumentError,
        match=r"test_calls.py:\d+: '<lambda>' is no name for a tool. Write tool\(name=…\)",
    ):
        tool(nameless)


def _takes_a_function(call: Callable[[int], int]) -> None: ...
def _takes_itself(loop: Loop) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_takes_a_function, "no schema can be made of the arguments of _takes_a_function: "),
        (_takes_itself, "Loop contains itself"),
    ],
)
def test_a_function_without_a_schema_is_refused_with_its_place(
    function: Callable[..., Any], says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"test_calls.py:\d+: .*{says}"):
        tool(function)


def test_texts_in_annotated_describe_arguments() -> None:
    def go(city: Annotated[str, "Where to."]) -> None: ...

    assert tool(go).definition.parameters == {
        "additionalProperties": False,
        "properties": {"city": {"description": "Where to.", "type": "string"}},
        "required": ["city"],
        "type": "object",
    }


def read_file(path: str, lines: int = 2) -> str:
    """Read the start of a file.

    Args:
        path: The path of the file.
        lines: The most lines.
    """
    if path == "none":
        raise FileNotFoundError(path)
    return f"{path}:{lines}"


async def fetch(url: str) -> dict[str, str]:
    """Fetch a page."""
    return {"page": url}


def calls(*pairs: tuple[str, str]) -> list[ToolCall]:
    return [
        ToolCall(id=f"c{at}", name=name, arguments=arguments)
        for at, (name, arguments) in enumerate(pairs)
    ]


def test_a_session_takes_functions_and_the_model_sees_their_results_and_errors() -> None:
    asked = calls(
        ("read_file", '{"path": "a"}'),
        ("fetch", '{"url": "u"}'),
        ("read_file", '{"path": "none"}'),
        ("read_file", "{}"),
    )
    model = ScriptedModel([asked, "Done."])
    session = AgentSession(model=model, tools=[read_file, fetch])
    asyncio.run(session.run("Go."))
    assert [message.text for message in session.window.view.messages if message.role == "tool"] == [
        "a:2",
        '{"page":"u"}',
        "Error: FileNotFoundError: none",
        "Error: these arguments of read_file are wrong:\npath: Field required.",
    ]
    assert [definition.name for definition in model.requests[0].tools] == ["read_file", "fetch"]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
def test_a_call_that_takes_too_long_is_given_up_and_the_model_is_told(is_async: bool) -> None:
    @tool(name="slow", timeout=0.05)
    async def wait() -> str:
        await asyncio.sleep(5)
        return "late"

    @tool(name="slow", timeout=0.05)
    def work() -> str:
        time.sleep(0.3)
        return "late"

    session = AgentSession(
        model=ScriptedModel([calls(("slow", "{}")), "Done."]), tools=[wait if is_async else work]
    )
    asyncio.run(session.run("Go."))
    result = next(message for message in session.window.view.messages if message.role == "tool")
    assert (
        result.text
        == "Error: the call took longer than 0.05 seconds. Whether it had an effect is not known."
    )


def test_a_time_out_that_the_tool_raises_itself_is_an_error_of_its_own() -> None:
    @tool(timeout=5)
    def ask() -> str:
        message = "no answer"
        raise TimeoutError(message)

    session = AgentSession(model=ScriptedModel([calls(("ask", "{}")), "Done."]), tools=[ask])
    asyncio.run(session.run("Go."))
    assert "Error: TimeoutError: no answer" in [
        message.text for message in session.window.view.messages
    ]


def test_a_function_has_a_limit_of_its_results() -> None:
    @tool(max_tokens=200)
    def count(upto: int) -> str:
        return " ".join(map(str, range(upto)))

    session = AgentSession(
        model=ScriptedModel([calls(("count", '{"upto": 1000}')), "Done."]),
        tools=[count],
        budget=10_000,
    )
    asyncio.run(session.run("Go."))
    shown = next(message.text for message in session.window.view.messages if message.role == "tool")
    assert shown.startswith("0 1 2 ")
    assert shown.endswith(" 998 999")
    # there is no tool recall
    assert "\n[The middle of this output was cut out: it was too long.]\n" in shown
    assert session.tokenizer.count(shown) <= 200


def test_a_field_as_the_default_has_the_default_the_limits_and_the_description() -> None:
    @tool
    def search(
        query: str = Field(min_length=2),
        limit: int = Field(10, ge=1, le=50, description="The most hits."),
        tags: list[str] = Field(default_factory=lambda: ["all"]),  # noqa: B008  # as pydantic has it
        page: Annotated[int, Field(default=4)] = 5,
        size: Annotated[int, Field(default=6)] = Field(ge=1),
    ) -> str:
        """Search.

        Args:
            query: The words.
            limit: This is less near to the argument.
        """
        return f"{query} {limit} {tags} {page} {size}"

    shown: Any = search.definition.parameters
    assert shown["properties"]["limit"] == {
        "default": 10,
        "description": "The most hits.",
        "maximum": 50,
        "minimum": 1,
        "type": "integer",
    }
    assert shown["properties"]["query"] == {
        "description": "The words.",
        "minLength": 2,
        "type": "string",
    }
    assert shown["required"] == ["query"]
    assert run(search, {"query": "ox"}) == "ox 10 ['all'] 5 6"
    with pytest.raises(
        ToolError, match="limit: Input should be greater than or equal to 1, not -5"
    ):
        run(search, {"query": "ox", "limit": -5})


def test_an_attrs_instance_as_the_default_is_in_the_schema_and_can_be_given_back() -> None:
    @tool
    def go(start: Place = Place(3, tags=["a"]), stops: list[Place] = [Place(5)]) -> str:  # noqa: B006  # as a caller may write
        return f"{start} {stops}"

    shown: Any = go.definition.parameters
    defaults = {name: each["default"] for name, each in shown["properties"].items()}
    assert defaults == {
        "start": {"x": 3, "y": 7, "tags": ["a"], "size": 4},
        "stops": [{"x": 5, "y": 7, "tags": [], "size": 6}],
    }
    assert run(go, defaults) == run(go, {})


@dataclass
class Leg:
    start: Place


def _takes_attrs_in_a_dataclass(leg: Leg) -> None: ...


def test_an_attrs_class_in_a_dataclass_is_refused_with_where_it_may_be() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"schema for <class '.*Place'>\. .*in attrs classes, and not in dataclasses",
    ) as refused:
        tool(_takes_attrs_in_a_dataclass)
    assert "arbitrary_types_allowed" not in str(refused.value)


class Service:
    def __call__(self, words: str) -> str:
        return words

    def look(self, words: str) -> str:
        return words


def test_an_object_whose_call_has_no_docstring_has_no_description() -> None:
    assert tool(name="search")(Service()).definition.description is None


@pytest.mark.parametrize("given", [Service, functools.partial(Service)])
def test_a_class_is_no_tool(given: Callable[..., Any]) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"Service is a class: give a function, a method of an instance"
    ):
        tool(given)


@pytest.mark.parametrize("given", ["search", tool(name="look")(Service().look)])
def test_what_cannot_be_called_is_refused_with_what_to_write(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"tool takes a function.*tool\(name=…\)"):
        tool(given)


class Decorated:
    def look(self, words: str) -> str:
        return words


def test_a_method_that_has_no_instance_is_refused_with_what_to_pass() -> None:
    for given in (Decorated.look, functools.partial(Decorated.look, words="a")):
        with pytest.raises(
            InvalidArgumentError,
            match=r"test_calls\.py:\d+: Decorated\.look is a method.*Pass the method of an instance",
        ):
            tool(given)


def test_a_decorator_in_a_class_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r": Broken\.look is a method.*tool\(service\.look\)"
    ):

        class Broken:  # pyright: ignore[reportUnusedClass]  # making it is refused
            @tool
            def look(self, words: str) -> str:
                return words


def test_an_argument_may_be_called_self() -> None:
    def name_it(self: str) -> str:
        return self

    assert run(tool(name_it), {"self": "me"}) == "me"
    assert run(tool(functools.partial(Decorated.look, Decorated())), {"words": "a"}) == "a"


def test_numbers_that_json_does_not_have_are_texts() -> None:
    def measure() -> dict[str, object]:
        return {"mean": float("nan"), "limits": [float("-inf"), Speed(float("inf"))]}

    assert json.loads(run(tool(measure), {}), parse_constant=pytest.fail) == {
        "mean": "NaN",
        "limits": ["-Infinity", {"value": "Infinity", "unit": "m"}],
    }


def test_a_partial_of_an_object_has_the_name_of_its_class() -> None:
    assert tool(functools.partial(Service(), words="a")).definition.name == "Service"


def test_the_docstring_below_a_field_of_a_dataclass_is_its_description() -> None:
    def drive(speed: Speed) -> str:
        return repr(speed)

    schema = json.dumps(tool(drive).definition.parameters)
    assert '"value": {"description": "Of a day.", "type": "number"}' in schema
