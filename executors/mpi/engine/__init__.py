"""The engine that runs one rank's program: memory of the loop, shared memory, threads."""
