"""Execute plans under MPI; importing this package does not import mpi4py."""
