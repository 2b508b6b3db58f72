"""Compile, prove and price plans of all kinds, with kernels in Python or as machine code.

Started by `test_interpreted` as a process of its own:

    python interpreting.py python|compiled N_RANDOM_PLANS

Prints digests of plans and timelines, then the kernels that could not be interpreted, and
those that were not called.
"""

from __future__ import annotations

import hashlib
import random
import sys
from dataclasses import fields
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np

from collplan.planner.machine_code import interpreted
from collplan.planner.machine_code.interpreted import Interpreted
from collplan.planner.machine_code.kernel import Kernel
from folders import EXAMPLES

MOST_RANKS = 32
"""Plans of examples with more ranks take minutes in Python."""

called: set[str] = set()
refused: set[str] = set()


def name_of(kernel: Any) -> str:
    return f"{kernel.py_func.__module__}.{kernel.py_func.__name__}"


def interpret(kernel: Any, *arguments: Any) -> Any:
    """Call a kernel in Python, however long it takes, if it can be."""
    called.add(name_of(kernel))
    try:
        return Interpreted(kernel.py_func)(*arguments)
    except ArithmeticError:
        refused.add(name_of(kernel))
    return kernel.call_compiled(*arguments)


def digest(value: Any) -> str:
    """Return a digest of all arrays of a dataclass, with their types."""
    sha = hashlib.sha256()
    for field in fields(value):
        column = getattr(value, field.name)
        for array in column if isinstance(column, tuple) else (column,):
            if isinstance(array, np.ndarray):
                sha.update(f"{field.name} {array.dtype} {array.shape}".encode())
                sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()[:16]


def kernels() -> set[str]:
    """Return the names of all kernels that may be interpreted."""
    found = set()
    for package in ("collplan.planner", "collplan.executors.cost"):
        root = import_module(package)
        for module in walk_packages(root.__path__, package + "."):
            for value in vars(import_module(module.name)).values():
                if isinstance(value, Kernel) and not value.is_inner:
                    found.add(name_of(value))
    return found


def main() -> None:
    """Print digests of examples and random plans."""
    how, n_random = sys.argv[1], int(sys.argv[2])
    if how == "python":
        Kernel.__call__ = interpret  # type: ignore[method-assign]
    else:
        interpreted.SHARE = 0  # type: ignore[misc]
    from collplan import compile, load_spec, simulate, verify
    from strategies import random_plan

    examples = EXAMPLES
    specs = {path.name: load_spec(path) for path in sorted(examples.glob("*.yaml"))}
    small = {name: spec for name, spec in specs.items() if spec.machine.n_ranks <= MOST_RANKS}
    plans = {name: compile(spec) for name, spec in small.items()}
    plans |= {f"random {i}": random_plan(random.Random(i)) for i in range(n_random)}
    for name, plan in plans.items():
        verify(plan)
        timeline = simulate(plan)
        print(name, plan.n_tasks, digest(plan), digest(timeline), repr(timeline.makespan_s))
    print("refused:", *sorted(refused))
    print("not called:", *sorted(kernels() - called))


if __name__ == "__main__":
    main()
