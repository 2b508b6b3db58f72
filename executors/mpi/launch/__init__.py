"""Start ranks: the right mpiexec, jobs that leave nothing behind, what is installed."""
