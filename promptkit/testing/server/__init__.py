"""A server on this machine that speaks OpenAI's protocol and Anthropic's, so that tests use real HTTP without a network.

>>> with serve(window=16_000, script=["It scatters."]) as server:
...     client = openai.OpenAI(base_url=server.url, api_key="none")
"""

from promptkit.testing.server.journal import (
    ConnectionReset,
    Delay,
    Exchange,
    Hang,
    HttpAnswer,
    MalformedBody,
    Rule,
    ScriptedReply,
    Stats,
    TruncatedBody,
    api_error,
    echo,
    rate_limit_error,
    server_error,
)
from promptkit.testing.server.server import Server, serve

__all__ = [
    "ConnectionReset",
    "Delay",
    "Exchange",
    "Hang",
    "HttpAnswer",
    "MalformedBody",
    "Rule",
    "ScriptedReply",
    "Server",
    "Stats",
    "TruncatedBody",
    "api_error",
    "echo",
    "rate_limit_error",
    "serve",
    "server_error",
]
