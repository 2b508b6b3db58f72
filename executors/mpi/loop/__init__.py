"""The compiled engine: a rank's program as flat arrays, run by one compiled call.

Nothing here needs a compiler on the user's machine: numba compiles the loop, and
the loop calls MPI through the addresses of its functions.
"""
