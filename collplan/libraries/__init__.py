"""Algorithms of MPI libraries with their collplan counterparts, and their selection rules."""
