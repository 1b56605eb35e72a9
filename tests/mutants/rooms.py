"""Which files a mutation run changes, and which tests must notice it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

__all__ = ["ROOMS", "Room"]


@attrs.frozen
class Room:
    """Files, and the tests that promise what these files do."""

    files: tuple[str, ...]
    """Patterns from the top of the checkout."""
    tests: tuple[str, ...]
    """Paths of tests that take some seconds together, in the order in which they run. Before them
    run the test files that are named after the mutated file, in the same folders, listed or not."""


ROOMS: Mapping[str, Room] = {
    "rendering": Room(
        files=("promptkit/rendering/**/*.py",),
        tests=(
            "tests/unit/rendering",
            *(
                f"tests/behaviour/test_{name}.py"
                for name in (
                    "required",
                    "reserve",
                    "isolate",
                    "keep_with",
                    "first",
                    "attachments",
                    "receipt",
                    "async",
                    "fallbacks_in_depth",
                    "ill_formed",
                    "fallback",
                    "truncate",
                    "edge_cases",
                    "incremental",
                    "least_size",
                    "prune_step",
                    "flex",
                    "deviations",
                    "oracle_equality",
                    "nested_limits",
                    "oracle",
                    "legacy_prioritization",
                    "subclasses",
                    "static_prompts",
                    "trace",
                    "exact",
                    "laws",
                    "nothing_stale",
                    "pinned_by_breakpoint",
                    "budget_exceeded",
                    "removals",
                    "defaults",
                    "hostile",
                )
            ),
            "tests/conformance/test_conformance.py",
            "tests/unit/fitting",
            "tests/unit/elements",
            "tests/unit/components",
            "tests/unit/tracing",
        ),
    ),
    "fit": Room(
        files=("promptkit/fitting/*.py",),
        tests=("tests/unit/fitting",),
    ),
    "tokens": Room(
        files=("promptkit/tokens/*.py",),
        tests=tuple(
            f"tests/unit/tokens/test_{name}.py"
            for name in (
                "budget",
                "models",
                "prices",
                "tool_schemas",
                "images",
                "encodings",
                "request",
                "truncation",
                "count_cache",
                "estimates",
                "tokenizer",
                "openai_tokenizer",
                "vocabularies",
            )
        ),
    ),
    "policy": Room(
        files=("promptkit/compaction/policy/*.py",),
        tests=(
            "tests/unit/compaction/policy",
            "tests/behaviour/test_policy.py",
            "tests/behaviour/test_least_size.py",
            "tests/behaviour/test_presets_figures.py",
        ),
    ),
}
