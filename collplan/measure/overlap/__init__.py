"""Overlap of collectives with computation: model, simulation and measurement.

References
----------
Denis, Jaeger, Jeannot, Pérache, Taboada: Study on progress threads placement and
dedicated cores for overlapping MPI nonblocking collectives on manycore processor,
International Journal of High Performance Computing Applications 33 (6), 2019,
section 7.
"""
