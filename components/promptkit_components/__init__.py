"""Ready-made components for agent prompts, built only from the public interface of promptkit."""

from promptkit_components.agent_prompt import AgentPrompt
from promptkit_components.attachments import Attachment, Attachments
from promptkit_components.file_tree import FileTree
from promptkit_components.instructions import Instructions
from promptkit_components.reminder import Reminder
from promptkit_components.tool_calls import ToolCalls
from promptkit_components.workspace import Diff, Terminal, Workspace

__all__ = [
    "AgentPrompt",
    "Attachment",
    "Attachments",
    "Diff",
    "FileTree",
    "Instructions",
    "Reminder",
    "Terminal",
    "ToolCalls",
    "Workspace",
]
