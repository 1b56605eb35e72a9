"""Prompt caches by OpenAI's and by Anthropic's published rules.

OpenAI: a prefix that an earlier request began with is cached from 1,024 tokens on, in steps of 128
(OpenAI, "Prompt caching"). Cache breakpoints in requests are ignored.

Anthropic: a request caches what is up to its cache breakpoints, from 512 to 4,096 tokens on, by the
model. A later one reads the longest prefix that ends at one of its own breakpoints, or up to 20
blocks before it (Anthropic, "Prompt caching").

Entries do not expire here, and there is one machine, so every possible hit happens.
"""

from __future__ import annotations

import json
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import accumulate, chain, takewhile
from threading import Lock
from typing import Any
from zlib import crc32

from promptkit.messages import ImagePart, Usage, as_mapping, as_sequence
from promptkit.testing.server.journal import extract_text, list_blocks
from promptkit.tokens import Tokenizer, tokenizer_for
from promptkit.tokens.encodings import get_encoding
from promptkit.tokens.models import CACHE_MINIMUM, cache_minimum
from promptkit.tokens.tool_schemas import compact_arguments, format_declarations
from promptkit.tools import read_definition

BLOCK_TOKENS = 128
MAX_BLOCKS = 1_000_000
"""Blocks to remember, some 100 bytes each. Beyond it the least recently used ones are forgotten."""

_LOOK_BACK = 20  # blocks before a cache breakpoint

START, SEPARATOR, END, CALL, TOOLS = range(1_000_000, 1_000_005)
"""Token ids for what is between texts; no vocabulary has them."""

# The cut is at a fixed place, so that a longer text keeps the tokens of its prefix.
_CHARACTERS_AT_ONCE = 65_536


class PromptCaches:
    """The prompts sent so far, in every scope, as each provider caches them. For many threads at once.

    OpenAI's are blocks of 128 tokens, each as a digest of it and all blocks before it. Anthropic's
    are the prefixes that were cached: their digests and their tokens.
    """

    def __init__(self) -> None:
        self._blocks: OrderedDict[bytes, None] = OrderedDict()
        self._prefixes: dict[bytes, int] = {}
        self._lock = Lock()

    def read(self, scope: str, chat: Mapping[str, Any]) -> int:  # Any: JSON
        """Return how many tokens of a request were cached in its scope, and cache the request."""
        ids = encode_prompt(chat)
        digests = _chain_digests(
            scope,
            (
                ids[start : start + BLOCK_TOKENS].tobytes()
                for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS)
            ),
        )
        with self._lock:
            hits = sum(1 for _ in takewhile(self._blocks.__contains__, digests))
            # so that the end of a prompt is forgotten before its beginning
            for digest in reversed(digests):
                self._blocks[digest] = None
                self._blocks.move_to_end(digest)
            while len(self._blocks) > MAX_BLOCKS:
                self._blocks.popitem(last=False)
        return hits * BLOCK_TOKENS if hits * BLOCK_TOKENS >= CACHE_MINIMUM else 0

    def use(self, scope: str, body: Mapping[str, Any], tokens: int) -> Usage:  # Any: JSON
        """Return what a request reads from the cache of its scope and writes to it, and cache it.

        Args:
            scope: Requests of other scopes share nothing with it.
            body: The request to the Messages API.
            tokens: Its input tokens. Its blocks share them by their length.
        """
        model = str(body.get("model", ""))
        count, minimum = tokenizer_for(model).base.count, cache_minimum(model)
        blocks = [block for _, block in list_blocks(body)]
        marked = [at for at, block in enumerate(blocks) if block.get("cache_control") is not None]
        if not marked:
            return Usage(input_tokens=tokens)
        texts = [
            json.dumps(
                {key: value for key, value in block.items() if key != "cache_control"},
                sort_keys=True,
            )
            for block in blocks
        ]
        digests = _chain_digests(scope, map(str.encode, texts))
        sizes = [*accumulate(map(count, texts))]
        prefixes = [int(size * (tokens / max(1, sizes[-1]))) for size in sizes]
        reachable = {at for end in marked for at in range(max(0, end - _LOOK_BACK), end + 1)}
        entries = [at for at in marked if prefixes[at] >= minimum]
        with self._lock:
            read = min(tokens, max(self._prefixes.get(digests[at], 0) for at in reachable))
            for at in entries:
                self._prefixes.setdefault(digests[at], prefixes[at])
            cached = max((self._prefixes[digests[at]] for at in entries), default=0)
        return Usage(
            input_tokens=tokens,
            cached_tokens=read,
            written_tokens=max(0, min(tokens, cached) - read),
        )


