from .baseline import (
    BaselineMismatchError as BaselineMismatchError,
    Change as Change,
    Comparison as Comparison,
    compare as compare,
    format_comparison as format_comparison,
)
from .budget_ranges import (
    InvalidBudgetsError as InvalidBudgetsError,
    parse_budgets as parse_budgets,
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
from .sweep import measure as measure

__all__: list[str]
