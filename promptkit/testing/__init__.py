"""What a project needs to test its prompts. Nothing is imported before it is used: the words of a test need no pytest.

The strategies stand in `promptkit.testing.strategies.strategies`, which needs hypothesis; the pytest plugin is found by pytest itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptkit.testing.assertions import assert_dropped, assert_fits, assert_kept, assert_stable_prefix
    from promptkit.testing.network_guard import NotLoopbackError, Refusal, loopback_only
    from promptkit.testing.scripted_model import NoStepLeftError, Request, ScriptedModel, StepsLeftError
    from promptkit.testing.snapshots.snapshot import MessagesSnapshot, PromptSnapshot, ReceiptSnapshot
    from promptkit.testing.word_tokenizer import WordTokenizer

__all__ = [
    "MessagesSnapshot",
    "NoStepLeftError",
    "NotLoopbackError",
    "PromptSnapshot",
    "ReceiptSnapshot",
    "Refusal",
    "Request",
    "ScriptedModel",
    "StepsLeftError",
    "WordTokenizer",
    "assert_dropped",
    "assert_fits",
    "assert_kept",
    "assert_stable_prefix",
    "loopback_only",
]

_LATER = {
    "MessagesSnapshot": "promptkit.testing.snapshots.snapshot",
    "NoStepLeftError": "promptkit.testing.scripted_model",
    "NotLoopbackError": "promptkit.testing.network_guard",
    "PromptSnapshot": "promptkit.testing.snapshots.snapshot",
    "ReceiptSnapshot": "promptkit.testing.snapshots.snapshot",
    "Refusal": "promptkit.testing.network_guard",
    "Request": "promptkit.testing.scripted_model",
    "ScriptedModel": "promptkit.testing.scripted_model",
    "StepsLeftError": "promptkit.testing.scripted_model",
    "WordTokenizer": "promptkit.testing.word_tokenizer",
    "assert_dropped": "promptkit.testing.assertions",
    "assert_fits": "promptkit.testing.assertions",
    "assert_kept": "promptkit.testing.assertions",
    "assert_stable_prefix": "promptkit.testing.assertions",
    "loopback_only": "promptkit.testing.network_guard",
}


def __getattr__(name: str) -> object:
    module = _LATER.get(name)
    if module is None:
        message = f"module 'promptkit.testing' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(module), name)
    globals()[name] = value  # the next look-up finds it
    return value


def __dir__() -> list[str]:
    return __all__
