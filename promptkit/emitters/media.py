"""What stands in a `data:` URL."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DataUrl", "parse_data_url"]


class DataUrl(NamedTuple):
    """A `data:` URL, taken apart (RFC 2397). `media_type` is empty where the URL names none; `data` is as it stands."""

    media_type: str
    is_base64: bool
    data: str


def parse_data_url(url: str) -> DataUrl | None:
    """The parts of a `data:` URL; None for any other URL."""
    if url[:5].lower() != "data:":
        return None
    head, _, data = url[5:].partition(",")
    media_type, *fields = head.split(";")
    return DataUrl(media_type.strip().lower(), is_base64="base64" in {field.strip().lower() for field in fields}, data=data)
