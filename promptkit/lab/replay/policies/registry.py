"""Find the policies that can be replayed by their names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar, get_args, get_type_hints

import attrs

from promptkit.compaction import PRESETS, Preset, load_settings
from promptkit.compaction.presets.settings import setting
from promptkit.errors import PromptKitError, SettingsError
from promptkit.lab.replay.policies.baselines import BASELINE_POLICIES
from promptkit.lab.replay.policies.promptkit import PresetRun
from promptkit.lab.replay.policies.strategy import ReplayPolicy

T = TypeVar("T")


class UnknownPolicyError(PromptKitError):
    """There is no policy with this name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        close = difflib.get_close_matches(name, known, n=1)
        suggestion = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(
            f"there is no policy {name!r}.{suggestion} Use one of: {', '.join(known)}."
        )


POLICY_GROUPS: dict[str, tuple[str, ...]] = {
    "presets": tuple(PRESETS),
    "naive": tuple(each.name for each in BASELINE_POLICIES),
    "all": (*PRESETS, *(each.name for each in BASELINE_POLICIES)),
}
"""Names for several policies together."""


def describe_policies() -> str:
    """Return a line for each policy: its name, and for a preset the system and the version that it follows."""
    width = max(map(len, POLICY_GROUPS["all"]))
    return "\n".join(
        [
            *(
                f"{name:{width}}  follows {preset().follows or 'no system'}"
                for name, preset in PRESETS.items()
            ),
            *(
                f"{name:{width}}  a rule of another library, for comparison"
                for name in POLICY_GROUPS["naive"]
            ),
        ]
    )


def parse_policy_names(text: str) -> tuple[str, ...]:
    """Parse a list of policies and groups, separated by commas.

    Returns the names of the policies, each once.

    Raises:
        UnknownPolicyError: There is no policy or group with one of the names.
    """
    names = dict.fromkeys(
        name
        for part in filter(None, (part.strip() for part in text.split(",")))
        for name in POLICY_GROUPS.get(part, (part,))
    )
    for name in names:
        _find_policy(name, known=(*POLICY_GROUPS["all"], *POLICY_GROUPS))
    return tuple(names)


@attrs.frozen(kw_only=True)
class NameList:
    """The setting that every preset has."""

    names_tokens: int = setting(0, minimum=0)
    """The most tokens of the list of names beside a summary."""


def make_preset(name: str, pairs: Sequence[str]) -> Preset:
    """Make a preset with settings, which are written as `name=value`."""
    make: Callable[..., Preset] = PRESETS[name]
    settings = next(
        iter(get_args(get_type_hints(make, localns={"Preset": Preset}).get("settings"))), None
    )
    values = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    listed = (
        {}
        if settings is not None and "names_tokens" in attrs.fields_dict(settings)
        else {key: values.pop(key) for key in {"names_tokens"} & values.keys()}
    )
    if settings is None and values:
        raise SettingsError(
            source=name, setting=next(iter(values)), why="the preset has no settings"
        )
    preset = make(_load(name, settings, values)) if settings and values else make()
    return (
        attrs.evolve(
            preset,
            replacement=attrs.evolve(
                preset.replacement, names_tokens=_load(name, NameList, listed).names_tokens
            ),
        )
        if listed
        else preset
    )


def _load(name: str, settings: type[T], values: Mapping[str, str]) -> T:
    """Read the settings that stand behind the name of a preset."""
    prefix = f"{name}:"
    try:
        return load_settings(
            settings,
            prefix=prefix,
            environ={f"{prefix}{key}": value for key, value in values.items()},
        )
    except SettingsError as error:
        raise SettingsError(source=name, setting=error.setting, why=error.why) from None


def find_policy(name: str) -> ReplayPolicy:
    """Return the policy with a name.

    Settings of a preset stand behind it: `break_even:beta=1:tail_tokens=4000`. Every preset has
    `names_tokens`.

    Raises:
        UnknownPolicyError: There is no policy with this name.
        SettingsError: The preset has no such setting, or it cannot have that value.
    """
    return _find_policy(name, known=POLICY_GROUPS["all"])


def _find_policy(name: str, *, known: tuple[str, ...]) -> ReplayPolicy:
    """Return the policy with a name. `known` are the names of the error message."""
    preset, *pairs = name.split(":")
    if preset in PRESETS:
        made = attrs.evolve(make_preset(preset, pairs), name=name) if pairs else PRESETS[preset]()
        return ReplayPolicy(name=made.name, start=partial(PresetRun, made))
    for policy in BASELINE_POLICIES:
        if policy.name == name:
            return policy
    raise UnknownPolicyError(name, known)
