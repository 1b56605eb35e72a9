"""One script for each peer, run in the peer's own environment by `serve.py`; what is in one is said there."""
