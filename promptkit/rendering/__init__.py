"""From a tree of elements to messages: expand → materialize → prune → assemble, one file a stage."""
