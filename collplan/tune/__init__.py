"""Tuning: measure candidates on the machine at hand, and write which is best where.

`variants` says what there is, `prediction` what of it the cost model keeps,
`contest` when enough has been measured, `trial` measures, `journal` remembers
what is done, and `tuner` leads through all points.

References
----------
Hartmann, Kühnemann, Rauber, Rünger, "A decomposition approach for optimizing
the performance of MPI libraries", 2006: the configuration phase.
"""
