from .log.entries import (
    BranchSummary as BranchSummary,
    Checkpoint as Checkpoint,
    CustomEntry as CustomEntry,
    CustomMessage as CustomMessage,
    Edit as Edit,
    Entry as Entry,
    EntryKind as EntryKind,
    EntryPayload as EntryPayload,
    Label as Label,
    MessageEntry as MessageEntry,
    Observation as Observation,
    Quote as Quote,
    RequestBudget as RequestBudget,
    Reset as Reset,
    Setting as Setting,
    UnknownEntry as UnknownEntry,
)
from .log.redaction import (
    Redactor as Redactor,
    load_scanner as load_scanner,
    redact_json as redact_json,
    redact_message as redact_message,
    redact_secrets as redact_secrets,
)
from .log.search import extract_words as extract_words
from .log.statistics import (
    TranscriptStatistics as TranscriptStatistics,
    compute_statistics as compute_statistics,
)
from .log.transcript import Transcript as Transcript
from .log.view import (
    TranscriptView as TranscriptView,
    ViewItem as ViewItem,
    build_summary_message as build_summary_message,
    build_view as build_view,
)
from .stores.addresses import list_transcripts as list_transcripts, open_store as open_store
from .stores.jsonl.format import (
    entry_from_json as entry_from_json,
    entry_to_json as entry_to_json,
    message_from_json as message_from_json,
    message_to_json as message_to_json,
)
from .stores.jsonl.reader import find_problems as find_problems
from .stores.jsonl.store import JsonlStore as JsonlStore
from .stores.objects import ObjectStore as ObjectStore
from .stores.sql import SqlStore as SqlStore
from .stores.store import (
    ArchivingStore as ArchivingStore,
    EarlierEntries as EarlierEntries,
    IndexedStore as IndexedStore,
    InMemoryStore as InMemoryStore,
    LoadedEntries as LoadedEntries,
    ReadProblem as ReadProblem,
    SearchableStore as SearchableStore,
    SyncingStore as SyncingStore,
    TranscriptStore as TranscriptStore,
)

__all__: list[str]
