"""Compare promptkit with other libraries that fit a prompt into a token budget, on one workload.

Run from a checkout; not packaged.
"""
