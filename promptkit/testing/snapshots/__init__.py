"""The pytest plugin and the fixtures for snapshots of prompts, on top of syrupy."""
