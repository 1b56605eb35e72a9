from .agent.session.session import AgentSession as AgentSession
from .agent.session.tools import TurnResult as TurnResult
from .agent.sync import SyncContextWindow as SyncContextWindow, SyncSession as SyncSession
from .agent.window.window import ContextWindow as ContextWindow
from .elements.builtin import (
    AssistantMessage as AssistantMessage,
    CacheBreakpoint as CacheBreakpoint,
    Chunk as Chunk,
    Document as Document,
    Expandable as Expandable,
    First as First,
    Group as Group,
    If as If,
    IfEmpty as IfEmpty,
    Image as Image,
    Isolate as Isolate,
    KeepWith as KeepWith,
    Metadata as Metadata,
    PrioritizedList as PrioritizedList,
    Provide as Provide,
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
    lines as lines,
    tag as tag,
)
from .elements.component import component as component
from .elements.element import (
    Child as Child,
    Children as Children,
    PromptElement as PromptElement,
    Sizing as Sizing,
)
from .elements.template.template import Template as Template
from .errors import BudgetExceededError as BudgetExceededError, PromptKitError as PromptKitError
from .fitting.fit import Fitted as Fitted, fit as fit
from .fitting.history import History as History
from .messages import (
    DocumentPart as DocumentPart,
    ImagePart as ImagePart,
    Message as Message,
    OpaquePart as OpaquePart,
    Part as Part,
    ToolCall as ToolCall,
    ToolDefinition as ToolDefinition,
    Usage as Usage,
)
from .providers.openai.client import OpenAIModel as OpenAIModel
from .rendering.renderer import Renderer as Renderer, render as render, render_async as render_async
from .rendering.result.rendered import Rendered as Rendered
from .tokens.budget import ContextBudget as ContextBudget
from .tokens.models import register_model as register_model
from .tokens.request import count_request as count_request
from .tools import Tool as Tool, tool as tool
from .transcript.log.transcript import Transcript as Transcript
from .transcript.stores.jsonl.store import JsonlStore as JsonlStore

__all__: list[str]
