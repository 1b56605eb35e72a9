"""Measure what a prompt uses, drops and costs in time at many budgets, and compare runs.

* Measure: `measure`, `parse_budgets`
* Results: `Run`, `Sweep`, `Point`, `Element`, `Versions`, and as files `run_to_json`, `read_run`
* Compare with a baseline: `compare`, `Comparison`, `Change`, `format_comparison`
* Draw: `draw_run`, with the extra `plot`
* Errors: `InvalidBudgetsError`, `BaselineMismatchError`, `UnreadableRunError`, `PlotError`
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
