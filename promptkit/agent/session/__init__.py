"""The session: turns, tools, attachments and hooks around a window."""
