"""The props of a command line: a JSON object in a file, or on stdin."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, cast

from promptkit.cli.failure import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["read_props"]


def read_props(path: Path | None) -> Mapping[str, object]:
    """The props that a file holds; `-` is stdin, None is no props. Refuses what is no JSON object."""
    if path is None:
        return {}
    try:
        text = (sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()).decode("utf-8")
    except OSError as error:
        refuse(f"{path} cannot be read: {error.strerror}.")
    except UnicodeDecodeError:
        refuse(f"{path} is no UTF-8 text.")
    try:
        props: object = json.loads(text)
    except json.JSONDecodeError as error:
        refuse(f"{path}:{error.lineno}:{error.colno}: no JSON: {error.msg}.")
    except RecursionError:
        refuse(f"{path}: nested too deeply.")
    if not isinstance(props, dict):
        refuse(f"{path} holds a JSON {type(props).__name__}: props are an object, name to value.")
    return cast("dict[str, object]", props)  # JSON objects have string keys
