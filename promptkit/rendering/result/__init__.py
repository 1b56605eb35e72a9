"""Build the messages of a pruned tree, with the records of what was removed."""
