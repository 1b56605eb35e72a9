"""Which structure of a job makes promptkit deviate from the reference on purpose, so that the outcomes cannot be compared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from tests.conformance.schema import Job, Node, Spec, is_fragment, is_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["excluded"]

MESSAGES = {"system", "user", "assistant", "tool"}
SIZED = {"echo", "fill", "expandable"}
BREAKS = {"breakOn", "breakOnRegex", "breakOnWhitespace"}


def excluded(case: Job) -> set[str]:
    """What a recorded case runs into: deviations D1 to D10, or words for what the reference gets wrong beside them."""
    look = Look(case, list(_walk(case["spec"], ())))
    return {name for name, condition in CONDITIONS.items() if condition(look)}


@attrs.frozen
class Look:
    """A case, and every node of it with the types of the nodes around it."""

    case: Job
    nodes: list[tuple[Node, tuple[str, ...]]]

    def has(self, *types: str) -> bool:
        """Whether an element of one of these types is in it; what stands in a TextChunk is part of its text."""
        return any(
            node["type"] in types for node, around in self.nodes if around[-1:] != ("textchunk",)
        )

    @property
    def sized(self) -> bool:
        """Whether something in it looks at its budget."""
        return self.has(*SIZED) or any(BREAKS & node.keys() for node, _ in self.nodes)

    @property
    def counts_breaks(self) -> bool:
        """Whether a line break costs a token."""
        return self.case["tokenizer"] in ("chars", "cl100k", "o200k")

    def errors(self) -> list[str]:
        """The errors that the reference came to."""
        expected = self.case["expected"]
        return [
            outcome["error"] for outcome in expected.get("steps", [expected]) if "error" in outcome
        ]

    def counts(self, *, option: str) -> bool:
        """Whether the tokenizer counts what a `words` tokenizer counts only with this option."""
        tokenizer = self.case["tokenizer"]
        return (
            bool(tokenizer.get(option)) if is_node(tokenizer) else tokenizer in ("cl100k", "o200k")
        )


def _skipped_limit(look: Look) -> bool:
    budget = look.case["budget"]
    limits = [node["max"] for node, _ in look.nodes if node["type"] == "tokenlimit"]
    return any(budget == "prunedown" or (budget != "inf" and most > budget) for most in limits)


def _escaping_expandable(look: Look) -> bool:
    return any(
        node["type"] == "expandable" and "tokenlimit" in around for node, around in look.nodes
    )


def _stale_count(look: Look) -> bool:
    return look.counts(option="toolCalls") and any("keepWith" in call for call in _calls(look))


def _boundary(look: Look) -> bool:
    """A boundary that makes the reference fail, or in what does not heed it there."""
    return look.has("cachebreakpoint") and (
        bool(look.errors()) or look.has("legacy", "tokenlimit", "chunk")
    )


def _limit_in_message(look: Look) -> bool:
    return any(
        node["type"] == "tokenlimit" and MESSAGES & set(around) for node, around in look.nodes
    )


def _tools(look: Look) -> bool:
    tools = [node for node, _ in look.nodes if node["type"] == "tool"]
    answered = {node.get("toolCallId") for node in tools}
    paired = any(call["id"] in answered for call in _calls(look))
    framed = bool(tools) and look.counts(option="perMessage") and look.sized
    return paired or framed or any(not _shows(node) for node in tools)


def _empty_text(look: Look) -> bool:
    """A text that is empty, or may be: it breaks the line in the reference and does nothing in promptkit."""
    return any(_may_be_empty(node, look.case) for node, _ in look.nodes)


def _may_be_empty(node: Node, case: Job) -> bool:
    children: list[Spec] = node.get("children") or []
    if node["type"] in ("fill", "expandable"):
        return not node.get("plus") and not node.get("min")
    if node["type"] != "textchunk":
        return "" in children
    text = "".join(child for child in children if isinstance(child, str))
    if not text:
        return not any(is_node(child) and child["type"] == "br" for child in children)
    # Where the chunk's first word does not show, the chunk may have found no room.
    return bool(BREAKS & node.keys()) and text.split()[0] not in json.dumps(case["expected"])


def _embedded(look: Look) -> bool:
    """An embedded tree where its size matters, or in a list, which cannot give it a priority in the reference."""
    listed = any(
        node["type"] == "elementjson" and around[-1:] == ("prioritizedlist",)
        for node, around in look.nodes
    )
    return listed or (look.has("elementjson", "toolresult") and look.sized)


def _shared_pattern(look: Look) -> bool:
    """Two chunks that break on white space: in the reference they share one pattern, and disturb each other's place in their texts."""
    return sum(bool(node.get("breakOnWhitespace")) for node, _ in look.nodes) > 1


