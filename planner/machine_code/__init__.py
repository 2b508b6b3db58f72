"""Kernels: Python functions of arrays, of which numba makes machine code that needs no numba."""
