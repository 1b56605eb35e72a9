from .builtin import (
    AssistantMessage as AssistantMessage,
    CacheBreakpoint as CacheBreakpoint,
    Chunk as Chunk,
    Document as Document,
    Expandable as Expandable,
    First as First,
    Group as Group,
    IfEmpty as IfEmpty,
    Image as Image,
    Isolate as Isolate,
    KeepWith as KeepWith,
    LegacyPrioritization as LegacyPrioritization,
    Metadata as Metadata,
    Opaque as Opaque,
    PrioritizedList as PrioritizedList,
    Reference as Reference,
    Reserve as Reserve,
    SystemMessage as SystemMessage,
    Tag as Tag,
    Text as Text,
    TextChunk as TextChunk,
    TokenLimit as TokenLimit,
    ToolMessage as ToolMessage,
    ToolRound as ToolRound,
    Truncate as Truncate,
    UserMessage as UserMessage,
)
from .from_message import element_from_message as element_from_message
from .template.template import Template as Template

__all__: list[str]
