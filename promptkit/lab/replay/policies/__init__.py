"""The policies that a replay can compare: promptkit's presets, and baselines after the rules of other libraries."""
