"""Hypothesis strategies for prompts, messages and conversations.

Needs hypothesis: `pip install 'hypothesis>=6.100'`.
"""

from promptkit.testing.strategies.generate import Feature
from promptkit.testing.strategies.strategies import (
    FEATURES,
    ROLES,
    conversations,
    messages,
    prompts,
)

__all__ = ["FEATURES", "ROLES", "Feature", "conversations", "messages", "prompts"]
