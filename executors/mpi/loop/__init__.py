"""The compiled loop: sends, receives, copies and reductions of one rank's program.

Nothing here needs a compiler on the user's machine: numba compiles the loop, and
the loop calls MPI through the addresses of its functions.
"""
