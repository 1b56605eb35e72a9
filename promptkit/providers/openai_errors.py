"""What the SDK raises, as promptkit's own errors. Imported only where the SDK is loaded already."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from openai import APIConnectionError, APIError, APIResponseValidationError, APIStatusError, APITimeoutError

from promptkit.errors import EmptyReplyError, ModelError, ModelRequestError, ModelUnavailableError
from promptkit.providers.failures import Failure, failed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["raised"]


def raised(error: Exception, model: str) -> ModelError:
    """The error to raise for one of the SDK's, or for the ValueError of an answer that is no JSON."""
    match error:
        case APIConnectionError():
            return ModelUnavailableError(_unheard(error), model=model)
        case APIStatusError():
            wait = retry_after(error.response.headers)
            return failed(Failure(model=model, message=error.message, status=error.status_code, body=error.body, retry_after=wait))
        case UnicodeEncodeError():
            half = "a message has half of a surrogate pair in it, which is no text that can be sent: replace it"
            return ModelRequestError(f"{half} ({error.reason}).", model=model)
        case APIResponseValidationError() | ValueError():
            return EmptyReplyError(f"the answer is no JSON that can be read ({error}).", model=model)
        case APIError():
            return failed(Failure(model=model, message=error.message, body=error.body))
        case _:
            return ModelRequestError(str(error), model=model)  # such as a key that is missing


def _unheard(error: APIConnectionError) -> str:
    if isinstance(error, APITimeoutError):
        return "no answer within the time limit: ask again, or give it more time."
    reason = f" ({error.__cause__})" if error.__cause__ and str(error.__cause__) else ""
    return f"the connection could not be made, or broke{reason}: ask again."


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
