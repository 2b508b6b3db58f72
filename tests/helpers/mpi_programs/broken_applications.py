"""The applications of examples/, each with a mistake put in: all must notice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from folders import EXAMPLES

sys.path.insert(0, str(EXAMPLES))
import fft3d
import jacobi
import pab
import spmv


def main() -> None:
    """Put one mistake into each, and see exit status 1 on every rank."""
    jacobi.Jacobi.allgather = after(jacobi.Jacobi.allgather, shift_first)
    pab.weights = after(pab.weights, lambda matrix: matrix * 1.001)
    fft3d.Transform.transpose = after(fft3d.Transform.transpose, np.conj)
    spmv.Matrix.product = after(spmv.Matrix.product, shift_first)
    for program in (jacobi, pab, fft3d, spmv):
        sys.argv = [program.__name__, "--json"]
        status = program.main()
        assert status == 1, f"rank {MPI.COMM_WORLD.rank}: {program.__name__} ended with {status}"
    if MPI.COMM_WORLD.rank == 0:
        print("passed")


def shift_first(x: Any) -> Any:
    """Change an unknown by a little."""
    x[0] += 1e-4
    return x


def after(function: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the function with its result changed."""
    return lambda *arguments, **named: change(function(*arguments, **named))


if __name__ == "__main__":
    main()
