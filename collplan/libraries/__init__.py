"""Algorithms of MPI libraries beside ours, and the rules by which libraries choose them."""
