"""What was said, in full: an append-only tree of entries, where it is kept, and what the model is shown of it."""
