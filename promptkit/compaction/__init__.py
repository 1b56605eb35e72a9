"""Compaction: keep a conversation within its context window by pruning and summarizing.

* The heart: `CompactionController`, `Compactor`, `CompactionHooks`,
  `HookChain`, `PreCompactResult`
* Events: `Events`, `Event`, `Subscriber`, `logging_subscriber`, `otel_subscriber`, and the classes of
  the events, such as `TurnEnded`, `CompactionCommitted` and `CacheMissed`
* Presets: `PRESETS`, `Preset`, `load_settings`
* Policies: `Policy`, `PolicyState`, `Thresholds`, `UsageByPart`, `UsageReading`, `LeastSize`,
  `default_policy`, `first_match`
* Plans: `Plan`, `Summary`, `SummaryTask`, `LastRequest`, `FailedAttempt`, `FileRule`, `FILE_RULES`,
  and what is kept: `KeepLastRound`, `KeepRecentTokens`, `KeepLastMessages`, `KeepLastTurns`,
  `KeepAfter`, `KeepUserMessages`, `KeepNothing`; `UserMessageHistory`, `VerbatimUserMessages`
* Replacements: `Replacement`, `CarriedContext`, `RecentFiles`
* Summarizers: `Summarizer`, `SummarizerContext`, `FallbackSummarizer`, `InlineSummarizer`,
  `FullSummarizer`, `SimpleSummarizer`, `ExtractiveSummarizer`, `ChunkedSummarizer`,
  `RemoteSummarizer`, `NativeSummarizer`, `SplitTurnSummarizer`, `FileListSummarizer`,
  `PlaceholderSummarizer`
* Storage: `ArchiveDirectory`, `MemoryDirectory`, `MemoryExtractionHook`
* Lifecycle: `switch_branch`, `handoff`, `SummaryWriter`, `recall_tool`
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
