"""What a project needs to test its prompts. Nothing is imported before it is used: the words of a test need no pytest.

The strategies stand in `promptkit.testing.trees`, which needs hypothesis; the pytest plugin is found by pytest itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptkit.testing.asserts import assert_dropped, assert_fits, assert_kept, assert_stable_prefix
    from promptkit.testing.loopback import NotLoopbackError, Refusal, loopback_only
    from promptkit.testing.scripted import NoStepLeftError, Request, ScriptedModel, StepsLeftError
    from promptkit.testing.snapshot import MessagesSnapshot, PromptSnapshot, ReceiptSnapshot
    from promptkit.testing.words import WordTokenizer

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
    "MessagesSnapshot": "promptkit.testing.snapshot",
    "NoStepLeftError": "promptkit.testing.scripted",
    "NotLoopbackError": "promptkit.testing.loopback",
    "PromptSnapshot": "promptkit.testing.snapshot",
    "ReceiptSnapshot": "promptkit.testing.snapshot",
    "Refusal": "promptkit.testing.loopback",
    "Request": "promptkit.testing.scripted",
    "ScriptedModel": "promptkit.testing.scripted",
    "StepsLeftError": "promptkit.testing.scripted",
    "WordTokenizer": "promptkit.testing.words",
    "assert_dropped": "promptkit.testing.asserts",
    "assert_fits": "promptkit.testing.asserts",
    "assert_kept": "promptkit.testing.asserts",
    "assert_stable_prefix": "promptkit.testing.asserts",
    "loopback_only": "promptkit.testing.loopback",
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
