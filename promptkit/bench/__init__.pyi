from .plot import PlotError as PlotError, check_drawable as check_drawable, draw_run as draw_run
from .results import (
    BaselineMismatchError as BaselineMismatchError,
    Change as Change,
    Comparison as Comparison,
    Element as Element,
    Point as Point,
    Run as Run,
    Sweep as Sweep,
    UnreadableRunError as UnreadableRunError,
    Versions as Versions,
    check_comparable as check_comparable,
    compare as compare,
    format_comparison as format_comparison,
    read_run as read_run,
    run_to_json as run_to_json,
)
from .sweep import (
    InvalidBudgetsError as InvalidBudgetsError,
    measure as measure,
    parse_budgets as parse_budgets,
)

__all__: list[str]
