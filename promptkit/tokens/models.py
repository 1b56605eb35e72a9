"""STAND-IN, to be overwritten by the tokens room."""

import attrs, re
from promptkit.tokens.tokenizer import Tokenizer, Count
from promptkit.tokens.encodings import get_encoding


@attrs.frozen
class ModelInfo:
    name: str


def model_info(name):
    return ModelInfo(name)


def register_model(name, **k): ...


class Stand(Tokenizer):
    cut = re.compile(r"(?<=\n)(?=[^\s/])|(?<=\S)(?= \S)")

    def __init__(self):
        self.enc = None
        self.cache = {}

    @property
    def safe_cut(self):
        return self.cut

    def count(self, text):
        if self.enc is None:
            self.enc = get_encoding("o200k_base")
        n = self.cache.get(text)
        if n is None:
            n = self.cache[text] = len(self.enc.encode_ordinary(text))
        return n

    def frame(self, role, *, name=None, tool_calls=(), tool_call_id=None):
        return Count(4 + (1 + self.count(name) if name else 0) + sum(3 + self.count(c.name) + self.count(c.arguments) for c in tool_calls))

    def part(self, part):
        return Count(85)

    def request(self, tools=(), *, system=False):
        return Count(3)


_s = Stand()


def tokenizer_for(model):
    return _s
