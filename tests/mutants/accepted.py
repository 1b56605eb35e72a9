"""The survivors that stay: each has the reason why no test can or should notice it."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.mutants.operators import Mutant

__all__ = ["Accepted", "accepts", "load_accepted"]


@attrs.frozen(kw_only=True)
class Accepted:
    """A survivor that is known.

    It is found by its text, so that it stays known when its line moves.
    """

    file: str
    before: str
    after: tuple[str, ...] = attrs.field(converter=tuple)
    """The changed lines that the reason covers."""
    reason: str


def load_accepted(file: Path) -> list[Accepted]:
    """Read the list of known survivors."""
    return [
        Accepted(**each)
        for each in tomllib.loads(file.read_text(encoding="utf-8")).get("survivor", ())
    ]


def accepts(accepted: Iterable[Accepted], file: str, mutant: Mutant) -> bool:
    """Return whether a survivor is known."""
    return any(
        known.file == file and known.before == mutant.before and mutant.after in known.after
        for known in accepted
    )
