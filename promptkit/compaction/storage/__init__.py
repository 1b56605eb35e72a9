"""Files that compactions write: archives, checkpoints and memories."""
