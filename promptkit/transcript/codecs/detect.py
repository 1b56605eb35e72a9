"""The formats that are known, and which of them a file has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.errors import TranscriptFormatError
from promptkit.transcript.codecs.anthropic import Anthropic
from promptkit.transcript.codecs.claude_code import ClaudeCode
from promptkit.transcript.codecs.codex import Codex
from promptkit.transcript.codecs.gemini_cli import GeminiCli
from promptkit.transcript.codecs.head import head_of
from promptkit.transcript.codecs.mini_swe_agent import MiniSweAgent
from promptkit.transcript.codecs.openai_chat import OpenAIChat
from promptkit.transcript.codecs.openhands import OpenHands
from promptkit.transcript.codecs.own import Own
from promptkit.transcript.codecs.pi import Pi
from promptkit.transcript.codecs.swe_agent import SweAgent
from promptkit.transcript.codecs.tau_bench import TauBench

if TYPE_CHECKING:
    from promptkit.transcript.codecs.codec import Codec
    from promptkit.transcript.codecs.source import Source

__all__ = ["CODECS", "detect"]

CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        Own(),
        ClaudeCode(),
        Pi(),
        Codex(),
        GeminiCli(),
        TauBench(),
        SweAgent(),
        MiniSweAgent(),
        OpenHands(),
        Anthropic(),
        OpenAIChat(),
    )
}
"""By name; those whose files also look like those of a later one come first."""


def detect(source: Source) -> Codec:
    """The codec for a file. Raises TranscriptFormatError where none knows it."""
    head = head_of(source)
    for codec in CODECS.values():
        if codec.detects(head):
            return codec
    if not source.begin().read(1):
        problem = "the file is empty."
    else:
        problem = f"this is no recording of a format that is known: {', '.join(CODECS)}. If you know better, name one with --format."
    raise TranscriptFormatError(problem, file=source.path)