def _blank_message(look: Look) -> bool:
    """A message that shows nothing from the start: the reference counts it and does not send it; promptkit counts the request."""
    costs = look.counts_breaks or look.counts(option="perMessage")
    return costs and any(
        node["type"] in MESSAGES and not node.get("toolCalls") and not _shows(node)
        for node, _ in look.nodes
    )


def _bare_legacy(look: Look) -> bool:
    """A LegacyPrioritization without text left to remove: the reference fails with an Error that is no BudgetExceededError.

    It also never removes what has no text, be it that it only carries calls or what is attached to
    it.
    """
    return "No lowest priority node found" in look.errors() or (
        look.has("legacy") and (look.has("meta", "reference") or bool(_calls(look)))
    )


def _glued(look: Look) -> bool:
    """A removal may save more than the reference reckons: it then goes on, and removes more than is needed to fit.

    That is so where the line break behind a text goes with it, and where two words become one
    because the space between goes.
    """
    texts: list[str] = [
        child
        for node, _ in look.nodes
        for child in node.get("children") or ()
        if isinstance(child, str)
    ]
    literals = [
        child
        for node, _ in look.nodes
        if node["type"] != "textchunk"
        for child in node.get("children") or ()
        if _says(child)
    ]
    if look.counts_breaks:
        return bool(literals) and len(texts) > 1
    spaced = any(text != text.strip() for text in texts) or look.has(
        "br", "image", "document", "opaque"
    )
    return bool(literals) and spaced


def _whole_message(look: Look) -> bool:
    """Parts beside text under a real vocabulary: what the reference counts depends on the message as a whole."""
    return look.case["tokenizer"] in ("cl100k", "o200k") and look.has(
        "image", "document", "opaque", "cachebreakpoint"
    )


CONDITIONS: Mapping[str, Callable[[Look], bool]] = {
    "D1": _skipped_limit,
    "D2": _escaping_expandable,
    "D3": _stale_count,
    "D4": _boundary,
    "D5": _limit_in_message,
    "D6": _tools,
    "D7": _empty_text,
    "D8": _embedded,
    "D9": _shared_pattern,
    "exact": _blank_message,
    "legacy": _bare_legacy,
    "parts": _whole_message,
    "shortest prefix": _glued,
}


def _walk(spec: Spec, around: tuple[str, ...]) -> Iterator[tuple[Node, tuple[str, ...]]]:
    if is_fragment(spec):
        for each in spec:
            yield from _walk(each, around)
    elif is_node(spec):
        yield spec, around
        for key in ("children", "alt"):
            yield from _walk(spec.get(key), (*around, spec["type"]))


def _calls(look: Look) -> list[Node]:
    return [call for node, _ in look.nodes for call in node.get("toolCalls") or ()]


def _shows(message: Node) -> bool:
    """Whether a message surely has something in it that is not blank, before anything is pruned."""
    return any(
        node["type"] in SIZED | {"image", "document", "opaque", "cachebreakpoint"}
        or _says(node.get("children") if node["type"] != "ifempty" else node.get("alt"))
        for node, _ in _walk(message, ())
    )


def _says(child: Spec) -> bool:
    if is_fragment(child):
        return any(_says(each) for each in child)
    return (isinstance(child, str) and bool(child.strip())) or (
        isinstance(child, int | float) and not isinstance(child, bool)
    )
