"""A prompt cache as OpenAI describes its own: what an earlier request began with is not read again.

The rule (OpenAI, "Prompt caching"): a prefix counts from 1,024 tokens, in steps of 128. Here nothing is ever forgotten for its age, and
there is one machine, so a hit that may happen does happen. Breakpoints and life times are not looked at.
"""

from __future__ import annotations

import json
from array import array
from collections import OrderedDict
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from threading import Lock
from typing import TYPE_CHECKING, Any
from zlib import crc32

from promptkit.messages import ImagePart, ToolDefinition
from promptkit.testing.server.validation import mapping, sequence, text_of
from promptkit.tokens.encodings import get_encoding
from promptkit.tokens.models import tokenizer_for
from promptkit.tokens.tool_schemas import format_declarations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from promptkit.tokens.openai_tokenizer import OpenAITokenizer

__all__ = ["LEAST", "STEP", "PromptCache", "prompt_ids"]

LEAST, STEP = 1024, 128
"""Tokens."""

START, SEPARATOR, END, CALL, TOOLS = range(1_000_000, 1_000_005)
"""What stands between texts, as ids that no vocabulary has."""

_PIECE = 65_536  # characters that are encoded at once: a cut at a fixed place leaves the text before it what it is


class PromptCache:
    """What has been sent so far, in every scope: blocks of 128 tokens, each by a digest of it and of all before it.

    The blocks that were not met for longest are forgotten beyond `blocks`, which limits the memory (some 100 bytes each).
    """

    def __init__(self, *, blocks: int = 1_000_000) -> None:
        self._blocks = blocks
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._lock = Lock()

    def read(self, scope: str, chat: Mapping[str, Any]) -> int:  # Any: JSON
        """The tokens of a request that were cached in its scope; it is cached from now on."""
        ids = prompt_ids(chat)
        digest = blake2b(scope.encode(errors="surrogatepass"), digest_size=16).digest()
        digests: list[bytes] = []
        for start in range(0, len(ids) - STEP + 1, STEP):
            digest = blake2b(ids[start : start + STEP].tobytes(), digest_size=16, key=digest).digest()
            digests.append(digest)
        with self._lock:
            met = sum(1 for _ in takewhile(self._known.__contains__, digests))
            for digest in reversed(digests):  # so that ends are forgotten before beginnings
                self._known[digest] = None
                self._known.move_to_end(digest)
            while len(self._known) > self._blocks:
                self._known.popitem(last=False)
        return met * STEP if met * STEP >= LEAST else 0


def prompt_ids(chat: Mapping[str, Any]) -> array[int]:  # Any: JSON
    """The tokens of a chat request in the order in which a model reads them: tools, then messages.

    As many as `count_request` says, but for the few that definitions of tools save where there are instructions.
    """
    model = chat.get("model")
    tokenizer = tokenizer_for(model if isinstance(model, str) else None)
    ids = array("I")
    tools = [_definition(mapping(mapping(tool).get("function"))) for tool in sequence(chat.get("tools"))]
    if tools:
        ids.extend((TOOLS, TOOLS))
        ids.extend(_text(tokenizer.name, format_declarations(tools, "tools")))
    for message in map(mapping, sequence(chat.get("messages"))):
        for piece in _message(message, tokenizer):
            ids.extend(piece)
    ids.extend((START, *_text(tokenizer.name, "assistant"), SEPARATOR))
    return ids


def _message(message: Mapping[str, Any], tokenizer: OpenAITokenizer) -> Iterator[array[int]]:  # Any: as above
    role = str(message.get("role"))
    calls = [mapping(mapping(call).get("function")) for call in sequence(message.get("tool_calls"))]
    content = message.get("content")
    if not calls or text_of(content):
        name = str(message.get("name") or "")
        named = [START, *_text(tokenizer.name, role)] if role == "tool" else [START, *_text(tokenizer.name, role), SEPARATOR]
        yield array("I", [*named, *_text(tokenizer.name, name), SEPARATOR] if name and role != "tool" else named)
        yield from _content(content, tokenizer)
        yield array("I", (END,))
    for call in calls:
        called = _text(tokenizer.name, str(call.get("name", "")))
        yield array("I", (CALL,) * 10) + called + called  # the framing of a call, and its name there and in its result
        yield _text(tokenizer.name, _compact(str(call.get("arguments", ""))))
    if len(calls) > 1:
        yield array("I", (CALL,) * 9)


def _content(content: object, tokenizer: OpenAITokenizer) -> Iterator[array[int]]:
    if isinstance(content, str):
        yield _text(tokenizer.name, content)
    for part in map(mapping, sequence(content)):
        image = mapping(part.get("image_url"))
        if image:
            url, detail = str(image.get("url", "")), image.get("detail")
            shown = ImagePart(url=url, detail=detail if isinstance(detail, str) else None)
            yield array("I", (START + 16 + crc32(url.encode(errors="surrogatepass")) % 1_000_000,) * tokenizer.count_part(shown).tokens)
        else:
            yield _text(tokenizer.name, text_of([part]) or json.dumps(part, sort_keys=True))


@lru_cache(maxsize=4096)
def _text(encoding: str, text: str) -> array[int]:
    known = get_encoding(encoding)
    ids = array("I")
    for start in range(0, len(text), _PIECE):
        ids.extend(known.encode_ordinary(text[start : start + _PIECE]))
    return ids


def _definition(function: Mapping[str, Any]) -> ToolDefinition:  # Any: as above
    description, parameters = function.get("description"), function.get("parameters")
    return ToolDefinition(
        name=str(function.get("name", "")),
        description=description if isinstance(description, str) else None,
        parameters=mapping(parameters) or None,
    )


def _compact(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments
