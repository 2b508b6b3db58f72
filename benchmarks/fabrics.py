"""Schedules that are packed into links, beside the bound and all other algorithms.

Messages take time only on links: latencies, overheads, copies and reductions take none.

python benchmarks/fabrics.py [--large] [--json] [--page]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.decompose import every_shape
from collplan.planner.errors import AlgorithmError
from collplan.planner.packing.bounds import cut_bound
from collplan.planner.packing.schedule import KINDS, Demand, pack
from collplan.specs import Machine, PlanSpec

PAGE: Final = Path(__file__).parents[1] / "docs" / "networks.md"
BEGIN: Final = "<!-- fabrics: python benchmarks/fabrics.py --page -->"
END: Final = "<!-- end of fabrics -->"
BLOCK: Final = 1 << 20
"""Bytes of a block; vectors have 64 of them."""
FREE: Final = {"L_ns": 0, "o_ns": 0, "g_ns": 0, "G_ns_per_byte": 0}
