from .exporting import (
    encode_transcript as encode_transcript,
    messages_from_entries as messages_from_entries,
    to_anthropic_json as to_anthropic_json,
    to_chat_json as to_chat_json,
)
from .importing import (
    AUTO as AUTO,
    FORMATS as FORMATS,
    ImportResult as ImportResult,
    RecordingCounts as RecordingCounts,
    detect_format as detect_format,
    import_recording as import_recording,
    read_recording as read_recording,
)
from .reading.files import (
    open_source as open_source,
)

__all__: list[str]
