"""The prompt language as users write it, for a type checker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_type

from promptkit import (
    Child,
    If,
    PromptElement,
    Provide,
    Sizing,
    SystemMessage,
    Tag,
    Template,
    TextChunk,
    UserMessage,
    component,
    lines,
    render,
    tag,
)
from promptkit.elements.element import Children


class Workspace:
    root = "/a"


@component
def selection(path: str, code: str = "") -> Child:
    return f"{path}\n{code}"


@component
def section(sizing: Sizing, children: Children, title: str) -> Child:
    workspace = sizing.get(Workspace)
    assert_type(workspace, Workspace)
    return title, workspace.root, children


@component
async def loaded(sizing: Sizing, path: str) -> Child:
    return f"{path}: {sizing.token_budget}"


@component(pure=True)
def rules(*, names: Sequence[str] = ()) -> Child:
    return lines("Rules:", (f"- {name}" for name in names))


files: Mapping[str, str] = {}
xs: Sequence[str] = []
counted = len(files)
assert_type(selection("a.py", code="x"), PromptElement)
assert_type(selection("a.py").layout(priority=5, flex_grow=1, label="a"), PromptElement)
assert_type(tag.file(path="a.py"), Tag)
assert_type(tag("file-part", path="a.py")["x"], Tag)
prompt = Provide(Workspace())[
    SystemMessage()[rules(names=["a"]), section("Title")["x", selection("b.py", "y")]],
    UserMessage()[
        If(files)["Files: ", ", ".join(files)],
        If(counted)[selection("a.py"), "text"],
        xs and TextChunk()["x"],
        counted > 1 and "several",
        loaded("c.py"),
        tag.file(path="a.py")[lines("one", If(xs)["two"], None, False)],
        [TextChunk()[x] for x in xs],
        (f"{x}\n" for x in xs),
    ],
    Template(source="{% component rules() %}", values={"rules": rules}),
]
render(prompt, budget="8k", defaults="prompt-tsx").to_chat(merge_system=True)
