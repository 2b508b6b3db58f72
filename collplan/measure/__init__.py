"""Time plans, native calls and machines under MPI."""
