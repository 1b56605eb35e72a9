"""The tokenizer as the benchmarks use it: one loaded vocabulary, as many empty caches as there are renders."""

from __future__ import annotations
from shim import install
from promptkit.tokens.encodings import get_encoding
O = install()
def encoding():
    return get_encoding("o200k_base")
def fresh_tokenizer(e=None):
    return O(e or encoding())
def tokens(contents):
    return sum(map(fresh_tokenizer().count, contents))
class WitnessedEncoding:
    def __init__(self, e): self.e=e; self.bytes=0
    def encode_ordinary(self, t):
        self.bytes+=len(t.encode()); return self.e.encode_ordinary(t)
