"""The engine of one rank's program: memory for the loop, shared memory of a node, threads."""
