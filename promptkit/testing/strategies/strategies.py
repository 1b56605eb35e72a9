"""Random prompts, messages and conversations for hypothesis, so that what should hold for every prompt is tested with every kind.

>>> from hypothesis import given
>>> from promptkit.testing import strategies
>>> @given(strategies.conversations())
... def test_my_prompt_takes_every_conversation(history):
...     assert_fits(MyPrompt(history=history), budget=4_000)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, get_args

from hypothesis import strategies as st

from promptkit.messages import DocumentPart, ImagePart, Message, Role, ToolCall
from promptkit.testing.strategies.generate import Feature, Grower

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

    from promptkit.element import Child
    from promptkit.messages import Part

__all__ = ["FEATURES", "ROLES", "Feature", "conversations", "messages", "prompts"]

FEATURES: tuple[Feature, ...] = get_args(Feature)
"""All that a prompt may have beside messages, text and containers with priorities."""

ROLES: tuple[Role, ...] = get_args(Role)

SWITCHES = 6
"""Features that one number turns on and off: hypothesis draws small numbers evenly, and prefers the low ones of a wide range."""

Result: TypeAlias = "tuple[str, str, str]"
"""The name of a tool, the arguments that it was called with, what it returned."""

Turn: TypeAlias = "tuple[Message, list[tuple[str, list[Result]]], str | None]"
"""What the user said; rounds, each what the model said with its calls, and their results; the answer."""


@st.composite
def prompts(draw: DrawFn, *, features: Collection[Feature] = FEATURES, size: int = 14) -> tuple[Child, ...]:
    """A well-formed prompt of up to about `size` pieces, with some of these features: each example has other ones.

    It renders with every tokenizer, and at every budget that what is required fits. Every text has a mark of its own, `w1`, `w2`
    and so on, by which a test can tell what was kept. `BudgetExceededError` is the only error that a render of it may raise.

    Raises ValueError for a feature that is none.
    """
    unknown = [feature for feature in features if feature not in FEATURES]
    if unknown:
        problem = f"{unknown[0]!r} is no feature: take some of {', '.join(FEATURES)}."
        raise ValueError(problem)
    on: set[Feature] = set()
    for start in range(0, len(features), SWITCHES):
        some = tuple(features)[start : start + SWITCHES]
        switches = draw(st.integers(0, 2 ** len(some) - 1))  # one number for several, because every draw takes its time
        on.update(feature for index, feature in enumerate(some) if switches >> index & 1)
    return Grower(draw, on, draw(st.integers(1, size))).prompt()


def messages(*, roles: Sequence[Role] = ROLES, texts: SearchStrategy[str] | None = None) -> SearchStrategy[Message]:
    """One message of one of these roles, with all that its role may have: images and documents, calls, a name.

    Calls stand without results here, and results without calls: `conversations` has both. `texts` are what is said.
    """
    said = _TEXTS if texts is None else texts
    return st.sampled_from(tuple(roles)).flatmap(lambda role: _message(role, said))


def conversations(
    *, turns: int = 5, system: bool | None = None, tools: bool = True, texts: SearchStrategy[str] | None = None
) -> SearchStrategy[tuple[Message, ...]]:
    """A conversation that every provider takes, of up to so many turns of the user.

    A turn is what the user said, rounds of tool calls with all of their results right behind them, and the answer; only after the
    last turn it may still be missing. Ids of calls are unique. `system`: whether a system message stands first; None: now and then.
    `tools`: whether there are calls. `texts` are what is said; none should be blank, which some providers refuse.
    """
    said = _TEXTS if texts is None else texts
    results = st.lists(st.tuples(_TOOLS, _ARGUMENTS, said), min_size=1, max_size=3)
    rounds = st.lists(st.tuples(st.just("") | said, results), max_size=2 if tools else 0)
    turn: SearchStrategy[Turn] = st.tuples(_message("user", said), rounds, st.none() | said)
    first = {None: st.none() | said, True: said, False: st.none()}[system]
    return st.tuples(first, st.lists(turn, max_size=turns)).map(_conversation)


# What means something to some: to JSON, XML, Markdown, Jinja and special tokens, to terminals, to those who cut text. Not `st.text()`: before
# its first example hypothesis prepares all of Unicode, and reads the program for constants, which takes seconds on a busy machine.
_SAYING = (
    "a",
    "word",
    "two words",
    "42",
    "A sentence.",
    '"',
    "\\n",
    "</user>",
    "&amp;",
    "```",
    "{{ x }}",
    "<|im_end|>",
    "\u00e9",
    "e\u0301",
)
_WIDE = ("\u6f22\u5b57", "\u05d0\u05d1", "\U0001f389", "\U0001f469\u200d\U0001f52c", "\U0001f1e9\U0001f1ea", "\ufdfa", "\x1b[31m")
_BETWEEN = (" ", "\n", "", "\r\n", "\t", "\u00a0", "\u200b", "\n\n")
_REST = st.lists(st.sampled_from([before + piece for before in _BETWEEN for piece in (*_SAYING, *_WIDE, "")]), max_size=3)
_TEXTS = st.tuples(st.sampled_from((*_SAYING, *_WIDE)), _REST).map(lambda pieces: pieces[0] + "".join(pieces[1]))
_TOOLS: SearchStrategy[str] = st.sampled_from(("read", "search"))
_ARGUMENTS: SearchStrategy[str] = st.sampled_from(("{}", '{"path": "a.py"}', '{ "query": "\\u00e9", "limit": 3 }', ""))
_CALLS = st.builds(ToolCall, id=st.integers(1, 99).map("c{}".format), name=_TOOLS, arguments=_ARGUMENTS)
_PARTS: SearchStrategy[Part] = st.sampled_from(
    (
        ImagePart(url="https://example.org/a.png", width=640, height=480),
        ImagePart(url="data:image/gif;base64,R0lGODlhAQABAAAAACw=", detail="low"),
        DocumentPart(data="JVBERi0=", media_type="application/pdf", name="a.pdf", tokens=20),
    )
)


def _message(role: Role, texts: SearchStrategy[str]) -> SearchStrategy[Message]:
    content: SearchStrategy[tuple[Part, ...]] = texts.map(lambda text: (text,))
    if role == "user":
        content = st.tuples(texts, st.lists(_PARTS, max_size=2)).map(lambda pair: (pair[0], *pair[1]))
        return st.builds(Message, role=st.just(role), content=content, name=st.sampled_from((None, None, "ada")))
    if role == "assistant":
        calls = st.lists(_CALLS, max_size=2, unique_by=lambda call: call.id).map(tuple)
        return st.builds(Message, role=st.just(role), content=content, tool_calls=calls)
    if role == "tool":
        return st.builds(Message, role=st.just(role), content=content, tool_call_id=st.integers(1, 99).map("c{}".format))
    return st.builds(Message, role=st.just(role), content=content)


def _conversation(drawn: tuple[str | None, list[Turn]]) -> tuple[Message, ...]:
    system, turns = drawn
    made = [] if system is None else [Message(role="system", content=(system,))]
    number = 0
    for index, (asked, rounds, answer) in enumerate(turns):
        made.append(asked)
        for said, results in rounds:
            calls: list[ToolCall] = []
            answers: list[Message] = []
            for name, arguments, result in results:
                number += 1
                calls.append(ToolCall(id=f"c{number}", name=name, arguments=arguments))
                answers.append(Message(role="tool", content=(result,), tool_call_id=f"c{number}"))
            made += [Message(role="assistant", content=(said,) if said else (), tool_calls=tuple(calls)), *answers]
        if answer is not None or index < len(turns) - 1:
            made.append(Message(role="assistant", content=(answer or "Done.",)))
    return tuple(made)
