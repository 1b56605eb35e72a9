"""Print results, progress and errors for terminals, files and machines."""
