"""Secrets taken out of what leaves a conversation: summaries, the facts beside them, exports. Off unless a redactor is given.

The transcript itself is never touched, and what the model is shown of it is as it was said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs

from promptkit.messages import DocumentPart, ImagePart, OpaquePart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from promptkit.messages import Json, Message, Part

__all__ = ["SECRETS", "Redactor", "Secret", "redact_json", "redact_payload", "redact_secrets"]

Redactor: TypeAlias = Callable[[str], str]
"""Gives a text without its secrets, the same for the same text, and what it gave is left as it is when it comes again.

What it raises ends what it was called for: a compaction, an export. Nothing leaves unseen.
"""


@attrs.frozen
class Secret:
    """A shape of secrets: what it is called, and a pattern that takes linear time on any text.

    Of a match the group `value` is replaced, or all of it where there is no such group; nothing where a group `proof` had no part in it.
    """

    name: str
    pattern: re.Pattern[str]

    def out_of(self, text: str) -> str:
        """The text with a word in place of each."""
        return self.pattern.sub(self._word, text)

    def _word(self, match: re.Match[str]) -> str:
        groups = match.groupdict("")
        if groups.get("proof") == "":
            return match[0]
        start, end = match.span("value") if "value" in groups else match.span()
        return f"{match.string[match.start() : start]}[redacted: {self.name}]{match.string[end : match.end()]}"


_GAP = r"(?:\s|\\[nr])"  # a line's end, as it is or as JSON writes it
_PEM = r"-----{} (?:[A-Z0-9]{{1,20}} ){{0,4}}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN, _END = _PEM.format("BEGIN"), _PEM.format("END")
_BODY = rf"(?:{_GAP}*+[A-Za-z0-9+/=]{{16,}}+)*+(?:{_GAP}*+[A-Za-z0-9+/=]{{1,64}}+)?+"
_HEADERS = rf"(?:{_GAP}{{1,2}}[A-Z][A-Za-z-]{{1,20}}: [A-Za-z0-9,. +/@()-]{{0,200}})*+"
_NAMES = r"secret|passw(?:or)?d|passphrase|token|api[_-]?key|access[_-]?key|private[_-]?key"

SECRETS: tuple[Secret, ...] = (
    # A key of which the beginning or the end was cut away is still one.
    Secret("private key", re.compile(rf"{_BEGIN}{_HEADERS}{_BODY}(?:{_GAP}*+{_END})?+")),
    Secret(
        "private key",
        re.compile(rf"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/=]{{40,}}+{_GAP}++)++(?:[A-Za-z0-9+/=]{{1,64}}+{_GAP}++)?+(?P<proof>{_END})?+"),
    ),
    Secret("api key", re.compile(r"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{20,}+")),
    Secret("api key", re.compile(r"(?<![A-Za-z0-9])[rsp]k_(?:live|test)_[A-Za-z0-9]{16,}+")),
    Secret("api key", re.compile(r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])")),
    Secret("access key", re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])")),
    Secret("access token", re.compile(r"(?<![A-Za-z0-9])(?:gh[opsur]_[A-Za-z0-9]{36,}+|github_pat_[A-Za-z0-9_]{40,}+)")),
    Secret(
        "access token", re.compile(r"(?<![A-Za-z0-9])(?:glpat-[A-Za-z0-9_-]{20,}+|xox[abeoprs]-[A-Za-z0-9-]{10,}+|xapp-[A-Za-z0-9-]{10,}+)")
    ),
    Secret("access token", re.compile(r"(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{36,}+|pypi-[A-Za-z0-9_-]{50,}+|hf_[A-Za-z0-9]{30,}+)")),
    Secret("token", re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+(?:\.[A-Za-z0-9_-]{0,}+)?+")),
    Secret("bearer token", re.compile(r"(?<![a-z])bearer[ \t]{1,4}(?P<value>[a-z0-9._~+/=-]{16,}+)", re.IGNORECASE)),
    Secret(
        "credentials",
        re.compile(
            r"authorization[\\\"']{0,4}\s{0,3}[:=]\s{0,3}[\\\"']{0,4}(?:basic|token|digest)\s{1,3}(?P<value>[^\s\"',;\[\\]{8,}+)",
            re.IGNORECASE,
        ),
    ),
    Secret("password", re.compile(r"(?<=://)[^\s/:@]{0,100}+:(?P<value>[^\s/@]{1,200}+)@")),
    Secret(
        "value",
        re.compile(
            rf"(?:{_NAMES})[\\\"']{{0,4}}\s{{0,3}}[:=]\s{{0,3}}[\\\"']{{0,4}}(?P<value>(?=[a-z+/_.~-]{{0,64}}[0-9])[a-z0-9+/_.~=-]{{12,}}+)",
            re.IGNORECASE,
        ),
    ),
)
"""What `redact_secrets` takes out: keys and tokens of common shapes, private keys, passwords in addresses, values of telling names."""


def redact_secrets(text: str) -> str:
    """A redactor for secrets of common shapes. It knows none by its value: add those that you know with a redactor of your own.

    >>> redact_secrets("curl -H 'Authorization: Bearer abcdefghijklmnop1234'")
    "curl -H 'Authorization: Bearer [redacted: bearer token]'"
    """
    for secret in SECRETS:
        text = secret.out_of(text)
    return text


def redact_payload(message: Message, redactor: Redactor) -> Message:
    """A message without secrets; the message itself where there are none.

    Looks at texts, at the arguments of calls (which stay JSON), at addresses of pictures and names of documents; not into the pictures
    and documents themselves. A provider's own part in which something is found is left out whole: it may be signed.
    """
    content = tuple(_parts(message.content, redactor))
    calls = tuple(attrs.evolve(call, arguments=_arguments(call.arguments, redactor)) for call in message.tool_calls)
    if content == message.content and calls == message.tool_calls:
        return message
    return attrs.evolve(message, content=content, tool_calls=calls)


def redact_json(value: Json, redactor: Redactor) -> Json:
    """A JSON value without secrets in its texts and names."""
    root: list[Json] = [value]
    waiting: list[tuple[Json, Callable[[Json], object]]] = [(value, partial(root.__setitem__, 0))]
    while waiting:
        item, put = waiting.pop()
        if isinstance(item, str):
            put(redactor(item))
        elif isinstance(item, Mapping):
            named = {redactor(name): each for name, each in item.items()}
            put(named)
            waiting.extend((each, partial(named.__setitem__, name)) for name, each in named.items())
        elif isinstance(item, list):
            listed = list(item)
            put(listed)
            waiting.extend((each, partial(listed.__setitem__, at)) for at, each in enumerate(listed))
    return root[0]


def _parts(content: Iterable[Part], redactor: Redactor) -> Iterator[Part]:
    for is_text, group in groupby(content, lambda part: isinstance(part, str)):
        if is_text:
            yield from _texts([part for part in group if isinstance(part, str)], redactor)
            continue
        for part in group:
            match part:
                case ImagePart(url=url) if not url.startswith("data:"):
                    yield attrs.evolve(part, url=redactor(url))
                case DocumentPart(name=str(name)):
                    yield attrs.evolve(part, name=redactor(name))
                case OpaquePart(value=value) if redact_json(value, redactor) != value:
                    continue
                case _:
                    yield part


def _texts(texts: list[str], redactor: Redactor) -> list[str]:
    """Texts that are read as one: a secret may begin in one and end in the next."""
    clean = [redactor(text) for text in texts]
    whole = "".join(clean)
    again = redactor(whole) if len(clean) > 1 else whole
    return clean if again == whole else [again]


def _arguments(text: str, redactor: Redactor) -> str:
    """The arguments of a call: as values, and as they are written, where the name beside a value tells what it is. JSON stays JSON."""
    try:
        value = cast("Json", json.loads(text))  # of JSON
        clean = redact_json(value, redactor)
        shown = text if clean == value else json.dumps(clean, ensure_ascii=False)
    except (ValueError, RecursionError):
        return redactor(text)
    again = redactor(shown)
    if again != shown:
        try:
            json.loads(again)
        except (ValueError, RecursionError):
            return json.dumps({"redacted": again}, ensure_ascii=False)
    return again
