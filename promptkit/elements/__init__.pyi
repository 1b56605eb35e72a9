from .chat import (
    AssistantMessage as AssistantMessage,
    SystemMessage as SystemMessage,
    ToolMessage as ToolMessage,
    ToolRound as ToolRound,
    UserMessage as UserMessage,
)
from .from_message import element_from_message as element_from_message
from .layout import (
    CacheBreakpoint as CacheBreakpoint,
    Chunk as Chunk,
    First as First,
    Group as Group,
    IfEmpty as IfEmpty,
    Isolate as Isolate,
    KeepWith as KeepWith,
    LegacyPrioritization as LegacyPrioritization,
    PrioritizedList as PrioritizedList,
    Reserve as Reserve,
    TokenLimit as TokenLimit,
)
from .media import (
    Document as Document,
    Image as Image,
    Metadata as Metadata,
    Opaque as Opaque,
    Reference as Reference,
)
from .template.template import Template as Template
from .text import (
    Expandable as Expandable,
    Tag as Tag,
    Text as Text,
    TextChunk as TextChunk,
    Truncate as Truncate,
)

__all__: list[str]
