"""Messages as they go over the wire, as JSON that is read in a review."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from promptkit.emitters import to_anthropic, to_chat, to_responses
from promptkit.testing.snapshots.markdown import sized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message
    from promptkit.testing.snapshots.budgets import Level

__all__ = ["WireForm", "wire_document"]

WireForm: TypeAlias = Literal["openai", "responses", "anthropic"]
"""Whose format: `to_openai`, `to_responses` or `to_anthropic` of a Rendered."""

MEDIA = ("data", "file_data", "image_url", "url")
"""The keys that images and documents stand under."""

LONG = 200
"""Characters of base64 above which its size and hash say more."""

_BASE64 = re.compile("((?:data:[^,]*,)?)([A-Za-z0-9+/]+={0,2})")


def wire_document(levels: Sequence[Level], form: WireForm) -> Any:  # noqa: ANN401  # Any: it is JSON, for the JSON serializer
    """The payload, or for several budgets an object of the payloads, largest first. Keys stand in the order in which they are sent.

    A budget that is too small is an object with the `error`. Raises EmitError for what has no form in the format.
    """
    if not levels[0].label:
        return _payload(levels[0].messages, form)
    return OrderedDict((level.label, _payload(level.messages, form) if level.rendered else {"error": level.error}) for level in levels)


def _payload(messages: Sequence[Message], form: WireForm) -> Any:  # noqa: ANN401  # Any: as above
    emit = {"openai": to_chat, "responses": to_responses, "anthropic": to_anthropic}[form]
    # syrupy sorts the keys of dicts, but not of these.
    return json.loads(json.dumps(emit(messages)), object_pairs_hook=_shortened)


def _shortened(pairs: list[tuple[str, object]]) -> OrderedDict[str, object]:
    return OrderedDict((key, _short(value) if key in MEDIA and isinstance(value, str) else value) for key, value in pairs)


def _short(text: str) -> str:
    match = _BASE64.fullmatch(text) if len(text) > LONG else None
    return f"{match[1]}<{sized(match[2])}>" if match else text
