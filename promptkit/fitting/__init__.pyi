from .history import RecordedMessages as RecordedMessages, describe_omitted as describe_omitted

__all__: list[str]