def _chain_digests(scope: str, pieces: Iterable[bytes]) -> list[bytes]:
    """Return for each piece a digest of it and of all pieces before it in a scope."""
    return [
        *accumulate(
            pieces,
            lambda before, piece: blake2b(piece, digest_size=16, key=before).digest(),
            initial=blake2b(scope.encode(errors="surrogatepass"), digest_size=16).digest(),
        )
    ][1:]


def encode_prompt(chat: Mapping[str, Any]) -> array[int]:  # Any: JSON
    """Encode a chat request in the order in which a model reads it: tools, then messages.

    The number of tokens is that of `count_request`, except for a few tokens that tool definitions
    save if there are instructions.
    """
    model = chat.get("model")
    # its name is that of an encoding
    tokenizer = tokenizer_for(model if isinstance(model, str) else None).base
    encode = partial(_encode_text, tokenizer.name)
    tools = [
        definition
        for tool in as_sequence(chat.get("tools"))
        if (definition := read_definition(tool))
    ]
    messages = map(as_mapping, as_sequence(chat.get("messages")))
    return array(
        "I",
        chain(
            (TOOLS, TOOLS, *encode(format_declarations(tools, "tools"))) if tools else (),
            *(part for message in messages for part in _encode_message(message, tokenizer, encode)),
            (START, *encode("assistant"), SEPARATOR),
        ),
    )


def _encode_message(
    message: Mapping[str, Any],  # Any: as above
    tokenizer: Tokenizer,
    encode: Callable[[str], array[int]],
) -> Iterator[Sequence[int]]:
    role, name, content = str(message.get("role")), message.get("name"), message.get("content")
    calls = [
        as_mapping(as_mapping(call).get("function"))
        for call in as_sequence(message.get("tool_calls"))
    ]
    if not calls or extract_text(content):
        yield (START, *encode(role))
        if role != "tool":
            yield (SEPARATOR, *encode(str(name)), SEPARATOR) if name else (SEPARATOR,)
        if isinstance(content, str):
            yield encode(content)
        for part in map(as_mapping, as_sequence(content)):
            yield _encode_part(part, tokenizer, encode)
        yield (END,)
    for call in calls:
        # the framing of a call, and its name there and in its result
        yield (*(CALL,) * 10, *encode(str(call.get("name", ""))) * 2)
        yield encode(compact_arguments(str(call.get("arguments", ""))))
    if len(calls) > 1:
        yield (CALL,) * 9


def _encode_part(
    part: Mapping[str, Any],  # Any: as above
    tokenizer: Tokenizer,
    encode: Callable[[str], array[int]],
) -> Sequence[int]:
    if not (image := as_mapping(part.get("image_url"))):
        return encode(extract_text([part]) or json.dumps(part, sort_keys=True))
    url, detail = str(image.get("url", "")), image.get("detail")
    shown = ImagePart(url=url, detail=detail if isinstance(detail, str) else None)
    mark = START + 16 + crc32(url.encode(errors="surrogatepass")) % 1_000_000
    return (mark,) * tokenizer.count_part(shown).tokens


@lru_cache(maxsize=4096)
def _encode_text(encoding: str, text: str) -> array[int]:
    vocabulary = get_encoding(encoding)
    starts = range(0, len(text), _CHARACTERS_AT_ONCE)
    pieces = (text[start : start + _CHARACTERS_AT_ONCE] for start in starts)
    return array("I", chain.from_iterable(map(vocabulary.encode_ordinary, pieces)))
