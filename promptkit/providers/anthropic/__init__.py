"""Anthropic's models, over its own Messages API."""
