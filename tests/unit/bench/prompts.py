"""Prompts to measure, and runs made by hand to compare."""

from __future__ import annotations

from promptkit import SystemMessage, TextChunk, UserMessage
from promptkit.bench.results import Element, Point, Run, Sweep, Versions
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing

__all__ = ["BUDGETS", "Review", "run_of", "sweep_of"]

BUDGETS = (100, 200, 400)


@component
class Review(PromptElement):
    """Instructions, remarks of which the last are kept longest, and a request."""

    remarks: int = 20
    remarks_above: bool = False

    def render(self, sizing: Sizing) -> Child:
        return (
            SystemMessage(required=True)["You review code."],
            UserMessage(priority=3 if self.remarks_above else 1, label="remarks")[
                (
                    TextChunk(priority=n)[
                        f"Remark {n}: name things in full, and say what they are for."
                    ]
                    for n in range(self.remarks)
                )
            ],
            UserMessage(priority=2, label="style")["The guide of style. " * 8],
            UserMessage(required=True)["def area(r): return 3.14 * r * r"],
        )


def sweep_of(
    *,
    used: tuple[int, ...] = (90, 190, 200),
    notes: tuple[int | None, ...] = (0, 90, 100),
    rules: tuple[int | None, ...] = (80, 80, 80),
    cold: float | None = 0.02,
    warm: float | None = 0.01,
    floor: float | None = 0.01,
    model: str | None = None,
    required: tuple[int | None, ...] = (None, None, None),
) -> Sweep:
    """A sweep over BUDGETS with two elements."""
    return Sweep(
        model=model,
        tokenizer="o200k_base",
        whole=200,
        messages=2,
        floor=floor,
        points=tuple(
            Point(budget=budget, used=tokens, messages=2, cold=cold, warm=warm)
            if needed is None
            else Point(budget=budget, required=needed)
            for budget, tokens, needed in zip(BUDGETS, used, required, strict=True)
        ),
        elements=(
            Element(path="A > Notes", whole=100, kept=notes),
            Element(path="A > Rules", whole=80, kept=rules),
        ),
    )


def run_of(
    *sweeps: Sweep, target: str = "a.py:A", depth: int = 3, repeat: int = 5, python: str = "3.11.0"
) -> Run:
    """A run over BUDGETS."""
    versions = Versions(promptkit="0.1.0", python=python, tiktoken="0.14.0")
    return Run(
        target=target, budgets=BUDGETS, depth=depth, repeat=repeat, versions=versions, sweeps=sweeps
    )
