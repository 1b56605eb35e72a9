"""The turn loop: render, call, append, decide."""
