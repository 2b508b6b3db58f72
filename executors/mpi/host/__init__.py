"""The host: processors, pinning, and the processes behind a communicator's ranks."""
