"""The program of one rank as flat arrays of tasks, extents and datatypes."""
