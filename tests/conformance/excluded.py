"""Which structure of a job makes promptkit deviate from the reference on purpose, so that the outcomes cannot be compared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.outcome import Job

__all__ = ["excluded"]

Spec: TypeAlias = Any  # JSON: a node of a job
Placed: TypeAlias = tuple[dict[str, Any], tuple[str, ...]]  # a node, and the types of the nodes around it

MESSAGES = {"system", "user", "assistant", "tool"}
SIZED = {"echo", "fill", "expandable"}


def excluded(case: Job) -> set[str]:
    """The deviations that a recorded case runs into: D1 to D10, or a word for what is no promise on either side."""
    nodes = list(_walk(case["spec"], ()))
    types = {node["type"] for node, _ in nodes}
    found: set[str] = set()
    limits = [(node, around) for node, around in nodes if node["type"] == "tokenlimit"]
    if any(case["budget"] == "prunedown" or (case["budget"] != "inf" and node["max"] > case["budget"]) for node, _ in limits):
        found.add("D1")
    if any(node["type"] == "expandable" and "tokenlimit" in around for node, around in nodes):
        found.add("D2")
    if any(MESSAGES & set(around) for _, around in limits):
        found.add("D5")
    found |= _tools(case, nodes, types)
    found |= _boundaries(case, nodes, types)
    if any(_is_blank(node, case) for node, _ in nodes):
        found.add("D7")
    if types & {"elementjson", "toolresult"} and (types & SIZED or _breaks(nodes)):
        found.add("D8")
    outcomes = case["expected"].get("steps", [case["expected"]])
    if any(outcome.get("error") == "No lowest priority node found" for outcome in outcomes):
        found.add("legacy")  # the reference fails with a plain Error where no text is left to remove in a LegacyPrioritization
    if _counts_breaks(case) and any(_says(child) and len(node["children"]) > 1 for node, _ in nodes for child in node.get("children") or ()):
        # A literal that takes the line break behind it along saves more than the reference reckons: it goes on and removes too much.
        found.add("shortest prefix")
    if _frames(case) and any(node["type"] in MESSAGES and not node.get("toolCalls") and not _shows(node) for node, _ in nodes):
        # The reference counts messages that it does not send; promptkit's count is that of the request.
        found.add("exact")
    return found


def _walk(spec: Spec, around: tuple[str, ...]) -> Iterator[Placed]:
    if isinstance(spec, list):
        for each in spec:
            yield from _walk(each, around)
    elif isinstance(spec, dict):
        yield spec, around
        for key in ("children", "alt"):
            yield from _walk(spec.get(key), (*around, spec["type"]))


def _tools(case: Job, nodes: list[Placed], types: set[str]) -> set[str]:
    found: set[str] = set()
    calls = [call for node, _ in nodes for call in node.get("toolCalls") or ()]
    answered = {node.get("toolCallId") for node, _ in nodes if node["type"] == "tool"}
    if any("keepWith" in call for call in calls) and _counts_calls(case):
        found.add("D3")
    if any(call["id"] in answered for call in calls) or any(node["type"] == "tool" and not _shows(node) for node, _ in nodes):
        found.add("D6")
    if "tool" in types and _frames(case) and (types & SIZED or _breaks(nodes)):
        found.add("D6")
    return found


def _boundaries(case: Job, nodes: list[Placed], types: set[str]) -> set[str]:
    if "cachebreakpoint" not in types:
        return set()
    failed = "error" in case["expected"] or any("error" in step for step in case["expected"].get("steps", ()))
    return {"D4"} if failed or "legacy" in types or "tokenlimit" in types else set()


def _is_blank(node: dict[str, Any], case: Job) -> bool:  # Any: JSON
    """Whether a node writes an empty text, which breaks the line in the reference and does nothing in promptkit."""
    if node["type"] in ("fill", "expandable") and not node.get("plus") and not node.get("min"):
        return True
    if node["type"] != "textchunk":
        return "" in (node.get("children") or ())
    text = "".join(child for child in node.get("children") or () if isinstance(child, str))
    if not text and not any(isinstance(child, dict) and child["type"] == "br" for child in node.get("children") or ()):
        return True
    # Where the chunk's first word does not show, the chunk may have found no room.
    return bool({"breakOn", "breakOnRegex", "breakOnWhitespace"} & node.keys()) and text.split()[0] not in json.dumps(case["expected"])


def _breaks(nodes: list[Placed]) -> bool:
    return any({"breakOn", "breakOnRegex", "breakOnWhitespace"} & node.keys() for node, _ in nodes)


def _shows(node: dict[str, Any]) -> bool:  # Any: JSON
    """Whether a message has anything in it that is not blank, before anything is pruned."""
    return any(
        inner["type"] in SIZED | {"image", "document", "opaque", "cachebreakpoint"} or any(_says(child) for child in inner.get("children") or ())
        for inner, _ in _walk(node, ())
        if inner["type"] != "ifempty"
    ) or any(inner["type"] == "ifempty" and (_says(inner.get("alt")) or any(_says(each) for each in inner.get("alt") or ())) for inner, _ in _walk(node, ()))


def _says(child: Spec) -> bool:
    if isinstance(child, list):
        return any(_says(each) for each in child)
    return (isinstance(child, str) and bool(child.strip())) or (isinstance(child, int | float) and not isinstance(child, bool))


def _counts_breaks(case: Job) -> bool:
    return case["tokenizer"] in ("chars", "cl100k", "o200k")


def _frames(case: Job) -> bool:
    """Whether a message costs something apart from its words."""
    tokenizer = case["tokenizer"]
    return tokenizer in ("chars", "cl100k", "o200k") or (isinstance(tokenizer, dict) and bool(tokenizer.get("perMessage")))


def _counts_calls(case: Job) -> bool:
    tokenizer = case["tokenizer"]
    return tokenizer in ("cl100k", "o200k") or (isinstance(tokenizer, dict) and bool(tokenizer.get("toolCalls")))
