"""Run a job over many files, on one machine or many: replay them, make windows of them, or import them.

The output has a row for each conversation, as JSON lines or as Parquet. It does not depend on the
engine, the number of workers or the order of the work, and a run that was interrupted goes on where
it was.

* Run a job: `run_job`, `CorpusSummary`, `find_state`, with an engine of `promptkit.lab.engines`
* Jobs: `ReplayJob`, `FitJob`, `ImportJob`, and of your own: `CorpusJob`, `FileRows`
* Files: `list_inputs`, `find_root`, `is_pattern`
* Errors: `CorpusError`
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
