"""Hypothesis strategies for prompts, messages and conversations. Needs hypothesis, which the `testing` extra installs."""

from promptkit.testing.strategies.strategies import FEATURES, ROLES, Feature, conversations, messages, prompts

__all__ = ["FEATURES", "ROLES", "Feature", "conversations", "messages", "prompts"]
