from .conversation_log import (
    LogOptions as LogOptions,
    log_conversation as log_conversation,
    log_path as log_path,
)
from .conversation_page import conversation_to_html as conversation_to_html
from .plot import draw_timeline as draw_timeline
from .policies.baselines import BaselinePolicy as BaselinePolicy
from .policies.promptkit import PresetPolicy as PresetPolicy
from .policies.registry import (
    POLICY_GROUPS as POLICY_GROUPS,
    UnknownPolicyError as UnknownPolicyError,
    find_policy as find_policy,
    parse_policy_names as parse_policy_names,
)
from .policies.strategy import (
    PolicyRun as PolicyRun,
    ReplayPolicy as ReplayPolicy,
    ReplayTerms as ReplayTerms,
    SummaryCall as SummaryCall,
)
from .prompt_cache import CACHE_RULES as CACHE_RULES, cache_rule_for as cache_rule_for
from .recordings import (
    Recording as Recording,
    read_recordings as read_recordings,
    recording_from_messages as recording_from_messages,
)
from .request_log import (
    ConversationLog as ConversationLog,
    LoggedMessage as LoggedMessage,
    LoggedRequest as LoggedRequest,
    RequestLog as RequestLog,
)
from .results import (
    FailedFile as FailedFile,
    FileResult as FileResult,
    PolicyResult as PolicyResult,
    ReplayTotals as ReplayTotals,
    TimelineRequest as TimelineRequest,
    results_to_json as results_to_json,
)
from .retention import RetentionCounts as RetentionCounts
from .runner import ReplayOptions as ReplayOptions, replay as replay, replay_file as replay_file
from .simulate import (
    ReplayRules as ReplayRules,
    Simulation as Simulation,
    SimulationResult as SimulationResult,
)

__all__: list[str]
