"""When a conversation outgrows its window: what to drop, what to say of it, and when."""
