"""The command line. `promptkit.cli.main` is the console script; click and rich are imported only when it runs."""
