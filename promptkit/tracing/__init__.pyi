from .page import trace_to_html as trace_to_html
from .trace import (
    Trace as Trace,
    TraceCall as TraceCall,
    TraceFlexGroup as TraceFlexGroup,
    TraceItem as TraceItem,
    TraceRemoval as TraceRemoval,
    TraceShare as TraceShare,
    TraceTiming as TraceTiming,
)

__all__: list[str]
