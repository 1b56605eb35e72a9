"""litellm: a callback that makes each request fit, for `acompletion`, `Router` and the proxy.

>>> litellm.callbacks = [FitHook()]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, cast

import attrs

from promptkit.errors import BudgetExceededError
from promptkit.fitting.fit import Fitted
from promptkit.integrations.windows import (
    Budget,
    ModelFacts,
    RequestFitter,
    budget_from_limits,
    find_overflow,
    knows_window,
)
from promptkit.messages import ToolDefinition, as_mapping, as_sequence, as_wire_object
from promptkit.tokens import ContextBudget, NamedModel, Tokenizer
from promptkit.tools import read_definition
from promptkit.wire.parts import WireFormat

try:
    import litellm
    from litellm.exceptions import ContextWindowExceededError
    from litellm.integrations.custom_logger import CustomLogger
except ImportError as error:
    raise ImportError(
        "promptkit.integrations.litellm needs litellm: run `pip install 'litellm[mcp]>=1.106'`, or `pip install '.[litellm]'` in a checkout of "
        "promptkit."
    ) from error

__all__ = ["FitHook"]

Request: TypeAlias = Mapping[str, Any]  # Any: the keywords of a call
Sent: TypeAlias = Any  # Any: a dict of a provider, or one of litellm's objects


@attrs.frozen
class _Form:
    """The fields of an API's requests that are counted, and the format of their messages."""

    messages: str
    system: str
    format: WireFormat


_FORMS: Final[Mapping[str, _Form]] = {
    "acompletion": _Form("messages", "", "chat"),
    "aresponses": _Form("input", "instructions", "responses"),
    "anthropic_messages": _Form("messages", "system", "anthropic"),
}
"""litellm's names of the calls that the hook fits."""


class FitHook(CustomLogger):
    """Make each request fit a token budget: long messages are shortened, then the oldest rounds are left out, as `promptkit.fit` does.

    The caller's list is not changed. Messages that did not change are the caller's own objects, and
    shortened ones are copies. litellm does not let a callback make a refused request again: the
    refusal lowers the budget of the model for the requests after it.

    >>> litellm.callbacks = [FitHook(budget="64k")]

    Args:
        budget: The most tokens that a request may have: a number, a text such as `"8k"`, or a
            ContextBudget. Default: the context window of the deployment's model less the tokens
            reserved for the reply.
        model: The name by which all models are counted. Default: that of the deployment's model.
        tokenizer: Counts the tokens. Default: the tokenizer of the model.
        keep: Which of the older rounds stay longest.
        shorten: Whether messages may be shortened. Otherwise rounds are kept whole, or left out.
    """

    def __init__(
        self,
        *,
        budget: Budget = None,
        model: str | NamedModel | None = None,
        tokenizer: Tokenizer | None = None,
        keep: Literal["newest", "oldest"] = "newest",
        shorten: bool = True,
    ) -> None:
        super().__init__()
        self._fitter = RequestFitter[Sent](
            budget=budget,
            model=model,
            tokenizer=tokenizer,
            keep=keep,
            shorten=shorten,
            rebuild=_rebuild,
        )

    def __repr__(self) -> str:
        return self._fitter.describe(self, keep=self._fitter.keep)

    # Any stands for as above
    async def async_pre_call_deployment_hook(
        self, kwargs: Request, call_type: object
    ) -> dict[str, Any] | None:
        """Send what fits. Other calls, and requests with a single text, stay as they are."""
        form = _FORMS.get(str(getattr(call_type, "value", call_type)))
        messages = None if form is None else _read_messages(kwargs, form)
        if form is None or messages is None:
            return None
        facts = self._read_facts(kwargs, form)
        try:
            fitted = self._fit(messages, facts, form)
        except BudgetExceededError as error:  # so that a router takes its fallback for it
            raise ContextWindowExceededError(
                message=str(error),
                model=facts.model,
                llm_provider=str(kwargs.get("custom_llm_provider") or ""),
            ) from error
        return {**kwargs, form.messages: list(fitted.messages)}

    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Request,
        exception: Exception,
        call_type: object,
        fallback_depth: int | None = None,  # the hook's
    ) -> None:
        """Lower the budget of a model after a refusal."""
        form = _FORMS.get(str(getattr(call_type, "value", call_type)))
        refusal = find_overflow(exception, ContextWindowExceededError)
        messages = None if form is None else _read_messages(request_data, form)
        if form is None or refusal is None or messages is None:
            return
        facts = self._read_facts(request_data, form)
        with suppress(BudgetExceededError):  # that one was not sent
            self._fitter.learn(facts, self._fit(messages, facts, form), refusal)

    def _read_facts(self, request: Request, form: _Form) -> ModelFacts:
        # by position, too
        budget = self._fitter.budget
        name = self._fitter.model or str(
            request.get("model") or getattr(request.get("litellm_logging_obj"), "model", "")
        )
        tools = {
            tool.name: tool
            for each in (*(request.get("tools") or ()), request.get("response_format"))
            for tool in _read_tool(each)
        }
        return ModelFacts(
            model=name,
            budget=_find_budget(request, name) if budget is None else budget,
            instructions=_read_text(request.get(form.system)),
            tools=tuple(tools.values()),
        )

    def _fit(self, messages: Sequence[Sent], facts: ModelFacts, form: _Form) -> Fitted[Sent]:
        return attrs.evolve(self._fitter, format=form.format).fit(messages, facts)


def _read_messages(request: Request, form: _Form) -> Sequence[Sent] | None:
    """Return the messages of a request; None if there are none, or a single text, as the Responses API allows."""
    messages: object = request.get(form.messages)
    # of the form's messages
    return cast("Sequence[Sent]", messages) if isinstance(messages, list) else None


def _find_budget(request: Request, name: str) -> ContextBudget | None:
    """Return the budget from what the deployment, or litellm, says of a model; None if promptkit is the one to know its window."""
    told = as_mapping(request.get("model_info")) or as_mapping(
        as_mapping(request.get("metadata")).get("model_info")
    )
    given = budget_from_limits(name, told)
    if given is not None or knows_window(name):
        return given
    return budget_from_limits(
        name,
        as_mapping(litellm.model_cost.get(name) or litellm.model_cost.get(name.partition("/")[2])),
    )


def _read_text(value: object) -> str | None:
    """Return the text of a system prompt beside the messages: a text, or Anthropic's blocks of text."""
    blocks = [as_mapping(block).get("text", "") for block in as_sequence(value)]
    return (value if isinstance(value, str) else "\n".join(map(str, blocks))) or None


def _read_tool(given: object) -> list[ToolDefinition]:
    """Return the definition of a tool, or of the format of a structured reply, in any of the three APIs.

    Providers' own tools have none.
    """
    if isinstance(given, type):  # a pydantic model as the format of the reply
        model = cast("Any", given)  # Any: a class
        return (
            [ToolDefinition(name=model.__name__, parameters=model.model_json_schema())]
            if hasattr(model, "model_json_schema")
            else []
        )
    definition = read_definition(given)
    return [] if definition is None else [definition]


def _rebuild(original: Sent, shortened: Mapping[str, Any]) -> dict[str, Any]:  # Any: JSON
    """Return a copy of a message with its shortened content, and the tool calls that are left."""
    return {
        **{
            name: value
            for name, value in (as_wire_object(original) or {}).items()
            if name != "tool_calls"
        },
        **shortened,
    }
