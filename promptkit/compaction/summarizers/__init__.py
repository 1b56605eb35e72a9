"""Summarizers: how the text of a summary is made, and the prompts and facts that they share."""
