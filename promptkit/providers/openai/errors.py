"""What the SDK raises, as promptkit's own errors. Imported only where the SDK is loaded already."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from openai import APIConnectionError, APIError, APIResponseValidationError, APIStatusError, APITimeoutError

from promptkit.errors import EmptyReplyError, ModelError, ModelRequestError, ModelUnavailableError
from promptkit.providers.errors import Failure, error_from_failure

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["error_from_sdk"]

HEADER = "a header of the request, such as that of the key, has a character that no header may have: give the key without it."
"""The header itself is secret."""


def error_from_sdk(error: Exception, model: str) -> ModelError:
    """The error to raise for one of the SDK's, or for the ValueError of an answer that is no JSON."""
    match error:
        case APIConnectionError():
            return _unheard(error, model)
        case APIStatusError():
            wait = retry_after(error.response.headers)
            return error_from_failure(
                Failure(model=model, message=error.message, status=error.status_code, body=error.body, retry_after=wait)
            )
        case UnicodeEncodeError():
            half = "a name or a part of the provider's own has half of a surrogate pair in it, which cannot be sent: replace it"
            return ModelRequestError(HEADER if error.encoding == "ascii" else f"{half} ({error.reason}).", model=model)
        case APIResponseValidationError() | ValueError():
            return EmptyReplyError(f"the answer is no JSON that can be read ({error}).", model=model)
        case APIError():
            return error_from_failure(Failure(model=model, message=error.message, body=error.body))
        case _:
            return ModelRequestError(str(error), model=model)  # such as a key that is missing


def _unheard(error: APIConnectionError, model: str) -> ModelError:
    cause = error.__cause__
    if isinstance(error, APITimeoutError):
        return ModelUnavailableError("no answer within the time limit: ask again, or give it more time.", model=model)
    if type(cause).__name__ == "LocalProtocolError":  # of the HTTP library, which one that is is the SDK's affair: it quotes the header
        return ModelRequestError(HEADER, model=model)
    reason = f" ({cause})" if cause and str(cause) else ""
    return ModelUnavailableError(f"the connection could not be made, or broke{reason}: ask again.", model=model)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait by a response's headers: as a number, or as a date beside the server's own."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        until, now = parsedate_to_datetime(headers.get("retry-after", "")), parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None
