"""Decide what is removed, in which order, and count what stays."""
