"""The script of the demo's agent: the messages and tool calls that `record_demo` runs and records."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["SCRIPT", "Ask", "Do", "Say"]


class Ask(NamedTuple):
    """A message of the user."""

    text: str


class Say(NamedTuple):
    """The answer of the agent, which ends its turn."""

    text: str


class Do(NamedTuple):
    """The text of the agent with its tool calls. A call is a name and arguments."""

    thought: str
    calls: tuple[tuple[str, dict[str, str]], ...]


Step: TypeAlias = Ask | Say | Do


def _read(path: str, first: int = 1, last: int = 0) -> tuple[str, dict[str, str]]:
    return ("read_file", {"path": path, "first": str(first), "last": str(last)})


def _search(pattern: str, path: str = "promptkit") -> tuple[str, dict[str, str]]:
    return ("search", {"path": path, "pattern": pattern})


def _python(code: str) -> tuple[str, dict[str, str]]:
    return ("run_python", {"code": code})


def _edit(path: str, old: str, new: str) -> tuple[str, dict[str, str]]:
    return ("edit_file", {"path": path, "old": old, "new": new})


def _tests(path: str) -> tuple[str, dict[str, str]]:
    return ("run_tests", {"path": path})


ELEMENT = "promptkit/elements/element.py"
TEST = "checks/test_hints.py"

HINT_OLD = """    elif callable(value):
        hint = "it is a function: call it"
"""
HINT_NEW = """    elif callable(value):
        hint = "it is a function: call it"
    elif isinstance(value, bytes | bytearray):
        hint = "bytes are not text: decode them"
    elif isinstance(value, Mapping):
        hint = "a mapping has no order that a reader could rely on: write its items out, or dump it as JSON"
    elif isinstance(value, AbstractSet):
        hint = "a set has no order: sort it"
"""

TESTS = """import pytest

from promptkit.elements.element import flatten
from promptkit.errors import BadChildError


@pytest.mark.parametrize(
    ("value", "hint"),
    [(b"text", "decode"), ({"a": 1}, "JSON"), ({"b", "a"}, "sort it"), (3, 'write f"{3}"'), (len, "call it"), (int, "int()")],
)
def test_a_bad_child_is_refused_with_a_hint(value: object, hint: str) -> None:
    with pytest.raises(BadChildError, match="cannot have") as caught:
        flatten(value, "UserMessage")
    assert hint in str(caught.value)
"""

DEPTH_TESTS = """

def test_an_element_of_any_depth_prints_and_compares() -> None:
    from promptkit.elements.builtin import Group

    deep, twin = Group(), Group()
    for _ in range(20_000):
        deep, twin = Group()[deep], Group()[twin]
    assert deep == twin
    assert repr(deep).startswith("Group()[Group()[")
"""

TRY_CHILDREN = """
from promptkit.elements.element import flatten
from promptkit.errors import BadChildError

for value in (b"text", {"a": 1}, {"x"}, 3, 2.5, len, int, object()):
    try:
        print(flatten(value, "UserMessage"))
    except BadChildError as error:
        print(error)
"""

TRY_DEPTH = """
import sys
from promptkit.elements.builtin import Group

element = Group()
for _ in range(100_000):
    element = Group()[element]
print("limit", sys.getrecursionlimit(), "characters", len(repr(element)))
print("hash", hash(element) == hash(Group()[element.children]))
"""

TRY_TWICE = """
from promptkit.elements.builtin import UserMessage
from promptkit.errors import TreeError

try:
    UserMessage()["one"]["two"]
except TreeError as error:
    print(type(error).__name__, "-", error)
print(UserMessage()[None, True, ["a", ("b", None)]])
"""

TRY_PAIRING = """
from promptkit import Message, ToolCall
from promptkit.pairing import pair_tool_calls

def call(key):
    return Message(role="assistant", tool_calls=(ToolCall(id=key, name="read"),))

def result(key, text):
    return Message(role="tool", tool_call_id=key, content=(text,))

said = [call("0"), result("0", "first"), call("0"), result("0", "second"), result("0", "third"), call("1"), result("9", "lost")]
paired = pair_tool_calls(said)
for message in paired.messages:
    print(message.role, [c.id for c in message.tool_calls], message.tool_call_id, repr(message.text))
for repair in paired.repairs:
    print("-", repair.kind, "|", repair.detail)
