from .files import (
    CorpusError as CorpusError,
    find_root as find_root,
    is_pattern as is_pattern,
    list_inputs as list_inputs,
)
from .run import (
    CorpusJob as CorpusJob,
    CorpusSummary as CorpusSummary,
    FileRows as FileRows,
    FitJob as FitJob,
    ImportJob as ImportJob,
    ReplayJob as ReplayJob,
    find_state as find_state,
    run_job as run_job,
)

__all__: list[str]
