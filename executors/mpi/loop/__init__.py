"""The compiled loop: sends, receives, copies and reductions of one rank's program.

The user's machine needs no C compiler. Numba compiles the loop, which calls MPI through the
addresses of its functions.
"""
