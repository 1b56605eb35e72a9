from .planning.facts import Pin as Pin
from .planning.plan import (
    CarriedContext as CarriedContext,
    FailedAttempt as FailedAttempt,
    LastRequest as LastRequest,
    Plan as Plan,
    Summary as Summary,
    SummaryTask as SummaryTask,
)
from .planning.selection import (
    KeepAfter as KeepAfter,
    KeepLastMessages as KeepLastMessages,
    KeepLastRound as KeepLastRound,
    KeepLastTurns as KeepLastTurns,
    KeepNothing as KeepNothing,
    KeepRecentTokens as KeepRecentTokens,
    KeepUserMessages as KeepUserMessages,
)
from .planning.tool_calls import FILE_RULES as FILE_RULES, FileRule as FileRule
from .planning.user_messages import (
    UserMessageHistory as UserMessageHistory,
    VerbatimUserMessages as VerbatimUserMessages,
)
from .policy.rules import (
    Policy as Policy,
    Rule as Rule,
    Thresholds as Thresholds,
    compact_above as compact_above,
    compact_at as compact_at,
    compact_on_demand as compact_on_demand,
    default_policy as default_policy,
    first_match as first_match,
    on_overflow as on_overflow,
)
from .policy.state import (
    ApplySummary as ApplySummary,
    Compact as Compact,
    Decision as Decision,
    DiscardSummary as DiscardSummary,
    Fail as Fail,
    NoAction as NoAction,
    PolicyState as PolicyState,
    Promote as Promote,
    Prune as Prune,
    Reason as Reason,
    RenderPruned as RenderPruned,
    StartBackground as StartBackground,
    Wait as Wait,
)
from .policy.usage import (
    LeastSize as LeastSize,
    UsageByPart as UsageByPart,
    UsageReading as UsageReading,
)
from .presets import PRESETS as PRESETS
from .presets.preset import Preset as Preset
from .presets.settings import load_settings as load_settings
from .pruning.media import MediaLimits as MediaLimits
from .pruning.tool_outputs import ReduceToolResults as ReduceToolResults
from .recall.tool import recall_tool as recall_tool
from .run.controller import CompactionController as CompactionController
from .run.events import (
    CacheMissed as CacheMissed,
    CompactionCancelled as CompactionCancelled,
    CompactionCommitted as CompactionCommitted,
    CompactionFailed as CompactionFailed,
    CompactionStarted as CompactionStarted,
    DecisionMade as DecisionMade,
    Event as Event,
    Events as Events,
    ReplyReceived as ReplyReceived,
    RequestFailed as RequestFailed,
    RequestPruned as RequestPruned,
    RequestSent as RequestSent,
    Subscriber as Subscriber,
    SummaryAttemptFailed as SummaryAttemptFailed,
    SummaryDiscarded as SummaryDiscarded,
    ToolCalled as ToolCalled,
    ToolReturned as ToolReturned,
    ToolsChanged as ToolsChanged,
    TurnEnded as TurnEnded,
    TurnStarted as TurnStarted,
    WindowLearned as WindowLearned,
    logging_subscriber as logging_subscriber,
)
from .run.hooks import (
    CompactionHooks as CompactionHooks,
    HookChain as HookChain,
    PreCompactResult as PreCompactResult,
)
from .run.otel import otel_subscriber as otel_subscriber
from .run.replacement import (
    RecentFiles as RecentFiles,
    Replacement as Replacement,
)
from .storage import (
    ArchiveDirectory as ArchiveDirectory,
    MemoryDirectory as MemoryDirectory,
    MemoryExtractionHook as MemoryExtractionHook,
)
from .summarizers.defaults import SummarizerContext as SummarizerContext
from .summarizers.extractive import (
    ExtractiveSummarizer as ExtractiveSummarizer,
    PlaceholderSummarizer as PlaceholderSummarizer,
)
from .summarizers.fallback import FallbackSummarizer as FallbackSummarizer
from .summarizers.file_lists import FileListSummarizer as FileListSummarizer
from .summarizers.losses import Losses as Losses
from .summarizers.model_summarizers import (
    ChunkedSummarizer as ChunkedSummarizer,
    FullSummarizer as FullSummarizer,
    InlineSummarizer as InlineSummarizer,
    SimpleSummarizer as SimpleSummarizer,
    SplitTurnSummarizer as SplitTurnSummarizer,
)
from .summarizers.native import NativeSummarizer as NativeSummarizer
from .summarizers.remote import RemoteSummarizer as RemoteSummarizer
from .summarizers.summarizer import Summarizer as Summarizer

__all__: list[str]
