"""Render a tree of elements against a token budget.

* `render`, `render_async`, `Renderer`: render once, or many times with a cache
* `Rendered`, `Removal`, `SourceSpan`: the result, with what was removed and which element wrote
  which text
* `to_json`, `from_json`: trees as JSON, to send them to other processes
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
