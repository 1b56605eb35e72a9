from .files import (
    CorpusError as CorpusError,
    find_root as find_root,
    is_pattern as is_pattern,
    list_inputs as list_inputs,
)
from .jobs import (
    CorpusJob as CorpusJob,
    FileRows as FileRows,
    FitJob as FitJob,
    ImportJob as ImportJob,
    ReplayJob as ReplayJob,
)
from .run import CorpusSummary as CorpusSummary, find_state as find_state, run_job as run_job

__all__: list[str]
