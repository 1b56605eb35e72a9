"""The layout engine for a model's context window: prompts are trees of prioritized elements, rendered against a token budget.

Elements, messages and errors are here at once; what renders, counts and emits is imported when it is first used, so that
`import promptkit` stays quick in programs that only describe prompts.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from promptkit.element import Child, PromptElement, Sizing, component
from promptkit.elements.chat import AssistantMessage, SystemMessage, ToolMessage, ToolRound, UserMessage
from promptkit.elements.layout import (
    CacheBoundary,
    Chunk,
    First,
    Group,
    IfEmpty,
    Isolate,
    KeepWith,
    LegacyPrioritization,
    PrioritizedList,
    Reserve,
    TokenLimit,
)
from promptkit.elements.media import Document, Image, Metadata, Opaque, Reference
from promptkit.elements.text import Expandable, Tag, Text, TextChunk, Truncate
from promptkit.errors import (
    BadChildError,
    BadPropError,
    BudgetExceededError,
    ChildrenTwiceError,
    EmitError,
    JsonTreeError,
    MisplacedElementError,
    NotAComponentError,
    OrphanResultError,
    PromptKitError,
    RunningLoopError,
    TemplateError,
    TextTooLongError,
    TokenizerError,
    TreeError,
    UnansweredCallError,
    UncountablePartError,
    UnknownEncodingError,
    UnknownModelError,
)
from promptkit.messages import (
    BoundaryPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    Repair,
    Role,
    ToolCall,
    ToolDefinition,
    Usage,
)

if TYPE_CHECKING:
    from promptkit.elements.recorded import recorded
    from promptkit.elements.template import Template
    from promptkit.emitters import to_anthropic, to_chat, to_responses, tools_to_anthropic, tools_to_chat, tools_to_responses
    from promptkit.providers.model import Model, Reply
    from promptkit.rendering.json_tree import from_json, to_json
    from promptkit.rendering.receipt import Removal, SourceSpan
    from promptkit.rendering.renderer import Renderer, render, render_async
    from promptkit.rendering.result import Rendered
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tokens.models import ModelInfo, model_info, register_model, tokenizer_for
    from promptkit.tokens.openai import count_request
    from promptkit.tokens.tokenizer import Count, Tokenizer
    from promptkit.transcript.pairing import NO_RESULT, Paired, pair

__all__ = [
    "NO_RESULT",
    "AssistantMessage",
    "BadChildError",
    "BadPropError",
    "BoundaryPart",
    "BudgetExceededError",
    "CacheBoundary",
    "Child",
    "ChildrenTwiceError",
    "Chunk",
    "ContextBudget",
    "Count",
    "Document",
    "DocumentPart",
    "EmitError",
    "Expandable",
    "First",
    "Group",
    "IfEmpty",
    "Image",
    "ImagePart",
    "Isolate",
    "Json",
    "JsonTreeError",
    "KeepWith",
    "LegacyPrioritization",
    "Message",
    "Metadata",
    "MisplacedElementError",
    "Model",
    "ModelInfo",
    "NotAComponentError",
    "Opaque",
    "OpaquePart",
    "OrphanResultError",
    "Paired",
    "Part",
    "PrioritizedList",
    "PromptElement",
    "PromptKitError",
    "Reference",
    "Removal",
    "Rendered",
    "Renderer",
    "Repair",
    "Reply",
    "Reserve",
    "Role",
    "RunningLoopError",
    "Sizing",
    "SourceSpan",
    "SystemMessage",
    "Tag",
    "Template",
    "TemplateError",
    "Text",
    "TextChunk",
    "TextTooLongError",
    "TokenLimit",
    "Tokenizer",
    "TokenizerError",
    "ToolCall",
    "ToolDefinition",
    "ToolMessage",
    "ToolRound",
    "TreeError",
    "Truncate",
    "UnansweredCallError",
    "UncountablePartError",
    "UnknownEncodingError",
    "UnknownModelError",
    "Usage",
    "UserMessage",
    "component",
    "count_request",
    "from_json",
    "model_info",
    "pair",
    "recorded",
    "register_model",
    "render",
    "render_async",
    "to_anthropic",
    "to_chat",
    "to_json",
    "to_responses",
    "tokenizer_for",
    "tools_to_anthropic",
    "tools_to_chat",
    "tools_to_responses",
]

_LATER = {
    "ContextBudget": "promptkit.tokens.budget",
    "Count": "promptkit.tokens.tokenizer",
    "Model": "promptkit.providers.model",
    "ModelInfo": "promptkit.tokens.models",
    "NO_RESULT": "promptkit.transcript.pairing",
    "Paired": "promptkit.transcript.pairing",
    "Removal": "promptkit.rendering.receipt",
    "Rendered": "promptkit.rendering.result",
    "Renderer": "promptkit.rendering.renderer",
    "Reply": "promptkit.providers.model",
    "SourceSpan": "promptkit.rendering.receipt",
    "Template": "promptkit.elements.template",
    "Tokenizer": "promptkit.tokens.tokenizer",
    "count_request": "promptkit.tokens.openai",
    "from_json": "promptkit.rendering.json_tree",
    "model_info": "promptkit.tokens.models",
    "pair": "promptkit.transcript.pairing",
    "recorded": "promptkit.elements.recorded",
    "register_model": "promptkit.tokens.models",
    "render": "promptkit.rendering.renderer",
    "render_async": "promptkit.rendering.renderer",
    "to_anthropic": "promptkit.emitters",
    "to_chat": "promptkit.emitters",
    "to_json": "promptkit.rendering.json_tree",
    "to_responses": "promptkit.emitters",
    "tokenizer_for": "promptkit.tokens.models",
    "tools_to_anthropic": "promptkit.emitters",
    "tools_to_chat": "promptkit.emitters",
    "tools_to_responses": "promptkit.emitters",
}


def __getattr__(name: str) -> object:
    module = _LATER.get(name)
    if module is None:
        message = f"module 'promptkit' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(module), name)
    globals()[name] = value  # the next look-up finds it
    return value


def __dir__() -> list[str]:
    return __all__
