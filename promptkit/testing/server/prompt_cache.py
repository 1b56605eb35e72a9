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
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, takewhile
from threading import Lock
from typing import Any
from zlib import crc32

from promptkit.messages import ImagePart, ToolDefinition, Usage, as_mapping, as_sequence
from promptkit.testing.server.anthropic_validation import list_blocks
from promptkit.testing.server.validation import extract_text
from promptkit.tokens import Tokenizer, tokenizer_for
from promptkit.tokens.encodings import get_encoding
from promptkit.tokens.models import CACHE_MINIMUM, cache_minimum
from promptkit.tokens.tool_schemas import compact_arguments, format_declarations

BLOCK_TOKENS = 128
MAX_BLOCKS = 1_000_000
"""Blocks to remember, some 100 bytes each. Beyond it the least recently used ones are forgotten."""

_LOOK_BACK = 20  # blocks before a cache breakpoint

START, SEPARATOR, END, CALL, TOOLS = range(1_000_000, 1_000_005)
"""Token ids for what is between texts; no vocabulary has them."""

# that are encoded; the cut is at a fixed place, so that a longer text keeps the tokens of its
# prefix
_CHARACTERS_AT_ONCE = 65_536


class PromptCache:
    """The prompts sent so far, in every scope: blocks of 128 tokens, each as a digest of it and all blocks before it."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, None] = OrderedDict()
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
            hits = sum(1 for _ in takewhile(self._known.__contains__, digests))
            # so that the end of a prompt is forgotten before its beginning
            for digest in reversed(digests):
                self._known[digest] = None
                self._known.move_to_end(digest)
            while len(self._known) > MAX_BLOCKS:
                self._known.popitem(last=False)
        return hits * BLOCK_TOKENS if hits * BLOCK_TOKENS >= CACHE_MINIMUM else 0


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
    ids = array("I")
    tools = [
        _read_definition(as_mapping(as_mapping(tool).get("function")))
        for tool in as_sequence(chat.get("tools"))
    ]
    if tools:
        ids.extend((TOOLS, TOOLS))
        ids.extend(_encode_text(tokenizer.name, format_declarations(tools, "tools")))
    for message in map(as_mapping, as_sequence(chat.get("messages"))):
        for part in _encode_message(message, tokenizer):
            ids.extend(part)
    ids.extend((START, *_encode_text(tokenizer.name, "assistant"), SEPARATOR))
    return ids


# Any stands for as above
def _encode_message(message: Mapping[str, Any], tokenizer: Tokenizer) -> Iterator[array[int]]:
    role = str(message.get("role"))
    calls = [
        as_mapping(as_mapping(call).get("function"))
        for call in as_sequence(message.get("tool_calls"))
    ]
    content = message.get("content")
    if not calls or extract_text(content):
        name = str(message.get("name") or "")
        framing = (
            [START, *_encode_text(tokenizer.name, role)]
            if role == "tool"
            else [START, *_encode_text(tokenizer.name, role), SEPARATOR]
        )
        yield array(
            "I",
            [*framing, *_encode_text(tokenizer.name, name), SEPARATOR]
            if name and role != "tool"
            else framing,
        )
        yield from _encode_content(content, tokenizer)
        yield array("I", (END,))
    for call in calls:
        function = _encode_text(tokenizer.name, str(call.get("name", "")))
        # the framing of a call, and its name there and in its result
        yield array("I", (CALL,) * 10) + function + function
        yield _encode_text(tokenizer.name, compact_arguments(str(call.get("arguments", ""))))
    if len(calls) > 1:
        yield array("I", (CALL,) * 9)


def _encode_content(content: object, tokenizer: Tokenizer) -> Iterator[array[int]]:
    if isinstance(content, str):
        yield _encode_text(tokenizer.name, content)
    for part in map(as_mapping, as_sequence(content)):
        image = as_mapping(part.get("image_url"))
        if image:
            url, detail = str(image.get("url", "")), image.get("detail")
            shown = ImagePart(url=url, detail=detail if isinstance(detail, str) else None)
            yield array(
                "I",
                (START + 16 + crc32(url.encode(errors="surrogatepass")) % 1_000_000,)
                * tokenizer.count_part(shown).tokens,
            )
        else:
            yield _encode_text(
                tokenizer.name, extract_text([part]) or json.dumps(part, sort_keys=True)
            )


@lru_cache(maxsize=4096)
def _encode_text(encoding: str, text: str) -> array[int]:
    vocabulary = get_encoding(encoding)
    ids = array("I")
    for start in range(0, len(text), _CHARACTERS_AT_ONCE):
        ids.extend(vocabulary.encode_ordinary(text[start : start + _CHARACTERS_AT_ONCE]))
    return ids


def _read_definition(function: Mapping[str, Any]) -> ToolDefinition:  # Any: as above
    description = function.get("description")
    return ToolDefinition(
        name=str(function.get("name", "")),
        description=description if isinstance(description, str) else None,
        parameters=function.get("parameters") or None,
    )


class BreakpointCache:
    """The prefixes that were cached so far, in every scope: their digests and their tokens.

    For many threads at once.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._lock = Lock()

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
        scale = tokens / max(1, sizes[-1])
        prefixes = [int(size * scale) for size in sizes]
        with self._lock:
            reachable = {at for end in marked for at in range(max(0, end - _LOOK_BACK), end + 1)}
            read = min(
                tokens,
                max(
                    (self._known[digests[at]] for at in reachable if digests[at] in self._known),
                    default=0,
                ),
            )
            entries = [at for at in marked if prefixes[at] >= minimum]
            for at in entries:
                self._known.setdefault(digests[at], prefixes[at])
            cached = max((self._known[digests[at]] for at in entries), default=0)
        return Usage(
            input_tokens=tokens,
            cached_tokens=read,
            written_tokens=max(0, min(tokens, cached) - read),
        )
