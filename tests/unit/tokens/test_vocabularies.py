from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, strategies as st

from benchmarks.maintenance.build_vocabularies import (
    SHA256,
    build_vocabulary,
    format_official,
    pack_vocabulary,
)
from promptkit.tokens.encodings import load_vocabulary, unpack_vocabulary


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(SHA256))
def test_a_bundled_vocabulary_is_the_official_file_byte_for_byte(name: str) -> None:
    file = format_official(load_vocabulary(name))
    assert hashlib.sha256(file).hexdigest() == SHA256[name]
    assert unpack_vocabulary(build_vocabulary(name, file)) == load_vocabulary(name)


@given(st.lists(st.binary(min_size=1, max_size=128)))
def test_a_blob_holds_tokens_in_rank_order(tokens: list[bytes]) -> None:
    assert unpack_vocabulary(pack_vocabulary(tokens)) == tuple(tokens)


def test_refuses_a_file_that_is_not_the_official_one() -> None:
    with pytest.raises(ValueError, match=r"o200k_base: sha256 is [0-9a-f]{64}"):
        build_vocabulary("o200k_base", b"IQ== 0\nIg== 1\n")


def test_refuses_ranks_that_are_not_in_order() -> None:
    with pytest.raises(ValueError, match="not 0 to 1 in order"):
        build_vocabulary("o200k_base", b"IQ== 1\nIg== 0\n")
