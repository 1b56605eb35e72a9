from .conversation_log import (
    ConversationLog as ConversationLog,
    LoggedRequest as LoggedRequest,
    LogOptions as LogOptions,
    log_conversation as log_conversation,
    log_path as log_path,
)
from .conversation_page import conversation_to_html as conversation_to_html
from .plot import draw_timeline as draw_timeline
from .policies.registry import (
    UnknownPolicyError as UnknownPolicyError,
    find_policy as find_policy,
    parse_policy_names as parse_policy_names,
)
from .prompt_cache import (
    cache_rule_for as cache_rule_for,
)
from .recordings import (
    Recording as Recording,
    read_recordings as read_recordings,
)
from .results import (
    FailedFile as FailedFile,
    FileResult as FileResult,
    PolicyResult as PolicyResult,
    results_to_json as results_to_json,
)
from .runner import (
    ReplayOptions as ReplayOptions,
    ReplayRules as ReplayRules,
    replay as replay,
)

__all__: list[str]
