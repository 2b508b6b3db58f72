"""One rank's program as flat arrays: tasks, extents and datatypes."""
