"""Run one rank's program: its flat arrays, the engines over them, memory of a node, threads."""
