"""A prompt cache by Anthropic's published rules.

A request caches what is up to its cache breakpoints, from 1,024 tokens on. A later one reads the longest prefix that ends at one of its
own breakpoints, or up to 20 blocks before it (Anthropic, "Prompt caching"). Entries do not expire here.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs

from promptkit.testing.server.anthropic_validation import list_blocks
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BreakpointCache", "CacheUse"]

_MIN_TOKENS = 1_024
_LOOK_BACK = 20  # blocks


@attrs.frozen(kw_only=True)
class CacheUse:
    """The input tokens of a request that the cache had, and those that it got."""

    read: int = 0
    written: int = 0


class BreakpointCache:
    """The prefixes that were cached so far, in every scope, as digests. For many threads at once."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._lock = Lock()

    def use(self, scope: str, body: Mapping[str, Any], tokens: int) -> CacheUse:  # Any: JSON
        """Return what a request reads from the cache of its scope and writes to it, and cache it.

        Args:
            scope: Requests of other scopes share nothing with it.
            body: The request to the Messages API.
            tokens: Its input tokens. Its blocks share them by their length.
        """
        count = tokenizer_for(str(body.get("model", ""))).base.count
        digest = blake2b(scope.encode(errors="surrogatepass"), digest_size=16).digest()
        digests: list[bytes] = []
        sizes: list[int] = []
        marked: list[int] = []
        for place, (_, block) in enumerate(list_blocks(body)):
            if block.get("cache_control") is not None:
                marked.append(place)
            text = json.dumps({key: value for key, value in block.items() if key != "cache_control"}, sort_keys=True)
            digest = blake2b(text.encode(), digest_size=16, key=digest).digest()
            digests.append(digest)
            sizes.append((sizes[-1] if sizes else 0) + count(text))
        if not marked:
            return CacheUse()
        scale = tokens / max(1, sizes[-1])
        prefixes = [int(size * scale) for size in sizes]
        with self._lock:
            reachable = {at for end in marked for at in range(max(0, end - _LOOK_BACK), end + 1)}
            read = max((prefixes[at] for at in reachable if digests[at] in self._known), default=0)
            entries = [at for at in marked if prefixes[at] >= _MIN_TOKENS]
            self._known.update(digests[at] for at in entries)
        return CacheUse(read=read, written=max(0, max((prefixes[at] for at in entries), default=0) - read))
