"""Counting tokens: tokenizers, the provider's framing, and the table of models."""
