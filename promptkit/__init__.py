"""The layout engine for a model's context window: prompts are trees of prioritized elements, rendered against a token budget.

This is the everyday path. More names are in the namespaces `promptkit.elements`, `rendering`,
`fitting`, `tokens`, `providers`, `transcript`, `compaction`, `agent`, `lab.recordings`,
`lab.replay`, `bench`, `testing` and `errors`. A name is imported when it is first used, so that
`import promptkit` is fast.
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
