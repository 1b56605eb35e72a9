"""Create the peers' environments: `python -m benchmarks.peers.setup [--place DIR] [--peers a,b]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.environments import Environments, InstallError, default_folder
from benchmarks.peers.peer import UnknownPeerError, peers, select_peers

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit status: 0, or 1 if an environment could not be created.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.setup", description=__doc__)
    parser.add_argument(
        "--place",
        type=Path,
        default=default_folder(),
        help="the folder for all environments (default %(default)s)",
    )
    parser.add_argument(
        "--peers",
        default="",
        help=f"some of {', '.join(peers())}, with commas between (default all)",
    )
    options = parser.parse_args(arguments)
    place = Environments(options.place)
    try:
        wanted = select_peers(filter(None, options.peers.split(",")))
    except UnknownPeerError as error:
        parser.error(str(error))
    place.write_vocabulary()
    failed = 0
    for peer in wanted:
        try:
            place.install(peer)
            print(f"{peer.name}: {place.of(peer)}")
        except InstallError as error:
            failed += 1
            print(f"{peer.name}: failed: {error}", file=sys.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
