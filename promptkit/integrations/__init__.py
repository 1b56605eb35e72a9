"""Adapters for other frameworks, one module each.

A module imports its framework; nothing else of promptkit does.
"""
