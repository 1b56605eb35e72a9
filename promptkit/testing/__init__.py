"""Test prompts: assertions, a scripted model, a word tokenizer, the types of the snapshot fixtures and the network guard.

`StoreContract` has the tests that every store of transcripts must pass.

Each name is imported when it is first used. `promptkit.testing.strategies` needs hypothesis,
`promptkit.testing.server` is a fake OpenAI server, and pytest finds the plugin with the fixtures by
itself.
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
