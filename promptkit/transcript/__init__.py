"""The append-only transcript of a conversation, its stores, and the view of it that a model is shown.

* `Transcript`, and its stores `JsonlStore`, `InMemoryStore`, `SqlStore` (a database), `ObjectStore`
  (object storage), `open_store`, `list_transcripts`
* For stores of your own: `TranscriptStore`, `LoadedEntries`, `ReadProblem`, and what a store may
  add: `ArchivingStore`, `SyncingStore`, `SearchableStore` with `extract_words`
* Entries: `Entry`, `EntryKind`, `EntryPayload`, `MessageEntry`, `Quote`, `Checkpoint`,
  `BranchSummary`, `Edit`, `Reset`, `Setting`, `Label`, `Observation`, `CustomMessage`,
  `CustomEntry`, `UnknownEntry`
* Views: `TranscriptView`, `ViewItem`, `build_view`, `build_summary_message`
* As JSON: `entry_to_json`, `entry_from_json`, `message_to_json`, `message_from_json`
* Files: `find_problems` (validate a file)
* Redaction: `redact_secrets`, `redact_message`, `redact_json`, `Redactor`
* Statistics: `compute_statistics`, `TranscriptStatistics`
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
