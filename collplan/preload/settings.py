"""Environment variables between `collplan exec`, the preloaded library and its helper."""

from __future__ import annotations

from typing import Final

TABLE: Final = "COLLPLAN_TABLE"
"""The table's file."""
FORCE: Final = "COLLPLAN_PRELOAD_FORCE"
"""Is 1 where a table that was tuned elsewhere is used, too."""
NATIVE: Final = "COLLPLAN_NATIVE_CALLS"
"""Equal calls that run natively before a plan is made."""
PYTHON: Final = "COLLPLAN_PRELOAD_PYTHON"
HELPER: Final = "COLLPLAN_PRELOAD_HELPER"
"""The interpreter, and the script of the helper process that it runs."""
LIBRARY: Final = "COLLPLAN_PRELOAD_MPI"
"""The MPI library that mpi4py loads."""
BEFORE: Final = "COLLPLAN_PRELOAD_BEFORE"
"""The libraries that are preloaded without collplan."""
