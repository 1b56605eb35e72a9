"""All policies that can be replayed, by name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from promptkit.errors import PromptKitError
from promptkit.replay.policies.baselines import NAIVE
from promptkit.replay.policies.promptkit import PRESET_POLICIES

if TYPE_CHECKING:
    from promptkit.replay.policies.strategy import ReplayPolicy

__all__ = ["GROUPS", "UnknownPolicyError", "names", "policy_named"]


class UnknownPolicyError(PromptKitError):
    """No policy has this name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        close = difflib.get_close_matches(name, known, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(f"there is no policy {name!r}.{meant} There are: {', '.join(known)}.")


GROUPS: dict[str, tuple[str, ...]] = {
    "presets": tuple(PRESET_POLICIES),
    "naive": tuple(each.name for each in NAIVE),
    "all": (*PRESET_POLICIES, *(each.name for each in NAIVE)),
}
"""Names that stand for several."""


def names(wanted: str) -> tuple[str, ...]:
    """The names in a list with commas, each once, groups written out. Raises UnknownPolicyError."""
    found: dict[str, None] = {}
    for name in filter(None, (part.strip() for part in wanted.split(","))):
        for each in GROUPS.get(name, (name,)):
            policy_named(each)
            found[each] = None
    return tuple(found)


def policy_named(name: str) -> ReplayPolicy:
    """The policy of this name. Raises UnknownPolicyError."""
    if name in PRESET_POLICIES:
        return PRESET_POLICIES[name]()
    for each in NAIVE:
        if each.name == name:
            return each
    raise UnknownPolicyError(name, (*GROUPS["all"], *GROUPS))
