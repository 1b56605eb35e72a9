"""The window: what a request of a conversation shows, and what is recorded of its replies."""
