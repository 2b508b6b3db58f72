"""Two files with kernels, of which one calls the other's, and a program that uses them."""

from __future__ import annotations

from pathlib import Path

USE = """
import sys
from collplan.planner.machine_code.object_files import ObjectFile
sys.path.insert(0, sys.argv[1])
from outer_kernel import twice
from inner_kernel import scaled
made, keep = [], ObjectFile._keep
ObjectFile._keep = lambda file, code: (made.append(file.symbol), keep(file, code))
twice(10)
scaled(10)
print(len(made))
"""


def write_kernels(folder: Path, factor: int) -> None:
    """Write `inner_kernel.py`, which multiplies, and `outer_kernel.py`, which calls it twice."""
    (folder / "inner_kernel.py").write_text(
        "from collplan.planner.machine_code.kernel import compile_at_once\n\n@compile_at_once()\n"
        f"def scaled(x):\n    return {factor} * x\n"
    )
    (folder / "outer_kernel.py").write_text(
        "from collplan.planner.machine_code.kernel import compile_at_once\n"
        "from inner_kernel import scaled\n\n"
        "@compile_at_once()\n"
        "def twice(x):\n    return scaled(x) + scaled(x)\n"
    )
