from .entries import (
    BranchSummary as BranchSummary,
    Checkpoint as Checkpoint,
    CustomMessage as CustomMessage,
    Edit as Edit,
    Entry as Entry,
    Label as Label,
    MessageEntry as MessageEntry,
    Observation as Observation,
    Reset as Reset,
    Setting as Setting,
)
from .jsonl.store import JsonlStore as JsonlStore
from .redaction import redact_secrets as redact_secrets
from .store import InMemoryStore as InMemoryStore, TranscriptStore as TranscriptStore
from .transcript import Transcript as Transcript
from .view import TranscriptView as TranscriptView, ViewItem as ViewItem, build_view as build_view

__all__: list[str]
