"""Prompts with something of everything that a trace shows."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from promptkit import (
    AssistantMessage,
    CacheBreakpoint,
    Chunk,
    Document,
    Group,
    Image,
    KeepWith,
    PrioritizedList,
    Reserve,
    SystemMessage,
    Tag,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from promptkit.elements import Opaque

if TYPE_CHECKING:
    from promptkit import Child

__all__ = ["HOSTILE", "RICH", "conversation", "hostile", "many"]

PICTURE = (
    "data:image/png;base64,"
    + b64encode(
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x02\x80\x00\x00\x01\xe0\x08\x02\x00\x00\x00"
    ).decode()
)


def tools() -> Child:
    """Tool calls and results that are pruned together, and a result with a fallback."""
    made: list[Child] = []
    for turn in range(8):
        calls = (
            ToolCall(
                id=f"read_{turn}", name="read_file", arguments=f'{{"path": "src/part_{turn}.py"}}'
            ),
            ToolCall(id=f"find_{turn}", name="search", arguments='{"pattern": "def "}'),
        )
        made += [
            UserMessage(priority=10 * turn)[f"Question {turn}: what does part {turn} do, and why?"],
            AssistantMessage(priority=10 * turn + 1, tool_calls=calls)[f"I read part {turn}."],
            ToolMessage(
                tool_call_id=f"read_{turn}",
                priority=10 * turn + 1,
                fallback=ToolMessage(tool_call_id=f"read_{turn}")["[cut]"],
            )[f"def part_{turn}():\n    return {turn}\n" * (turn + 1)],
            ToolMessage(tool_call_id=f"find_{turn}", priority=10 * turn + 3)["No match."],
        ]
    return (
        SystemMessage(required=True)["You read code."],
        *made,
        UserMessage(required=True)["Go on."],
    )


def limits() -> Child:
    """A limit that cuts whatever the budget, fallbacks in and around it, and room that stays free."""
    files = [
        TextChunk(priority=number)[f"src/file_{number}.py is {number} lines long"]
        for number in range(30)
    ]
    return (
        Reserve(tokens=20),
        SystemMessage(required=True)["You are brief.", Text(priority=1)[" And kind."]],
        UserMessage(priority=5, fallback=UserMessage(priority=9)["[files left out]"])[
            "Files:", TokenLimit(max_tokens=60)[files]
        ],
        UserMessage(priority=7)[
            PrioritizedList(descending=True)[
                [TextChunk()[f"Note {number}."] for number in range(12)]
            ]
        ],
        KeepWith(group="pair", priority=3)[UserMessage()["What was the plan?"]],
        KeepWith(group="pair", priority=8)[AssistantMessage()["To write less."]],
        UserMessage(required=True)["Now?"],
    )


def cached() -> Child:
    """A prefix that a provider should cache, and parts that are no text."""
    return (
        SystemMessage()["You know this page.", TextChunk()["By heart."], CacheBreakpoint()],
        UserMessage(priority=2)[
            "First ",
            Image(url=PICTURE, detail="low"),
            "then",
            CacheBreakpoint(),
            CacheBreakpoint(),
            "last",
        ],
        UserMessage(priority=1)[
            Document(
                data=b64encode(b"%PDF-1.7 page").decode(),
                media_type="application/pdf",
                name="a.pdf",
                tokens=40,
            )
        ],
        AssistantMessage(priority=3)[
            Opaque(value={"type": "thinking", "thinking": "<hm>"}, tokens=12), "Yes."
        ],
        UserMessage(priority=4, name="ada")[
            Group()["", Text()[" "], TextChunk()["one"], "two", Chunk()[Text()["three"], "four"]]
        ],
        UserMessage(priority=9)[
            Tag(tag="notes")[[TextChunk(priority=number)[f"note {number}"] for number in range(9)]],
            "behind the tag",
        ],
        AssistantMessage(priority=8)[
            "Text,", Group(), Group()["and behind an empty group,"], Group()["and a full one."]
        ],
    )


RICH = {"tools": tools, "limits": limits, "cached": cached}


HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "<!--<script>",
    "<img src=x onerror='window.pwned = 1'>",
    "]]>\u2028\u2029\x00\x1b[31m\x7f",
    "half a pair: \ud83d and \udc00",
    "\u202eright to left\u202c \u2066isolated",
    "&lt;b&gt; &amp; {{ title }} {% raw %} ${window.pwned = 1}",
    "javascript:window.pwned=1",
    "a" * 5_000,
    "\n" * 300 + "end",
)


def hostile() -> Child:
    """Content that tries to be more than text, wherever a prompt has any."""
    calls = tuple(ToolCall(id=text[:60], name=text[:60], arguments=text) for text in HOSTILE)
    results = [ToolMessage(tool_call_id=text[:60])[text] for text in HOSTILE]
    messages = [
        UserMessage(priority=at, name=text[:60], label=text[:60])[
            TextChunk(label=text)[text], Text()[text]
        ]
        for at, text in enumerate(HOSTILE)
    ]
    images = [
        UserMessage(priority=at)[
            Image(url=f"https://example.invalid/{text[:40]}", width=8, height=8)
        ]
        for at, text in enumerate(HOSTILE)
    ]
    return (
        *messages,
        AssistantMessage(priority=50, tool_calls=calls)[HOSTILE[0]],
        *results,
        *images,
        UserMessage(required=True)["end"],
    )


def many(messages: int) -> Child:
    """A long conversation, each message of a few pieces, the newest the most important."""
    roles = (UserMessage, AssistantMessage)
    return tuple(
        roles[number % 2](priority=number)[
            f"Message {number}: ",
            TextChunk(priority=2)["words that fill the room " * (2 + number % 9)],
            TextChunk(priority=1)["and a note"],
        ]
        for number in range(messages)
    )


def conversation() -> Child:
    """The demonstration's prompt: a recorded conversation of a coding agent."""
    from promptkit_components.demo import load_demo

    return load_demo().prompt
