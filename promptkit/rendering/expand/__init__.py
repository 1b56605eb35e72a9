"""Run components and build the tree that is pruned."""
