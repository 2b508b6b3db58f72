"""Two files with kernels, of which one calls the other's, and a program that uses them."""

from __future__ import annotations

from pathlib import Path

USE = """
import sys
sys.path.insert(0, sys.argv[1])
from outer_kernel import twice
from inner_kernel import scaled
twice(10)
print(sum(sum(kernel.stats.cache_misses.values()) for kernel in (twice, scaled)))
"""


def write_kernels(folder: Path, factor: int) -> None:
    """Write `inner_kernel.py`, which multiplies, and `outer_kernel.py`, which calls it twice."""
    (folder / "inner_kernel.py").write_text(
        "from collplan.planner.arrays.machine_code import compile_at_once\n\n@compile_at_once()\n"
        f"def scaled(x):\n    return {factor} * x\n"
    )
    (folder / "outer_kernel.py").write_text(
        "from collplan.planner.arrays.machine_code import compile_at_once\n"
        "from inner_kernel import scaled\n\n"
        "@compile_at_once()\n"
        "def twice(x):\n    return scaled(x) + scaled(x)\n"
    )
