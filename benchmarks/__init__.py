"""What promptkit costs, measured against what tokenising alone costs.

Run from a checkout; not part of the package.
"""
