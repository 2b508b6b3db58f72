"""Tuning: measure candidates on the machine at hand, and write a table of the best.

`candidates` lists variants and drops those that the cost model finds far from the
best, `trial` measures, `racing` says when enough has been measured,
`journal` remembers what is done, and `tuner` leads through all points. `table` is
the table of results, and `sweep` what was measured at all sizes.

References
----------
Hartmann, Kühnemann, Rauber, Rünger, "A decomposition approach for optimizing
the performance of MPI libraries", 2006: the configuration phase.
"""
