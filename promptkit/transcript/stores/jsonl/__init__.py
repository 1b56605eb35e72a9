"""Transcripts in JSON Lines files: the format, the store, archives, validation."""
