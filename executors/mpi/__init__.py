"""Execute plans under MPI; importing this package does not import mpi4py."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
    from collplan.executors.mpi.world import join_world

_HOMES: Final = {
    "BoundPlan": "binding.bound_plan",
    "bind": "binding.bound_plan",
    "join_world": "world",
}

__all__ = ["BoundPlan", "bind", "join_world"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
