from .prune.removals import Removal as Removal
from .renderer import Renderer as Renderer, render as render, render_async as render_async
from .result.rendered import Rendered as Rendered
from .serialize import from_json as from_json, to_json as to_json
from .subtree import SourceSpan as SourceSpan

__all__: list[str]
