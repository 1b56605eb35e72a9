"""summarizers."""
