"""The built-in elements. Every prompt consists of them, and components render to them.

* Messages: `SystemMessage`, `UserMessage`, `AssistantMessage`, `ToolMessage`, `ToolRound`
* Layout: `Group`, `Chunk`, `PrioritizedList`, `LegacyPrioritization`, `TokenLimit`, `KeepWith`,
  `IfEmpty`, `First`, `Reserve`, `Isolate`, `CacheBreakpoint`
* Text: `Text`, `TextChunk`, `Tag`, `Truncate`, `Expandable`
* Media: `Image`, `Document`, `Opaque`
* Data about a prompt: `Reference`, `Metadata`
* Templates: `Template`
* Recorded messages: `element_from_message`
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
