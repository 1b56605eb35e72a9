"""Recordings of other agents: reading them into transcript entries, one file for each format, and exporting to providers' formats."""
