from .session.attachments import Attachment as Attachment, TextAttachment as TextAttachment
from .session.session import AgentSession as AgentSession
from .session.stream import StreamEvent as StreamEvent, TextDelta as TextDelta
from .session.subagents import (
    Forked as Forked,
    Handoff as Handoff,
    Isolated as Isolated,
    SubagentResult as SubagentResult,
    SubagentTask as SubagentTask,
)
from .session.tools import (
    ToolDecision as ToolDecision,
    TurnHooks as TurnHooks,
    TurnResult as TurnResult,
)
from .sync import SyncContextWindow as SyncContextWindow, SyncSession as SyncSession
from .window.prompt import (
    ContextStatus as ContextStatus,
    ContextUsage as ContextUsage,
    Conversation as Conversation,
    ConversationView as ConversationView,
    Prompt as Prompt,
)
from .window.requests import WindowRequest as WindowRequest
from .window.window import ContextWindow as ContextWindow

__all__: list[str]
