"""`promptkit demo`: a recorded conversation, rendered at several budgets and replayed in a small window."""
