"""Tuning tables in the file formats of MPI libraries."""
