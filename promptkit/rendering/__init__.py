"""Render a tree of elements against a token budget.

* `render`, `render_async`, `Renderer`: render once, or keep counts between renders
* `Rendered`, `Removal`, `SourceSpan`: the result and its receipt
* `to_json`, `to_json_async`, `from_json`: trees that travel between processes
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
