"""Tuning: measure candidates on the current machine, and write a table of the fastest.

`candidates` lists the variants whose predicted time is near the best, `trial` measures
them, `racing` decides when their medians are known well enough, `journal` records
finished points so that an interrupted run can continue, and `tuner` runs through all
collectives, numbers of ranks and message sizes. `table` defines the tuning table, and
`sweep` the measurements of one collective at all message sizes.

References
----------
Hartmann, Kühnemann, Rauber, Rünger, "A decomposition approach for optimizing
the performance of MPI libraries", 2006; this package is its configuration phase.
"""
