"""Random prompts, messages and conversations for hypothesis, to test properties that hold for every prompt.

>>> from hypothesis import given
>>> from promptkit.testing import strategies
>>> @given(strategies.conversations())
... def test_my_prompt_takes_every_conversation(history):
...     assert_fits(MyPrompt(history=history), budget=4_000)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias, get_args

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from promptkit import Child, DocumentPart, ImagePart, Message, Part, ToolCall
from promptkit.messages import Role
from promptkit.testing.strategies.generate import Feature, PromptGenerator

FEATURES: tuple[Feature, ...] = get_args(Feature)
"""What a prompt may have beside messages, text and containers with priorities."""

ROLES: tuple[Role, ...] = get_args(Role)

FEATURES_PER_DRAW = 6
"""Features that one number turns on and off: hypothesis draws small numbers evenly, and prefers the
low ones of a wide range."""

DrawnCall: TypeAlias = "tuple[str, str, str]"
"""Name of a tool, arguments of the call, text of the result."""

DrawnTurn: TypeAlias = "tuple[Message, list[tuple[str, list[DrawnCall]]], str | None]"
"""The user message; the rounds, each with the model's text and its tool calls; the answer."""


@st.composite
def prompts(
    draw: DrawFn, *, features: Collection[Feature] = FEATURES, size: int = 14
) -> tuple[Child, ...]:
    """Generate a well-formed prompt.

    It renders with every tokenizer, and at every budget that its required parts fit;
    `BudgetExceededError` is the only error that a render of it may raise. Every text has a mark of
    its own, `w1`, `w2` and so on, by which a test can tell what was kept.

    Args:
        draw: Passed by hypothesis.
        features: What a prompt may have beside messages, text and containers; each example uses
            some of them.
        size: About how many elements a prompt may have.

    Raises:
        ValueError: A feature is unknown.
    """
    unknown = [feature for feature in features if feature not in FEATURES]
    if unknown:
        raise ValueError(f"unknown feature {unknown[0]!r}: use some of {', '.join(FEATURES)}.")
    enabled: set[Feature] = set()
    for start in range(0, len(features), FEATURES_PER_DRAW):
        group = tuple(features)[start : start + FEATURES_PER_DRAW]
        # one number for several features, because each draw takes time
        switches = draw(st.integers(0, 2 ** len(group) - 1))
        enabled.update(feature for index, feature in enumerate(group) if switches >> index & 1)
    return PromptGenerator(draw, enabled, draw(st.integers(1, size))).prompt()


def messages(
    *, roles: Sequence[Role] = ROLES, texts: SearchStrategy[str] | None = None
) -> SearchStrategy[Message]:
    """Return a strategy for single messages, with all that their roles may have: images and documents, tool calls, a name.

    Tool calls have no results here, and results no calls; `conversations` has both.

    Args:
        roles: The roles that a message may have.
        texts: A strategy for texts in place of the default.
    """
    content = _TEXTS if texts is None else texts
    return st.sampled_from(tuple(roles)).flatmap(lambda role: _generate_message(role, content))


def conversations(
    *,
    turns: int = 5,
    system: bool | None = None,
    tools: bool = True,
    texts: SearchStrategy[str] | None = None,
) -> SearchStrategy[tuple[Message, ...]]:
    """Return a strategy for conversations that every provider accepts.

    A turn is a user message, rounds of tool calls with all of their results right behind them, and
    the answer, which may be missing after the last turn only. The ids of tool calls are unique.

    Args:
        turns: The largest number of turns.
        system: Whether a system message comes first; None generates one now and then.
        tools: Whether there are tool calls.
        texts: A strategy for texts in place of the default. No text should be blank, because some
            providers refuse those.
    """
    content = _TEXTS if texts is None else texts
    calls = st.lists(st.tuples(_TOOLS, _ARGUMENTS, content), min_size=1, max_size=3)
    rounds = st.lists(st.tuples(st.just("") | content, calls), max_size=2 if tools else 0)
    turn: SearchStrategy[DrawnTurn] = st.tuples(
        _generate_message("user", content), rounds, st.none() | content
    )
    return st.tuples(
        {None: st.none() | content, True: content, False: st.none()}[system],
        st.lists(turn, max_size=turns),
    ).map(_build_conversation)


