"""The drop-in communicator; importing this package does not import mpi4py."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collplan.dropin.communicators import Comm

__all__ = ["Comm"]


def __getattr__(name: str) -> Any:
    if name != "Comm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.communicators").Comm
