"""The shape of jobs: JSON, of which only a little is known before it is looked at."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard

__all__ = ["Job", "Node", "Outcome", "Spec", "is_fragment", "is_node"]

# JSON: name, spec, budget, tokenizer, opts; a recorded one has `expected` too
Job: TypeAlias = dict[str, Any]
Outcome: TypeAlias = dict[str, Any]  # JSON: messages and tokenCount, or steps of them, or an error
Node: TypeAlias = dict[str, Any]  # JSON: an element, with its `type`
Spec: TypeAlias = Any  # JSON: a Node, text, a number, null, or a list of these


def is_node(spec: object) -> TypeGuard[Node]:
    """Whether a spec is an element."""
    return isinstance(spec, dict)


def is_fragment(spec: object) -> TypeGuard[list[Spec]]:
    """Whether a spec is a list of specs."""
    return isinstance(spec, list)
