"""Each way in which a tree can be ill-formed has an error of its own, which says where."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import pytest
from openai.types.chat import ChatCompletionMessage

from promptkit import (
    AssistantMessage,
    CacheBreakpoint,
    Child,
    Group,
    IfEmpty,
    Image,
    Message,
    PromptElement,
    Reserve,
    Sizing,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    Truncate,
    UserMessage,
    component,
    render,
)
from promptkit.elements import element_from_message
from promptkit.errors import (
    BadChildError,
    BadPropError,
    InvalidArgumentError,
    OrphanToolResultError,
    TreeError,
    UnansweredToolCallError,
)
from promptkit.fitting import RecordedMessages
from promptkit.testing import WordTokenizer
from promptkit.wire import messages_from_chat

CALLING = AssistantMessage(tool_calls=[ToolCall(id="x", name="f")])
TWICE = AssistantMessage(tool_calls=[ToolCall(id="x", name="f"), ToolCall(id="x", name="f")])
ANSWER = ToolMessage(tool_call_id="x")["r"]

WHEN_RENDERED: list[tuple[str, Child, type[TreeError], str]] = [
    ("text outside a message", "loose", TreeError, ""),
    ("text beside a message", Group()[UserMessage()["a"], "loose"], TreeError, "Group"),
    ("a chunk outside a message", Group()[TextChunk()["loose"]], TreeError, "Group"),
    (
        "a sized image outside a message",
        Group()[Image(url="https://x/y.png", flex_basis=2)],
        TreeError,
        "Group > Image",
    ),
    ("a sized text outside a message", Group()[Text(flex_basis=2)["a"]], TreeError, "Group > Text"),
    ("an image outside a message", Group()[Image(url="https://x/y.png")], TreeError, "Group"),
    (
        "a message in a message",
        UserMessage()[Group()[SystemMessage()["a"]]],
        TreeError,
        "UserMessage > Group > SystemMessage",
    ),
    ("a cache breakpoint outside a message", Group()[CacheBreakpoint()], TreeError, "Group"),
    (
        "a cache breakpoint deep in a message",
        UserMessage()[Group()[CacheBreakpoint()]],
        TreeError,
        "UserMessage > Group",
    ),
    (
        "an element in a text",
        UserMessage()[TextChunk()[Text()["a"]]],
        BadChildError,
        "UserMessage > TextChunk",
    ),
    (
        "a result without a call",
        Group()[ToolMessage(tool_call_id="x")["a"]],
        OrphanToolResultError,
        "Group > ToolMessage",
    ),
    ("a result before its call", (ANSWER, CALLING), OrphanToolResultError, "ToolMessage[0]"),
    ("a second answer", (CALLING, ANSWER, ANSWER), OrphanToolResultError, "ToolMessage[2]"),
    (
        "a call without a result",
        (UserMessage()["q"], CALLING),
        UnansweredToolCallError,
        "AssistantMessage[1]",
    ),
    ("two calls of one id", (TWICE, ANSWER), BadPropError, "AssistantMessage[0]"),
    ("two open calls of one id", (CALLING, CALLING, ANSWER), BadPropError, "AssistantMessage[1]"),
    (
        "a priority that is no number",
        Group()[UserMessage(priority=math.nan)["a"]],
        BadPropError,
        "Group > UserMessage",
    ),
    ("a basis below nothing", UserMessage(flex_basis=-1)["a"], BadPropError, "UserMessage"),
    ("a basis without end", UserMessage(flex_basis=math.inf)["a"], BadPropError, "UserMessage"),
    (
        "a growth that is no number",
        UserMessage(flex_grow=math.nan)["a"],
        BadPropError,
        "UserMessage",
    ),
    ("a growth that is a text", UserMessage(flex_grow="x")["a"], BadPropError, "UserMessage"),  # type: ignore[arg-type]  # callers may not be type-checked  # pyright: ignore[reportArgumentType]
    ("a growth that is an object", UserMessage(flex_grow={})["a"], BadPropError, "UserMessage"),  # type: ignore[arg-type]  # as above  # pyright: ignore[reportArgumentType]
    ("a basis that is a text", UserMessage(flex_basis="x")["a"], BadPropError, "UserMessage"),  # type: ignore[arg-type]  # as above  # pyright: ignore[reportArgumentType]
    ("a reserve that is a list", UserMessage(flex_reserve=[])["a"], BadPropError, "UserMessage"),  # type: ignore[arg-type]  # as above  # pyright: ignore[reportArgumentType]
    ("a part of nothing", UserMessage(flex_reserve="/0")["a"], BadPropError, "UserMessage"),
    (
        "a part that Python cannot read",
        UserMessage(flex_reserve="/" + "9" * 5_000)["a"],
        BadPropError,
        "UserMessage",
    ),
    (
        "a reserve of a strange unit",
        UserMessage(flex_reserve="50%")["a"],
        BadPropError,
        "UserMessage",
    ),
    (
        "a limit below nothing",
        UserMessage()[TokenLimit(max_tokens=-1)["a"]],
        BadPropError,
        "UserMessage > TokenLimit",
    ),
    ("a reserve below nothing", Group()[Reserve(tokens=-1)], BadPropError, "Group > Reserve"),
    (
        "a limit that is a list",
        UserMessage()[TokenLimit(max_tokens=1).replace(max_tokens=[])["a"]],
        BadPropError,
        "UserMessage > TokenLimit",
    ),
    (
        "a size that is a list",
        UserMessage()[Truncate().replace(max_tokens=[])["a"]],
        BadPropError,
        "UserMessage > Truncate",
    ),
    (
        "a ratio above one",
        UserMessage()[Truncate(ratio=2)["a"]],
        BadPropError,
        "UserMessage > Truncate",
    ),
]


@pytest.mark.parametrize(
    ("prompt", "error", "path"),
    [case[1:] for case in WHEN_RENDERED],
    ids=[case[0] for case in WHEN_RENDERED],
)
def test_what_is_wrong_is_said_with_its_path(
    prompt: Child, error: type[TreeError], path: str
) -> None:
    with pytest.raises(error) as caught:
        render(prompt, budget=50, tokenizer=WordTokenizer())
    assert type(caught.value) is error
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: " if path else "")
    assert str(caught.value).endswith((".", ")", "]"))


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        (ANSWER, "answers call 'x', which is made by no message before it"),
        ((CALLING, ANSWER, ANSWER), "answers call 'x', which is answered already"),
        ((TWICE, ANSWER), "two open tool calls have the id 'x'"),
    ],
)
def test_what_is_wrong_with_a_call_or_a_result_is_said(prompt: Child, problem: str) -> None:
    with pytest.raises(TreeError, match=problem):
        render((prompt, UserMessage()["q"]))


@pytest.mark.parametrize(
    ("text", "shown"), [("a" * 40, "'" + "a" * 40 + "'"), ("a" * 41, "'" + "a" * 40 + "…'")]
)
def test_of_a_text_outside_a_message_forty_characters_are_shown(text: str, shown: str) -> None:
    with pytest.raises(TreeError, match=f"{shown} is outside a message"):
        render(Group()[text, UserMessage()["q"]])


def test_calls_of_one_id_one_after_the_other_are_two() -> None:
    assert len(render((CALLING, ANSWER, CALLING, ANSWER)).messages) == 4


def test_the_fallback_of_a_message_may_repeat_its_call() -> None:
    calling = CALLING.replace(fallback=CALLING)
    assert len(render((calling, ANSWER, UserMessage()["q"])).messages) == 3


def contain_itself(children: list[Child]) -> list[Child]:
    children.append(children)
    return children


def element_that_contains_itself() -> Child:
    fallback: list[Child] = []
    fallback.append(Group()[Group(fallback=fallback)["a"]])
    return Group(fallback=fallback)["b"]


def twice_in_its_own_alternative() -> Child:
    alternative: list[Child] = []
    element = IfEmpty(alt=alternative)["x"]
    alternative += [element, element]
    return element


IN_THEMSELVES: list[tuple[Child, str]] = [
    (UserMessage()["a", element_that_contains_itself()], "UserMessage > fallback[1] > Group"),
    (UserMessage()[Group()[twice_in_its_own_alternative()]], "UserMessage > Group > IfEmpty"),
    (UserMessage()[IfEmpty(alt=contain_itself([]))[()]], "UserMessage > IfEmpty"),
]


@pytest.mark.parametrize(("prompt", "path"), IN_THEMSELVES)
def test_what_contains_itself_is_said_with_its_path_and_takes_no_memory(
    prompt: Child, path: str
) -> None:
    with pytest.raises(TreeError, match="contains itself") as caught:
        render(prompt, budget=50, tokenizer=WordTokenizer())
    assert caught.value.path == path
    assert len(str(caught.value)) < 200


class Bare(PromptElement):
    pass


WHEN_BUILT: list[tuple[str, Callable[[], object], type[TreeError]]] = [
    ("a number", lambda: UserMessage()[3], BadChildError),  # type: ignore[index]  # what the checkers refuse is refused at run time too  # pyright: ignore[reportArgumentType]
    ("a class", lambda: UserMessage()[Group], BadChildError),  # type: ignore[index]  # as above  # pyright: ignore[reportArgumentType]
    ("a function", lambda: UserMessage()[len], BadChildError),  # type: ignore[index]  # as above  # pyright: ignore[reportArgumentType]
    ("a mapping", lambda: UserMessage()[{"a": 1}], BadChildError),  # type: ignore[index]  # as above  # pyright: ignore[reportArgumentType]
    ("bytes", lambda: UserMessage()[b"a"], BadChildError),  # type: ignore[index]  # as above  # pyright: ignore[reportArgumentType]
    ("children of a class", lambda: UserMessage["a"], TreeError),  # type: ignore[misc]  # as above  # pyright: ignore[reportInvalidTypeArguments]
    ("a positional argument", lambda: UserMessage("a"), TreeError),  # type: ignore[call-arg, arg-type]  # as above  # pyright: ignore[reportCallIssue]
    ("children twice", lambda: UserMessage()["a"]["b"], TreeError),
    ("a list that contains itself", lambda: UserMessage()[contain_itself([])], TreeError),
    (
        "a list that contains itself among others",
        lambda: UserMessage()["a", [contain_itself(["b", "c"])]],
        TreeError,
    ),
    ("a class without its decorator", Bare, TreeError),
]


@pytest.mark.parametrize(
    ("build", "error"), [case[1:] for case in WHEN_BUILT], ids=[case[0] for case in WHEN_BUILT]
)
def test_what_is_wrong_when_built_is_said_when_built(
    build: Callable[[], object], error: type[TreeError]
) -> None:
    with pytest.raises(error) as caught:
        build()
    assert type(caught.value) is error


HI = {"role": "user", "content": "hi"}
MESSAGES: dict[str, tuple[object, str]] = {
    "a message": (Message(role="user", content="hi"), "`element_from_message(message)`"),
    "a dict": (HI, "`map(element_from_message, messages_from_chat(messages))`"),
    "a list of dicts": ([HI], "`map(element_from_message, messages_from_chat(messages))`"),
    "an object of an SDK": (
        ChatCompletionMessage(role="assistant", content="hi"),
        "`map(element_from_message, messages_from_chat(messages))`",
    ),
    "an item of the Responses API": (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        "messages_from_responses",
    ),
}


@pytest.mark.parametrize(("message", "advice"), MESSAGES.values(), ids=MESSAGES.keys())
def test_a_message_among_children_is_refused_with_how_it_becomes_an_element(
    message: Any, advice: str
) -> None:  # Any: what the checkers refuse
    for build in (
        lambda: Group()[UserMessage()["a"], message],
        lambda: UserMessage()[message],
        lambda: render(message),
    ):
        with pytest.raises(BadChildError) as caught:
            build()
        assert advice in str(caught.value)


def test_what_the_advice_says_works() -> None:
    prompt = Group()[
        UserMessage()["a"],
        element_from_message(Message(role="user", content="b")),
        map(
            element_from_message,
            messages_from_chat([HI, ChatCompletionMessage(role="assistant", content="hello")]),
        ),
    ]
    assert [message.text for message in render(prompt).messages] == ["a", "b", "hi", "hello"]
    assert prompt == Group().replace(children=prompt.children)


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="budget"):
        render(UserMessage()["a"], budget=-1, tokenizer=WordTokenizer())


@pytest.mark.parametrize("prompt", [(CALLING, UserMessage()["q"]), (UserMessage()["q"], ANSWER)])
def test_lenient_pairing_lets_the_unpaired_pass(prompt: Child) -> None:
    assert (
        len(render(prompt, budget=50, tokenizer=WordTokenizer(), pairing="lenient").messages) == 2
    )


def test_nothing_at_all_is_no_error() -> None:
    for nothing in ((), None, Group(), UserMessage(), " \n"):
        made = render(nothing, budget=5, tokenizer=WordTokenizer())
        assert (made.messages, made.tokens) == ((), 0)


def test_children_of_a_class_say_where_the_parentheses_stand() -> None:
    with pytest.raises(
        TreeError, match=r"UserMessage is a class.*: write UserMessage\(\)\['hi'\]\.$"
    ):
        UserMessage["hi"]  # type: ignore[misc]  # as above  # pyright: ignore[reportInvalidTypeArguments, reportUndefinedVariable]
    with pytest.raises(TreeError, match=r"write ToolMessage\(tool_call_id=…\)\['a', 'b'\]\.$"):
        ToolMessage["a", "b"]  # type: ignore[misc]  # as above  # pyright: ignore[reportInvalidTypeArguments, reportUndefinedVariable]


def test_a_positional_argument_says_where_children_stand() -> None:
    with pytest.raises(TreeError, match=r"have names\. Write UserMessage\(\)\['hi'\]\.$"):
        UserMessage("hi")  # type: ignore[call-arg, arg-type]  # as above  # pyright: ignore[reportCallIssue]
    with pytest.raises(BadPropError, match="no prop prio: did you mean priority"):
        UserMessage(prio=1)  # type: ignore[call-arg]  # as above  # pyright: ignore[reportCallIssue]


def return_nothing(count: int) -> None:
    _ = count


class TestBadValues:
    @pytest.mark.parametrize("budget", [None, [], True])
    # Any stands for as above
    def test_a_budget_of_another_kind_is_refused_with_a_sentence(self, budget: Any) -> None:
        with pytest.raises(TypeError, match="budget must be a number of tokens, text such as '8k'"):
            render(UserMessage()["a"]).at_budget(budget)

    def test_the_other_budget_may_be_written_in_thousands_and_is_not_negative(self) -> None:
        rendered = render(UserMessage()["a"], tokenizer=WordTokenizer(), budget=10)
        assert rendered.at_budget("8k").budget == 8_000
        with pytest.raises(InvalidArgumentError, match="budget must be at least 0 tokens"):
            rendered.at_budget(-1)

    @pytest.mark.parametrize("name", [5, "", b"ada"])
    def test_a_name_that_is_none_is_refused(self, name: Any) -> None:  # Any: as above
        with pytest.raises(BadPropError, match=r"name must be a text.*or None"):
            UserMessage(name=name)

    def test_an_empty_name_in_a_recording_is_none(self) -> None:
        assert (
            render(element_from_message(Message(role="user", content="a", name="")))
            .messages[0]
            .name
            is None
        )

    def test_a_label_that_is_no_text_is_refused(self) -> None:
        label: Any = 5  # as above
        with pytest.raises(BadPropError, match="label must be a text or None, not 5"):
            UserMessage(label=label)

    def test_a_label_cannot_control_the_terminal(self) -> None:
        prompt = (UserMessage(label="\x1b[31mred\nrow", priority=1)["a b"], UserMessage()["c"])
        shown = render(prompt, budget=2, tokenizer=WordTokenizer()).explain()
        assert r"\x1b[31mred\nrow" in shown
        assert "\x1b" not in shown

    @pytest.mark.parametrize(
        ("props", "says"),
        [
            ({"keep_turns": -1}, "keep_turns must be a whole number of at least 0, not -1"),
            ({"keep_turns": 1.5}, "keep_turns must be"),
            ({"truncate_at": 0}, "truncate_at must be a whole number of at least 1, not 0"),
            ({"marker": return_nothing}, "marker must return a text, not None"),
        ],
    )
    # Any stands for as above
    def test_a_recording_refuses_props_that_cannot_be(
        self, props: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(BadPropError, match=says):
            render(RecordedMessages(messages=[MESSAGE] * 9, **props), budget=9)


def test_one_message_is_one_in_a_receipt() -> None:
    assert (
        "in 1 message\n"
        in render(UserMessage()["a"], tokenizer=WordTokenizer(), budget=9).explain()
    )


MESSAGE = Message(role="user", content="hi")


@component
class Recording(PromptElement):
    turns: Sequence[Message]

    def render(self, sizing: Sizing) -> Child:
        return [element_from_message(message) for message in self.turns]


@pytest.mark.parametrize(
    ("cls", "value", "advice"),
    [
        (UserMessage, MESSAGE, "element_from_message(message)"),
        (UserMessage, [HI], "messages_from_chat(messages)"),
        (UserMessage, 5, 'write f"{5}"'),
        (Recording, [MESSAGE], "Write Recording(turns=[…])."),
        (Recording, "hi", "Write Recording(turns='hi')."),
        (ToolMessage, "hi", "Write ToolMessage(tool_call_id=…)['hi']."),
    ],
)
# Any stands for as above
def test_the_advice_for_a_positional_argument_works_when_it_is_followed(
    cls: Any, value: object, advice: str
) -> None:
    with pytest.raises(TreeError) as caught:
        cls(value)
    assert advice in str(caught.value)
    assert "Message(role" not in str(caught.value).partition("rite ")[2]


def test_what_cannot_be_children_of_a_class_may_be_its_prop() -> None:
    recording: Any = Recording  # as above
    with pytest.raises(TreeError, match=r"write Recording\(turns=\[…\]\)\.$"):
        recording[[MESSAGE]]


@pytest.mark.parametrize("messages", [[HI], [MESSAGE, HI]])
# Any stands for what the checkers refuse
def test_messages_of_a_provider_in_a_recording_say_how_they_are_read(messages: Any) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=rf"turns\[{len(messages) - 1}\] must be a Message.*messages_from_chat\(messages\)",
    ):
        render(RecordedMessages(messages=messages))


T = TypeVar("T")


@component
class Listing(PromptElement, Generic[T]):
    items: tuple[T, ...]

    def render(self, sizing: Sizing) -> Child:
        return UserMessage()[list(map(str, self.items))]


def test_a_class_with_type_parameters_still_takes_them() -> None:
    made = render(Listing[int](items=(1, 2)), budget=50, tokenizer=WordTokenizer())
    assert [message.text for message in made.messages] == ["12"]


def test_a_budget_may_be_written_in_thousands() -> None:
    assert render(UserMessage()["hi"], budget="8k", tokenizer=WordTokenizer()).budget == 8_000