"""

SCRIPT: tuple[Step, ...] = (
    Ask(
        "When somebody puts a dict or bytes into an element's brackets, the error only says what a child is. "
        "For numbers and functions it says what to do. Give bytes, mappings and sets hints of their own, with tests."
    ),
    Do(
        "I look at how the code is laid out, and for the error's text.",
        (("list_files", {"path": "promptkit"}), _search("BadChildError")),
    ),
    Do(
        "The hint is written in element.py.",
        (_search(r"hint =", ELEMENT), _read(ELEMENT, 205, 270)),
    ),
    Do(
        "What is refused before that? I read the top of the file, where the language is defined.",
        (_read(ELEMENT, 1, 100),),
    ),
    Do("Before I change anything, I see what it says today.", (_python(TRY_CHILDREN),)),
    Do(
        "Bytes, mappings and sets get the general sentence. I see how errors are meant to read here.",
        (_read("promptkit/errors.py", 1, 90),),
    ),
    Do(
        "Mapping and Set are imported already, so three branches will do.",
        (_edit(ELEMENT, HINT_OLD, HINT_NEW),),
    ),
    Do("", (_python(TRY_CHILDREN),)),
    Do(
        "Each has its hint. Now a test that names every case.",
        (("write_file", {"path": TEST, "text": TESTS}),),
    ),
    Do("", (_tests(TEST),)),
    Do(
        "They pass. To be sure that the test can fail, I turn one hint round and run it again.",
        (_edit(ELEMENT, "a set has no order: sort it", "a set has no order"), _tests(TEST)),
    ),
    Do(
        "It fails as it should; I put the sentence back.",
        (_edit(ELEMENT, '"a set has no order"', '"a set has no order: sort it"'), _tests(TEST)),
    ),
    Say(
        f"Bytes, mappings and sets now say what to do instead: decode, write the items out or dump as JSON, sort. The branches are in "
        f"`_describe_bad_child` in {ELEMENT}; {TEST} covers them and the three hints that were there."
    ),
    Ask(
        "Does anything in that file recurse over the tree? Users will nest deeper than Python's limit."
    ),
    Do(
        "I look for the places that walk children.",
        (_search(r"stack|children", ELEMENT), _read(ELEMENT, 100, 205)),
    ),
    Do(
        "Equality, repr and flatten keep their own stack. I try a hundred thousand levels.",
        (_python(TRY_DEPTH),),
    ),
    Do(
        "No recursion there. I look at who else walks elements.",
        (_search(r"\.children\b"), _search(r"def _walk|recurs")),
    ),
    Do(
        "That should stay so: a test holds it.",
        (
            _edit(
                TEST,
                "    assert hint in str(caught.value)\n",
                f"    assert hint in str(caught.value)\n{DEPTH_TESTS}",
            ),
        ),
    ),
    Do("", (_tests(TEST),)),
    Say(
        "No. `__eq__`, `__repr__` and `flatten` each keep a stack of their own, and `__hash__` is shallow; 100,000 levels print. "
        f"I added a test with 20,000 levels to {TEST}."
    ),
    Ask(
        "What happens when brackets are used twice on one element, and what do None and True become?"
    ),
    Do("", (_search("TreeError"), _python(TRY_TWICE))),
    Do(
        "I look at how children are kept, to say why None stays in the tuple.",
        (_read("promptkit/elements/builtin.py", 1, 75), _search(r"is None or isinstance\(.*bool")),
    ),
    Say(
        "The second pair of brackets raises TreeError, which names the element. None and booleans become None and keep their place: "
        "a child's position decides about line breaks, so it must not move when something before it is switched off."
    ),
    Ask(
        "Now the components. Our recordings re-use call ids in every round, and some calls have no result. What does History make of that?"
    ),
    Do("", (("list_files", {"path": "components"}), _search("class |^def ", "components"))),
    Do("Pairing has a file of its own.", (_read("promptkit/pairing.py", 1, 75),)),
    Do("", (_read("promptkit/pairing.py", 75, 165),)),
    Do(
        "I give it what you describe: one id three times, a call without a result, a result without a call.",
        (_python(TRY_PAIRING),),
    ),
    Do(
        "Every repair is named. I check where the prompt reports them.",
        (_search("Repair", "promptkit/fitting"), _read("promptkit/fitting/history.py", 25, 110)),
    ),
    Say(
        "A re-used id is made unique on both sides, so each result still answers its own call. A call without a result is answered by "
        "`[no result was recorded]`, a second result and a result of no call are dropped. Each of these stands in `rendered.repairs`."
    ),
    Ask("Which text does a person see when old turns are gone, and can it be changed?"),
    Do("", (_search("omitted", "promptkit/fitting"), _read("promptkit/fitting/history.py"))),
    Do(
        "The marker is a fallback. I read what the language promises of one.",
        (_search("fallback", ELEMENT), _search("fallback", "promptkit/elements")),
    ),
    Say(
        "`[12 older messages omitted]`, as a user message in the place of what left. `omitted_marker` takes False for none, or a function of "
        "the number that words it."
    ),
    Ask("Last one: the values in messages.py. Is anything in there mutable?"),
    Do("", (_read("promptkit/messages.py"), _search(r"@attrs\.(define|frozen)"))),
    Do(
        "All frozen; the containers inside are tuples, but for JSON values. I try to change one.",
        (
            _python(
                "from promptkit.messages import Message\nimport attrs\nm = Message(role='user', content=('hi',))\n"
                "try:\n    m.role = 'system'\nexcept attrs.exceptions.FrozenInstanceError as e:\n    print(type(e).__name__)\n"
                "print(m.text, hash(m) == hash(Message(role='user', content=('hi',))))"
            ),
        ),
    ),
    Do("And the whole of the checks once more.", (_tests("checks"),)),
    Say(
        "Nothing but what a caller puts into the JSON of an OpaquePart or of a tool's parameters. Every class is frozen and compares by value; "
        "content and calls are tuples."
    ),
)
