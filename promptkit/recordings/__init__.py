"""Recordings of other agents, read into entries of our own, one file for each format; and the way out, to what providers take."""
