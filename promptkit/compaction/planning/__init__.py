"""Plans of compactions: which messages a summary replaces, and which ones stay."""
