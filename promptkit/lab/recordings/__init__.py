"""Read the recordings of other agents into transcript entries, and export entries to providers' formats.

* Import: `read_recording` (as a stream of batches), `import_recording` (into a store),
  `ImportResult`
* Formats: `FORMATS`, `AUTO` (detect the format), `RecordingFormat`, `FileHead`, `Batch`
* Sources: `RecordingSource`, `open_source`
* Counts: `RecordingCounts`
* Export: `messages_from_entries`, `to_chat_json`, `to_anthropic_json`, `encode_transcript`
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
