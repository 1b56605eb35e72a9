"""What a render came to, as JSON for machines."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from promptkit import Rendered

__all__ = ["as_json", "write_json"]


def as_json(rendered: Rendered) -> dict[str, object]:
    """Tokens, budget, exactness, the messages in the form of OpenAI's chat endpoint, and the removals in the order in which they were made.

    A priority is null where the element has none, which is as high as can be.
    """
    return {
        "tokens": rendered.tokens,
        "budget": rendered.budget,
        "exact": rendered.exact,
        "messages": rendered.to_openai(),
        "removals": [
            {
                "order": removal.order,
                "path": removal.path,
                "priority": removal.priority if math.isfinite(removal.priority) else None,
                "tokens": removal.tokens,
                "reason": removal.reason,
                "partner": removal.partner,
            }
            for removal in rendered.removals
        ],
    }


def write_json(value: object) -> None:
    """Print a value as JSON, in ASCII: a prompt may hold what an encoding cannot write."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))
