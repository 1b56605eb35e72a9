"""What differs between what a job should come to and what it came to, in readable lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conformance.schema import Outcome

__all__ = ["differences", "lacking"]

WIDTH = 600  # characters of a shown value


def differences(expected: Outcome, found: Outcome) -> list[str]:
    """One line, or pair of lines, for each difference; none if the outcomes agree.

    What the reference removed is not compared.
    """
    if "crash" in found:
        return ["crashed: " + found["crash"]]
    if "steps" not in expected:
        return _compare(expected, found)
    if "steps" not in found:
        return ["expected outcomes by budget, found " + _shown(found)]
    wanted = {step["budget"]: step for step in expected["steps"]}
    got = {step["budget"]: step for step in found["steps"]}
    lines: list[str] = []
    for budget in sorted(wanted.keys() | got.keys(), reverse=True):
        if budget not in got:
            lines += [f"budget {budget}: nothing new here, expected", "  " + _shown(wanted[budget])]
        elif budget not in wanted:
            lines += [
                f"budget {budget}: no new outcome expected, found",
                "  " + _shown(got[budget]),
            ]
        else:
            lines += [f"budget {budget}: {line}" for line in _compare(wanted[budget], got[budget])]
    return lines


def lacking(expected: Outcome, found: Outcome) -> list[str]:
    """One line for each budget at which less was kept than the reference keeps, in tokens, or only one of them failed."""
    if "crash" in found:
        return ["crashed: " + found["crash"]]
    budgets = {
        step["budget"]
        for outcome in (expected, found)
        for step in outcome.get("steps", [outcome | {"budget": 0}])
    }
    lines: list[str] = []
    for budget in sorted(budgets, reverse=True):
        wanted, got = _at(expected, budget), _at(found, budget)
        if ("error" in wanted) != ("error" in got) or wanted.get("tokenCount", 0) > got.get(
            "tokenCount", 0
        ):
            lines += [
                f"budget {budget}: expected no less than {_shown(wanted)}",
                f"found {_shown(got)}",
            ]
    return lines


def _at(outcome: Outcome, budget: int) -> Outcome:
    """What holds at a budget: the step of the smallest budget that is not below it.

    What came to one thing only, everywhere.
    """
    steps: list[Outcome] = [
        step
        for step in outcome.get("steps", [outcome | {"budget": budget}])
        if step["budget"] >= budget
    ]
    return min(steps, key=lambda step: int(step["budget"])) if steps else {}


def _compare(expected: Outcome, found: Outcome) -> list[str]:
    if "crash" in found:
        return ["crashed: " + found["crash"]]
    if "error" in expected or "error" in found:
        return _compare_errors(expected, found)
    lines = _unlike("messages", expected, found) + _unlike("tokenCount", expected, found)
    for key in ("references", "omittedReferences", "openai"):
        if key in expected:
            lines += _unlike(key, expected, found)
    # The reference lists what is not local first, and lays out a flex group in breadth; neither
    # order is a promise.
    if "expandableSizings" in expected:
        lines += _unlike("expandableSizings", expected, found, ordered=False)
    return lines + _unlike("metadata", expected, found, ordered=False)


def _compare_errors(expected: Outcome, found: Outcome) -> list[str]:
    if "error" not in expected or "error" not in found:
        return ["expected " + _shown(expected), "found    " + _shown(found)]
    if expected.get("errorType") != found.get("errorType"):
        return [
            f"expected {expected.get('errorType', 'another error')}: {expected['error']}",
            f"found    {found['error']}",
        ]
    lines = _unlike("errorMessages", expected, found) if "errorMessages" in expected else []
    return lines + _unlike("errorMetadata", expected, found, ordered=False)


def _unlike(key: str, expected: Outcome, found: Outcome, *, ordered: bool = True) -> list[str]:
    if expected.get(key) == found.get(key):
        return []
    if not ordered and sorted(expected.get(key, []), key=str) == sorted(
        found.get(key, []), key=str
    ):
        return []
    return [
        f"{key}: expected {_shown(expected.get(key))}",
        f"{' ' * len(key)}     found {_shown(found.get(key))}",
    ]


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDTH else text[:WIDTH] + "…"
