"""One script for each peer, run in the peer's environment by `serve.py`, which documents its functions."""
