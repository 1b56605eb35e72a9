"""The command line.

The console script is `promptkit.__main__:main`; click and rich are imported only when it runs.
"""
