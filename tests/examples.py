"""How many examples a property test takes.

By default a law is tried with a sixth of its examples, the same ones in every run. `pytest -m slow`
tries all properties with all of them, and `HYPOTHESIS_PROFILE=thorough` with fifty times as many,
other ones in every run.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

__all__ = ["examples", "keep_first", "load_profile"]

_WHOLE = 100
_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "quick",
    deadline=None,
    report_multiple_bugs=False,
    derandomize=True,
    max_examples=16,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.register_profile(  # it is enough to know that an example fails
    "mutants", settings.get_profile("quick"), phases=[Phase.explicit, Phase.generate]
)
settings.register_profile(
    "whole",
    deadline=None,
    report_multiple_bugs=False,
    derandomize=True,
    max_examples=_WHOLE,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.register_profile(
    "thorough",
    deadline=None,
    report_multiple_bugs=False,
    max_examples=50 * _WHOLE,
    suppress_health_check=_SLOW_IS_FINE,
)


def load_profile(*, whole: bool) -> None:
    """Choose how hard properties are tried.

    Not by hypothesis's own option: a conftest is read after it, and would overrule it.
    """
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "whole" if whole else "quick"))


def examples(count: int) -> int:
    """The share of `count` examples that this run takes: all of them in a whole run."""
    taken: int = settings.default.max_examples if settings.default else _WHOLE
    return max(5, count * taken // _WHOLE)


def keep_first(count: int, *values: object) -> list[object]:
    """Return the values of a parametrized test.

    The first `count` are tried in every run, the others with the marker `slow`.
    """
    return [
        *values[:count],
        *(pytest.param(value, marks=pytest.mark.slow) for value in values[count:]),
    ]
