"""Environment variables that `collplan exec`, the preloaded library and its helper share."""

from __future__ import annotations

from typing import Final

TABLE: Final = "COLLPLAN_TABLE"
"""Path of the tuning table."""
FORCE: Final = "COLLPLAN_PRELOAD_FORCE"
"""1 to use a table that was tuned on another machine or with other software."""
PYTHON: Final = "COLLPLAN_PRELOAD_PYTHON"
HELPER: Final = "COLLPLAN_PRELOAD_HELPER"
"""Python interpreter, and the script of the helper process that it runs."""
LIBRARY: Final = "COLLPLAN_PRELOAD_MPI"
"""Path of the MPI library that mpi4py loads."""
THREADS: Final = "COLLPLAN_PRELOAD_THREADS"
"""1 if MPI must let several threads call it at a time, for plans of non-blocking calls."""
HANG_AFTER: Final = "COLLPLAN_HANG_AFTER"
"""Time in seconds after which a call that does not complete is reported; 0 for never."""
CHECK: Final = "COLLPLAN_CHECK"
"""1 if calls of ranks that differ are reported at once."""
BEFORE: Final = "COLLPLAN_PRELOAD_BEFORE"
"""Value of ``LD_PRELOAD`` without the library of collplan."""
CORES: Final = "COLLPLAN_PRELOAD_CORES"
"""Processor of each core of a node, separated by commas; unset if ranks are not bound."""
