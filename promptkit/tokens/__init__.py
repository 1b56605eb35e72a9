"""Counting tokens: tokenizers, budgets, and what is known about models.

* Budgets: `ContextBudget`, `parse_tokens`, `resolve_budget`
* Models: `ModelInfo`, `NamedModel`, `model_info`, `register_model`, `tokenizer_for`
* Tokenizers: `Tokenizer`, `Count`, `OpenAITokenizer`, `HeuristicTokenizer`
* Images: `ImageRule`, `PatchImages`, `TileImages`
* Whole requests, and truncated text: `count_request`, `truncate_text`
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptkit.tokens.budget import ContextBudget, parse_tokens, resolve_budget
    from promptkit.tokens.heuristic import HeuristicTokenizer
    from promptkit.tokens.images import ImageRule, PatchImages, TileImages
    from promptkit.tokens.models import ModelInfo, NamedModel, model_info, register_model, tokenizer_for
    from promptkit.tokens.openai_tokenizer import OpenAITokenizer
    from promptkit.tokens.request import count_request
    from promptkit.tokens.tokenizer import Count, Tokenizer
    from promptkit.tokens.truncation import truncate_text

__all__ = [
    "ContextBudget",
    "Count",
    "HeuristicTokenizer",
    "ImageRule",
    "ModelInfo",
    "NamedModel",
    "OpenAITokenizer",
    "PatchImages",
    "TileImages",
    "Tokenizer",
    "count_request",
    "model_info",
    "parse_tokens",
    "register_model",
    "resolve_budget",
    "tokenizer_for",
    "truncate_text",
]

_MODULES = {
    "budget": ("ContextBudget", "parse_tokens", "resolve_budget"),
    "heuristic": ("HeuristicTokenizer",),
    "images": ("ImageRule", "PatchImages", "TileImages"),
    "models": ("ModelInfo", "NamedModel", "model_info", "register_model", "tokenizer_for"),
    "openai_tokenizer": ("OpenAITokenizer",),
    "request": ("count_request",),
    "tokenizer": ("Count", "Tokenizer"),
    "truncation": ("truncate_text",),
}
_LAZY = {name: f"promptkit.tokens.{module}" for module, names in _MODULES.items() for name in names}
"""Names → their modules, which are loaded when a name is first used."""


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(module), name)
    globals()[name] = value  # the next lookup finds it without this function
    return value
