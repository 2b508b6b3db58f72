"""Decisions between plans and native MPI for the calls of a program, and statistics of calls."""
