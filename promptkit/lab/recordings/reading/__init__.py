"""How recordings are read, whatever their format: JSON, messages of providers, conversations."""
