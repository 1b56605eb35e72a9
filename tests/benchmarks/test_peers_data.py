"""The list of peers: pinned, complete, and choosable."""

from __future__ import annotations

import re

import pytest

from benchmarks.peers.peer import OWN, UnknownPeerError, peers, select_peers
from benchmarks.peers.work import SHAPES


@pytest.mark.parametrize("name", peers())
def test_a_peer_is_pinned_and_has_an_adapter(name: str) -> None:
    peer = peers()[name]
    assert peer.adapter.is_file()
    assert peer.packages
    pinned = r"[\w-]+==\d[\w.]*" if peer.runtime == "python" else r"@?[\w/-]+@\d[\w.-]*"
    assert [package for package in peer.packages if not re.fullmatch(pinned, package)] == []
    assert set(peer.lacks) <= set(SHAPES)
    assert all(peer.lacks.values())


def test_the_version_of_a_peer_is_that_of_its_first_package() -> None:
    assert peers()["prompt-tsx"].version == "0.4.0-alpha.9"
    assert peers()["langchain"].version == "1.7.2"
    assert peers()[OWN].version == "this checkout"


def test_peers_are_chosen_by_name_in_their_own_order() -> None:
    assert [peer.name for peer in select_peers(["litellm", OWN])] == [OWN, "litellm"]
    assert list(select_peers([])) == list(peers().values())


def test_an_unknown_peer_is_named_with_those_that_there_are() -> None:
    with pytest.raises(
        UnknownPeerError, match=r"No peer is called langchian: choose of promptkit, .*langchain"
    ):
        select_peers(["langchian", "litellm"])
