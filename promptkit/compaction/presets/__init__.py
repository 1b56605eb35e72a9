"""Presets: known compaction systems, each composed of the same parts, with its settings as one typed value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from promptkit.compaction.presets.break_even import break_even
from promptkit.compaction.presets.coding_agents import (
    amp,
    claude_code,
    codex,
    copilot_cli,
    gsv,
    gsv_process,
    off,
    oh_my_pi,
    opencode,
    pi,
    truncate_only,
    vscode,
)
from promptkit.compaction.presets.preset import Preset

PRESETS: Mapping[str, Callable[[], Preset]] = MappingProxyType(
    {
        "vscode": vscode,
        "break_even": break_even,
        "copilot_cli": copilot_cli,
        "pi": pi,
        "oh_my_pi": oh_my_pi,
        "claude_code": claude_code,
        "codex": codex,
        "opencode": opencode,
        "amp": amp,
        "gsv": gsv,
        "gsv_process": gsv_process,
        "truncate_only": truncate_only,
        "off": off,
    }
)
"""The presets by name, with their default settings."""
