"""The peers, as described in `peers.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import attrs

__all__ = ["OWN", "Peer", "UnknownPeerError", "peers", "select_peers"]

HERE: Final = Path(__file__).parent
OWN: Final = "promptkit"
"""The name of promptkit itself, which times are compared with."""


class UnknownPeerError(Exception):
    """A name is in no section of `peers.toml`."""


@attrs.frozen(kw_only=True)
class Peer:
    """A library that fits a prompt into a budget, and how it is measured."""

    name: str
    title: str
    runtime: Literal["python", "node"]
    packages: tuple[str, ...]
    """Pinned, in the installer's syntax: `name==version` for pip, `name@version` for npm."""
    adapter: Path
    tokenizer: str
    use: str
    lacks: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Shape → why the peer cannot run it."""

    @property
    def version(self) -> str:
        """The pinned version of the library; that of promptkit is the checkout."""
        return (
            "this checkout"
            if self.name == OWN
            else self.packages[0].replace("==", "@").rpartition("@")[2]
        )


@cache
def peers() -> Mapping[str, Peer]:
    """Return all peers by name, promptkit first."""
    told = tomllib.loads((HERE / "peers.toml").read_text(encoding="utf-8"))
    return {name: _peer(name, **given) for name, given in told.items()}


def _peer(name: str, *, packages: Sequence[str], adapter: str, **given: Any) -> Peer:  # noqa: ANN401  # Any: as the file has it
    return Peer(name=name, packages=tuple(packages), adapter=HERE / "adapters" / adapter, **given)


def select_peers(names: Iterable[str]) -> tuple[Peer, ...]:
    """Return the peers with these names in the order of `peers.toml`, or all peers if there are no names.

    Raises UnknownPeerError.
    """
    wanted = {*names}
    if unknown := wanted - peers().keys():
        raise UnknownPeerError(
            f"No peer is called {', '.join(sorted(unknown))}: choose of {', '.join(peers())}."
        )
    return tuple(peer for peer in peers().values() if not wanted or peer.name in wanted)
