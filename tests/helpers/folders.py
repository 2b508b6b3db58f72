"""Folders that tests read from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HELPERS: Final = ROOT / "tests" / "helpers"
PROGRAMS: Final = HELPERS / "mpi_programs"
EXAMPLES: Final = ROOT / "examples"
BENCHMARKS: Final = ROOT / "benchmarks"
TABLE_FILE: Final = ROOT / "tests" / "collplan" / "tables" / "example.yaml"
"""A tuning table."""
