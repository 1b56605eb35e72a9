"""Presets: known compaction systems, each composed of the same parts in a short file, with its settings as one typed value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from promptkit.compaction.presets.break_even import break_even
from promptkit.compaction.presets.claude_code import claude_code
from promptkit.compaction.presets.codex import codex
from promptkit.compaction.presets.copilot_cli import copilot_cli
from promptkit.compaction.presets.gsv import gsv, gsv_process
from promptkit.compaction.presets.oh_my_pi import oh_my_pi
from promptkit.compaction.presets.opencode import opencode
from promptkit.compaction.presets.pi import pi
from promptkit.compaction.presets.vscode import vscode
from promptkit.compaction.presets.without_summaries import amp, off, truncate_only

if TYPE_CHECKING:
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
