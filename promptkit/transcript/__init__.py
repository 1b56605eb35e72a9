"""The append-only transcript of a conversation, its stores, and the view of it that a model is shown.

* `Transcript`, and its stores `JsonlStore`, `InMemoryStore`, `TranscriptStore`
* Entries: `Entry`, `MessageEntry`, `Checkpoint`, `BranchSummary`, `Edit`, `Reset`, `Setting`, `Label`, `Observation`, `CustomMessage`
* Views: `TranscriptView`, `ViewItem`, `build_view`
* `redact_secrets`: remove secrets from text
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
