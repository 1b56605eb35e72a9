"""A server that speaks OpenAI's protocol on this machine, so that tests ask a real HTTP peer and no network.

>>> with serve(window=16_000, script=["It scatters."]) as server:
...     client = openai.OpenAI(base_url=server.url, api_key="none")
"""

from promptkit.testing.server.journal import Exchange, Stats
from promptkit.testing.server.replies import (
    Delay,
    Hang,
    HttpAnswer,
    Malformed,
    Reset,
    Rule,
    Scripted,
    Truncated,
    api_error,
    echo,
    rate_limited,
    server_error,
)
from promptkit.testing.server.server import Server, serve

__all__ = [
    "Delay",
    "Exchange",
    "Hang",
    "HttpAnswer",
    "Malformed",
    "Reset",
    "Rule",
    "Scripted",
    "Server",
    "Stats",
    "Truncated",
    "api_error",
    "echo",
    "rate_limited",
    "serve",
    "server_error",
]
