from .baseline import (
    BaselineMismatchError as BaselineMismatchError,
    Change as Change,
    Comparison as Comparison,
    compare as compare,
    format_comparison as format_comparison,
)
from .plot import PlotError as PlotError, draw_run as draw_run
from .results import (
    Element as Element,
    Point as Point,
    Run as Run,
    Sweep as Sweep,
    UnreadableRunError as UnreadableRunError,
    Versions as Versions,
    read_run as read_run,
    run_to_json as run_to_json,
)
from .sweep import (
    InvalidBudgetsError as InvalidBudgetsError,
    measure as measure,
    parse_budgets as parse_budgets,
)

__all__: list[str]
