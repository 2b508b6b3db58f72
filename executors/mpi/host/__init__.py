"""The host: its topology, binding to processors, and the processes of ranks."""
