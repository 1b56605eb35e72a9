"""Exceptions of the OpenAI SDK as promptkit's own errors. Imported only where the SDK is already loaded."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from openai import APIConnectionError, APIError, APIResponseValidationError, APIStatusError, APITimeoutError

from promptkit.errors import EmptyReplyError, ModelError, ModelRequestError, ModelUnavailableError
from promptkit.providers.errors import Failure, error_from_failure

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["error_from_sdk"]

_BAD_HEADER = "a header of the request, such as the API key, has a character that headers cannot have: remove it from the key."
# The text does not quote the header, which is secret.


def error_from_sdk(error: Exception, model: str) -> ModelError:
    """Return the error to raise for one of the SDK's, or for the ValueError of a response that is not JSON."""
    match error:
        case APIConnectionError():
            return _error_from_connection(error, model)
        case APIStatusError():
            wait = parse_retry_after(error.response.headers)
            return error_from_failure(
                Failure(model=model, message=error.message, status=error.status_code, body=error.body, retry_after=wait)
            )
        case UnicodeEncodeError():
            surrogate = f"a name or an opaque part has half of a surrogate pair in it, which cannot be sent: replace it ({error.reason})."
            return ModelRequestError(_BAD_HEADER if error.encoding == "ascii" else surrogate, model=model)
        case APIResponseValidationError() | ValueError():
            return EmptyReplyError(f"the response is not valid JSON ({error}).", model=model)
        case APIError():
            return error_from_failure(Failure(model=model, message=error.message, body=error.body))
        case _:
            return ModelRequestError(str(error), model=model)  # such as a key that is missing


def _error_from_connection(error: APIConnectionError, model: str) -> ModelError:
    cause = error.__cause__
    if isinstance(error, APITimeoutError):
        return ModelUnavailableError("no response within the time limit: try again, or raise `timeout`.", model=model)
    if type(cause).__name__ == "LocalProtocolError":  # raised by the SDK's HTTP library, which quotes the header
        return ModelRequestError(_BAD_HEADER, model=model)
    reason = f" ({cause})" if cause and str(cause) else ""
    return ModelUnavailableError(f"the connection failed or broke{reason}: try again.", model=model)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that a response's headers ask for, as a number or as a date; None if they do not."""
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
