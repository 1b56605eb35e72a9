"""Conversations with a model: the context window, and sessions with a loop around it.

* `ContextWindow`, `WindowRequest`, `ContextUsage`, `SyncContextWindow`: for programs with a loop of
  their own
* `AgentSession`, `TurnResult`, `SyncSession`: the loop as well
* `Conversation`, `ConversationView`, `Prompt`: the prompt of a conversation
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
