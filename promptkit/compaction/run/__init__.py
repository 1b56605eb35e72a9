"""How a conversation is compacted while it runs: the controller, the compactor, hooks, events."""
