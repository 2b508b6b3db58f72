"""The drop-in communicator; importing this package does not import mpi4py."""
