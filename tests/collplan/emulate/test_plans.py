"""Decomposed plans on emulated clusters: right under both MPIs, and lanes carry what they say."""

from __future__ import annotations

import json

import pytest

from emulating import need_emulation, run_program
from mpi_launching import MPIS

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("emulation")]
CLUSTERS = [("2", "3"), ("3", "2")]
ACKNOWLEDGED = 0.04
"""Largest share of the payload that comes back as acknowledgements."""
HEADERS = 0.055
"""Largest share of headers beside the payload."""
CONTROL_BYTES = 40_000
"""Barriers, and the launcher on lane 0."""


@pytest.fixture(scope="module")
def emulation() -> None:
    need_emulation()


@pytest.mark.parametrize(
    ("mpi", "nodes", "per_node"),
    [(mpi, *cluster) for mpi, cluster in zip(MPIS, CLUSTERS, strict=True)],
)
def test_plans_are_right_and_lanes_carry_what_they_say(mpi: str, nodes: str, per_node: str) -> None:
    options = ("--nodes", nodes, "--per-node", per_node, "--lanes", "2", "--rate", "400Mbit")
    done = run_program(mpi, "emulated_plans.py", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    passed, traffic = done.stdout.strip().splitlines()[-2:]
    assert passed.startswith("passed ")
    # Ten collectives in six forms, a quarter here; some refuse operations that do not commute.
    assert int(passed.split()[1]) >= 12
    for plan in json.loads(traffic):
        carried = 0
        for node in plan["nodes"]:
            for planned, counted in zip(node["planned"], node["counted"], strict=True):
                for way in (0, 1):
                    carried += planned[way]
                    most = planned[way] * (1 + HEADERS) + planned[1 - way] * ACKNOWLEDGED
                    assert planned[way] <= counted[way] <= most + CONTROL_BYTES, (plan, way)
        assert carried > 10 * CONTROL_BYTES, plan


@pytest.mark.parametrize("end", ["", "finalize"])
def test_memory_that_nobody_freed_keeps_nobody_from_ending(end: str) -> None:
    """MPICH aborts in its Finalize where windows are left on a network."""
    options = ("--nodes", "2", "--per-node", "2")
    done = run_program("mpich", "unfreed.py", *options, arguments=("2", end))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 4, done.stdout