# Texts with a meaning in JSON, XML, Markdown, Jinja, vocabularies or terminals, and texts that are
# hard to cut. Not `st.text()`: before its first example hypothesis prepares all of Unicode and
# searches the program for constants, which takes seconds on a busy machine.
_NARROW = (
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
_WIDE = (
    "\u6f22\u5b57",
    "\u05d0\u05d1",
    "\U0001f389",
    "\U0001f469\u200d\U0001f52c",
    "\U0001f1e9\U0001f1ea",
    "\ufdfa",
    "\x1b[31m",
)
_BETWEEN = (" ", "\n", "", "\r\n", "\t", "\u00a0", "\u200b", "\n\n")
_REST = st.lists(
    st.sampled_from([before + piece for before in _BETWEEN for piece in (*_NARROW, *_WIDE, "")]),
    max_size=3,
)
_TEXTS = st.tuples(st.sampled_from((*_NARROW, *_WIDE)), _REST).map(
    lambda pieces: pieces[0] + "".join(pieces[1])
)
_TOOLS: SearchStrategy[str] = st.sampled_from(("read", "search"))
_ARGUMENTS: SearchStrategy[str] = st.sampled_from(
    ("{}", '{"path": "a.py"}', '{ "query": "\\u00e9", "limit": 3 }', "")
)
_CALLS = st.builds(
    ToolCall, id=st.integers(1, 99).map("c{}".format), name=_TOOLS, arguments=_ARGUMENTS
)
_PARTS: SearchStrategy[Part] = st.sampled_from(
    (
        ImagePart(url="https://example.org/a.png", width=640, height=480),
        ImagePart(url="data:image/gif;base64,R0lGODlhAQABAAAAACw=", detail="low"),
        DocumentPart(data="JVBERi0=", media_type="application/pdf", name="a.pdf", tokens=20),
    )
)


def _generate_message(role: Role, texts: SearchStrategy[str]) -> SearchStrategy[Message]:
    content: SearchStrategy[tuple[Part, ...]] = texts.map(lambda text: (text,))
    match role:
        case "user":
            content = st.tuples(texts, st.lists(_PARTS, max_size=2)).map(
                lambda pair: (pair[0], *pair[1])
            )
            return st.builds(
                Message,
                role=st.just(role),
                content=content,
                name=st.sampled_from((None, None, "ada")),
            )
        case "assistant":
            return st.builds(
                Message,
                role=st.just(role),
                content=content,
                tool_calls=st.lists(_CALLS, max_size=2, unique_by=lambda call: call.id).map(tuple),
            )
        case "tool":
            return st.builds(
                Message,
                role=st.just(role),
                content=content,
                tool_call_id=st.integers(1, 99).map("c{}".format),
            )
        case _:
            return st.builds(Message, role=st.just(role), content=content)


def _build_conversation(drawn: tuple[str | None, list[DrawnTurn]]) -> tuple[Message, ...]:
    system, turns = drawn
    messages = [] if system is None else [Message(role="system", content=(system,))]
    number = 0
    for index, (question, rounds, answer) in enumerate(turns):
        messages.append(question)
        for text, drawn_calls in rounds:
            calls: list[ToolCall] = []
            results: list[Message] = []
            for name, arguments, result in drawn_calls:
                number += 1
                calls.append(ToolCall(id=f"c{number}", name=name, arguments=arguments))
                results.append(Message(role="tool", content=(result,), tool_call_id=f"c{number}"))
            messages += [
                Message(role="assistant", content=(text,) if text else (), tool_calls=tuple(calls)),
                *results,
            ]
        if answer is not None or index < len(turns) - 1:
            messages.append(Message(role="assistant", content=(answer or "Done.",)))
    return tuple(messages)
