"""The tokenizers that recorded jobs name: the reference harness's own, as promptkit's `Tokenizer`."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.tokens.tokenizer import Count, Tokenizer
from tests.conformance.schema import Node, Spec, is_fragment, is_node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.messages import Role, ToolCall

__all__ = ["make_tokenizer"]

# JavaScript's \s, which is not quite Python's.
SPACE = "\\t\\n\\v\\f\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
WORD = re.compile(f"[^{SPACE}]+")
BESIDE_SPACE = re.compile(f"(?<=[{SPACE}])|(?=[{SPACE}])")
ANYWHERE = re.compile("")
# No piece that cl100k_base and o200k_base split text into reaches over a line's end into a word, or
# over a single space between words.
SAFE_IN_BPE = re.compile(r"(?<=\n)(?=[^\s/])|(?<=\S)(?= \S)")
CONSUME = re.compile(r"consume=([0-9]+)")


def make_tokenizer(kind: Spec) -> Tokenizer:
    """The tokenizer of a job: a name, or an object with `kind` and options; `words` where a job names none."""
    options: Node = kind if is_node(kind) else {"kind": kind or "words"}
    match options["kind"]:
        case "words":
            return Words(
                options.get("perMessage", 0),
                options.get("image", 0),
                tool_calls=options.get("toolCalls", False),
            )
        case "chars":
            return Characters(options.get("perMessage", 0))
        case "consume":
            return Consume()
        case "cl100k" | "o200k":
            return Bpe(f"{options['kind']}_base")
        case other:
            raise ValueError(f"no tokenizer is called {other!r}")


class Words(Tokenizer):
    """One token for each run of characters that are no white space."""

    def __init__(self, per_message: int, image: int, *, tool_calls: bool) -> None:
        self.per_message = per_message
        self.image = image
        self.tool_calls = tool_calls

    @property
    def safe_cut(self) -> re.Pattern[str]:
        return BESIDE_SPACE

    def count(self, text: str) -> int:
        return len(WORD.findall(text))

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        calls = (
            sum(self.count(f"{call.name} {call.arguments}") for call in tool_calls)
            if self.tool_calls
            else 0
        )
        return Count(self.per_message + calls)

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        if isinstance(part, ImagePart):
            return Count(self.image)
        if (
            isinstance(part, OpaquePart)
            and is_node(part.value)
            and isinstance(tokens := part.value.get("tokens"), int)
        ):
            return Count(tokens)
        return Count(0)


class Characters(Tokenizer):
    """One token for each UTF-16 code unit, as JavaScript counts the length of a string."""

    def __init__(self, per_message: int) -> None:
        self.per_message = per_message

    @property
    def safe_cut(self) -> re.Pattern[str]:
        return ANYWHERE

    def count(self, text: str) -> int:
        return len(text) + sum(character > "\uffff" for character in text)

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        return Count(self.per_message)


class Consume(Tokenizer):
    """A text costs what it says: the sum of N over all `consume=N` in it.

    Nowhere can it be cut safely.
    """

    def count(self, text: str) -> int:
        return sum(int(number) for number in CONSUME.findall(text))


class Bpe(Tokenizer):
    """A real vocabulary, with the framing of the reference's OpenAI mode.

    A message costs 3, the tokens of every string in it wherever it stands, and 1 for every `name`.
    The reference also counts the word `text` once for each text part beside an image, and leaves
    images out of system and assistant messages; both depend on the whole message, so no tokenizer
    that adds up parts can say it.
    """

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self.counted = _counter(encoding)

    @property
    def name(self) -> str:
        return self.encoding

    @property
    def safe_cut(self) -> re.Pattern[str]:
        return SAFE_IN_BPE

    def count(self, text: str) -> int:
        return self.counted(text) if text else 0

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in tool_calls
        ]
        return Count(
            3
            + self._strings(
                {"role": role, "name": name, "tool_calls": calls, "tool_call_id": tool_call_id}
            )
        )

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        if isinstance(part, ImagePart):
            image = {"url": part.url, "detail": part.detail, "mediaType": part.media_type}
            return Count(self._strings({"type": "image_url", "image_url": image}))
        return Count(self._strings(part.value) if isinstance(part, OpaquePart) else 0)

    def _strings(self, value: object) -> int:
        if isinstance(value, str):
            return self.count(value)
        if is_node(value):
            return sum(self._strings(each) + (key == "name") for key, each in value.items() if each)
        if is_fragment(value):
            return sum(self._strings(each) for each in value)
        return 0


@cache
def _counter(encoding: str) -> Callable[[str], int]:
    from promptkit.tokens.encodings import get_encoding

    found = get_encoding(encoding)
    return lambda text: len(found.encode(text, allowed_special="all"))
