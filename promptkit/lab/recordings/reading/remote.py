"""Files behind URLs: `s3://`, `gs://`, `az://` and `https://` through obstore, `hf://` through the library of Hugging Face.

A file is copied into a temporary folder, and read there like any other: most formats are read more
than once.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from promptkit.errors import InvalidArgumentError, TranscriptError
from promptkit.transcript.stores.addresses import check_scheme, is_conversation, is_url
from promptkit.transcript.stores.objects import describe_object_error, object_errors, open_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from obstore.store import ObjectStore as Bucket

CHUNK_SIZE = 1 << 20
"""Bytes that are copied at a time."""

_WEB = ("http", "https")
_HUB = "hf"


def is_remote(address: Path | str) -> bool:
    """Return whether an address is the URL of a file, and not a path or a conversation of a database or of object storage."""
    return isinstance(address, str) and is_url(address) and not is_conversation(address)


@contextmanager
def fetch_file(address: Path | str) -> Generator[Path | str]:
    """Copy the file behind a URL into a temporary folder, and give its path.

    Another address is given as it is.

    The copy has the file's name, and is deleted after the block. Raises TranscriptError if the file
    cannot be read or the library that the URL needs is missing, InvalidArgumentError if the URL
    names no file.
    """
    if not isinstance(address, str) or not is_remote(address):
        yield address
        return
    with tempfile.TemporaryDirectory(prefix="promptkit-") as folder:
        copy = Path(folder, re.sub(r"[^\w.-]", "_", address.rpartition("/")[2])[-200:] or "file")
        if urlsplit(address).scheme == _HUB:
            _copy_from_hub(address, copy)
        else:
            _copy_object(address, copy)
        yield copy


def _copy_object(url: str, copy: Path) -> None:
    bucket, path = _open(url)
    with object_errors(url, "read"), copy.open("wb") as file:
        try:
            found = bucket.get(path)
        except FileNotFoundError as error:
            raise TranscriptError(f"there is no file {url}.") from error
        for chunk in found.stream(min_chunk_size=CHUNK_SIZE):
            file.write(chunk)


def _copy_from_hub(url: str, copy: Path) -> None:
    with (
        _hub_errors(url) as (files, path),
        files.open(path, "rb") as source,
        copy.open("wb") as file,
    ):
        shutil.copyfileobj(source, file, CHUNK_SIZE)


def list_remote(url: str, matches: Callable[[str], object]) -> Iterator[str]:
    """Yield the URLs of the files below a URL whose path, from there on, matches.

    They come in no order.

    Raises TranscriptError if the place cannot be listed, InvalidArgumentError for `https://`, which
    has no lists.
    """
    scheme = urlsplit(url).scheme
    if scheme in _WEB:
        raise InvalidArgumentError(
            f"{scheme}:// has no lists of files: name each file, or use s3://, gs://, az:// or hf://."
        )
    root = url.rstrip("/")
    if scheme == _HUB:
        with _hub_errors(root) as (files, path):
            names = (found.removeprefix(path).strip("/") for found in files.find(path))
            yield from (f"{root}/{name}" for name in names if matches(name))
        return
    bucket = open_bucket(root)
    with object_errors(root, "listed"):
        yield from (
            f"{root}/{item['path']}"
            for page in bucket.list()  # pyright: ignore[reportUnknownMemberType]  # another overload returns a type of pyarrow
            for item in page
            if matches(item["path"])
        )


def remote_exists(url: str) -> bool:
    """Return whether there is a file behind the URL of an output.

    Raises what `write_remote` raises.
    """
    bucket, path = _open(url, for_writing=True)
    with object_errors(url, "written"):
        try:
            bucket.head(path)
        except FileNotFoundError:
            return False
    return True


def write_remote(url: str, write: Callable[[BinaryIO], object]) -> None:
    """Write the file behind a URL, completely or not at all.

    Raises TranscriptError if it cannot be written, InvalidArgumentError for a URL that can only be
    read.
    """
    bucket, path = _open(url, for_writing=True)
    with tempfile.TemporaryFile(prefix="promptkit-") as file:
        write(file)
        file.seek(0)
        with object_errors(url, "written"):
            bucket.put(path, file)


class _HubFiles(Protocol):
    """What is used of `HfFileSystem`, whose base class has no types."""

    def open(self, path: str, mode: str) -> BinaryIO: ...
    def find(self, path: str) -> Sequence[str]: ...


@contextmanager
def _hub_errors(url: str) -> Generator[tuple[_HubFiles, str]]:
    """Open the files of Hugging Face, and give them with the path of a URL there.

    Errors become sentences.
    """
    try:
        from huggingface_hub import HfFileSystem
    except ImportError as error:
        raise TranscriptError(
            "hf:// needs huggingface_hub: run `pip install 'huggingface-hub>=0.30'`, or `pip install '.[huggingface]'` in a checkout of "
            "promptkit."
        ) from error
    try:
        files: Any = HfFileSystem()  # Any: as above
        yield files, url.removeprefix(f"{_HUB}://")
    except FileNotFoundError as error:
        raise TranscriptError(f"there is no file {url}.") from error
    except (OSError, ValueError) as error:  # also those of the network and of the hub
        raise TranscriptError(f"{url} cannot be read: {describe_object_error(error)}.") from error


def _open(url: str, *, for_writing: bool = False) -> tuple[Bucket, str]:
    """Return the place of a URL, and the path of the file there."""
    parts = urlsplit(url)
    if for_writing and parts.scheme in (*_WEB, _HUB):
        raise InvalidArgumentError(
            f"{parts.scheme}:// can only be read: write to a file, or to s3://, gs:// or az://."
        )
    check_scheme(url)
    place = f"{parts.scheme}://{parts.netloc}"
    path = url.removeprefix(place).removeprefix("/")
    if parts.scheme in _WEB:
        if parts.query:
            raise InvalidArgumentError(
                f"{url!r} has a query, which cannot be sent: download the file."
            )
        path = unquote(path)
    elif parts.scheme == "file":
        place, _, path = url.rpartition("/")
    if not path or path.endswith("/"):
        raise InvalidArgumentError(f"{url!r} names no file.")
    return open_bucket(place), path
