"""What a provider would bill: tokens by kind, added up as whole numbers."""

from __future__ import annotations

import attrs

__all__ = ["Bill"]


@attrs.frozen(kw_only=True)
class Bill:
    """Tokens of one request, or of many together."""

    input_tokens: int = 0
    """All that was sent."""
    cached_tokens: int = 0
    """What the provider had of that in its cache."""
    written_tokens: int = 0
    """What it read of that anew and put into its cache."""
    output_tokens: int = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            written_tokens=self.written_tokens + other.written_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )
