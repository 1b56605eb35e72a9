"""What can go wrong when a model is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.errors.prompts import PromptKitError

if TYPE_CHECKING:
    from promptkit.messages import Usage

__all__ = [
    "ContextOverflowError",
    "EmptyReplyError",
    "ModelError",
    "ModelRequestError",
    "ModelUnavailableError",
    "RateLimitedError",
]


class ModelError(PromptKitError):
    """A model was asked in vain. What its client raised is the `__cause__`.

    `model` is its name, `status` the HTTP status, `code` and `param` what the provider says of its error; None where nothing is said.
    """

    def __init__(
        self, message: str, *, model: str = "", status: int | None = None, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(f"{model}: {message}" if model else message)
        self.model = model
        self.status = status
        self.code = code
        self.param = param


class ContextOverflowError(ModelError):
    """The request does not fit into the model's window. `tokens` and `window` are what the provider says of both, if it does."""

    tokens: int | None = None
    window: int | None = None


class RateLimitedError(ModelError):
    """The provider wants fewer requests, or fewer tokens a minute. `retry_after` is how many seconds to wait, if it says so."""

    retry_after: float | None = None


class ModelUnavailableError(ModelError):
    """No answer within the time limit, a broken connection, a stream cut short or a failing server: it may pass."""


class ModelRequestError(ModelError):
    """The provider refuses the request, and would refuse it again: a key, a quota, a parameter that the model does not take."""


class EmptyReplyError(ModelError):
    """The model answered without text and without a tool call, or with what is no reply. `finish` and `usage` are what it said of it."""

    finish: str | None = None
    usage: Usage | None = None
