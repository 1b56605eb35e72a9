"""The command line. The console script is `promptkit.cli.main:main`; click and rich are imported only when it runs."""
