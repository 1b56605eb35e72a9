"""The append-only log of a conversation: entries, the transcript that holds them, views."""
