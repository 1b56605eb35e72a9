"""Jinja templates as elements: the `Template` element, its tags and its sandbox."""
