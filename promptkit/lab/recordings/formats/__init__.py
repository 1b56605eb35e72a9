"""The formats of recordings, one file for each agent or provider."""
