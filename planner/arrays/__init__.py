"""Functions of arrays that do not depend on plans, and the types of the arrays.

The types are imported on first use, so that modules which only ask for machine code need no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collplan.planner.arrays.types import Array as Array
    from collplan.planner.arrays.types import Bools as Bools
    from collplan.planner.arrays.types import Floats as Floats
    from collplan.planner.arrays.types import Ints as Ints
    from collplan.planner.arrays.types import Longs as Longs

__all__ = ["Array", "Bools", "Floats", "Ints", "Longs"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.types"), name)
