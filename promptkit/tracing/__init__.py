"""Traces: the record of a render, and the HTML page that shows it.

`render(prompt, trace=True)` records a `Trace` in `rendered.trace`; `trace_to_html` writes the page.
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
