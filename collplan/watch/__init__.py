"""Reports of ranks that hang: what each rank of a node does, in memory that a watcher reads."""
