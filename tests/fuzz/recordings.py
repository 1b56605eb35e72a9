"""Targets: recordings of every format, damaged byte by byte and value by value."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from promptkit.errors import EmitError, TranscriptError
from promptkit.lab.recordings.exporting import (
    encode_transcript,
    messages_from_entries,
    to_anthropic_json,
    to_chat_json,
)
from promptkit.lab.recordings.importing import FORMATS
from promptkit.transcript.log.redaction import redact_secrets
from promptkit.transcript.stores.jsonl.reader import StoredEntry, TranscriptReader
from tests.behaviour.transcript_strategies import new_file
from tests.fuzz.mutations import damaged, mutated
from tests.fuzz.target import Target, check_sentence
from tests.unit.lab.recordings.samples import SAMPLES, packed, read_text

__all__ = ["CODECS_BY_BYTES", "CODECS_BY_STRUCTURE"]

BY_LINE = ("claude_code", "pi", "codex", "openai_chat_lines")
AUTO = "auto"


def _case(codec: str, content: bytes) -> bytes:
    """An input: the name of the format in a line of its own, and the file."""
    return codec.encode() + b"\n" + content


def _check(case: bytes) -> None:
    """A file is refused with an error of promptkit's, or read as far as can be; what was read can be written, and read again."""
    name, _, content = case.partition(b"\n")
    codec = name.decode(errors="replace")
    with new_file() as path:
        try:
            made = read_text(path.parent, content, codec if codec in FORMATS else AUTO)
        except TranscriptError as error:
            check_sentence(error)
            return
        assert made.counts.messages >= 0
        path.write_bytes(b"".join(encode_transcript(made.entries)))
        stored = [item for item in TranscriptReader(path) if isinstance(item, StoredEntry)]
        assert [item.entry for item in stored] == made.entries
        transcript = made.transcript
        for leaf in transcript.leaves()[-3:]:
            for full in (False, True):
                messages = messages_from_entries(
                    transcript.path(leaf.id), full=full, redact=redact_secrets
                )
                for export in (to_chat_json, to_anthropic_json):
                    with suppress(EmitError):
                        json.dumps(export(messages))


_KNOWN = [(name, codec, text) for name, (codec, text) in SAMPLES.items()]


@st.composite
def _by_bytes(draw: st.DrawFn) -> bytes:
    _, codec, text = draw(st.sampled_from(_KNOWN))
    return _case(draw(st.sampled_from((codec, AUTO))), draw(damaged(text.encode())))


@st.composite
def _by_structure(draw: st.DrawFn) -> bytes:
    name, codec, text = draw(st.sampled_from(_KNOWN))
    parts: list[Any] = (
        [json.loads(line) for line in text.splitlines()] if name in BY_LINE else [json.loads(text)]
    )
    changed: list[Any] = draw(mutated(parts))
    lines = "".join(json.dumps(part) + "\n" for part in changed or [[]])
    return _case(draw(st.sampled_from((codec, AUTO))), lines.encode())


CODECS_BY_BYTES = Target(
    check=_check,
    cases=_by_bytes(),
    seeds=(
        *(_case(codec, text.encode()) for _, codec, text in _KNOWN),
        _case(AUTO, packed(SAMPLES["pi"][1])),
    ),
)
CODECS_BY_STRUCTURE = Target(check=_check, cases=_by_structure())
