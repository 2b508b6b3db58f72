"""Tuning tables: the fastest plan for each collective, number of ranks and message size.

`table` defines the tuning table, `sweep` the measurements of one collective at all message sizes,
and `fingerprint` the machine and the software of a table.
"""
