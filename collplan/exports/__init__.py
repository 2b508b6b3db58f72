"""Tuning tables in the forms that MPI libraries read themselves."""
