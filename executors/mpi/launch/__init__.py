"""Launching of ranks: finding mpiexec, jobs that leave nothing behind, what is installed."""
