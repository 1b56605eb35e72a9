"""Smaller requests without a summary: truncated messages, capped results, dropped images, pruned tool outputs."""
