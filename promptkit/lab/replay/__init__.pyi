from .advice import CANDIDATES as CANDIDATES, Advice as Advice, advise as advise
from .conversation_log import (
    PARTS as PARTS,
    RECORDED as RECORDED,
    ConversationLog as ConversationLog,
    LoggedRequest as LoggedRequest,
    LogOptions as LogOptions,
    log_conversation as log_conversation,
    log_path as log_path,
)
from .conversation_page import conversation_to_html as conversation_to_html
from .plot import MAX_FILES as MAX_FILES, draw_timeline as draw_timeline
from .policies import (
    UnknownPolicyError as UnknownPolicyError,
    describe_policies as describe_policies,
    find_policy as find_policy,
    parse_policy_names as parse_policy_names,
)
from .prompt_cache import cache_rule_for as cache_rule_for, count_overhead as count_overhead
from .recordings import (
    Recording as Recording,
    read_recordings as read_recordings,
)
from .results import (
    FailedFile as FailedFile,
    FileResult as FileResult,
    PolicyResult as PolicyResult,
    describe_failure as describe_failure,
    result_rows as result_rows,
    results_to_json as results_to_json,
)
from .runner import (
    LOST_WORKER as LOST_WORKER,
    ReplayOptions as ReplayOptions,
    ReplayRules as ReplayRules,
    hash_recording as hash_recording,
    replay as replay,
    replay_conversations as replay_conversations,
    sum_results as sum_results,
)

__all__: list[str]
