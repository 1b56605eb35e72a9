"""Conversations as renders end in: well-formed, and of everything that a message may hold."""

from __future__ import annotations

import base64
import json

import attrs
from hypothesis import strategies as st

from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ToolCall,
    ToolDefinition,
)

texts = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "\n",
            "Fix the parser.",
            "日本語 👩‍👩‍👧",
            "e\u0301",
            "\u200f\u0627",
            "<|endoftext|>",
            "\x00",
            '"quoted" \\ back',
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
images = st.builds(
    ImagePart,
    url=st.sampled_from(
        [
            "https://example.org/a.png",
            "data:image/png;base64,iVBORw0KGgo=",
            "data:image/jpg;base64,/9j/",
        ]
    ),
    detail=st.sampled_from([None, "low", "high", "auto"]),
)
documents = st.builds(
    DocumentPart,
    data=st.just(base64.b64encode("Größe\n".encode()).decode()),
    media_type=st.sampled_from(["application/pdf", "text/plain", "text/markdown"]),
    name=st.sampled_from([None, "report.pdf"]),
)
breakpoints = st.builds(
    CacheBreakpointPart,
    kind=st.sampled_from([None, "ephemeral", "explicit"]),
    ttl=st.sampled_from([None, "5m", "1h", "30m", "24h"]),
)
foreign = st.just(OpaquePart(value={"type": "nowhere"}, provider="nobody"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**25), 10**25) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def arguments(draw: st.DrawFn) -> str:
    """A JSON object as models write them: any spacing, any escaping."""
    value = draw(st.dictionaries(texts, json_values, max_size=3))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)


def content(*kinds: st.SearchStrategy[Part]) -> st.SearchStrategy[tuple[Part, ...]]:
    return st.lists(st.one_of(texts, texts, breakpoints, foreign, *kinds), max_size=5).map(tuple)


names = st.sampled_from([None, "ada"])
plain_messages = st.one_of(
    st.builds(Message, role=st.just("user"), content=content(images, documents), name=names),
    st.builds(Message, role=st.just("assistant"), content=content(), name=names),
    st.builds(Message, role=st.just("system"), content=content(), name=names),
)


@st.composite
def rounds(draw: st.DrawFn, number: int) -> list[Message]:
    """An assistant message with parallel calls, and their results in any order."""
    calls = tuple(
        ToolCall(id=f"call_{number}_{index}", name="read_file", arguments=text)
        for index, text in enumerate(draw(st.lists(arguments(), min_size=1, max_size=3)))
    )
    results = [
        Message(role="tool", tool_call_id=call.id, content=draw(content())) for call in calls
    ]
    return [
        Message(role="assistant", content=draw(content()), tool_calls=calls),
        *draw(st.permutations(results)),
    ]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Instructions, then messages and tool rounds in any order."""
    messages = [
        Message(role="system", content=part) for part in draw(st.lists(content(), max_size=2))
    ]
    for number in range(draw(st.integers(0, 4))):
        messages += draw(st.one_of(plain_messages.map(lambda message: [message]), rounds(number)))
    return messages


schemas = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("object"),
        "properties": st.dictionaries(st.text(max_size=4), st.just({"type": "string"}), max_size=2),
    },
)
tools = st.lists(
    st.builds(
        ToolDefinition,
        name=st.just("read_file"),
        description=st.none() | texts,
        parameters=st.none() | schemas,
        strict=st.sampled_from([None, True, False]),
    ),
    max_size=3,
)


def without_breakpoints(messages: list[Message]) -> list[Message]:
    return [
        attrs.evolve(
            message,
            content=tuple(
                part for part in message.content if not isinstance(part, CacheBreakpointPart)
            ),
        )
        for message in messages
    ]


def calls_of(messages: list[Message]) -> list[ToolCall]:
    return [call for message in messages for call in message.tool_calls]
