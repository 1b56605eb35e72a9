from .attachments import Attachment as Attachment, TextAttachment as TextAttachment
from .hooks import ToolDecision as ToolDecision, TurnHooks as TurnHooks
from .prompt import (
    Conversation as Conversation,
    ConversationView as ConversationView,
    Prompt as Prompt,
)
from .requests import WindowRequest as WindowRequest
from .session import AgentSession as AgentSession
from .sync import SyncContextWindow as SyncContextWindow, SyncSession as SyncSession
from .turns import TurnResult as TurnResult
from .usage import ContextUsage as ContextUsage
from .window import ContextWindow as ContextWindow

__all__: list[str]
