"""A target of the fuzzer: what makes inputs, and what must hold for each of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

__all__ = ["Spec", "Target", "as_case", "check_sentence", "read_case"]

Spec: TypeAlias = Any  # Any: JSON, which a check takes apart and a strategy has made


@attrs.frozen(kw_only=True)
class Target:
    """Every input is bytes, so that one that fails can be kept as a file and tried again, also after the strategies have changed."""

    check: Callable[[bytes], object]
    """Raises for an input for which something does not hold."""
    cases: SearchStrategy[bytes]
    """Makes inputs."""
    seeds: tuple[bytes, ...] = ()
    """Inputs that a coverage-guided engine changes byte by byte. Without them it changes the
    choices that `cases` makes."""


def as_case(spec: Spec) -> bytes:
    """Write a JSON value as an input."""
    return json.dumps(spec, indent=1).encode()


def read_case(case: bytes) -> Spec:
    """Read an input that `as_case` wrote; None where it was changed and is no JSON any more."""
    try:
        return json.loads(case)
    except (ValueError, RecursionError):
        return None


def check_sentence(error: Exception) -> None:
    """An error is told in one line."""
    assert "\n" not in str(error), f"an error has more than one line: {error}"
