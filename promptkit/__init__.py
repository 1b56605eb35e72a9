"""The layout engine for a model's context window: prompts are trees of prioritized elements, rendered against a token budget.

Elements, messages and errors are here at once; what renders, counts and emits is imported when it is first used, so that
`import promptkit` stays quick in programs that only describe prompts.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from promptkit.element import Child, PromptElement, Sizing, component
from promptkit.elements.chat import AssistantMessage, SystemMessage, ToolMessage, ToolRound, UserMessage
from promptkit.elements.layout import (
    CacheBreakpoint,
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
    CompactionError,
    CompactionInProgressError,
    ContextLengthExceededError,
    ContextWindowFullError,
    EmitError,
    EmptyReplyError,
    InvalidArgumentError,
    MaxStepsExceededError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    NoPendingMessageError,
    OrphanToolResultError,
    PromptKitError,
    RateLimitedError,
    RunningLoopError,
    SettingsError,
    SummaryError,
    TemplateError,
    TextTooLongError,
    TokenizerError,
    ToolsFillBudgetError,
    TranscriptConflictError,
    TranscriptError,
    TranscriptFormatError,
    TranscriptWriteError,
    TreeError,
    TurnInProgressError,
    UnansweredToolCallError,
    UnknownModelError,
)
from promptkit.messages import (
    CacheBreakpointPart,
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
    from promptkit.agent.prompt import Conversation, ConversationView
    from promptkit.agent.session import AgentSession, TurnResult
    from promptkit.agent.sync import SyncSession
    from promptkit.compaction.events import Event, Events, logging_subscriber
    from promptkit.compaction.hooks import CompactionHooks, HookChain, PreCompactResult
    from promptkit.compaction.lifecycle.branch_summary import switch_branch
    from promptkit.compaction.lifecycle.handoff import Handoff, handoff
    from promptkit.compaction.otel import otel_subscriber
    from promptkit.compaction.planning.plan import Plan, Summary, SummaryTask
    from promptkit.compaction.planning.user_messages import VerbatimUserMessages
    from promptkit.compaction.policy.rules import Policy, Thresholds, default_policy
    from promptkit.compaction.presets import PRESETS
    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.presets.settings import load_settings
    from promptkit.compaction.replacement import Replacement
    from promptkit.compaction.storage.archives import ArchiveDirectory
    from promptkit.compaction.storage.checkpoint_files import CheckpointDirectory
    from promptkit.compaction.storage.memory_extraction import MemoryExtractionHook
    from promptkit.compaction.storage.memory_files import MemoryDirectory
    from promptkit.compaction.summarizers.chunked import ChunkedSummarizer
    from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
    from promptkit.compaction.summarizers.file_lists import FileListSummarizer
    from promptkit.compaction.summarizers.full import FullSummarizer
    from promptkit.compaction.summarizers.inline import InlineSummarizer
    from promptkit.compaction.summarizers.native import NativeSummarizer
    from promptkit.compaction.summarizers.remote import RemoteSummarizer
    from promptkit.compaction.summarizers.simple import SimpleSummarizer
    from promptkit.compaction.summarizers.split_turn import SplitTurnSummarizer
    from promptkit.compaction.summarizers.summarizer import FallbackSummarizer, Summarizer
    from promptkit.elements.from_message import element_from_message
    from promptkit.elements.template.template import Template
    from promptkit.emitters import to_anthropic, to_chat, to_responses, tools_to_anthropic, tools_to_chat, tools_to_responses
    from promptkit.providers.model import Model, ModelOptions, Reply
    from promptkit.providers.openai.client import OpenAIModel
    from promptkit.recordings.importing import import_recording, read_recording
    from promptkit.rendering.removals import Removal, SourceSpan
    from promptkit.rendering.renderer import Renderer, render, render_async
    from promptkit.rendering.result import Rendered
    from promptkit.rendering.serialize import from_json, to_json
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tokens.heuristic import HeuristicTokenizer
    from promptkit.tokens.models import ModelInfo, model_info, register_model, tokenizer_for
    from promptkit.tokens.request import count_request
    from promptkit.tokens.tokenizer import Count, Tokenizer
    from promptkit.tool_pairing import MISSING_TOOL_RESULT, PairedMessages, pair_tool_calls
    from promptkit.tools import Tool
    from promptkit.transcript.entries import Checkpoint, Entry, MessageEntry
    from promptkit.transcript.jsonl.store import JsonlStore
    from promptkit.transcript.redaction import redact_secrets
    from promptkit.transcript.store import InMemoryStore, TranscriptStore
    from promptkit.transcript.transcript import Transcript
    from promptkit.transcript.view import TranscriptView, build_view

# Several names to a line: one to each would hide the rest of this file.
# fmt: off
__all__ = [
    "MISSING_TOOL_RESULT",
    "PRESETS",
    "AgentSession",
    "ArchiveDirectory",
    "AssistantMessage",
    "BadChildError",
    "BadPropError",
    "BudgetExceededError",
    "CacheBreakpoint",
    "CacheBreakpointPart",
    "Checkpoint",
    "CheckpointDirectory",
    "Child",
    "Chunk",
    "ChunkedSummarizer",
    "CompactionError",
    "CompactionHooks",
    "CompactionInProgressError",
    "ContextBudget",
    "ContextLengthExceededError",
    "ContextWindowFullError",
    "Conversation",
    "ConversationView",
    "Count",
    "Document",
    "DocumentPart",
    "EmitError",
    "EmptyReplyError",
    "Entry",
    "Event",
    "Events",
    "Expandable",
    "ExtractiveSummarizer",
    "FallbackSummarizer",
    "FileListSummarizer",
    "First",
    "FullSummarizer",
    "Group",
    "Handoff",
    "HeuristicTokenizer",
    "HookChain",
    "IfEmpty",
    "Image",
    "ImagePart",
    "InMemoryStore",
    "InlineSummarizer",
    "InvalidArgumentError",
    "Isolate",
    "Json",
    "JsonlStore",
    "KeepWith",
    "LegacyPrioritization",
    "MaxStepsExceededError",
    "MemoryDirectory",
    "MemoryExtractionHook",
    "Message",
    "MessageEntry",
    "Metadata",
    "Model",
    "ModelError",
    "ModelInfo",
    "ModelOptions",
    "ModelRequestError",
    "ModelUnavailableError",
    "NativeSummarizer",
    "NoPendingMessageError",
    "Opaque",
    "OpaquePart",
    "OpenAIModel",
    "OrphanToolResultError",
    "PairedMessages",
    "Part",
    "Plan",
    "Policy",
    "PreCompactResult",
    "Preset",
    "PrioritizedList",
    "PromptElement",
    "PromptKitError",
    "RateLimitedError",
    "Reference",
    "RemoteSummarizer",
    "Removal",
    "Rendered",
    "Renderer",
    "Repair",
    "Replacement",
    "Reply",
    "Reserve",
    "Role",
    "RunningLoopError",
    "SettingsError",
    "SimpleSummarizer",
    "Sizing",
    "SourceSpan",
    "SplitTurnSummarizer",
    "TranscriptStore",
    "Summarizer",
    "Summary",
    "SummaryError",
    "SummaryTask",
    "SyncSession",
    "SystemMessage",
    "Tag",
    "Template",
    "TemplateError",
    "Text",
    "TextChunk",
    "TextTooLongError",
    "Thresholds",
    "TokenLimit",
    "Tokenizer",
    "TokenizerError",
    "Tool",
    "ToolCall",
    "ToolDefinition",
    "ToolMessage",
    "ToolRound",
    "ToolsFillBudgetError",
    "Transcript",
    "TranscriptConflictError",
    "TranscriptError",
    "TranscriptFormatError",
    "TranscriptView",
    "TranscriptWriteError",
    "TreeError",
    "Truncate",
    "TurnInProgressError",
    "TurnResult",
    "UnansweredToolCallError",
    "UnknownModelError",
    "Usage",
    "UserMessage",
    "VerbatimUserMessages",
    "build_view",
    "component",
    "count_request",
    "default_policy",
    "element_from_message",
    "from_json",
    "handoff",
    "import_recording",
    "load_settings",
    "logging_subscriber",
    "model_info",
    "otel_subscriber",
    "pair_tool_calls",
    "read_recording",
    "redact_secrets",
    "register_model",
    "render",
    "render_async",
    "switch_branch",
    "to_anthropic",
    "to_chat",
    "to_json",
    "to_responses",
    "tokenizer_for",
    "tools_to_anthropic",
    "tools_to_chat",
    "tools_to_responses",
]
# fmt: on

_LATER = {
    "AgentSession": "promptkit.agent.session",
    "ArchiveDirectory": "promptkit.compaction.storage.archives",
    "Before": "promptkit.compaction.hooks",
    "Chain": "promptkit.compaction.summarizers.summarizer",
    "Checkpoint": "promptkit.transcript.entries",
    "CheckpointDirectory": "promptkit.compaction.storage.checkpoint_files",
    "ChunkedSummarizer": "promptkit.compaction.summarizers.chunked",
    "ContextBudget": "promptkit.tokens.budget",
    "Conversation": "promptkit.agent.prompt",
    "ConversationView": "promptkit.agent.prompt",
    "Count": "promptkit.tokens.tokenizer",
    "Entry": "promptkit.transcript.entries",
    "Event": "promptkit.compaction.events",
    "Events": "promptkit.compaction.events",
    "ExtractiveSummarizer": "promptkit.compaction.summarizers.extractive",
    "FullSummarizer": "promptkit.compaction.summarizers.full",
    "Handoff": "promptkit.compaction.lifecycle.handoff",
    "HeuristicTokenizer": "promptkit.tokens.heuristic",
    "HookChain": "promptkit.compaction.hooks",
    "Hooks": "promptkit.compaction.hooks",
    "JsonlStore": "promptkit.transcript.jsonl.store",
    "InlineSummarizer": "promptkit.compaction.summarizers.inline",
    "MemoryDirectory": "promptkit.compaction.storage.memory_files",
    "InMemoryStore": "promptkit.transcript.store",
    "Model": "promptkit.providers.model",
    "ModelInfo": "promptkit.tokens.models",
    "ModelOptions": "promptkit.providers.model",
    "MISSING_TOOL_RESULT": "promptkit.tool_pairing",
    "NativeSummarizer": "promptkit.compaction.summarizers.native",
    "OpenAIModel": "promptkit.providers.openai.client",
    "VerbatimUserMessages": "promptkit.compaction.planning.user_messages",
    "PRESETS": "promptkit.compaction.presets",
    "PairedMessages": "promptkit.tool_pairing",
    "Plan": "promptkit.compaction.planning.plan",
    "Policy": "promptkit.compaction.policy.rules",
    "Preset": "promptkit.compaction.presets.preset",
    "TranscriptView": "promptkit.transcript.view",
    "MemoryExtractionHook": "promptkit.compaction.storage.memory_extraction",
    "RemoteSummarizer": "promptkit.compaction.summarizers.remote",
    "Removal": "promptkit.rendering.removals",
    "Rendered": "promptkit.rendering.result",
    "Renderer": "promptkit.rendering.renderer",
    "Replacement": "promptkit.compaction.replacement",
    "Reply": "promptkit.providers.model",
    "Said": "promptkit.transcript.entries",
    "SimpleSummarizer": "promptkit.compaction.summarizers.simple",
    "SourceSpan": "promptkit.rendering.removals",
    "SplitTurnSummarizer": "promptkit.compaction.summarizers.split_turn",
    "TranscriptStore": "promptkit.transcript.store",
    "Summarizer": "promptkit.compaction.summarizers.summarizer",
    "Summary": "promptkit.compaction.planning.plan",
    "SummaryTask": "promptkit.compaction.planning.plan",
    "SyncSession": "promptkit.agent.sync",
    "Template": "promptkit.elements.template.template",
    "Thresholds": "promptkit.compaction.policy.rules",
    "Tokenizer": "promptkit.tokens.tokenizer",
    "Tool": "promptkit.tools",
    "Transcript": "promptkit.transcript.transcript",
    "Turn": "promptkit.agent.session",
    "FileListSummarizer": "promptkit.compaction.summarizers.file_lists",
    "count_request": "promptkit.tokens.request",
    "default_policy": "promptkit.compaction.policy.rules",
    "from_json": "promptkit.rendering.serialize",
    "hand_off": "promptkit.compaction.lifecycle.handoff",
    "import_recording": "promptkit.recordings.importing",
    "logging_subscriber": "promptkit.compaction.events",
    "model_info": "promptkit.tokens.models",
    "navigate": "promptkit.compaction.lifecycle.branch_summary",
    "pair": "promptkit.tool_pairing",
    "project": "promptkit.transcript.view",
    "read_recording": "promptkit.recordings.importing",
    "recorded": "promptkit.elements.from_message",
    "redact_secrets": "promptkit.transcript.redaction",
    "register_model": "promptkit.tokens.models",
    "render": "promptkit.rendering.renderer",
    "render_async": "promptkit.rendering.renderer",
    "load_settings": "promptkit.compaction.presets.settings",
    "to_anthropic": "promptkit.emitters",
    "to_chat": "promptkit.emitters",
    "to_json": "promptkit.rendering.serialize",
    "to_responses": "promptkit.emitters",
    "tokenizer_for": "promptkit.tokens.models",
    "tools_to_anthropic": "promptkit.emitters",
    "tools_to_chat": "promptkit.emitters",
    "tools_to_responses": "promptkit.emitters",
    "otel_subscriber": "promptkit.compaction.otel",
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
